"""The operations of the store: what the actors ask for, each a frozen value with the type of its answer.

Writes go through the Ledger, many to a transaction; queries use connections of their own. Every `now_unix_s` is the
caller's wall clock: the store reads none. An operation that raises takes back its own effects only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from ..protocol.digests import ContentDigests
from ..protocol.errors import ConveyorError
from ..protocol.lease import Lease, LeaseHeld
from ..protocol.receipts import BundleReceipt, BundleStatus, DeliveryCode, RunFilesReceipt
from ..protocol.requests import CheckedBundle
from ..protocol.work import (
    Attempt,
    AttemptFile,
    BundleWork,
    PendingEntry,
    PendingPath,
    RepositoryAgenda,
)

R = TypeVar("R", covariant=True)


class Write(Generic[R]):
    """An operation that changes the store and answers an `R`."""


class Query(Generic[R]):
    """An operation that only reads the store and answers an `R`."""


class PlanOutdated(ConveyorError):
    """What a commit was to carry has changed since it was planned; nothing was recorded. Plan it again."""

    code: ClassVar[str] = "PLAN_OUTDATED"


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """One run file with its bytes, already read and hashed."""

    path: str
    digests: ContentDigests
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunFilesRecorded:
    """A run-file hand-over is durable."""

    receipt: RunFilesReceipt
    versions: tuple[tuple[str, int], ...]
    """Each path with the version to wait for."""
    has_entry: bool
    """An index entry came with it."""
    entry_version: int = 0
    """The version of that entry to wait for; 0 without one."""


# --- hand-overs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordRunFiles(Write[RunFilesRecorded]):
    """Record a run-file hand-over: bytes, versions, due times, flush (hand-over protocol, section 5.4)."""

    repository: str
    run_id: str
    files: tuple[IncomingFile, ...]
    index_entry_text: str | None
    flush: bool
    interval_s: float
    now_unix_s: float
    endpoint: str
    """The Hub it was handed over for (finding W40)."""


@dataclass(frozen=True, slots=True)
class RecordBundle(Write[BundleReceipt]):
    """Record a bundle, or answer the stored receipt of a known one.

    A known bundle that failed with `PRESERVED_BYTES_CHANGED` is queued again, with the copies of this hand-over: the
    caller has just verified its files (finding W16).
    """

    handover_id: str
    bundle: CheckedBundle
    copies: Mapping[str, IncomingFile] = field(repr=False)
    """By file name; each with its bytes."""
    now_unix_s: float
    endpoint: str


@dataclass(frozen=True, slots=True)
class FlushEverything(Write[int]):
    """Make every pending run file and entry due now; answers how many repositories have any."""

    now_unix_s: float


# --- leases -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AcquireLease(Write[Lease | LeaseHeld]):
    """Lease a repository, if no other owner's lease is in force; a lease of the same owner is renewed.

    The fence grows with each grant to another owner and after each release. Stored times that lie ahead of
    `now_unix_s` by more than their own period are clamped (finding W24). Bundles claimed under the lease of another
    owner are free again; those of the same owner stay claimed until it releases the lease.
    """

    repository: str
    owner: str
    now_unix_s: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class RenewLease(Write[Lease]):
    """Prolong a lease. Raises LeaseLost if it is not the current one, or has run out."""

    lease: Lease
    now_unix_s: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class ReleaseLease(Write[None]):
    """Give a lease back, and every bundle claimed under it, without counting attempts. A lost one is ignored."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ClampTimes(Write[bool]):
    """Bring stored times of a repository that lie in the future back to now, durably; answers whether any did (W24)."""

    repository: str
    now_unix_s: float
    backoff_max_s: float


# --- commits ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenAttempt(Write[None]):
    """Record a commit before it is sent. Its contents are kept until it is settled.

    `index_content` are the bytes of the merged `runs.json`, if it carries entries. `contents` are the bytes, by SHA-256,
    that the commit holds inline: those that newer bytes have replaced since they were read are kept again. The same
    attempt recorded twice is one. Raises LeaseLost if the lease is not the current one or has run out;
    LocalProtocolError if another attempt of the repository is open; PlanOutdated if a path was settled at a newer
    version or set aside meanwhile, or inline bytes of a run file are neither kept nor given.
    """

    attempt: Attempt
    lease: Lease
    now_unix_s: float
    index_content: bytes | None = field(default=None, repr=False)
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SettleLanded(Write[None]):
    """Record that an open attempt landed: a fact, whoever holds the lease (section 5.5).

    Applies `path_state.landed` to each path, settles entries whose text is still the sent one, counts for each run,
    settles bundles as `uploaded` with this commit, clears failures and backoff, deletes contents nothing needs.
    `is_new_commit` False: the Hub already held everything and no commit was made; then neither the counters of runs, the
    spacing nor the budget move (finding W48). Backoff belongs to run files: a bundle that landed does not end it.
    Unknown delivery ids are ignored.
    """

    delivery_id: str
    commit_id: str
    landed_unix_s: float
    is_new_commit: bool = True


@dataclass(frozen=True, slots=True)
class SettleNotLanded(Write[None]):
    """Record that an open attempt can never land; what it carried is pending as before.

    With a code it counts as a failed attempt of its runs; without (a conflict that is planned again) nothing counts.
    """

    delivery_id: str
    error_code: DeliveryCode | None = None


@dataclass(frozen=True, slots=True)
class SettleUnchanged(Write[None]):
    """Record that the Hub already holds these pending paths with these contents, without a commit (W48)."""

    repository: str
    lease: Lease
    files: tuple[AttemptFile, ...]
    commit_id: str
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class CountFailure(Write[None]):
    """Record a failed run-file attempt: counters and code of the runs, failures + 1, not before `not_before_unix_s`.

    `runs` maps run id to the number of its files in the attempt. `pause_until_unix_s` holds back bundles too (429).
    """

    repository: str
    runs: Mapping[str, int]
    error_code: DeliveryCode
    not_before_unix_s: float
    pause_until_unix_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoteMissingCredential(Write[None]):
    """Show `CREDENTIAL_MISSING` in the receipts of everything pending, without an attempt or a backoff (W21)."""

    repository: str


# --- bundles ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimBundle(Write[BundleWork | None]):
    """Claim the pending bundle of the repository that was handed over first among those due (W20), or None.

    Raises LeaseLost if the repository's lease is not the current one or has run out.
    """

    lease: Lease
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class ReleaseBundle(Write[None]):
    """Give a claimed bundle back without counting an attempt; others are ignored."""

    handover_id: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class RecordObject(Write[None]):
    """Record that a bundle's object is on the Hub, with the digest measured while it was read (N-HUB-07).

    Raises LeaseLost if the claim is not under this lease any more.
    """

    handover_id: str
    lease: Lease
    name: str
    git_oid: str


@dataclass(frozen=True, slots=True)
class SettleBundle(Write[None]):
    """Record the end of a bundle other than by a landed commit: `already_staged` or `failed`; counts an attempt.

    Raises LeaseLost if the claim is not under this lease any more.
    """

    handover_id: str
    lease: Lease
    status: BundleStatus
    error_code: DeliveryCode | None
    revision: str | None
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class RetryBundle(Write[None]):
    """Record a failed attempt of a claimed bundle and give it back; not tried again before `next_attempt_unix_s`.

    Raises LeaseLost if the claim is not under this lease any more.
    """

    handover_id: str
    lease: Lease
    error_code: DeliveryCode
    next_attempt_unix_s: float
    pause_until_unix_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PauseRepository(Write[None]):
    """Pause a repository until a person acts or its credential changes; None as reason resumes it."""

    repository: str
    reason: str | None
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class ParkPaths(Write[int]):
    """Set paths aside that the Hub will never take as they are, so that they hold up no others (finding W7, N-HUB-05).

    Only a pending version that is still the newest, and not part of an open attempt, is set aside; its bytes are kept.
    Handing the path over again brings it back, as does RetryParked. Answers how many were set aside. Raises LeaseLost.
    """

    repository: str
    lease: Lease
    versions: tuple[tuple[str, int], ...]
    error_code: DeliveryCode
    reason: str
    """For a person; without credentials or addresses."""
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class RetryParked(Write[int]):
    """Make the parked paths of a repository pending and due again; answers how many."""

    repository: str
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class Prune(Write[int]):
    """Delete settled rows last changed before `before_unix_s`, and contents that nothing needs; answers how many rows.

    At most about `limit_rows` of each kind go in one transaction, so that it stays short: ask again until the answer
    is 0. Counters of repositories, parked paths, and a day of commits before `before_unix_s` stay.
    """

    before_unix_s: float
    limit_rows: int = 1000


# --- queries ------------------------------------------------------------------------------------------------------


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
    "AcquireLease",
    "AreSettled",
    "ClaimBundle",
    "ClampTimes",
    "CommittedFile",
    "CountFailure",
    "FlushEverything",
    "IncomingFile",
    "LeaseRow",
    "ListLeases",
    "ListOpenRepositories",
    "ListParked",
    "NoteMissingCredential",
    "OpenAttempt",
    "ParkPaths",
    "ParkedPath",
    "PauseRepository",
    "PendingRunFiles",
    "PlanOutdated",
    "Prune",
    "Query",
    "ReadAgenda",
    "ReadBundleReceipt",
    "ReadCommitted",
    "ReadContents",
    "ReadOpenAttempt",
    "ReadPending",
    "ReadRunReceipt",
    "ReadSamples",
    "ReadStatus",
    "RecordBundle",
    "RecordObject",
    "RecordRunFiles",
    "ReleaseBundle",
    "ReleaseLease",
    "RenewLease",
    "RepositoryStatus",
    "RetryBundle",
    "RetryParked",
    "RunFilesRecorded",
    "SettleBundle",
    "SettleLanded",
    "SettleNotLanded",
    "SettleUnchanged",
    "StoreStatus",
    "Write",
]
