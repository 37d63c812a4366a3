"""The queries of the store: what is pending, what became of it, and what operators see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..protocol.receipts import BundleReceipt, DeliveryCode, RunFilesReceipt
from ..protocol.work import (
    Attempt,
    PendingEntry,
    PendingPath,
    RepositoryAgenda,
)
from .store_port import Query


@dataclass(frozen=True, slots=True)
class ReadAgenda(Query[RepositoryAgenda]):
    """What one repository has to do; `horizon_s` bounds the commits listed."""

    repository: str
    now_unix_s: float
    horizon_s: float


@dataclass(frozen=True, slots=True)
class ListOpenRepositories(Query[tuple[str, ...]]):
    """Repositories with anything pending or unknown, in name order."""


@dataclass(frozen=True, slots=True)
class PendingRunFiles:
    """Everything a run-file commit may carry."""

    paths: tuple[PendingPath, ...]
    entries: tuple[PendingEntry, ...]


@dataclass(frozen=True, slots=True)
class ReadPending(Query[PendingRunFiles]):
    """Every pending path of the repository, due or not, of every run, by path; and every pending entry, by run."""

    repository: str


@dataclass(frozen=True, slots=True)
class ReadContents(Query[Mapping[str, bytes]]):
    """The bytes of kept contents by SHA-256; one that is no longer kept is left out."""

    sha256s: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadSamples(Query[Mapping[str, bytes]]):
    """The first bytes of kept contents by SHA-256."""

    sha256s: tuple[str, ...]
    sample_bytes: int


@dataclass(frozen=True, slots=True)
class ReadOpenAttempt(Query[Attempt | None]):
    """The repository's commit whose outcome is unknown, if there is one."""

    repository: str


@dataclass(frozen=True, slots=True)
class ReadRunReceipt(Query[RunFilesReceipt]):
    """A run's receipt; one never heard of is `recorded` with zeros (section 4.2)."""

    repository: str
    run_id: str


@dataclass(frozen=True, slots=True)
class ReadBundleReceipt(Query[BundleReceipt | None]):
    """A bundle's receipt by hand-over id, or None."""

    handover_id: str


@dataclass(frozen=True, slots=True)
class AreSettled(Query[bool]):
    """Whether each of these path versions, and the entry, is on the Hub, or a newer one in its place.

    The entry is named by its version where it is known; by its text alone, one that was replaced counts as settled only
    once the run has no entry pending.
    """

    repository: str
    run_id: str
    versions: tuple[tuple[str, int], ...]
    entry_text: str | None = None
    entry_version: int = 0


@dataclass(frozen=True, slots=True)
class ParkedPath:
    """One path that was set aside."""

    repository: str
    path: str
    run_id: str
    version: int
    error_code: DeliveryCode
    reason: str


@dataclass(frozen=True, slots=True)
class ListParked(Query[tuple[ParkedPath, ...]]):
    """Paths that were set aside, of one repository or of all, by repository and path; at most `limit_rows`."""

    repository: str | None = None
    limit_rows: int = 1000


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """One path of a run with what was last committed for it."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ReadCommitted(Query[tuple[CommittedFile, ...]]):
    """The paths that a run handed over and of which something was committed, by path."""

    repository: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RepositoryStatus:
    """One repository in the status."""

    agenda: RepositoryAgenda
    oldest_pending_unix_s: float | None
    pending_bytes: int
    commits: int
    """Landed commits of this store, ever."""
    last_error_code: str | None


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """Totals that add up: accepted = delivered + superseded + waiting + parked (N-UX-03).

    One path version, one index entry text, or one bundle counts as one.
    """

    store_id: str
    accepted: int
    delivered: int
    superseded: int
    waiting: int
    parked: int
    waiting_bytes: int
    repositories: tuple[RepositoryStatus, ...]
    """Those with open work or a lease, by name."""
    known_repositories: int


@dataclass(frozen=True, slots=True)
class ReadStatus(Query[StoreStatus]):
    """The status of everything in the store."""

    now_unix_s: float
    horizon_s: float


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One lease as operators see it."""

    repository: str
    owner: str
    since_unix_s: float
    expires_unix_s: float
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class ListLeases(Query[tuple[LeaseRow, ...]]):
    """Every lease that has not been released, by repository."""


__all__ = [
    "AreSettled",
    "CommittedFile",
    "LeaseRow",
    "ListLeases",
    "ListOpenRepositories",
    "ListParked",
    "ParkedPath",
    "PendingRunFiles",
    "ReadAgenda",
    "ReadBundleReceipt",
    "ReadCommitted",
    "ReadContents",
    "ReadOpenAttempt",
    "ReadPending",
    "ReadRunReceipt",
    "ReadSamples",
    "ReadStatus",
    "RepositoryStatus",
    "StoreStatus",
]
