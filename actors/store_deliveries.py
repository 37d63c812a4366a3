"""The writes of deliveries: commits, bundles, pauses, what is set aside, and retention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..protocol.lease import Lease
from ..protocol.receipts import BundleStatus, DeliveryCode
from ..protocol.work import (
    Attempt,
    AttemptFile,
    BundleWork,
)
from .store_port import Write


@dataclass(frozen=True, slots=True)
class OpenAttempt(Write[None]):
    """Record a commit before it is sent. Its contents are kept until it is settled.

    `index_content` are the bytes of the merged `runs.json`, if it carries entries. `contents` are the bytes, by
    SHA-256, that the commit holds inline: those that newer bytes have replaced since they were read are kept again.
    The same attempt recorded twice is one. Raises LeaseLost if the lease is not the current one or has run out;
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
    `is_new_commit` False: the Hub already held everything and no commit was made; then neither the counters of runs,
    the spacing nor the budget move (finding W48). Backoff belongs to run files: a bundle that landed does not end it.
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
    With a parent only the attempt made against it is meant: whoever was held up long enough for another process to plan
    the same delivery on a newer head takes nothing away from that one.
    """

    delivery_id: str
    error_code: DeliveryCode | None = None
    parent: str | None = None


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


__all__ = [
    "ClaimBundle",
    "CountFailure",
    "NoteMissingCredential",
    "OpenAttempt",
    "ParkPaths",
    "PauseRepository",
    "Prune",
    "RecordObject",
    "ReleaseBundle",
    "RetryBundle",
    "RetryParked",
    "SettleBundle",
    "SettleLanded",
    "SettleNotLanded",
    "SettleUnchanged",
]
