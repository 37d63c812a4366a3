"""Waiting for deliveries: what is shown meanwhile, when waiting is pointless, and what the end means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio

from ..app import Conveyor
from ..exit_codes import ExitCode
from ..status import RepositoryLine, Status
from .output import Output, amount, human_bytes, human_time
from .running import StopRequest

SHOW_EVERY_S: Final = 0.5

NO_CREDENTIAL: Final = "no token was found"
NEXT_STEP_FOR_NO_CREDENTIAL: Final = (
    "Next step: set HF_TOKEN or run `hf auth login`, then `conveyor drain`; everything handed over is kept."
)


async def watch(conveyor: Conveyor, output: Output, most: int, only: str | None = None) -> None:
    """Show how far the delivery is, until nothing that waits can go on without a person.

    Args:
        conveyor: the runtime.
        output: where to show it.
        most: how many items there were at the beginning.
        only: the one repository that matters; None for all.
    """
    while True:
        status = await conveyor.status()
        most = max(most, status.waiting)
        _show(output, status, most)
        waiting = waiting_lines(status, only)
        if waiting and (all(line.paused_reason is not None for line in waiting) or not await conveyor.has_credential()):
            return
        await anyio.sleep(SHOW_EVERY_S)


def waiting_lines(status: Status, only: str | None = None) -> list[RepositoryLine]:
    """The repositories with something undelivered, or that one alone."""
    return [line for line in status.repositories if line.is_waiting and only in (None, line.repository)]


def _show(output: Output, status: Status, most: int) -> None:
    waiting = waiting_lines(status)
    oldest_s = max((line.oldest_waiting_s for line in waiting if line.oldest_waiting_s is not None), default=None)
    next_s = min((line.next_commit_in_s for line in waiting), default=None)
    held = next((line for line in waiting if _is_held_by_another(line, status)), None)
    notes = [f"{human_bytes(status.waiting_bytes)} waiting"]
    if oldest_s is not None:
        notes.append(f"oldest {human_time(oldest_s)}")
    if held is not None and held.lease_ends_in_s is not None:
        notes.append(
            f"{held.repository} is held by process {held.lease_pid} on {held.lease_host} "
            f"for {human_time(held.lease_ends_in_s)} unless renewed"
        )
    elif next_s is not None:
        notes.append(f"next commit in {human_time(next_s)}" if next_s >= 1 else "committing")
    output.progress(
        "deliver",
        most - status.waiting,
        most,
        ", ".join(notes) if waiting else "",
        waiting=status.waiting,
        waiting_bytes=status.waiting_bytes,
        oldest_s=oldest_s,
        next_commit_in_s=next_s,
    )


def _is_held_by_another(line: RepositoryLine, status: Status) -> bool:
    return line.lease_pid is not None and (line.lease_pid, line.lease_host) != (status.pid, status.host)


def final_code(status: Status, stop: StopRequest, only: str | None = None) -> ExitCode:
    """The exit status for how things stand at the end, in the whole store or in one repository."""
    waiting = waiting_lines(status, only)
    parked = [line for line in status.parked_files if only in (None, line.repository)]
    code = ExitCode.of_work(
        left_over=len(waiting),
        parked=status.parked if only is None else len(parked),
        paused=sum(line.paused_reason is not None or _lacks_credential(line) for line in waiting),
    )
    return stop.code if stop.event.is_set() and code is ExitCode.LEFT_OVER else code


def _lacks_credential(line: RepositoryLine) -> bool:
    return line.last_error_code == "CREDENTIAL_MISSING"


def say_left(output: Output, lines: Sequence[RepositoryLine]) -> None:
    """Say what is not delivered, by repository, and what to do."""
    for line in lines:
        counts = [
            amount(number, noun)
            for number, noun in (
                (line.waiting_files + line.waiting_entries, "file"),
                (line.waiting_bundles, "bundle"),
            )
            if number
        ]
        what = (
            f"{' and '.join(counts) or 'a commit with unknown outcome'}, {human_bytes(line.waiting_bytes)}, left over"
        )
        if line.paused_reason is not None:
            output.say(f"{line.repository} is paused: {line.paused_reason}; {what}")
            output.say(f"  {_next_step(line)}")
        elif _lacks_credential(line):
            output.say(f"{line.repository}: {what}; {NO_CREDENTIAL}")
            output.say(f"  {NEXT_STEP_FOR_NO_CREDENTIAL}")
        else:
            code = f"; last trouble: {line.last_error_code}" if line.last_error_code else ""
            output.say(f"{line.repository}: {what}{code}. Next step: `conveyor drain` continues.")


def say_parked(output: Output, status: Status, only: str | None = None) -> None:
    """Name what was set aside, and what to do."""
    named = [line for line in status.parked_files if only in (None, line.repository)]
    more = status.parked - len(status.parked_files) if only is None else 0
    for line in named:
        output.say(f"parked: {line.repository} {line.path} ({line.error_code}): {line.reason}")
    if more:
        output.say(f"parked: {amount(more, 'more item')}, failed bundles among them")
    if named or more:
        output.say(
            "  Next step: hand the corrected files over again; `conveyor drain --retry-parked` tries them as they are."
        )


def _next_step(line: RepositoryLine) -> str:
    reason = line.paused_reason or ""
    if reason.startswith("HTTP 401"):
        step = "the token is wrong or has expired: set HF_TOKEN or run `hf auth login`"
    elif reason.startswith("HTTP 403"):
        step = f"the token may not write to {line.repository}: use one with that right"
    elif reason.startswith("HTTP 404"):
        step = f"there is no dataset repository {line.repository} that the token can see: check the name, or create it"
    else:
        step = "correct what the Hub says"
    return f"Next step: {step}; then `conveyor drain`."


__all__ = ["final_code", "say_left", "say_parked", "waiting_lines", "watch"]
