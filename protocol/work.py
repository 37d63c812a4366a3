"""The values that pass between the store, the actors and the Hub: what is pending, what is sent, what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .digests import ContentDigests


class UploadMode(StrEnum):
    """How the Hub wants a file; it alone decides, file by file (hub API notes, section 4)."""

    REGULAR = "regular"
    """Inline in the commit's body."""
    LFS = "lfs"
    """Uploaded as an object first; the commit names it."""


@dataclass(frozen=True, slots=True)
class PendingPath:
    """One repository path whose newest bytes wait for a commit."""

    path: str
    run_id: str
    version: int
    digests: ContentDigests
    due_unix_s: float = 0.0
    """When it was due; what waited longest goes first where not everything fits one commit."""


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """One run's entry for `runs.json` that waits for a commit."""

    run_id: str
    text: str


@dataclass(frozen=True, slots=True)
class BundleWorkFile:
    """One file of a claimed bundle."""

    name: str
    role: str
    local_path: str
    sha256: str
    size_bytes: int
    git_oid: str | None
    """Known for copied files, and for others once they were hashed."""
    is_copied: bool
    is_uploaded: bool
    """The object is on the Hub: a restart neither sends nor hashes it again (N-HUB-07)."""


@dataclass(frozen=True, slots=True)
class BundleWork:
    """A claimed bundle."""

    handover_id: str
    repository: str
    run_id: str
    folder: str
    commit_message: str | None
    attempts: int
    files: tuple[BundleWorkFile, ...]
    """In the order handed over."""


class AttemptKind(StrEnum):
    """What a commit carries."""

    RUN_FILES = "run_files"
    BUNDLES = "bundles"


@dataclass(frozen=True, slots=True)
class AttemptFile:
    """One file of a commit."""

    path: str
    digests: ContentDigests
    mode: UploadMode
    version: int = 0
    """The path's version; 0 for a bundle's file."""
    run_id: str | None = None
    """Whose run file it is."""
    handover_id: str | None = None
    """Whose bundle file it is."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One commit, recorded before its first byte leaves (hub API notes, section 12)."""

    delivery_id: str
    repository: str
    kind: AttemptKind
    parent: str
    """The commit id that the plan was made against, and that the branch must still have."""
    title: str
    body: str
    files: tuple[AttemptFile, ...]
    entries: tuple[PendingEntry, ...] = ()
    """The index entries that it carries, merged into `runs.json`."""
    index_sha256: str | None = None
    """The digest of the merged `runs.json`, kept as a content, when there are entries."""
    handover_ids: tuple[str, ...] = ()
    """The bundles that it carries."""


@dataclass(frozen=True, slots=True)
class RepositoryAgenda:
    """What one repository has to do, as one consistent read of the store.

    All times are wall-clock, seconds since the epoch.
    """

    repository: str
    pending_paths: int
    pending_entries: int
    run_files_due_unix_s: float | None
    """The earliest due time of a pending path or entry; None without any."""
    pending_bundles: int
    bundles_due_unix_s: float | None
    """The earliest time that a pending, unclaimed bundle may be tried; None without any."""
    has_open_attempt: bool
    """A commit was recorded whose outcome is not."""
    not_before_unix_s: float
    """Backoff of run-file commits after failures; 0 without any."""
    pause_until_unix_s: float
    """The Hub asked every commit to wait, bundles too (429); 0 without."""
    failures: int
    commits_unix_s: tuple[float, ...]
    """This store's commits of the last hours, oldest first."""
    last_commit_unix_s: float | None
    lease_owner: str | None
    lease_expires_unix_s: float
    paused_reason: str | None
    """Why the repository waits for a person, if it does."""

    @property
    def is_idle(self) -> bool:
        """Nothing is pending and nothing is unknown."""
        return not (self.pending_paths or self.pending_entries or self.pending_bundles or self.has_open_attempt)


@dataclass(frozen=True, slots=True)
class HubCommit:
    """One commit in a branch's listing."""

    commit_id: str
    title: str
    body: str
    unix_s: float | None


@dataclass(frozen=True, slots=True)
class PreuploadFile:
    """What preupload is told of one file."""

    path: str
    size_bytes: int
    sample: bytes
    """The first 512 bytes, or all of a shorter file."""


@dataclass(frozen=True, slots=True)
class PreuploadAnswer:
    """What the Hub says of one file before it is sent."""

    path: str
    mode: UploadMode
    is_ignored: bool
    """The repository's ignore rules would drop it without a word: it must not count as delivered (finding W8)."""
    remote_oid: str | None
    """What is at the path now: a git blob id (regular) or a SHA-256 (LFS); None if nothing is."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file in the repository at a commit."""

    path: str
    size_bytes: int
    git_oid: str
    sha256: str | None
    """For LFS files; a regular file is known by its git blob id only."""

    def holds(self, digests: ContentDigests) -> bool:
        """Whether it has this content, compared by the kind of identity that the Hub shows."""
        if self.size_bytes != digests.size_bytes:
            return False
        return self.sha256 == digests.sha256 if self.sha256 is not None else self.git_oid == digests.git_oid


__all__ = [
    "Attempt",
    "AttemptFile",
    "AttemptKind",
    "BundleWork",
    "BundleWorkFile",
    "HubCommit",
    "PendingEntry",
    "PendingPath",
    "PreuploadAnswer",
    "PreuploadFile",
    "RemoteFile",
    "RepositoryAgenda",
    "UploadMode",
]
