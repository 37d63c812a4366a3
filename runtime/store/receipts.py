"""What runs and their builds are told: receipts, what was committed, what is settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, RowMapping, bindparam, func, select

from ...actors.store_operations import AreSettled, CommittedFile, ReadCommitted, ReadRunReceipt
from ...protocol.receipts import DeliveryCode, RunFilesReceipt, RunFilesStatus
from .contents import in_chunks
from .schema import is_true, repositories, run_hand_overs, run_paths, runs

_PENDING_FILES: Final = (
    select(func.count())
    .select_from(run_hand_overs)
    .where(
        run_hand_overs.c.repository == runs.c.repository,
        run_hand_overs.c.run_id == runs.c.run_id,
        is_true(run_hand_overs.c.is_pending),
    )
    .correlate(runs)
)
_RECEIPTS: Final = select(runs, _PENDING_FILES.scalar_subquery().label("pending_files")).where(
    runs.c.repository == bindparam("of_repository"), runs.c.run_id.in_(bindparam("run_ids", expanding=True))
)


def read_run_receipt(connection: Connection, operation: ReadRunReceipt) -> RunFilesReceipt:
    """A run's receipt (hand-over protocol, section 4.1): what it handed over and is pending, by whichever run now."""
    return read_run_receipts(connection, operation.repository, [operation.run_id])[operation.run_id]


def read_run_receipts(connection: Connection, repository: str, run_ids: Iterable[str]) -> dict[str, RunFilesReceipt]:
    """The receipts of several runs; one never heard of has zeros."""
    found: dict[str, RunFilesReceipt] = {}
    for chunk in in_chunks(run_ids):
        rows = connection.execute(_RECEIPTS, {"of_repository": repository, "run_ids": chunk})
        found.update((row["run_id"], _receipt(row)) for row in rows.mappings())
        for run_id in chunk:
            if run_id not in found:
                found[run_id] = RunFilesReceipt(status=RunFilesStatus.RECORDED, repository=repository, run_id=run_id)
    return found


def _receipt(run: RowMapping) -> RunFilesReceipt:
    return RunFilesReceipt(
        status=RunFilesStatus.RECORDED,
        repository=run["repository"],
        run_id=run["run_id"],
        pending_files=run["pending_files"] + int(run["entry_is_pending"]),
        files_attempted=run["files_attempted"],
        files_committed=run["files_committed"],
        commit_attempts=run["commit_attempts"],
        commits=run["commits"],
        last_error_code=None if run["last_error_code"] is None else DeliveryCode(run["last_error_code"]),
        last_commit=run["last_commit"],
    )


def read_committed(connection: Connection, operation: ReadCommitted) -> tuple[CommittedFile, ...]:
    """The paths that a run handed over and of which something was committed."""
    rows = connection.execute(
        select(run_paths.c.path, run_paths.c.committed_sha256)
        .join_from(
            run_hand_overs,
            run_paths,
            (run_paths.c.repository == run_hand_overs.c.repository) & (run_paths.c.path == run_hand_overs.c.path),
        )
        .where(
            run_hand_overs.c.repository == operation.repository,
            run_hand_overs.c.run_id == operation.run_id,
            run_paths.c.committed_sha256.is_not(None),
        )
        .order_by(run_paths.c.path)
    )
    return tuple(CommittedFile(row.path, row.committed_sha256) for row in rows)


def are_settled(connection: Connection, operation: AreSettled) -> bool:
    """Whether all that somebody waits for is on the Hub, or something newer in its place."""
    wanted = dict(operation.versions)
    unknown = set(wanted)
    for chunk in in_chunks(wanted):
        rows = connection.execute(
            select(run_paths.c.path, run_paths.c.settled_version).where(
                run_paths.c.repository == operation.repository, run_paths.c.path.in_(chunk)
            )
        )
        for row in rows:
            if row.settled_version < wanted[row.path]:
                return False
            unknown.discard(row.path)
    if unknown and not _were_pruned(connection, operation.repository, max(wanted[path] for path in unknown)):
        return False
    return _is_entry_settled(connection, operation)


def _were_pruned(connection: Connection, repository: str, version: int) -> bool:
    """Whether paths without a row were settled and forgotten: only settled ones ever are."""
    pruned = connection.scalar(select(repositories.c.pruned_version).where(repositories.c.repository == repository))
    return pruned is not None and version <= pruned


def _is_entry_settled(connection: Connection, operation: AreSettled) -> bool:
    if operation.entry_text is None and not operation.entry_version:
        return True
    run = connection.execute(
        select(runs.c.entry_is_pending, runs.c.entry_settled_version).where(
            runs.c.repository == operation.repository, runs.c.run_id == operation.run_id
        )
    ).first()
    if run is None:
        # Only runs without anything pending are ever forgotten.
        return True
    if operation.entry_version and operation.entry_version <= run.entry_settled_version:
        return True
    return not run.entry_is_pending


__all__ = ["are_settled", "read_committed", "read_run_receipt", "read_run_receipts"]
