"""Waiting for deliveries: what is shown meanwhile, when waiting is pointless, and what the end means."""

from __future__ import annotations

from ..exit_codes import ExitCode
from ..status import Status
from .output import Output, human_bytes
from .running import StopRequest


def show_waiting(output: Output, status: Status, most: int) -> None:
    """Show how much waits, the oldest of it, and when the next commit may be made (N-CLI-04)."""
    ages = [line.oldest_waiting_s for line in status.repositories if line.oldest_waiting_s is not None]
    nexts = [
        line.next_commit_in_s
        for line in status.repositories
        if line.waiting_files or line.waiting_entries or line.waiting_bundles
    ]
    note = f"{human_bytes(status.waiting_bytes)} waiting"
    if ages:
        note += f", oldest {max(ages):.0f} s"
    if nexts:
        note += f", next commit in {min(nexts):.0f} s"
    output.progress(
        "deliver",
        most - status.waiting,
        most,
        note,
        waiting=status.waiting,
        waiting_bytes=status.waiting_bytes,
        oldest_s=max(ages, default=None),
        next_commit_in_s=min(nexts, default=None),
    )


def needs_person(status: Status) -> bool:
    """Whether everything that waits waits for a person, so that waiting on would not help."""
    waiting = [
        line for line in status.repositories if line.waiting_files or line.waiting_entries or line.waiting_bundles
    ]
    return bool(waiting) and all(line.paused_reason is not None for line in waiting)


def final_code(status: Status, stop: StopRequest) -> ExitCode:
    """The exit status for how things stand at the end."""
    code = ExitCode.of_work(left_over=status.waiting, parked=status.parked, paused=status.paused)
    return ExitCode.INTERRUPTED if stop.was_interrupted and code is ExitCode.LEFT_OVER else code


def say_left(output: Output, status: Status) -> None:
    """Say what is not delivered, by repository, and what to do."""
    for line in status.repositories:
        if line.paused_reason is not None:
            output.say(f"{line.repository} is paused: {line.paused_reason}")
            output.say("  Next step: correct its credential or rights; it goes on by itself, or with `conveyor drain`.")
        elif line.waiting_files or line.waiting_entries or line.waiting_bundles:
            code = f" ({line.last_error_code})" if line.last_error_code else ""
            output.say(
                f"{line.repository}: {line.waiting_files} files, {line.waiting_bundles} bundles, "
                f"{human_bytes(line.waiting_bytes)} left over{code}; `conveyor drain` continues."
            )


__all__ = ["final_code", "needs_person", "say_left", "show_waiting"]
