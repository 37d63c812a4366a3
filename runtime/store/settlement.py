"""What became of recorded commits (hand-over protocol, section 5.5), told to paths, entries, runs and bundles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from ...actors.store_operations import SettleLanded, SettleNotLanded, SettleUnchanged
from ...protocol.path_state import PathState, landed, not_landed
from ...protocol.receipts import BundleStatus
from ...protocol.work import Attempt, AttemptFile, AttemptKind
from .attempts import delete_attempt, is_run_file, read_attempt, read_entry_versions
from .bundles import finish_bundle
from .contents import drop_unneeded
from .entries import entry_columns, entry_landed, entry_state
from .leases import require_lease
from .paths import columns_of, read_in_flight, read_paths, reopen_hand_overs, settle_hand_overs, state_of, update_paths
from .schema import attempts, hub_commits, runs
from .tallies import Tally, add_tally, lock_repository


def settle_landed(connection: Connection, operation: SettleLanded) -> None:
    """Record that an open attempt landed."""
    attempt = _find_open(connection, operation.delivery_id)
    if attempt is None:
        return
    name, at = attempt.repository, operation.landed_unix_s
    repository = lock_repository(connection, name)
    entry_versions = read_entry_versions(connection, name)
    delete_attempt(connection, name)
    tally = Tally()
    freed = _settle_paths(connection, name, attempt.files, at, tally, is_new_commit=operation.is_new_commit)
    _settle_entries(connection, attempt, entry_versions, operation, tally)
    if operation.is_new_commit:
        _count_runs(
            connection,
            name,
            runs_of(attempt),
            landed_commit=operation.commit_id,
            updated_unix_s=at,
        )
    else:
        _clear_errors(connection, name, runs_of(attempt))
    for handover_id in attempt.handover_ids:
        freed |= finish_bundle(connection, handover_id, BundleStatus.UPLOADED, None, operation.commit_id, at, tally)
    values: dict[str, Any] = {"open_delivery_id": None}
    if operation.is_new_commit and not _is_known(connection, name, operation.commit_id):
        connection.execute(
            insert(hub_commits).values(
                repository=name, commit_id=operation.commit_id, unix_s=at, delivery_id=attempt.delivery_id
            )
        )
        values["last_commit_unix_s"] = max(at, repository["last_commit_unix_s"] or 0.0)
        values["commits"] = repository["commits"] + 1
    if attempt.kind is AttemptKind.RUN_FILES:
        values |= {"failures": 0, "not_before_unix_s": 0.0, "last_error_code": None}
    add_tally(connection, name, tally, **values)
    freed.update(file.digests.sha256 for file in attempt.files)
    if attempt.index_sha256 is not None:
        freed.add(attempt.index_sha256)
    drop_unneeded(connection, freed)


def settle_not_landed(connection: Connection, operation: SettleNotLanded) -> None:
    """Record that an open attempt can never land."""
    attempt = _find_open(connection, operation.delivery_id)
    if attempt is None or operation.parent not in (None, attempt.parent):
        return
    name = attempt.repository
    lock_repository(connection, name)
    delete_attempt(connection, name)
    tally = Tally()
    sent = {file.path for file in attempt.files if is_run_file(file)}
    changes: dict[str, dict[str, Any]] = {}
    settled: dict[str, int] = {}
    freed = {file.digests.sha256 for file in attempt.files}
    if attempt.index_sha256 is not None:
        freed.add(attempt.index_sha256)
    for path, row in read_paths(connection, name, sent).items():
        before = state_of(row)
        after = not_landed(before)
        if after != before:
            changes[path] = columns_of(after)
            settled[path] = after.settled_version
            freed.add(after.newest_sha256)
            tally.delivered += int(before.is_pending and not after.is_pending)
    update_paths(connection, name, changes)
    settle_hand_overs(connection, name, settled)
    values: dict[str, Any] = {"open_delivery_id": None}
    if operation.error_code is not None:
        _count_runs(connection, name, runs_of(attempt), error_code=operation.error_code.value)
        values["last_error_code"] = operation.error_code.value
    add_tally(connection, name, tally, **values)
    drop_unneeded(connection, freed)


def settle_unchanged(connection: Connection, operation: SettleUnchanged) -> None:
    """Record that the Hub already holds these versions, without a commit (finding W48)."""
    name = operation.repository
    require_lease(connection, operation.lease, operation.now_unix_s)
    # While a commit that carries a path is open, what the Hub shows of it proves nothing (finding W3).
    in_flight = read_in_flight(connection, name, [file.path for file in operation.files])
    files = [file for file in operation.files if file.path not in in_flight]
    tally = Tally()
    freed = _settle_paths(connection, name, files, operation.now_unix_s, tally, is_new_commit=False, only_newer=True)
    _clear_errors(connection, name, {file.run_id for file in files if file.run_id is not None})
    add_tally(connection, name, tally)
    drop_unneeded(connection, freed)


def _find_open(connection: Connection, delivery_id: str) -> Attempt | None:
    repository = connection.scalar(select(attempts.c.repository).where(attempts.c.delivery_id == delivery_id))
    return None if repository is None else read_attempt(connection, repository)


def _is_known(connection: Connection, repository: str, commit_id: str) -> bool:
    query = select(hub_commits.c.commit_id).where(
        hub_commits.c.repository == repository, hub_commits.c.commit_id == commit_id
    )
    return connection.scalar(query) is not None


def _settle_paths(
    connection: Connection,
    repository: str,
    files: Iterable[AttemptFile],
    landed_unix_s: float,
    tally: Tally,
    *,
    is_new_commit: bool,
    only_newer: bool = False,
) -> set[str]:
    """Apply what landed to each path; answers digests whose bytes may be needed no more."""
    sent = {file.path: file for file in files if is_run_file(file)}
    changes: dict[str, dict[str, Any]] = {}
    settled: dict[str, int] = {}
    reopened: dict[str, int] = {}
    freed: set[str] = set()
    for path, row in read_paths(connection, repository, sent).items():
        file, before = sent[path], state_of(row)
        if only_newer and file.version <= before.settled_version:
            continue
        after = landed(before, file.version, file.digests.sha256, landed_unix_s=landed_unix_s)
        if after.is_pending and not is_new_commit:
            # No commit was made, so the interval after it does not begin.
            after = replace(after, due_unix_s=before.due_unix_s)
        changes[path] = {**columns_of(after, is_parked=row["is_parked"]), "updated_unix_s": landed_unix_s}
        settled[path] = after.settled_version
        freed.update((before.newest_sha256, file.digests.sha256))
        if after.is_pending and not before.is_pending:
            reopened[path] = after.settled_version
        _count_path(tally, before, after, is_parked=row["is_parked"])
    update_paths(connection, repository, changes)
    settle_hand_overs(connection, repository, settled)
    reopen_hand_overs(connection, repository, reopened)
    return freed


def _count_path(tally: Tally, before: PathState, after: PathState, *, is_parked: bool) -> None:
    if before.is_pending and not after.is_pending:
        tally.delivered += 1
        tally.parked -= int(is_parked)
    elif after.is_pending and not before.is_pending:
        # The Hub holds an older version now: what counted as delivered waits again.
        tally.delivered -= 1


def _settle_entries(
    connection: Connection, attempt: Attempt, versions: dict[str, int], operation: SettleLanded, tally: Tally
) -> None:
    for entry in attempt.entries:
        is_this = (runs.c.repository == attempt.repository) & (runs.c.run_id == entry.run_id)
        run = connection.execute(select(runs).where(is_this)).mappings().first()
        before = None if run is None else entry_state(run)
        if before is None:
            continue
        after = entry_landed(before, versions.get(entry.run_id, 0), entry.text, landed_unix_s=operation.landed_unix_s)
        if after.is_pending and not operation.is_new_commit:
            after = replace(after, due_unix_s=before.due_unix_s)
        tally.delivered += int(before.is_pending and not after.is_pending)
        columns = {**entry_columns(after), "updated_unix_s": operation.landed_unix_s}
        connection.execute(update(runs).where(is_this).values(**columns))


def runs_of(attempt: Attempt) -> dict[str, int]:
    """How many files of each run a commit carries; 0 for one of which it carries the entry alone."""
    counted = {entry.run_id: 0 for entry in attempt.entries}
    for file in attempt.files:
        if is_run_file(file) and file.run_id is not None:
            counted[file.run_id] = counted.get(file.run_id, 0) + 1
    return counted


def _count_runs(
    connection: Connection,
    repository: str,
    carried: dict[str, int],
    *,
    landed_commit: str | None = None,
    error_code: str | None = None,
    updated_unix_s: float | None = None,
) -> None:
    """Count one attempted commit for each run that it carried something of; landed, if there is a commit."""
    if not carried:
        return
    added = bindparam("added", type_=runs.c.files_attempted.type)
    values: dict[str, Any] = {
        "files_attempted": runs.c.files_attempted + added,
        "commit_attempts": runs.c.commit_attempts + 1,
        "last_error_code": error_code,
    }
    if landed_commit is not None:
        values |= {
            "files_committed": runs.c.files_committed + added,
            "commits": runs.c.commits + 1,
            "last_commit": landed_commit,
            "updated_unix_s": updated_unix_s,
        }
    connection.execute(
        update(runs).where(runs.c.repository == repository, runs.c.run_id == bindparam("of_run")).values(**values),
        [{"of_run": run_id, "added": number_of_files} for run_id, number_of_files in carried.items()],
    )


def _clear_errors(connection: Connection, repository: str, run_ids: Iterable[str]) -> None:
    cleared = [{"of_run": run_id} for run_id in run_ids]
    if cleared:
        connection.execute(
            update(runs)
            .where(runs.c.repository == repository, runs.c.run_id == bindparam("of_run"))
            .values(last_error_code=None),
            cleared,
        )


__all__ = ["runs_of", "settle_landed", "settle_not_landed", "settle_unchanged"]
