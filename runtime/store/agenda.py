"""What repositories have to do, and the totals of everything, each as one consistent reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, RowMapping, Select, case, func, or_, select, union

from ...actors.store_operations import (
    ListOpenRepositories,
    ReadAgenda,
    ReadStatus,
    RepositoryStatus,
    StoreStatus,
)
from ...protocol.lease import is_in_force
from ...protocol.work import RepositoryAgenda
from .contents import in_chunks
from .schema import attempt_bundles, bundles, hub_commits, is_true, meta, repositories, run_paths, runs


def read_agenda(connection: Connection, operation: ReadAgenda) -> RepositoryAgenda:
    """What one repository has to do."""
    name = operation.repository
    row = connection.execute(select(repositories).where(repositories.c.repository == name)).mappings().first()
    if row is None:
        return _nothing(name)
    work = _read_work(connection, [name])
    commits = _read_commits(connection, [name], operation.now_unix_s - operation.horizon_s)
    return _agenda(row, work.get(name, {}), commits.get(name, ()), operation.now_unix_s)


def list_open_repositories(connection: Connection, operation: ListOpenRepositories) -> tuple[str, ...]:
    """Repositories with anything pending or unknown."""
    return tuple(connection.scalars(select(_open_names().c.repository).order_by("repository")))


def read_status(connection: Connection, operation: ReadStatus) -> StoreStatus:
    """The status of everything in the store."""
    now = operation.now_unix_s
    totals = connection.execute(
        select(
            func.count().label("known"),
            *(
                func.coalesce(func.sum(repositories.c[name]), 0).label(name)
                for name in ("accepted", "delivered", "superseded", "parked")
            ),
        ).select_from(repositories)
    ).one()
    names = set(list_open_repositories(connection, ListOpenRepositories()))
    names.update(connection.scalars(select(repositories.c.repository).where(repositories.c.lease_owner.is_not(None))))
    rows = _read_rows(connection, names)
    work = _read_work(connection, None)
    commits = _read_commits(connection, sorted(names), now - operation.horizon_s)
    shown = tuple(
        RepositoryStatus(
            agenda=_agenda(rows[name], work.get(name, {}), commits.get(name, ()), now),
            oldest_pending_unix_s=work.get(name, {}).get("oldest"),
            pending_bytes=work.get(name, {}).get("bytes", 0),
            commits=rows[name]["commits"],
            last_error_code=rows[name]["last_error_code"],
        )
        for name in sorted(names)
        if name in rows
    )
    return StoreStatus(
        store_id=read_store_id(connection),
        accepted=int(totals.accepted),
        delivered=int(totals.delivered),
        superseded=int(totals.superseded),
        waiting=sum(part["paths"] + part["entries"] + part["bundles"] for part in work.values()),
        parked=int(totals.parked),
        waiting_bytes=sum(part["bytes"] for part in work.values()),
        repositories=shown,
        known_repositories=int(totals.known),
    )


def read_store_id(connection: Connection) -> str:
    """The identity that the store was born with."""
    return str(connection.scalars(select(meta.c.value).where(meta.c.name == "store_id")).one())


def _open_names() -> Any:
    return union(
        select(run_paths.c.repository).where(is_true(run_paths.c.is_pending)),
        select(runs.c.repository).where(is_true(runs.c.entry_is_pending)),
        select(bundles.c.repository).where(is_true(bundles.c.is_pending)),
        select(repositories.c.repository).where(repositories.c.open_delivery_id.is_not(None)),
    ).subquery()


def _read_rows(connection: Connection, names: set[str]) -> dict[str, RowMapping]:
    found: dict[str, RowMapping] = {}
    for chunk in in_chunks(names):
        rows = connection.execute(select(repositories).where(repositories.c.repository.in_(chunk)))
        found.update((row["repository"], row) for row in rows.mappings())
    return found


def _read_commits(connection: Connection, names: Sequence[str], after_unix_s: float) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    for chunk in in_chunks(names):
        rows = connection.execute(
            select(hub_commits.c.repository, hub_commits.c.unix_s)
            .where(hub_commits.c.repository.in_(chunk), hub_commits.c.unix_s >= after_unix_s)
            .order_by(hub_commits.c.repository, hub_commits.c.unix_s)
        )
        for row in rows:
            found.setdefault(row.repository, []).append(row.unix_s)
    return {name: tuple(times) for name, times in found.items()}


def _read_work(connection: Connection, names: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """What is pending, by repository: numbers, bytes, the oldest, and when it is due."""
    work: dict[str, dict[str, Any]] = {}
    for row in connection.execute(_of(names, _pending_paths())):
        part = work.setdefault(row.repository, _empty())
        part |= {"paths": row.items, "bytes": int(row.bytes), "oldest": row.oldest, "due": row.due}
    for row in connection.execute(_of(names, _pending_entries())):
        part = work.setdefault(row.repository, _empty())
        part["entries"] = row.items
        part["bytes"] += int(row.bytes)
        part["oldest"] = _earlier(part["oldest"], row.oldest)
        part["due"] = _earlier(part["due"], row.due)
    for row in connection.execute(_of(names, _pending_bundles())):
        part = work.setdefault(row.repository, _empty())
        _add_bundles(part, row)
    return work


def _empty() -> dict[str, Any]:
    return {
        "paths": 0,
        "entries": 0,
        "bundles": 0,
        "bytes": 0,
        "oldest": None,
        "due": None,
        "unclaimed_due": None,
        "any_due": None,
    }


def _add_bundles(part: dict[str, Any], row: Row[Any]) -> None:
    part["bundles"] = row.items
    part["bytes"] += int(row.bytes)
    part["oldest"] = _earlier(part["oldest"], row.oldest)
    part["unclaimed_due"] = row.unclaimed_due
    part["any_due"] = row.any_due


def _pending_paths() -> Select[Any]:
    table = run_paths.c
    return (
        select(
            table.repository,
            func.count().label("items"),
            func.coalesce(func.sum(table.newest_size_bytes), 0).label("bytes"),
            func.min(table.pending_since_unix_s).label("oldest"),
            func.min(table.due_unix_s).label("due"),
        )
        .where(is_true(table.is_pending))
        .group_by(table.repository)
    )


def _pending_entries() -> Select[Any]:
    table = runs.c
    return (
        select(
            table.repository,
            func.count().label("items"),
            func.coalesce(func.sum(func.length(table.entry_text)), 0).label("bytes"),
            func.min(table.entry_since_unix_s).label("oldest"),
            func.min(table.entry_due_unix_s).label("due"),
        )
        .where(is_true(table.entry_is_pending))
        .group_by(table.repository)
    )


def _pending_bundles() -> Select[Any]:
    """A bundle inside an open attempt is not to be tried; its repository is woken by the attempt itself."""
    table = bundles.c
    is_in_flight = (
        select(attempt_bundles.c.position)
        .where(attempt_bundles.c.handover_id == table.handover_id)
        .correlate(bundles)
        .exists()
    )
    is_claimed = or_(table.claim_owner.is_not(None), is_in_flight)
    return (
        select(
            table.repository,
            func.count().label("items"),
            func.coalesce(func.sum(table.size_bytes), 0).label("bytes"),
            func.min(table.handed_over_unix_s).label("oldest"),
            func.min(case((is_claimed, None), else_=table.next_attempt_unix_s)).label("unclaimed_due"),
            func.min(case((is_in_flight, None), else_=table.next_attempt_unix_s)).label("any_due"),
        )
        .where(is_true(table.is_pending))
        .group_by(table.repository)
    )


def _of(names: Sequence[str] | None, query: Select[Any]) -> Select[Any]:
    if names is None:
        return query
    column = query.selected_columns[0]
    return query.where(column == names[0]) if len(names) == 1 else query.where(column.in_(names))


def _earlier(first: float | None, second: float | None) -> float | None:
    known = [time for time in (first, second) if time is not None]
    return min(known, default=None)


def _agenda(row: RowMapping, part: dict[str, Any], commits: tuple[float, ...], now_unix_s: float) -> RepositoryAgenda:
    # Claims bind only as long as the lease that they were made under.
    is_leased = row["lease_owner"] is not None and is_in_force(row["lease_expires_unix_s"], now_unix_s, row["lease_s"])
    return RepositoryAgenda(
        repository=row["repository"],
        pending_paths=part.get("paths", 0),
        pending_entries=part.get("entries", 0),
        run_files_due_unix_s=part.get("due"),
        pending_bundles=part.get("bundles", 0),
        bundles_due_unix_s=part.get("unclaimed_due" if is_leased else "any_due"),
        has_open_attempt=row["open_delivery_id"] is not None,
        not_before_unix_s=row["not_before_unix_s"],
        pause_until_unix_s=row["pause_until_unix_s"],
        failures=row["failures"],
        commits_unix_s=commits,
        last_commit_unix_s=row["last_commit_unix_s"],
        lease_owner=row["lease_owner"],
        lease_expires_unix_s=row["lease_expires_unix_s"],
        paused_reason=row["paused_reason"],
    )


def _nothing(name: str) -> RepositoryAgenda:
    return RepositoryAgenda(
        repository=name,
        pending_paths=0,
        pending_entries=0,
        run_files_due_unix_s=None,
        pending_bundles=0,
        bundles_due_unix_s=None,
        has_open_attempt=False,
        not_before_unix_s=0.0,
        pause_until_unix_s=0.0,
        failures=0,
        commits_unix_s=(),
        last_commit_unix_s=None,
        lease_owner=None,
        lease_expires_unix_s=0.0,
        paused_reason=None,
    )


__all__ = ["list_open_repositories", "read_agenda", "read_status", "read_store_id"]
