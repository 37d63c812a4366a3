"""Rows of `run_paths`, to and from the pure state of a path; and who waits for which version of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Update, and_, bindparam, delete, insert, select, update

from ...protocol.path_state import PathState
from .contents import in_chunks
from .schema import attempt_files, run_hand_overs, run_paths

_BY_PATH: Final = (
    select(run_paths)
    .where(
        run_paths.c.repository == bindparam("of_repository"), run_paths.c.path.in_(bindparam("paths", expanding=True))
    )
    .with_for_update()
)


def read_paths(connection: Connection, repository: str, paths: Iterable[str]) -> dict[str, RowMapping]:
    """The rows of these paths, by path; unknown ones are left out."""
    found: dict[str, RowMapping] = {}
    for chunk in in_chunks(paths):
        rows = connection.execute(_BY_PATH, {"of_repository": repository, "paths": chunk})
        found.update((row["path"], row) for row in rows.mappings())
    return found


def read_in_flight(connection: Connection, repository: str, paths: Iterable[str]) -> set[str]:
    """Which of these paths a commit carries whose outcome is unknown."""
    found: set[str] = set()
    for chunk in in_chunks(paths):
        found.update(
            connection.scalars(
                select(attempt_files.c.path).where(
                    attempt_files.c.repository == repository, attempt_files.c.path.in_(chunk)
                )
            )
        )
    return found


def state_of(row: Mapping[Any, Any]) -> PathState:
    """The pure state that a row stands for."""
    return PathState(
        newest_version=row["newest_version"],
        newest_sha256=row["newest_sha256"],
        settled_version=row["settled_version"],
        committed_sha256=row["committed_sha256"],
        due_unix_s=row["due_unix_s"],
        is_forced=row["is_forced"],
        interval_s=row["interval_s"],
    )


def columns_of(state: PathState, *, is_parked: bool = False) -> dict[str, Any]:
    """The columns that follow from a state."""
    return {
        "newest_version": state.newest_version,
        "newest_sha256": state.newest_sha256,
        "settled_version": state.settled_version,
        "committed_sha256": state.committed_sha256,
        "due_unix_s": state.due_unix_s,
        "is_forced": state.is_forced,
        "interval_s": state.interval_s,
        "is_pending": state.is_pending and not is_parked,
        "is_parked": state.is_pending and is_parked,
        "is_kept": state.is_pending,
    }


def first_version_after(state: PathState, pruned_version: int) -> PathState:
    """A new path's state, its versions above those of any forgotten path, so that versions never repeat (N-HUB-12)."""
    return replace(
        state,
        newest_version=state.newest_version + pruned_version,
        settled_version=pruned_version,
    )


def update_paths(connection: Connection, repository: str, changes: Mapping[str, Mapping[str, Any]]) -> None:
    """Set columns of several paths; each change names the same columns."""
    if changes:
        names = tuple(next(iter(changes.values())))
        rows = [{"of_repository": repository, "of_path": path, **change} for path, change in changes.items()]
        connection.execute(_update_of(names), rows)


@cache
def _update_of(names: tuple[str, ...]) -> Update:
    return (
        update(run_paths)
        .where(run_paths.c.repository == bindparam("of_repository"), run_paths.c.path == bindparam("of_path"))
        .values({name: bindparam(name) for name in names})
    )


_THIS_HAND_OVER: Final = and_(
    run_hand_overs.c.repository == bindparam("of_repository"),
    run_hand_overs.c.run_id == bindparam("of_run"),
    run_hand_overs.c.path == bindparam("of_path"),
)
_HAND_OVER: Final = insert(run_hand_overs)
_HAND_OVER_AGAIN: Final = (
    update(run_hand_overs)
    .where(_THIS_HAND_OVER)
    .values(version=bindparam("new_version"), is_pending=bindparam("new_is_pending"))
)
_FORGET_HAND_OVER: Final = delete(run_hand_overs).where(_THIS_HAND_OVER)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """One path that a run handed over: the version, and whether that waits."""

    run_id: str
    path: str
    version: int
    is_pending: bool
    last_run_id: str | None
    """Who had handed the path over before, if anybody had."""


def record_hand_overs(connection: Connection, repository: str, handed_over: Iterable[HandedOver]) -> None:
    """Remember which run handed which paths over."""
    again, unsure, new = [], [], []
    for handed in handed_over:
        this = {"of_repository": repository, "of_run": handed.run_id, "of_path": handed.path}
        row = {
            "repository": repository,
            "run_id": handed.run_id,
            "path": handed.path,
            "version": handed.version,
            "is_pending": handed.is_pending,
        }
        if handed.last_run_id == handed.run_id:
            # Whoever handed a path over last has its row.
            again.append({**this, "new_version": handed.version, "new_is_pending": handed.is_pending})
            continue
        if handed.last_run_id is not None:
            unsure.append(this)
        new.append(row)
    for statement, rows in ((_HAND_OVER_AGAIN, again), (_FORGET_HAND_OVER, unsure), (_HAND_OVER, new)):
        if rows:
            connection.execute(statement, rows)


def settle_hand_overs(connection: Connection, repository: str, settled: Mapping[str, int]) -> None:
    """Nobody waits any more for these paths up to these versions."""
    _mark(connection, repository, settled, up_to=True)


def reopen_hand_overs(connection: Connection, repository: str, settled: Mapping[str, int]) -> None:
    """Whoever handed over these paths above these versions waits (again)."""
    _mark(connection, repository, settled, up_to=False)


def _mark(connection: Connection, repository: str, versions: Mapping[str, int], *, up_to: bool) -> None:
    if not versions:
        return
    version = run_hand_overs.c.version
    statement = (
        update(run_hand_overs)
        .where(
            run_hand_overs.c.repository == bindparam("of_repository"),
            run_hand_overs.c.path == bindparam("of_path"),
            version <= bindparam("of_version") if up_to else version > bindparam("of_version"),
        )
        .values(is_pending=not up_to)
    )
    rows = [{"of_repository": repository, "of_path": path, "of_version": at} for path, at in versions.items()]
    connection.execute(statement, rows)


__all__ = [
    "HandedOver",
    "columns_of",
    "first_version_after",
    "read_in_flight",
    "read_paths",
    "record_hand_overs",
    "reopen_hand_overs",
    "settle_hand_overs",
    "state_of",
    "update_paths",
]
