"""A dataset repository in memory: its commits with their trees, and its uploaded objects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.digests import ContentDigests, digest_bytes
from ...protocol.work import HubCommit, RemoteFile


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a tree."""

    content: bytes
    digests: ContentDigests
    is_lfs: bool

    @property
    def oid(self) -> str:
        """The identity that preupload names: SHA-256 for LFS, git blob id otherwise."""
        return self.digests.sha256 if self.is_lfs else self.digests.git_oid

    def to_remote_file(self, path: str) -> RemoteFile:
        """As paths-info shows it; the git id of an LFS file is that of its pointer."""
        digests = self.digests
        if not self.is_lfs:
            return RemoteFile(path, digests.size_bytes, digests.git_oid, None)
        pointer = (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{digests.sha256}\nsize {digests.size_bytes}\n"
        )
        return RemoteFile(path, digests.size_bytes, digest_bytes(pointer.encode()).git_oid, digests.sha256)


@dataclass(frozen=True, slots=True)
class LandedCommit:
    """One commit of `main`."""

    repository: str
    commit_id: str
    parent: str | None
    title: str
    body: str
    at_s: float
    """On the event loop's clock."""
    unix_s: float
    is_foreign: bool
    """Another writer's, or the one that the repository was born with."""
    changed: Mapping[str, StoredFile]
    """What it carried, by path."""
    tree: Mapping[str, StoredFile]
    """Every file after it."""

    def to_hub_commit(self) -> HubCommit:
        """As a listing shows it."""
        return HubCommit(self.commit_id, self.title, self.body, self.unix_s)


class MemoryRepository:
    """One repository. It is born with one commit, like every repository of the Hub."""

    def __init__(self, name: str, *, at_s: float, unix_s: float) -> None:
        self.name = name
        self.commits: list[LandedCommit] = []
        self.objects: dict[str, bytes] = {}
        self.is_busy = False
        attributes = stored_file(b"*.bin filter=lfs diff=lfs merge=lfs -text\n", is_lfs=False)
        self.land(
            "initial commit", "", {".gitattributes": attributes}, at_s=at_s, unix_s=unix_s, is_foreign=True, parent=None
        )

    @property
    def head(self) -> LandedCommit:
        """The newest commit."""
        return self.commits[-1]

    def at(self, revision: str) -> LandedCommit | None:
        """The commit that a revision stands for: `main` or a commit id."""
        if revision == "main":
            return self.head
        return next((commit for commit in reversed(self.commits) if commit.commit_id == revision), None)

    def last_change(self, revision: str, path: str) -> str | None:
        """The id of the commit that last changed a path, seen from a revision at which it is."""
        seen = self.at(revision)
        if seen is None or path not in seen.tree:
            return None
        until = self.commits.index(seen)
        return next(
            (commit.commit_id for commit in reversed(self.commits[: until + 1]) if path in commit.changed), None
        )

    def land(
        self,
        title: str,
        body: str,
        changed: Mapping[str, StoredFile],
        *,
        at_s: float,
        unix_s: float,
        is_foreign: bool,
        parent: str | None,
    ) -> LandedCommit:
        """Put a commit on top."""
        seed = f"{self.name}\n{len(self.commits)}\n{parent}\n{title}\n{body}\n{sorted(changed)}"
        commit_id = hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()
        tree = {**(self.commits[-1].tree if self.commits else {}), **changed}
        commit = LandedCommit(self.name, commit_id, parent, title, body, at_s, unix_s, is_foreign, dict(changed), tree)
        self.commits.append(commit)
        return commit


def stored_file(content: bytes, *, is_lfs: bool) -> StoredFile:
    """A file with its digests."""
    return StoredFile(content, digest_bytes(content), is_lfs)


__all__ = ["LandedCommit", "MemoryRepository", "StoredFile", "stored_file"]
