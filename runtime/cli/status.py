"""`conveyor status`: what a store holds, without starting a delivery."""

from __future__ import annotations

from ..adapters.assembly import read_status
from ..exit_codes import ExitCode
from ..status import Status
from .options import JsonOption, SetOption, SettingsFileOption, StoreOption, load_settings
from .output import Output, human_bytes, plain_table
from .running import StopRequest, run_command, set_up_logging
from .waiting import final_code, say_left


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
        found = await read_status(settings)
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
            "repository",
            "files",
            "bundles",
            "bytes",
            "oldest",
            "next commit",
            "commits/h",
            "left",
            "state",
        )
        for line in status.repositories:
            state = "paused" if line.paused_reason else line.last_error_code or "waiting"
            table.add_row(
                line.repository,
                str(line.waiting_files + line.waiting_entries),
                str(line.waiting_bundles),
                human_bytes(line.waiting_bytes),
                "" if line.oldest_waiting_s is None else f"{line.oldest_waiting_s:.0f} s",
                f"{line.next_commit_in_s:.0f} s",
                str(line.commits_last_hour),
                str(line.commits_left),
                state,
            )
        output.table(table)
    say_left(output, status)


__all__ = ["status"]
