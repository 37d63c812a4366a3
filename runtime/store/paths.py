"""Rows of `run_paths`, to and from the pure state of a path; and who waits for which version of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update

from ...protocol.path_state import PathState
from .contents import in_chunks
from .schema import attempt_files, run_hand_overs, run_paths


def read_paths(connection: Connection, repository: str, paths: Iterable[str]) -> dict[str, RowMapping]:
    """The rows of these paths, by path; unknown ones are left out."""
    found: dict[str, RowMapping] = {}
    for chunk in in_chunks(paths):
        rows = connection.execute(
            select(run_paths).where(run_paths.c.repository == repository, run_paths.c.path.in_(chunk)).with_for_update()
        )
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


def state_of(row: RowMapping) -> PathState:
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
    if not changes:
        return
    names = next(iter(changes.values())).keys()
    statement = (
        update(run_paths)
        .where(run_paths.c.repository == bindparam("of_repository"), run_paths.c.path == bindparam("of_path"))
        .values({name: bindparam(name) for name in names})
    )
    rows = [{"of_repository": repository, "of_path": path, **change} for path, change in changes.items()]
    connection.execute(statement, rows)


def record_hand_overs(
    connection: Connection, repository: str, run_id: str, versions: Mapping[str, tuple[int, bool]]
) -> None:
    """Remember that a run handed these paths over: the version of each, and whether it is pending."""
    for chunk in in_chunks(versions):
        connection.execute(
            delete(run_hand_overs).where(
                run_hand_overs.c.repository == repository,
                run_hand_overs.c.run_id == run_id,
                run_hand_overs.c.path.in_(chunk),
            )
        )
    rows = [
        {"repository": repository, "run_id": run_id, "path": path, "version": version, "is_pending": is_pending}
        for path, (version, is_pending) in versions.items()
    ]
    if rows:
        connection.execute(insert(run_hand_overs), rows)


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
