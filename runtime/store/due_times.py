"""Making what is pending due now (hand-over protocol, section 5.4)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, case, func, literal, select, union, update

from ...actors.store_operations import FlushEverything, RecordRunFiles
from .schema import is_true, run_hand_overs, run_paths, runs


def hasten_run(connection: Connection, operation: RecordRunFiles) -> None:
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


__all__ = ["flush_everything", "hasten_run"]
