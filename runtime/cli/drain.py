"""`conveyor drain`: deliver everything that a store holds, without the producer's code (N-HUB-09)."""

from __future__ import annotations

import anyio

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
    load_settings,
)
from .output import Output
from .running import StopRequest, run_command, set_up_logging, until_stopped
from .waiting import final_code, needs_person, say_left, show_waiting

SHOW_EVERY_S = 0.5


def drain(
    store: StoreOption = None,
    endpoint: EndpointOption = None,
    settings_file: SettingsFileOption = None,
    named: SetOption = None,
    local_hub: LocalHubOption = None,
    within_s: WithinOption = None,
    as_json: JsonOption = False,
) -> int:
    """Deliver everything that waits in the store, then exit. Spacing, budget and backoff hold."""
    settings = load_settings(settings_file, store=store, endpoint=endpoint, named=named)
    set_up_logging(settings, is_quiet=as_json)

    async def command(stop: StopRequest) -> ExitCode:
        with Output(as_json=as_json) as output:
            async with opened(settings, local_hub) as conveyor:
                before = await conveyor.status()
                if before.waiting:
                    async with until_stopped(stop):
                        await drain_watched(conveyor, output, before, within_s)
                await conveyor.aclose()
                status = conveyor.final_status
            return _say(output, before, status, stop)

    return run_command(command)


async def drain_watched(conveyor: Conveyor, output: Output, before: Status, within_s: float | None) -> None:
    """Drain a runtime, showing how far it is; ends early when everything that waits needs a person."""
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while True:
                status = await conveyor.status()
                show_waiting(output, status, max(before.waiting, status.waiting))
                if needs_person(status):
                    tasks.cancel_scope.cancel("everything that waits needs a person")
                await anyio.sleep(SHOW_EVERY_S)

        tasks.start_soon(watch)
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
    if not before.waiting:
        output.say("Nothing to do: nothing waits in this store.")
    else:
        output.say(f"Delivered {delivered}, left over {status.waiting}.")
    say_left(output, status)
    return code


__all__ = ["drain", "drain_watched"]
