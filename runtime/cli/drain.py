"""`conveyor drain`: deliver everything that a store holds, without the producer's code (N-HUB-09)."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer

from ..app import Conveyor
from ..exit_codes import ExitCode
from ..status import Status
from .opening import opened
from .options import (
    EndpointOption,
    JsonOption,
    LocalHubOption,
    SetOption,
    SettingsFileOption,
    StoreOption,
    WithinOption,
    check_named_store,
    load_settings,
)
from .output import Output
from .running import StopRequest, run_command, set_up_logging, until_stopped
from .waiting import final_code, say_left, say_parked, waiting_lines, watch


def drain(
    store: StoreOption = None,
    endpoint: EndpointOption = None,
    settings_file: SettingsFileOption = None,
    named: SetOption = None,
    local_hub: LocalHubOption = None,
    within_s: WithinOption = None,
    retry_parked: Annotated[
        bool, typer.Option("--retry-parked", help="Try files that were set aside for good once more")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Deliver everything that waits in the store, then exit.

    What is paused or backs off is tried at once; spacing and budget hold. A repository that another process delivers to
    is waited for.
    """
    settings = load_settings(settings_file, store=store, endpoint=endpoint, named=named)
    set_up_logging(settings, is_quiet=as_json)

    async def command(stop: StopRequest) -> ExitCode:
        with Output(as_json=as_json) as output:
            check_named_store(settings)
            if not settings.store_path.exists():
                output.record({"type": "drain", "delivered": 0, "waiting": 0, "parked": 0, "exit": 0})
                output.say(f"Nothing to do: there is no store at {settings.store_path}.")
                return ExitCode.DELIVERED
            async with opened(settings, local_hub) as conveyor:
                before = await conveyor.status()
                if before.waiting or (retry_parked and before.parked):
                    async with until_stopped(stop):
                        await conveyor.resume(retry_parked=retry_parked)
                        await _drain_watched(conveyor, output, before.waiting, within_s)
                await conveyor.aclose()
                status = conveyor.final_status
            return _say(output, before, status, stop)

    return run_command(command)


async def _drain_watched(conveyor: Conveyor, output: Output, waiting: int, within_s: float | None) -> None:
    """Drain a runtime, showing how far it is; ends early when everything that waits needs a person."""
    async with anyio.create_task_group() as tasks:

        async def watch_it() -> None:
            await watch(conveyor, output, waiting)
            tasks.cancel_scope.cancel("everything that waits needs a person")

        tasks.start_soon(watch_it)
        await conveyor.drain(within_s=within_s)
        tasks.cancel_scope.cancel("drained")


def _say(output: Output, before: Status, status: Status, stop: StopRequest) -> ExitCode:
    code = final_code(status, stop)
    delivered = status.delivered + status.superseded - before.delivered - before.superseded
    output.record(
        {
            "type": "drain",
            "delivered": delivered,
            "waiting": status.waiting,
            "parked": status.parked,
            "exit": code.value,
        }
    )
    if not before.waiting and not delivered:
        output.say("Nothing to do: nothing waits in this store.")
    else:
        output.say(f"Delivered {delivered}, left over {status.waiting}.")
    say_left(output, waiting_lines(status))
    say_parked(output, status)
    return code


__all__ = ["drain"]
