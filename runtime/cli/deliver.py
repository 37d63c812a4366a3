"""`conveyor deliver`: hand over a file or a folder from the shell, and wait until it has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
import typer

from ...protocol.receipts import BundleReceipt, BundleStatus, RunFilesReceipt, RunFilesStatus
from ...protocol.requests import StageDatasetBundle
from ..app import Conveyor
from ..exit_codes import ExitCode
from ..status import Status
from ..tickets import BundleTicket, NotDelivered, RunFilesTicket
from .deliver_files import INVENTORIES, bundle_files, run_file_requests, tidy_inventory, with_inventory
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
from .output import Output, amount, tell
from .running import BadUse, StopRequest, run_command, set_up_logging, until_stopped
from .waiting import final_code, say_left, say_parked, waiting_lines, watch

Ticket = RunFilesTicket | BundleTicket


def deliver(
    path: Annotated[Path, typer.Argument(help="A file, or a folder with everything in it")],
    to: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The dataset repository")],
    run_id: Annotated[str, typer.Option("--run", metavar="ID", help="The run id; names the folder in the repository")],
    bundle: Annotated[
        bool, typer.Option("--bundle", help="As one bundle: verified, in one commit, never overwritten")
    ] = False,
    prefix: Annotated[str | None, typer.Option(help="The folder above the run's [default: runs, or staged]")] = None,
    role: Annotated[
        list[str] | None, typer.Option(metavar="NAME=ROLE", help="The role of a bundle's file; may be repeated")
    ] = None,
    message: Annotated[str | None, typer.Option(help="The title of a bundle's commit")] = None,
    pointer: Annotated[
        Path | None, typer.Option(help="A file that becomes latest_staging.json at the top level")
    ] = None,
    store: StoreOption = None,
    endpoint: EndpointOption = None,
    settings_file: SettingsFileOption = None,
    named: SetOption = None,
    local_hub: LocalHubOption = None,
    within_s: WithinOption = None,
    as_json: JsonOption = False,
) -> int:
    """Hand over a file or folder and wait until it has arrived.

    Once handed over it is durable: interrupted, `conveyor drain` finishes it.
    """
    settings = load_settings(settings_file, store=store, endpoint=endpoint, named=named)
    set_up_logging(settings, is_quiet=as_json)
    if bundle and pointer is not None:
        raise BadUse("--pointer belongs to run files; leave it out with --bundle")
    if not bundle and (role or message):
        raise BadUse("--role and --message belong to bundles; add --bundle, or leave them out")

    async def command(stop: StopRequest) -> ExitCode:
        with Output(as_json=as_json) as output:
            files = await anyio.to_thread.run_sync(bundle_files, path, role or []) if bundle else []
            requests = (
                []
                if bundle
                else await anyio.to_thread.run_sync(run_file_requests, path, to, run_id, prefix or "runs", pointer)
            )
            async with opened(settings, local_hub) as conveyor:
                tickets: list[Ticket] = []
                if bundle:
                    place = settings.store_path.parent / INVENTORIES
                    whole = await anyio.to_thread.run_sync(with_inventory, run_id, files, place)
                    request = StageDatasetBundle(
                        to, run_id, tuple(whole), prefix=prefix or "staged", commit_message=message
                    )
                    ticket = await conveyor.stage_dataset_bundle(request, within_s=600.0)
                    await tidy_inventory(request, ticket.receipt)
                    tickets.append(ticket)
                tickets += [await conveyor.stage_run_files(part, within_s=60.0) for part in requests]
                problem = _problem(output, tickets)
                if problem is not None:
                    return problem
                output.say(f"Handed over; {settings.store_path} holds it now. Waiting for its arrival in {to}.")
                failed: list[str] = []
                async with until_stopped(stop):
                    await conveyor.resume(to)
                    await _wait(conveyor, output, to, tickets, within_s, failed)
                await conveyor.aclose()
                receipts = [await ticket.read_receipt() for ticket in tickets]
                status = conveyor.final_status
            code = _code(receipts, status, stop, to)
            for receipt in receipts:
                output.record({"type": "receipt", **receipt.to_message()})
            output.record({"type": "deliver", "repository": to, "run_id": run_id, "exit": code.value})
            for text in failed:
                output.say(text)
            if code is ExitCode.DELIVERED:
                output.say(f"Arrived in {to}.")
            else:
                say_left(output, waiting_lines(status, to))
                say_parked(output, status, to)
            return code

    return run_command(command)


def _code(
    receipts: Sequence[RunFilesReceipt | BundleReceipt], status: Status, stop: StopRequest, repository: str
) -> ExitCode:
    """What this hand-over came to, whatever else the store holds."""
    parked = any(line.repository == repository for line in status.parked_files)
    if any(isinstance(receipt, BundleReceipt) and receipt.status is BundleStatus.FAILED for receipt in receipts):
        return ExitCode.PARKED
    if all(map(_has_arrived, receipts)):
        return ExitCode.PARKED if parked else ExitCode.DELIVERED
    return final_code(status, stop, repository)


def _has_arrived(receipt: RunFilesReceipt | BundleReceipt) -> bool:
    if isinstance(receipt, RunFilesReceipt):
        return not receipt.pending_files
    return receipt.status in (BundleStatus.UPLOADED, BundleStatus.ALREADY_STAGED)


def _problem(output: Output, tickets: list[Ticket]) -> ExitCode | None:
    """The exit status if anything was not taken; says why."""
    for number, ticket in enumerate(tickets):
        if ticket.is_durable:
            continue
        is_refused = ticket.receipt.status in (RunFilesStatus.REFUSED, BundleStatus.REFUSED)
        code = ExitCode.BAD_USE if is_refused else ExitCode.STORE_UNUSABLE
        text = f"not taken: {ticket.receipt.message}"
        if number:
            text += f" (before it {amount(number, 'part')} of {len(tickets)} were taken, and will be delivered)"
        output.record({"type": "receipt", **ticket.receipt.to_message()})
        output.record({"type": "error", "code": "NOT_TAKEN", "message": text, "exit": code.value})
        tell(f"conveyor: {text}")
        return code
    return None


async def _wait(
    conveyor: Conveyor, output: Output, to: str, tickets: list[Ticket], within_s: float | None, failed: list[str]
) -> None:
    """Wait for every ticket, showing how far it is; ends early when what waits needs a person."""

    async def watch_it() -> None:
        await watch(conveyor, output, 1, to)
        tasks.cancel_scope.cancel("everything that waits needs a person")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_it)
        with anyio.move_on_after(within_s):
            for ticket in tickets:
                try:
                    await ticket.wait_delivered()
                except NotDelivered as error:
                    failed.append(str(error))
        tasks.cancel_scope.cancel("it has arrived, or the time is over")


__all__ = ["deliver"]
