"""Run files as they are handed over (hand-over protocol, section 5.4).

Hand-overs to one repository that share a transaction are worked out together: their paths are read once, each goes
through the pure rules in its turn, and what came of all of them is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, bindparam, insert, select, update

from ...actors.store_operations import IncomingFile, PendingRunFiles, ReadPending, RecordRunFiles, RunFilesRecorded
from ...protocol.digests import ContentDigests
from ...protocol.path_state import IncomingBytes, PathState, hand_over
from ...protocol.schedule import due_unix_s
from ...protocol.work import PendingEntry, PendingPath
from .contents import drop_unneeded, in_chunks, keep_contents
from .due_times import hasten_run
from .entries import entry_columns, entry_state, take_entry
from .paths import (
    HandedOver,
    columns_of,
    first_version_after,
    read_in_flight,
    read_paths,
    record_hand_overs,
    settle_hand_overs,
    state_of,
    update_paths,
)
from .receipts import read_run_receipts
from .schema import is_true, run_paths, runs
from .tallies import Tally, add_tally, lock_repository

_NEW_PATH: Final = insert(run_paths)
_NEW_RUN: Final = insert(runs)
_ENTRY_COLUMNS: Final = (
    *("entry_text", "entry_version", "entry_settled_version", "entry_is_pending", "entry_due_unix_s"),
    *("entry_is_forced", "entry_interval_s", "entry_since_unix_s"),
)
_TAKEN_COLUMNS: Final = ("endpoint", "updated_unix_s", *_ENTRY_COLUMNS)
_RUNS: Final = select(runs).where(
    runs.c.repository == bindparam("of_repository"), runs.c.run_id.in_(bindparam("run_ids", expanding=True))
)
_CHANGE_RUN: Final = (
    update(runs)
    .where(runs.c.repository == bindparam("of_repository"), runs.c.run_id == bindparam("of_run"))
    .values({name: bindparam(f"new_{name}") for name in _TAKEN_COLUMNS})
)
_NO_ENTRY: Final[dict[str, Any]] = {
    "entry_text": None,
    "entry_version": 0,
    "entry_settled_version": 0,
    "entry_is_pending": False,
    "entry_due_unix_s": 0.0,
    "entry_is_forced": False,
    "entry_interval_s": 0.0,
    "entry_since_unix_s": 0.0,
}


def record_run_files(connection: Connection, operation: RecordRunFiles) -> RunFilesRecorded:
    """Record a run-file hand-over."""
    return record_together(connection, [operation])[0]


def record_together(connection: Connection, operations: Sequence[RecordRunFiles]) -> list[RunFilesRecorded]:
    """Record several hand-overs, those to one repository in their order."""
    answers: dict[int, RunFilesRecorded] = {}
    for repository, group in _groups(operations):
        answers |= _record_group(connection, repository, group)
    return [answers[position] for position in range(len(operations))]


def _groups(operations: Sequence[RecordRunFiles]) -> Iterator[tuple[str, dict[int, RecordRunFiles]]]:
    """Hand-overs by repository; a flush ends its group, because it changes what was pending until then."""
    open_groups: dict[str, dict[int, RecordRunFiles]] = {}
    for position, operation in enumerate(operations):
        group = open_groups.setdefault(operation.repository, {})
        group[position] = operation
        if operation.flush:
            yield operation.repository, open_groups.pop(operation.repository)
    yield from open_groups.items()


@dataclass(slots=True)
class _Work:
    """What a group of hand-overs makes of one repository, before it is written."""

    repository: RowMapping
    known: dict[str, RowMapping]
    """Paths as they are in the store."""
    in_flight: set[str]
    known_runs: dict[str, RowMapping]
    paths: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Columns of every path handed over, as they will be."""
    newest: dict[str, IncomingFile] = field(default_factory=dict)
    versions: dict[tuple[str, str], int] = field(default_factory=dict)
    """By run and path."""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)


def _record_group(connection: Connection, name: str, group: dict[int, RecordRunFiles]) -> dict[int, RunFilesRecorded]:
    targets = {file.path for operation in group.values() for file in operation.files}
    touched = {op.run_id for op in group.values() if op.files or op.index_entry_text is not None}
    repository = lock_repository(connection, name)
    work = _Work(
        repository=repository,
        known=read_paths(connection, name, targets),
        in_flight=(read_in_flight(connection, name, targets) if repository["open_delivery_id"] is not None else set()),
        known_runs=_read_runs(connection, name, touched),
    )
    versions: dict[int, tuple[tuple[str, int], ...]] = {}
    entry_versions: dict[int, int] = {}
    for position, operation in group.items():
        due = due_unix_s(
            flush=operation.flush,
            now_unix_s=operation.now_unix_s,
            last_commit_unix_s=repository["last_commit_unix_s"],
            interval_s=operation.interval_s,
        )
        versions[position] = tuple((file.path, _take_file(work, operation, file, due)) for file in operation.files)
        entry_versions[position] = _take_run(work, operation, due) if operation.run_id in touched else 0
    _write_paths(connection, name, work)
    _write_runs(connection, name, work)
    add_tally(connection, name, work.tally)
    for operation in group.values():
        if operation.flush:
            hasten_run(connection, operation)
    receipts = read_run_receipts(connection, name, {operation.run_id for operation in group.values()})
    return {
        position: RunFilesRecorded(
            receipt=receipts[operation.run_id],
            versions=versions[position],
            has_entry=operation.index_entry_text is not None,
            entry_version=entry_versions[position],
        )
        for position, operation in group.items()
    }


def _read_runs(connection: Connection, name: str, run_ids: set[str]) -> dict[str, RowMapping]:
    found: dict[str, RowMapping] = {}
    for chunk in in_chunks(run_ids):
        rows = connection.execute(_RUNS, {"of_repository": name, "run_ids": chunk})
        found.update((row["run_id"], row) for row in rows.mappings())
    return found


def _take_file(work: _Work, operation: RecordRunFiles, file: IncomingFile, due: float) -> int:
    """Take one file; answers the version to wait for."""
    row = work.paths.get(file.path) or work.known.get(file.path)
    before = None if row is None else state_of(row)
    is_aside = row is not None and row["is_parked"]
    incoming = IncomingBytes(file.digests.sha256, due, operation.flush, operation.interval_s)
    state = _next_state(before, incoming, is_aside=is_aside, is_in_flight=file.path in work.in_flight)
    if before is None:
        state = first_version_after(state, work.repository["pruned_version"])
    waited = row is not None and row["is_pending"]
    work.paths[file.path] = {
        "run_id": operation.run_id,
        "newest_git_oid": file.digests.git_oid,
        "newest_size_bytes": file.digests.size_bytes,
        "updated_unix_s": operation.now_unix_s,
        "parked_code": None,
        "parked_reason": None,
        "pending_since_unix_s": row["pending_since_unix_s"] if waited and row is not None else operation.now_unix_s,
        **columns_of(state),
    }
    work.newest[file.path] = file
    work.versions[operation.run_id, file.path] = state.newest_version
    _count_path(work.tally, before, state, is_aside=is_aside)
    return state.newest_version


def _next_state(before: PathState | None, incoming: IncomingBytes, *, is_aside: bool, is_in_flight: bool) -> PathState:
    """The pure transition; a path that was set aside starts anew, whatever bytes come."""
    if before is None or not is_aside:
        return hand_over(before, incoming, is_in_flight=is_in_flight)
    aside = replace(before, settled_version=before.newest_version)
    after = hand_over(aside, incoming, is_in_flight=is_in_flight)
    return replace(after, settled_version=before.settled_version) if after.is_pending else after


def _count_path(tally: Tally, before: PathState | None, after: PathState, *, is_aside: bool) -> None:
    if before is not None and after.newest_version == before.newest_version:
        return
    tally.accepted += 1
    if before is not None and before.is_pending:
        tally.superseded += 1
        tally.parked -= int(is_aside)
    if not after.is_pending:
        tally.delivered += 1


def _take_run(work: _Work, operation: RecordRunFiles, due: float) -> int:
    """Touch the run, and take its entry; answers the entry's version."""
    row = work.runs.get(operation.run_id) or work.known_runs.get(operation.run_id) or _NO_ENTRY
    columns = {name: row[name] for name in _ENTRY_COLUMNS}
    columns |= {"endpoint": operation.endpoint, "updated_unix_s": operation.now_unix_s}
    work.runs[operation.run_id] = columns
    if operation.index_entry_text is None:
        return 0
    text = operation.index_entry_text
    before = entry_state(columns)
    state = take_entry(before, text, IncomingBytes(text, due, operation.flush, operation.interval_s))
    was_pending = before is not None and before.is_pending
    if before is None or before.newest_version != state.newest_version:
        work.tally.accepted += 1
        work.tally.superseded += int(was_pending)
    if not was_pending:
        columns["entry_since_unix_s"] = operation.now_unix_s
    columns |= entry_columns(state)
    return state.newest_version


def _write_paths(connection: Connection, name: str, work: _Work) -> None:
    pending = {path for path, columns in work.paths.items() if columns["is_pending"]}
    kept = {work.newest[path].digests.sha256: work.newest[path].content for path in pending}
    keep_contents(connection, kept)
    new = [
        {"repository": name, "path": path, **columns} for path, columns in work.paths.items() if path not in work.known
    ]
    if new:
        connection.execute(_NEW_PATH, new)
    update_paths(connection, name, {path: work.paths[path] for path in work.known})
    record_hand_overs(
        connection,
        name,
        [
            HandedOver(
                run_id=run_id,
                path=path,
                version=version,
                is_pending=path in pending and version > work.paths[path]["settled_version"],
                last_run_id=work.known[path]["run_id"] if path in work.known else None,
            )
            for (run_id, path), version in work.versions.items()
        ],
    )
    settle_hand_overs(
        connection,
        name,
        {path: work.paths[path]["newest_version"] for path in work.known if path not in pending},
    )
    drop_unneeded(connection, {row["newest_sha256"] for row in work.known.values()} - kept.keys())


def _write_runs(connection: Connection, name: str, work: _Work) -> None:
    new = [
        {"repository": name, "run_id": run_id, **columns}
        for run_id, columns in work.runs.items()
        if run_id not in work.known_runs
    ]
    changed = [
        {"of_repository": name, "of_run": run_id, **{f"new_{column}": columns[column] for column in _TAKEN_COLUMNS}}
        for run_id, columns in work.runs.items()
        if run_id in work.known_runs
    ]
    if new:
        connection.execute(_NEW_RUN, new)
    if changed:
        connection.execute(_CHANGE_RUN, changed)


def read_pending(connection: Connection, operation: ReadPending) -> PendingRunFiles:
    """Everything a run-file commit may carry."""
    paths = connection.execute(
        select(run_paths)
        .where(run_paths.c.repository == operation.repository, is_true(run_paths.c.is_pending))
        .order_by(run_paths.c.path)
    )
    entries = connection.execute(
        select(runs.c.run_id, runs.c.entry_text)
        .where(runs.c.repository == operation.repository, is_true(runs.c.entry_is_pending))
        .order_by(runs.c.run_id)
    )
    return PendingRunFiles(
        tuple(
            PendingPath(
                path=row.path,
                run_id=row.run_id,
                version=row.newest_version,
                digests=ContentDigests(row.newest_sha256, row.newest_git_oid, row.newest_size_bytes),
                due_unix_s=row.due_unix_s,
            )
            for row in paths
        ),
        tuple(PendingEntry(row.run_id, row.entry_text) for row in entries),
    )


__all__ = ["read_pending", "record_run_files", "record_together"]
