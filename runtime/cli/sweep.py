"""`conveyor sweep`: the main job, on a local Hub or on the real one, verified to the last byte."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ..exit_codes import ExitCode
from ..settings import Settings
from ..sweep.plan import SweepPlan, sweep_repositories
from ..sweep.report import SweepReport
from ..sweep.run import Sweep, SweepProgress
from .options import EndpointOption, JsonOption, SetOption, SettingsFileOption, load_settings
from .output import Output, amount, human_bytes, plain_table
from .running import BadUse, StopRequest, run_command, set_up_logging, until_stopped


def sweep(
    jobs: Annotated[int, typer.Option(min=1, max=4096, help="Concurrent producers")] = 128,
    repositories: Annotated[int, typer.Option(min=1, max=1024, help="Repositories of the local Hub")] = 8,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Work here; must be empty or missing (default: conveyor-sweep/TIME)"),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Deliver to this repository of the real Hub instead")
    ] = None,
    rewrites: Annotated[int, typer.Option(min=1, help="How often each producer rewrites its files")] = 5,
    endpoint: EndpointOption = None,
    settings_file: SettingsFileOption = None,
    named: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run the main job: many producers hand over at once, everything is delivered, then read back and compared."""
    settings = load_settings(settings_file, endpoint=endpoint, named=named)
    set_up_logging(settings, is_quiet=as_json)
    place = _place(directory)
    plan = SweepPlan(
        jobs=jobs, repositories=(to,) if to else sweep_repositories(repositories), rewrites=rewrites, seed=0
    )
    job = Sweep(plan, settings, place, is_local=to is None)

    async def command(stop: StopRequest) -> ExitCode:
        reports: list[SweepReport] = []
        with Output(as_json=as_json) as output:
            _show_title(output, plan, job)
            async with until_stopped(stop):
                reports.append(await job.run(lambda progress: _show_progress(output, plan, progress)))
        if not reports:
            output.say(f"Stopped. What was handed over is kept; {_continue_with(job)}")
            return stop.code
        report = reports[0]
        output.record(report)
        _show_report(output, report, settings)
        if report.verified:
            return ExitCode.DELIVERED
        if report.left_over:
            output.say(f"Not all was delivered; {_continue_with(job)}")
            return ExitCode.LEFT_OVER
        return ExitCode.NOT_VERIFIED

    return run_command(command)


def _show_title(output: Output, plan: SweepPlan, job: Sweep) -> None:
    where = amount(len(plan.repositories), "repository", "repositories") + (" of a local Hub" if job.is_local else "")
    output.say(f"Sweep: {amount(plan.jobs, 'job')} delivering to {where}")
    output.say(
        f"  each hands {amount(plan.files, 'file')} over {plan.rewrites} times, rewriting them, "
        f"then a bundle with {human_bytes(plan.bundle_bytes)}"
    )
    output.say(f"  everything is in {job.directory}")
    output.say(f"  interrupted, {_continue_with(job)}")


def _place(directory: Path | None) -> Path:
    if directory is None:
        return Path.cwd() / "conveyor-sweep" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    place = directory.absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BadUse(f"--directory {place} is not empty; a sweep needs a directory of its own: name a new one")
    return place


def _continue_with(job: Sweep) -> str:
    local = f" --local-hub {job.hub_root}" if job.is_local else ""
    return f"continue with: conveyor drain --store {job.store_path}{local}"


def _show_progress(output: Output, plan: SweepPlan, progress: SweepProgress) -> None:
    tally = progress.tally
    if progress.stage == "verify":
        total = sum(map(len, tally.expected.values()))
        output.progress("verify", progress.verified_files, total, "files read back")
        return
    output.progress("produce", tally.hand_overs, plan.jobs * (plan.rewrites + 1), "hand-overs")
    if progress.status is not None and progress.stage == "deliver":
        status = progress.status
        done = status.delivered + status.superseded
        output.progress("deliver", done, status.accepted, f"{status.waiting} waiting")


def _show_report(output: Output, report: SweepReport, settings: Settings) -> None:
    if report.repositories:
        columns = ("repository", "commits", "closest two", "landed twice")
        commits = plain_table("Commits, from the local Hub's log", *columns)
        for row in report.repositories:
            gap = "" if row.shortest_gap_s is None else f"{row.shortest_gap_s:.1f} s"
            commits.add_row(row.repository, str(row.commits), gap, str(row.landed_twice))
        output.table(commits)
    table = plain_table("Sweep", "figure", "value")
    made = [row.commits for row in report.repositories]
    latencies = " / ".join(f"{seconds * 1000:.0f} ms" for seconds in (report.p50_s, report.p95_s, report.max_s))
    again = f", {report.unavailable} of them made again" if report.unavailable else ""
    rows = [
        ("jobs", str(report.jobs)),
        ("hand-overs", f"{report.hand_overs}{again}"),
        ("hand-over latency p50 / p95 / max", latencies),
        ("commits per repository", f"{min(made)} to {max(made)}" if made else "see the Hub"),
        ("requests to the Hub", "see the Hub" if report.requests is None else str(report.requests)),
        ("bytes handed over", human_bytes(report.handed_bytes)),
        ("read back", f"{report.files_read_back} files, {human_bytes(report.bytes_read_back)}"),
        ("wall time: handing over", f"{report.produce_s:.1f} s"),
        ("wall time: until all was delivered", f"{report.deliver_s:.1f} s"),
        ("wall time: reading back", f"{report.verify_s:.1f} s"),
    ]
    for name, value in rows:
        table.add_row(name, value)
    output.table(table)
    for label, names in (("missing", report.missing), ("different", report.different), ("refused", report.refused)):
        for name in names[:20]:
            output.say(f"{label}: {name}")
        if len(names) > 20:
            output.say(f"{label}: {len(names) - 20} more")
    output.say(_verdict(report, settings))


def _verdict(report: SweepReport, settings: Settings) -> str:
    if report.verified:
        seen = (
            f", each landed once, commits at least {settings.commit_spacing_s:g} s apart" if report.repositories else ""
        )
        return f"VERIFIED: every byte is there{seen}."
    faults = [
        text
        for number, text in (
            (len(report.missing), "missing"),
            (len(report.different), "with other bytes"),
            (len(report.refused), "refused"),
            (report.left_over, "left over"),
            (sum(row.landed_twice for row in report.repositories), "landed twice"),
        )
        for text in ([f"{number} {text}"] if number else [])
    ]
    return f"NOT VERIFIED: {', '.join(faults) or 'commits came closer than their spacing'}."


__all__ = ["sweep"]
