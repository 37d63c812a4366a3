"""What ``commits.jsonl`` holds: one JSON object a line, told apart by ``kind``. It is the Hub's whole memory."""

from datetime import UTC, datetime
from typing import Literal

import msgspec

from .gitids import pointer_text

RepoType = Literal["model", "dataset", "space"]
REPO_TYPES: tuple[RepoType, ...] = ("dataset", "model", "space")


class FileEntry(msgspec.Struct, frozen=True):
    """One file of a tree. ``oid`` is the git blob id, for LFS that of the pointer; ``sha256`` that of the content."""

    path: str
    oid: str
    size: int
    sha256: str
    lfs: bool = False

    @property
    def content_oid(self) -> str:
        """The id a client compares with: sha256 for LFS, git blob id otherwise."""
        return self.sha256 if self.lfs else self.oid

    @property
    def pointer_size(self) -> int:
        """Size in bytes of the LFS pointer text."""
        return len(pointer_text(self.sha256, self.size))


class PathChange(msgspec.Struct, frozen=True):
    """One path of a commit. ``unchanged`` is a path that was sent with the content it had."""

    path: str
    action: Literal["add", "modify", "delete", "unchanged"]
    oid: str | None = None
    size: int | None = None
    sha256: str | None = None
    lfs: bool = False

    def entry(self) -> FileEntry | None:
        """The file after the commit, or None when it is gone."""
        if self.action == "delete" or self.oid is None or self.size is None or self.sha256 is None:
            return None
        return FileEntry(self.path, self.oid, self.size, self.sha256, self.lfs)


class CommitRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="commit"):
    """A landed commit. ``origin`` says who: a client, the Hub itself, or a scripted foreign writer.

    ``request`` is the number ``n`` of the request in ``requests.jsonl`` that carried it.
    """

    repo_type: RepoType
    repo: str
    ref: str
    id: str
    parent: str | None
    tree: str
    time: str
    time_unix_ms: int
    title: str
    description: str
    author: str
    origin: Literal["client", "system", "foreign"]
    request: int | None
    changes: tuple[PathChange, ...]


class RepoCreated(msgspec.Struct, frozen=True, tag_field="kind", tag="repo-created"):
    """A repository exists from here on; its initial commit is the next record of that repository."""

    repo_type: RepoType
    repo: str
    private: bool
    time_unix_ms: int


class RepoDeleted(msgspec.Struct, frozen=True, tag_field="kind", tag="repo-deleted"):
    """A repository and all its refs are gone."""

    repo_type: RepoType
    repo: str
    time_unix_ms: int


class RefMoved(msgspec.Struct, frozen=True, tag_field="kind", tag="ref"):
    """A branch or tag was made, or with ``target`` null removed."""

    repo_type: RepoType
    repo: str
    ref: str
    target: str | None
    time_unix_ms: int


Record = CommitRecord | RepoCreated | RepoDeleted | RefMoved


def iso_time(time_unix_ms: int) -> str:
    """UTC time as the Hub writes it, with milliseconds and ``Z``."""
    moment = datetime.fromtimestamp(time_unix_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_unix_ms % 1000:03d}Z"
