"""The ports: all that the actors know of the world. Each adapter in the runtime keeps these promises, and the contract
suites hold every adapter of a port to them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..protocol.digests import ContentDigests
from ..protocol.receipts import WriteAccess
from ..protocol.work import AttemptFile, HubCommit, PreuploadAnswer, PreuploadFile, RemoteFile
from .store_operations import Query, Write

R = TypeVar("R")


class Clock(Protocol):
    """Wall-clock time, for what is stored. Waiting uses anyio's clock."""

    def unix_s(self) -> float:
        """Seconds since the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer of one operation of a transaction that raised; its effects alone were taken back."""

    error: Exception


class Store(Protocol):
    """The durable state. Values in, values out; no SQL shows."""

    async def transact(self, operations: Sequence[Write[Any]]) -> list[Any]:
        """Carry out the operations, in order, in one durable transaction.

        Each gets its answer, or a `Failed` with the error it raised; a failed one has no effect and does not disturb
        the others. The call returns only after everything is on stable storage. Once begun it runs to its end even if
        the caller is cancelled. Raises StoreError subclasses (full disk, damaged, read-only, closed, busy for too
        long): then none of the operations had an effect.
        """
        ...

    async def query(self, operation: Query[R]) -> R:
        """Read a consistent state on a connection of its own; never waits for a writer."""
        ...

    async def has_foreign_changes(self) -> bool:
        """Whether another process may have changed the store since the last call. Cheap; no table is read."""
        ...

    @property
    def store_id(self) -> str:
        """The random identity that the store was born with, 32 hexadecimal digits."""
        ...


class UploadSource(Protocol):
    """The bytes of one object to upload; they can be read more than once."""

    @property
    def digests(self) -> ContentDigests:
        """What the bytes must be. The adapter compares what it read with these before the object counts as uploaded."""
        ...


@dataclass(frozen=True, slots=True)
class BytesSource:
    """An object held in memory."""

    digests: ContentDigests
    content: bytes


@dataclass(frozen=True, slots=True)
class FileSource:
    """An object in a local file, read in place."""

    digests: ContentDigests
    local_path: str


Progress = Callable[[int], None]
"""Told how many further bytes have passed; called from any thread, must not block."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit to send to `main` of a dataset repository."""

    repository: str
    parent: str
    title: str
    body: str
    files: tuple[AttemptFile, ...]
    contents: dict[str, bytes]
    """By SHA-256, for every file of mode REGULAR."""


class Hub(Protocol):
    """The Hugging Face Hub, dataset repositories, branch `main`. Every method may raise HubError with a typed outcome;
    no other error leaves the adapter except CredentialMissing, ContentChanged and cancellation. Every exchange has a
    time limit. Cancelling a method abandons what it did; only `commit` may then still take effect.
    """

    async def has_credential(self) -> bool:
        """Whether a token is found now: `HF_TOKEN`, `HUGGINGFACE_TOKEN`, saved login (hand-over protocol, 5.1)."""
        ...

    async def head(self, repository: str) -> str:
        """The commit id of `main`."""
        ...

    async def recent_commits(self, repository: str, *, back_to: str | None = None) -> Sequence[HubCommit]:
        """Commits of `main`, newest first: the first page, or as far as `back_to` (itself included) within a bound."""
        ...

    async def preupload(self, repository: str, files: Sequence[PreuploadFile]) -> Sequence[PreuploadAnswer]:
        """Ask how each file is to be sent, and what is there now; any number of files, in their order."""
        ...

    async def upload_object(self, repository: str, path: str, source: UploadSource, progress: Progress) -> None:
        """Make the object of an LFS file present on the Hub; nothing is visible until a commit names it.

        Raises:
            HubError: as above; TRANSIENT also for a transfer that stood still for longer than allowed (N-HUB-14).
            ContentChanged: the bytes read were not the expected ones; nothing wrong was uploaded under their name.
        """
        ...

    async def commit(self, request: CommitRequest) -> str:
        """Commit all files or none, on condition that the head is still the parent; gives the new commit id.

        Raises:
            HubError: CONFLICT (head moved, or with `same_parent` another commit under way), REFUSED_*, NEEDS_PERSON,
                TRANSIENT (certainly not sent, or refused for now) or UNKNOWN.
        """
        ...

    async def paths_info(self, repository: str, revision: str, paths: Sequence[str]) -> dict[str, RemoteFile]:
        """What is at these paths at that revision; a path that holds no file is left out."""
        ...

    async def last_commit(self, repository: str, revision: str, path: str) -> str | None:
        """The id of the commit that last changed a path, seen from that revision; None if the Hub does not say."""
        ...

    async def download(self, repository: str, revision: str, path: str, *, max_bytes: int) -> bytes | None:
        """A file's bytes, compared with the digest the Hub names; None only on the Hub's own word that it is absent."""
        ...

    async def write_access(self, repository: str) -> WriteAccess:
        """Whether the credential may write there (hand-over protocol, section 4.6). Never raises HubError."""
        ...

    def unfinished_threads(self, repository: str) -> int:
        """How many abandoned threads still work for this repository; its lease is not released under them."""
        ...


@dataclass(frozen=True, slots=True)
class FileReading:
    """A file to read whole."""

    local_path: str
    max_bytes: int
    """More than this is not read, but refused."""


class LocalFiles(Protocol):
    """The build's own files, as they are handed over and as they are read again before an upload."""

    async def read_all(self, readings: Sequence[FileReading]) -> list[BytesSource]:
        """The whole contents of regular files, links followed, each as one consistent reading, with their digests.

        In the order given; the first that fails ends it.

        Raises:
            LocalFileMissing: one is no regular file, or cannot be read.
            LocalFileTooLarge: one has more than its `max_bytes` bytes; no more than that was read.
        """
        ...

    async def read_small(self, readings: Sequence[FileReading], *, together_bytes: int) -> list[BytesSource] | None:
        """As `read_all`, if the files have at most `together_bytes` bytes together; else None, with nothing read."""
        ...

    async def sizes_bytes(self, local_paths: Sequence[str]) -> list[int]:
        """Their sizes now, in the order given. Raises LocalFileMissing for the first that is no readable file."""
        ...

    async def digest(self, local_path: str, progress: Progress) -> ContentDigests:
        """Both digests in one reading, in a thread, in chunks; cancellation takes effect between chunks.

        Raises:
            LocalFileMissing: it is no regular file, cannot be read, or changed its length while it was read.
        """
        ...

    async def sample(self, local_path: str, sample_bytes: int) -> bytes:
        """The first bytes. Raises LocalFileMissing."""
        ...


Warn = Callable[[str, str], None]
"""Report a kind of trouble (a fixed word) and a detail that is a type name or a code; called at most once a kind."""

OnSettled = Callable[[str], None]
"""Told the name of a repository after something of it was settled."""

Wait = Callable[[float], Awaitable[None]]

__all__ = [
    "BytesSource",
    "Clock",
    "CommitRequest",
    "Failed",
    "FileReading",
    "FileSource",
    "Hub",
    "LocalFiles",
    "OnSettled",
    "Progress",
    "Store",
    "UploadSource",
    "Wait",
    "Warn",
]
