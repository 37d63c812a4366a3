"""Forgetting what is settled and old, so that the store grows with open work and not with history (finding W25)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, and_, bindparam, delete, select, tuple_, update

from ...actors.store_operations import Prune
from .contents import is_unneeded
from .schema import (
    attempt_bundles,
    attempt_files,
    bundle_files,
    bundles,
    contents,
    hub_commits,
    is_false,
    repositories,
    run_hand_overs,
    run_paths,
    runs,
)

KEEP_COMMITS_S: Final = 86_400.0
"""Commits stay for this much longer, because the hourly budget is reckoned from them."""


def prune(connection: Connection, operation: Prune) -> int:
    """Delete settled rows last changed before a time."""
    before, at_most = operation.before_unix_s, operation.limit_rows
    deleted = _prune_paths(connection, before, at_most)
    deleted += _prune_runs(connection, before, at_most)
    deleted += _prune_bundles(connection, before, at_most)
    old_commits = (
        select(hub_commits.c.repository, hub_commits.c.commit_id)
        .where(hub_commits.c.unix_s < before - KEEP_COMMITS_S)
        .limit(at_most)
    )
    deleted += connection.execute(
        delete(hub_commits).where(tuple_(hub_commits.c.repository, hub_commits.c.commit_id).in_(old_commits))
    ).rowcount
    unneeded = select(contents.c.sha256).where(is_unneeded()).limit(at_most)
    deleted += connection.execute(delete(contents).where(contents.c.sha256.in_(unneeded))).rowcount
    return deleted


def _prune_paths(connection: Connection, before: float, at_most: int) -> int:
    in_flight = (
        select(attempt_files.c.position)
        .where(attempt_files.c.repository == run_paths.c.repository, attempt_files.c.path == run_paths.c.path)
        .correlate(run_paths)
        .exists()
    )
    rows = connection.execute(
        select(run_paths.c.repository, run_paths.c.path, run_paths.c.newest_version)
        .where(is_false(run_paths.c.is_kept), run_paths.c.updated_unix_s < before, ~in_flight)
        .order_by(run_paths.c.updated_unix_s)
        .limit(at_most)
    ).all()
    highest: dict[str, int] = {}
    for row in rows:
        highest[row.repository] = max(row.newest_version, highest.get(row.repository, 0))
    for repository, version in highest.items():
        connection.execute(
            update(repositories)
            .where(repositories.c.repository == repository, repositories.c.pruned_version < version)
            .values(pruned_version=version)
        )
    for table in (run_hand_overs, run_paths):
        _delete_each(connection, table, ("repository", "path"), rows)
    return len(rows)


def _delete_each(connection: Connection, table: Table, names: tuple[str, ...], rows: Sequence[Any]) -> None:
    """Delete the rows of a table that are alike in these columns."""
    if rows:
        alike = and_(*(table.c[name] == bindparam(f"of_{name}") for name in names))
        values = [{f"of_{name}": getattr(row, name) for name in names} for row in rows]
        connection.execute(delete(table).where(alike), values)


def _prune_runs(connection: Connection, before: float, at_most: int) -> int:
    has_paths = (
        select(run_hand_overs.c.path)
        .where(run_hand_overs.c.repository == runs.c.repository, run_hand_overs.c.run_id == runs.c.run_id)
        .correlate(runs)
        .exists()
    )
    old = (
        select(runs.c.repository, runs.c.run_id)
        .where(is_false(runs.c.entry_is_pending), runs.c.updated_unix_s < before, ~has_paths)
        .limit(at_most)
    )
    return connection.execute(delete(runs).where(tuple_(runs.c.repository, runs.c.run_id).in_(old))).rowcount


def _prune_bundles(connection: Connection, before: float, at_most: int) -> int:
    in_flight = (
        select(attempt_bundles.c.position)
        .where(attempt_bundles.c.handover_id == bundles.c.handover_id)
        .correlate(bundles)
        .exists()
    )
    old = connection.execute(
        select(bundles.c.handover_id)
        .where(is_false(bundles.c.is_pending), bundles.c.updated_unix_s < before, ~in_flight)
        .limit(at_most)
    ).all()
    for table in (bundle_files, bundles):
        _delete_each(connection, table, ("handover_id",), old)
    return len(old)


__all__ = ["KEEP_COMMITS_S", "prune"]
