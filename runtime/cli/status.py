"""`conveyor status`: what a store holds, without starting a delivery."""

from __future__ import annotations

from ..adapters.assembly import read_stored_status
from ..exit_codes import ExitCode
from ..status import RepositoryLine, Status
from .options import JsonOption, SetOption, SettingsFileOption, StoreOption, load_settings
from .output import Output, human_bytes, human_time, plain_table
from .running import StopRequest, run_command, set_up_logging
from .waiting import final_code, say_left, say_parked, waiting_lines


def status(
    store: StoreOption = None,
    settings_file: SettingsFileOption = None,
    named: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show what waits, what was delivered, and what is paused. Starts no delivery and changes nothing."""
    settings = load_settings(settings_file, store=store, named=named)
    set_up_logging(settings, is_quiet=as_json)

    async def command(stop: StopRequest) -> ExitCode:
        output = Output(as_json=as_json)
        if not settings.store_path.exists():
            output.record({"type": "status", "version": 1, "state": "absent", "store": str(settings.store_path)})
            output.say(f"There is no store at {settings.store_path} yet: nothing was handed over.")
            return ExitCode.DELIVERED
        found = await read_stored_status(settings)
        output.record({"type": "status", **found.to_builtins()})
        _show(output, found)
        return final_code(found, stop)

    return run_command(command)


def _show(output: Output, status: Status) -> None:
    output.say(
        f"accepted {status.accepted} = delivered {status.delivered} + superseded {status.superseded} "
        f"+ parked {status.parked} + waiting {status.waiting} ({human_bytes(status.waiting_bytes)})"
    )
    if status.repositories:
        table = plain_table(
            f"{len(status.repositories)} of {status.known_repositories} repositories have open work",
            *("repository", "waiting", "size", "oldest", "next", "commits", "state"),
        )
        for line in status.repositories:
            table.add_row(*_row(line))
        output.table(table)
        output.say("  next: when spacing, budget and back-off allow a commit; commits: of the last hour + left now")
    for line in status.repositories:
        if line.lease_ends_in_s is not None:
            output.say(
                f"{line.repository} is held by process {line.lease_pid} on {line.lease_host} "
                f"since {human_time(line.lease_since_s or 0.0)}, for {human_time(line.lease_ends_in_s)} unless renewed"
            )
    say_left(output, waiting_lines(status))
    say_parked(output, status)


def _row(line: RepositoryLine) -> list[str]:
    counts = [
        f"{number} {noun}"
        for number, noun in (
            (line.waiting_files + line.waiting_entries, "f"),
            (line.waiting_bundles, "b"),
        )
        if number
    ]
    if line.paused_reason is not None:
        state = "paused"
    elif line.has_unknown_commit:
        state = "unknown"
    else:
        state = "failing" if line.failures_in_row else "waiting" if line.is_waiting else "idle"
    return [
        line.repository,
        " ".join(counts) or "0",
        human_bytes(line.waiting_bytes),
        "" if line.oldest_waiting_s is None else human_time(line.oldest_waiting_s),
        human_time(line.next_commit_in_s) if line.next_commit_in_s >= 1 else "now",
        f"{line.commits_last_hour} + {line.commits_left}",
        state,
    ]


__all__ = ["status"]
