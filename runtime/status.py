"""The status: one versioned document for people and programs, with totals that add up (N-UX-03)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..actors.ports import Store
from ..actors.statistics import ActorStatistics
from ..actors.store_operations import LeaseRow, ListLeases, ListParked, ReadStatus, RepositoryStatus
from ..protocol.schedule import CommitPace

STATUS_VERSION: Final = 1

PARKED_LISTED: Final = 100
"""Parked files that the document names; `parked` counts all."""


class RepositoryLine(msgspec.Struct, frozen=True, kw_only=True):
    """One repository with open work or a lease."""

    repository: str
    waiting_files: int
    waiting_entries: int
    waiting_bundles: int
    waiting_bytes: int
    oldest_waiting_s: float | None
    """Age of the oldest hand-over that waits, in seconds."""
    has_unknown_commit: bool
    """A commit was sent whose answer is not known; it is looked up before anything else."""
    next_commit_in_s: float
    """Seconds until spacing, budget and back-off allow the next commit; 0 at once."""
    commits_left: int
    """Commits that the budget allows now."""
    commits_last_hour: int
    failures_in_row: int
    last_error_code: str | None
    paused_reason: str | None
    lease_owner: str | None
    """The runtime that delivers to it now, by its random name."""
    lease_ends_in_s: float | None
    """Seconds until others may take over, unless it is renewed."""
    lease_since_s: float | None
    lease_host: str | None
    lease_pid: int | None

    @property
    def is_waiting(self) -> bool:
        """Something accepted is not delivered yet."""
        return bool(self.waiting_files or self.waiting_entries or self.waiting_bundles or self.has_unknown_commit)


class ParkedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was set aside for good; handing it over again brings it back."""

    repository: str
    path: str
    run_id: str
    error_code: str
    reason: str


class ActorLine(msgspec.Struct, frozen=True, kw_only=True):
    """One actor of this process."""

    name: str
    state: str
    depth: int
    capacity: int
    handled: int
    restarts: int
    oldest_wait_s: float


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one store. accepted = delivered + superseded + parked + waiting."""

    version: int = STATUS_VERSION
    state: str
    """`running`, `stopping` or `stopped` for a runtime; `stored` when only the store was looked at."""
    store_id: str
    host: str
    """The machine that made this document."""
    pid: int
    """The process that made it; compare with `lease_pid`."""
    accepted: int
    delivered: int
    superseded: int
    parked: int
    waiting: int
    waiting_bytes: int
    known_repositories: int
    repositories: tuple[RepositoryLine, ...]
    parked_files: tuple[ParkedLine, ...] = ()
    """Parked files by repository and path, at most 100; `parked` counts failed bundles too."""
    actors: tuple[ActorLine, ...] = ()

    @property
    def paused(self) -> int:
        """How many repositories wait for a person or a new credential."""
        return sum(line.paused_reason is not None for line in self.repositories)

    def to_json(self) -> bytes:
        """The document as one line of JSON."""
        return msgspec.json.encode(self)

    def to_builtins(self) -> dict[str, Any]:
        """The document as plain values."""
        return dict(msgspec.to_builtins(self))


async def read_status(
    store: Store, *, state: str, pace: CommitPace, now_unix_s: float, actors: tuple[ActorStatistics, ...] = ()
) -> Status:
    """Put the document together. All totals come from one consistent read of the store.

    Raises:
        StoreError: the store could not be read.
    """
    stored = await store.query(ReadStatus(now_unix_s=now_unix_s, horizon_s=pace.horizon_s))
    parked = await store.query(ListParked(limit_rows=PARKED_LISTED)) if stored.parked else ()
    is_leased = any(row.agenda.lease_owner for row in stored.repositories)
    leases = {row.repository: row for row in await store.query(ListLeases())} if is_leased else {}
    return Status(
        state=state,
        store_id=stored.store_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        accepted=stored.accepted,
        delivered=stored.delivered,
        superseded=stored.superseded,
        parked=stored.parked,
        waiting=stored.waiting,
        waiting_bytes=stored.waiting_bytes,
        known_repositories=stored.known_repositories,
        repositories=tuple(_line(row, leases, pace, now_unix_s) for row in stored.repositories),
        parked_files=tuple(
            ParkedLine(
                repository=row.repository,
                path=row.path,
                run_id=row.run_id,
                error_code=row.error_code.value,
                reason=row.reason,
            )
            for row in parked
        ),
        actors=tuple(
            ActorLine(
                name=actor.name,
                state=actor.state.value,
                depth=actor.depth,
                capacity=actor.capacity,
                handled=actor.handled,
                restarts=actor.restarts,
                oldest_wait_s=actor.oldest_wait_s,
            )
            for actor in actors
        ),
    )


def _line(row: RepositoryStatus, leases: Mapping[str, LeaseRow], pace: CommitPace, now_unix_s: float) -> RepositoryLine:
    agenda = row.agenda
    # Read a moment later than the agenda: it may have changed hands meanwhile.
    lease = leases.get(agenda.repository)
    if lease is not None and lease.owner != agenda.lease_owner:
        lease = None
    commits = agenda.commits_unix_s
    earliest = max(pace.earliest_unix_s(commits, now_unix_s), agenda.pause_until_unix_s)
    if agenda.pending_paths or agenda.pending_entries:
        earliest = max(earliest, agenda.not_before_unix_s)
    oldest = row.oldest_pending_unix_s
    return RepositoryLine(
        repository=agenda.repository,
        waiting_files=agenda.pending_paths,
        waiting_entries=agenda.pending_entries,
        waiting_bundles=agenda.pending_bundles,
        waiting_bytes=row.pending_bytes,
        oldest_waiting_s=None if oldest is None else max(0.0, now_unix_s - oldest),
        has_unknown_commit=agenda.has_open_attempt,
        next_commit_in_s=max(0.0, earliest - now_unix_s),
        commits_left=max(0, int(pace.tokens(commits, now_unix_s))),
        commits_last_hour=sum(time > now_unix_s - 3600.0 for time in commits),
        failures_in_row=agenda.failures,
        last_error_code=row.last_error_code,
        paused_reason=agenda.paused_reason,
        lease_owner=agenda.lease_owner,
        lease_ends_in_s=None if agenda.lease_owner is None else max(0.0, agenda.lease_expires_unix_s - now_unix_s),
        lease_since_s=None if lease is None else max(0.0, now_unix_s - lease.since_unix_s),
        lease_host=None if lease is None else lease.host or None,
        lease_pid=None if lease is None else lease.pid or None,
    )


__all__ = ["STATUS_VERSION", "ActorLine", "ParkedLine", "RepositoryLine", "Status", "read_status"]
