"""Run files as they are handed over (hand-over protocol, section 5.4)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping, case, func, insert, literal, select, union, update

from ...actors.store_operations import (
    FlushEverything,
    PendingRunFiles,
    ReadPending,
    ReadRunReceipt,
    RecordRunFiles,
    RunFilesRecorded,
)
from ...protocol.digests import ContentDigests
from ...protocol.path_state import IncomingBytes, PathState, hand_over
from ...protocol.schedule import due_unix_s
from ...protocol.work import PendingEntry, PendingPath
from .contents import drop_unneeded, keep_contents
from .entries import entry_columns, entry_state, take_entry
from .paths import (
    columns_of,
    first_version_after,
    read_in_flight,
    read_paths,
    record_hand_overs,
    settle_hand_overs,
    state_of,
    update_paths,
)
from .receipts import read_run_receipt
from .schema import is_true, run_hand_overs, run_paths, runs
from .tallies import Tally, add_tally, lock_repository


def record_run_files(connection: Connection, operation: RecordRunFiles) -> RunFilesRecorded:
    """Record a run-file hand-over."""
    repository = lock_repository(connection, operation.repository)
    due = due_unix_s(
        flush=operation.flush,
        now_unix_s=operation.now_unix_s,
        last_commit_unix_s=repository["last_commit_unix_s"],
        interval_s=operation.interval_s,
    )
    tally = Tally()
    versions = _record_paths(connection, operation, repository, due, tally) if operation.files else ()
    entry_version = 0
    if operation.files or operation.index_entry_text is not None:
        entry_version = _record_run(connection, operation, due, tally)
    if operation.flush:
        _hasten_run(connection, operation)
    add_tally(connection, operation.repository, tally)
    return RunFilesRecorded(
        receipt=read_run_receipt(connection, ReadRunReceipt(operation.repository, operation.run_id)),
        versions=versions,
        has_entry=operation.index_entry_text is not None,
        entry_version=entry_version,
    )


def _record_paths(
    connection: Connection, operation: RecordRunFiles, repository: RowMapping, due: float, tally: Tally
) -> tuple[tuple[str, int], ...]:
    targets = [file.path for file in operation.files]
    known = read_paths(connection, operation.repository, targets)
    in_flight = (
        read_in_flight(connection, operation.repository, targets)
        if repository["open_delivery_id"] is not None
        else set()
    )
    kept: dict[str, bytes] = {}
    replaced: set[str] = set()
    new_rows: list[dict[str, Any]] = []
    changes: dict[str, dict[str, Any]] = {}
    hand_overs: dict[str, tuple[int, bool]] = {}
    for file in operation.files:
        row = known.get(file.path)
        incoming = IncomingBytes(file.digests.sha256, due, operation.flush, operation.interval_s)
        before = None if row is None else state_of(row)
        state = _take(before, row, incoming, is_in_flight=file.path in in_flight)
        if row is None:
            state = first_version_after(state, repository["pruned_version"])
        columns = {
            "run_id": operation.run_id,
            "newest_git_oid": file.digests.git_oid,
            "newest_size_bytes": file.digests.size_bytes,
            "updated_unix_s": operation.now_unix_s,
            "parked_code": None,
            "parked_reason": None,
            **columns_of(state),
        }
        is_waiting = row is not None and row["is_pending"]
        columns["pending_since_unix_s"] = row["pending_since_unix_s"] if is_waiting and row else operation.now_unix_s
        if row is None:
            new_rows.append({"repository": operation.repository, "path": file.path, **columns})
        else:
            changes[file.path] = columns
            replaced.add(row["newest_sha256"])
        if state.is_pending:
            kept[file.digests.sha256] = file.content
        hand_overs[file.path] = (state.newest_version, state.is_pending)
        _count_path(tally, row, before, state)
    keep_contents(connection, kept)
    if new_rows:
        connection.execute(insert(run_paths), new_rows)
    update_paths(connection, operation.repository, changes)
    record_hand_overs(connection, operation.repository, operation.run_id, hand_overs)
    settle_hand_overs(
        connection,
        operation.repository,
        {path: hand_overs[path][0] for path in changes if not hand_overs[path][1]},
    )
    drop_unneeded(connection, replaced - kept.keys())
    return tuple((path, version) for path, (version, _) in hand_overs.items())


def _take(
    before: PathState | None, row: RowMapping | None, incoming: IncomingBytes, *, is_in_flight: bool
) -> PathState:
    """The pure transition; a path that was set aside starts anew, whatever bytes come."""
    if before is None or row is None or not row["is_parked"]:
        return hand_over(before, incoming, is_in_flight=is_in_flight)
    aside = PathState(**{**_fields(before), "settled_version": before.newest_version})
    after = hand_over(aside, incoming, is_in_flight=is_in_flight)
    if after.is_pending:
        return PathState(**{**_fields(after), "settled_version": before.settled_version})
    return after


def _fields(state: PathState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in PathState.__slots__}


def _count_path(tally: Tally, row: RowMapping | None, before: PathState | None, after: PathState) -> None:
    if before is not None and after.newest_version == before.newest_version:
        return
    tally.accepted += 1
    if row is not None and row["is_parked"]:
        tally.parked -= 1
        tally.superseded += 1
    elif before is not None and before.is_pending:
        tally.superseded += 1
    if not after.is_pending:
        tally.delivered += 1


def _record_run(connection: Connection, operation: RecordRunFiles, due: float, tally: Tally) -> int:
    """Make or touch the run's row, and take its entry; answers the entry's version."""
    is_this = (runs.c.repository == operation.repository) & (runs.c.run_id == operation.run_id)
    run = connection.execute(select(runs).where(is_this)).mappings().first()
    columns: dict[str, Any] = {"endpoint": operation.endpoint, "updated_unix_s": operation.now_unix_s}
    version = 0
    if operation.index_entry_text is not None:
        text = operation.index_entry_text
        before = None if run is None else entry_state(run)
        state = take_entry(before, text, IncomingBytes(text, due, operation.flush, operation.interval_s))
        columns |= entry_columns(state)
        version = state.newest_version
        was_pending = before is not None and before.is_pending
        if not was_pending:
            columns["entry_since_unix_s"] = operation.now_unix_s
        if before is None or before.newest_version != version:
            tally.accepted += 1
            tally.superseded += int(was_pending)
    if run is None:
        columns = {"entry_is_pending": False, "entry_is_forced": False, **columns}
        connection.execute(insert(runs).values(repository=operation.repository, run_id=operation.run_id, **columns))
    else:
        connection.execute(update(runs).where(is_this).values(**columns))
    return version


def _hasten_run(connection: Connection, operation: RecordRunFiles) -> None:
    """A flush: everything that the run has pending is due now, and stays so whatever lands meanwhile (finding W6)."""
    now = operation.now_unix_s
    waited_for = select(run_hand_overs.c.path).where(
        run_hand_overs.c.repository == operation.repository,
        run_hand_overs.c.run_id == operation.run_id,
        is_true(run_hand_overs.c.is_pending),
    )
    connection.execute(
        update(run_paths)
        .where(
            run_paths.c.repository == operation.repository,
            run_paths.c.path.in_(waited_for),
            is_true(run_paths.c.is_pending),
        )
        .values(due_unix_s=_no_later(run_paths.c.due_unix_s, now), is_forced=True)
    )
    connection.execute(
        update(runs)
        .where(
            runs.c.repository == operation.repository,
            runs.c.run_id == operation.run_id,
            is_true(runs.c.entry_is_pending),
        )
        .values(entry_due_unix_s=_no_later(runs.c.entry_due_unix_s, now), entry_is_forced=True)
    )


def flush_everything(connection: Connection, operation: FlushEverything) -> int:
    """Make every pending run file and entry due now."""
    now = operation.now_unix_s
    connection.execute(
        update(run_paths)
        .where(is_true(run_paths.c.is_pending))
        .values(due_unix_s=_no_later(run_paths.c.due_unix_s, now), is_forced=True)
    )
    connection.execute(
        update(runs)
        .where(is_true(runs.c.entry_is_pending))
        .values(entry_due_unix_s=_no_later(runs.c.entry_due_unix_s, now), entry_is_forced=True)
    )
    pending = union(
        select(run_paths.c.repository).where(is_true(run_paths.c.is_pending)),
        select(runs.c.repository).where(is_true(runs.c.entry_is_pending)),
    ).subquery()
    return int(connection.scalar(select(func.count()).select_from(pending)) or 0)


def _no_later(column: Any, now_unix_s: float) -> Any:
    return case((column > now_unix_s, literal(now_unix_s)), else_=column)


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


__all__ = ["flush_everything", "read_pending", "record_run_files"]
