"""Leases of repositories: who may work on one, and the times that a clock once wrong left behind.

Source: hand-over protocol, section 5.7; findings W22 to W24. Owner and fence are compared in the transaction of every
effect, and the end too where the operation carries the caller's time.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, RowMapping, select, update

from ...actors.store_operations import AcquireLease, ClampTimes, LeaseRow, ListLeases, ReleaseLease, RenewLease
from ...protocol.errors import LeaseLost
from ...protocol.lease import Lease, LeaseHeld, clamp_ahead, is_in_force
from ...protocol.schedule import HOUR_S
from .schema import bundles, hub_commits, is_true, repositories, run_paths, runs
from .tallies import change_repository, lock_repository

HOLDER: Final = "conveyor.holder"
"""Key in a connection's `info`: host name and process id of this process, shown to operators beside its leases."""


def acquire_lease(connection: Connection, operation: AcquireLease) -> Lease | LeaseHeld:
    """Lease a repository."""
    row = lock_repository(connection, operation.repository)
    now = operation.now_unix_s
    is_same_owner = row["lease_owner"] == operation.owner
    if row["lease_owner"] is not None and not is_same_owner:
        ends = clamp_ahead(row["lease_expires_unix_s"], now, row["lease_s"])
        if now < ends:
            if ends != row["lease_expires_unix_s"]:
                # Durably, or an end far ahead would be one lease away for ever (finding W24).
                change_repository(connection, operation.repository, lease_expires_unix_s=ends)
            return LeaseHeld(row["lease_owner"], ends)
    expires = now + operation.lease_s
    values: dict[str, Any] = {"lease_expires_unix_s": expires, "lease_s": operation.lease_s}
    fence = row["lease_fence"]
    if not is_same_owner:
        fence += 1
        host, pid = connection.info.get(HOLDER, (None, None))
        values |= {
            "lease_owner": operation.owner,
            "lease_fence": fence,
            "lease_since_unix_s": now,
            "lease_host": host,
            "lease_pid": pid,
        }
        _free_claims(connection, operation.repository)
    change_repository(connection, operation.repository, **values)
    return Lease(operation.repository, operation.owner, fence, expires)


def renew_lease(connection: Connection, operation: RenewLease) -> Lease:
    """Prolong a lease."""
    lease = operation.lease
    require_lease(connection, lease, operation.now_unix_s)
    expires = operation.now_unix_s + operation.lease_s
    change_repository(connection, lease.repository, lease_expires_unix_s=expires, lease_s=operation.lease_s)
    return Lease(lease.repository, lease.owner, lease.fence, expires)


def release_lease(connection: Connection, operation: ReleaseLease) -> None:
    """Give a lease back, and the bundles claimed under it."""
    lease = operation.lease
    row = lock_repository(connection, lease.repository)
    if not _is_current(row, lease):
        return
    _free_claims(connection, lease.repository)
    change_repository(
        connection,
        lease.repository,
        lease_owner=None,
        lease_expires_unix_s=0.0,
        lease_since_unix_s=0.0,
        lease_host=None,
        lease_pid=None,
    )


def require_lease(connection: Connection, lease: Lease, now_unix_s: float | None) -> RowMapping:
    """Give the repository's row, if this lease is the current one and, with a time given, has not run out.

    Raises:
        LeaseLost: it is not (N-RUN-12).
    """
    row = lock_repository(connection, lease.repository)
    if not _is_current(row, lease):
        raise LeaseLost(
            f"the lease on {lease.repository} with fence {lease.fence} is not the current one, which has fence "
            f"{row['lease_fence']}; whoever holds that goes on with the work"
        )
    if now_unix_s is not None and not is_in_force(row["lease_expires_unix_s"], now_unix_s, row["lease_s"]):
        raise LeaseLost(
            f"the lease on {lease.repository} ran out {now_unix_s - row['lease_expires_unix_s']:.1f} s ago without a "
            "renewal; it has to be taken again"
        )
    return row


def _is_current(row: RowMapping, lease: Lease) -> bool:
    return bool(row["lease_owner"] == lease.owner and row["lease_fence"] == lease.fence)


def _free_claims(connection: Connection, repository: str) -> None:
    connection.execute(
        update(bundles)
        .where(
            bundles.c.repository == repository,
            is_true(bundles.c.is_pending),
            bundles.c.claim_owner.is_not(None),
        )
        .values(claim_owner=None, claim_fence=None)
    )


def list_leases(connection: Connection, operation: ListLeases) -> tuple[LeaseRow, ...]:
    """Every lease that was not released."""
    rows = connection.execute(
        select(repositories).where(repositories.c.lease_owner.is_not(None)).order_by(repositories.c.repository)
    )
    return tuple(
        LeaseRow(
            repository=row.repository,
            owner=row.lease_owner,
            since_unix_s=row.lease_since_unix_s,
            expires_unix_s=row.lease_expires_unix_s,
            host=row.lease_host or "",
            pid=row.lease_pid or 0,
        )
        for row in rows
    )


def clamp_times(connection: Connection, operation: ClampTimes) -> bool:
    """Bring stored times that lie ahead by more than their own period back, for good."""
    name, now = operation.repository, operation.now_unix_s
    row = lock_repository(connection, name)
    values: dict[str, Any] = {}
    if (row["last_commit_unix_s"] or 0.0) > now:
        values["last_commit_unix_s"] = now
    for column, at_most_s in (
        ("not_before_unix_s", operation.backoff_max_s),
        ("pause_until_unix_s", HOUR_S),
        ("lease_expires_unix_s", row["lease_s"]),
    ):
        clamped = clamp_ahead(row[column], now, at_most_s)
        if clamped != row[column]:
            values[column] = clamped
    if values:
        change_repository(connection, name, **values)
    changed = bool(values)
    at_most = now + operation.backoff_max_s
    for statement in (
        update(hub_commits).where(hub_commits.c.repository == name, hub_commits.c.unix_s > now).values(unix_s=now),
        update(run_paths)
        .where(
            run_paths.c.repository == name,
            is_true(run_paths.c.is_pending),
            run_paths.c.due_unix_s > now + run_paths.c.interval_s,
        )
        .values(due_unix_s=now + run_paths.c.interval_s),
        update(runs)
        .where(
            runs.c.repository == name,
            is_true(runs.c.entry_is_pending),
            runs.c.entry_due_unix_s > now + runs.c.entry_interval_s,
        )
        .values(entry_due_unix_s=now + runs.c.entry_interval_s),
        update(bundles)
        .where(
            bundles.c.repository == name,
            is_true(bundles.c.is_pending),
            bundles.c.next_attempt_unix_s > at_most,
        )
        .values(next_attempt_unix_s=at_most),
    ):
        changed = connection.execute(statement).rowcount > 0 or changed
    return changed


__all__ = [
    "HOLDER",
    "acquire_lease",
    "clamp_times",
    "list_leases",
    "release_lease",
    "renew_lease",
    "require_lease",
]
