"""The writes of hand-overs and of leases: what is taken, and who may deliver it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..protocol.digests import ContentDigests
from ..protocol.lease import Lease, LeaseHeld
from ..protocol.receipts import BundleReceipt, RunFilesReceipt
from ..protocol.requests import CheckedBundle
from .store_port import Write


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


__all__ = [
    "AcquireLease",
    "ClampTimes",
    "FlushEverything",
    "IncomingFile",
    "RecordBundle",
    "RecordRunFiles",
    "ReleaseLease",
    "RenewLease",
    "RunFilesRecorded",
]
