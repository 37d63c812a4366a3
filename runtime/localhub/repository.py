"""One repository in memory: its commits, its refs, and the tree of any commit."""

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from .gitids import tree_ids
from .objects import RepoObjects
from .problems import repo_not_found, revision_not_found
from .records import CommitRecord, FileEntry, RefMoved, RepoType

_CACHED_TREES = 32
Tree = Mapping[str, FileEntry]


class Repository:
    """Commits and refs of one repository, rebuilt from the journal at start.

    ``lock`` is held while a commit lands; readers need none, for trees and records never change once made.
    """

    def __init__(
        self, repo_type: RepoType, repo_id: str, objects: RepoObjects, *, private: bool, created_unix_ms: int
    ) -> None:
        self.repo_type = repo_type
        self.repo_id = repo_id
        self.objects = objects
        self.private = private
        self.created_unix_ms = created_unix_ms
        self.lock = threading.RLock()
        self.deleted = False
        self.commits: dict[str, CommitRecord] = {}
        self.refs: dict[str, str] = {}
        self._trees: OrderedDict[str, Tree] = OrderedDict()
        self._trees_lock = threading.Lock()

    def require_alive(self) -> None:
        """Call with ``lock`` held before a record is written.

        Raises:
            HubRefusal: 404 ``RepoNotFound``; it was deleted since the caller found it.
        """
        if self.deleted:
            raise repo_not_found()

    def apply(self, record: CommitRecord | RefMoved) -> None:
        """Take a record that is in the journal."""
        if isinstance(record, RefMoved):
            if record.target is None:
                self.refs.pop(record.ref, None)
            else:
                self.refs[record.ref] = record.target
        else:
            self.commits[record.id] = record
            self.refs[record.ref] = record.id

    def resolve(self, revision: str) -> str:
        """The full commit id that a branch, tag, ``refs/...`` name or (short) commit id stands for.

        Raises:
            HubRefusal: 404 ``RevisionNotFound``.
        """
        for ref in (f"refs/heads/{revision}", f"refs/tags/{revision}", revision):
            if ref in self.refs:
                return self.refs[ref]
        if re.fullmatch(r"[0-9a-f]{7,40}", revision):
            matches = [known for known in self.commits if known.startswith(revision)]
            if len(matches) == 1:
                return matches[0]
        raise revision_not_found(revision)

    def ref_for_commit(self, revision: str) -> str:
        """The ref that a commit to ``revision`` moves: a branch or an existing ``refs/...`` name.

        Raises:
            HubRefusal: 404 ``RevisionNotFound``; commit ids and tags cannot be committed to.
        """
        for ref in (f"refs/heads/{revision}", revision):
            if ref in self.refs and not ref.startswith("refs/tags/"):
                return ref
        raise revision_not_found(revision)

    def history(self, commit: str) -> Iterator[CommitRecord]:
        """The commit and its ancestors, newest first."""
        current: str | None = commit
        while current is not None:
            record = self.commits[current]
            yield record
            current = record.parent

    def tree(self, commit: str) -> Tree:
        """All files at a commit by path; not to be changed."""
        with self._trees_lock:
            pending: list[CommitRecord] = []
            base: Tree = {}
            for record in self.history(commit):
                if record.id in self._trees:
                    self._trees.move_to_end(record.id)
                    base = self._trees[record.id]
                    break
                pending.append(record)
            if not pending:
                return base
            files = dict(base)
            for record in reversed(pending):
                for change in record.changes:
                    entry = change.entry()
                    if entry is None:
                        files.pop(change.path, None)
                    else:
                        files[change.path] = entry
            self._trees[commit] = files
            while len(self._trees) > _CACHED_TREES:
                self._trees.popitem(last=False)
            return files

    def folders(self, commit: str) -> dict[str, str]:
        """Tree id of each folder at a commit by path, the root under ``""``."""
        return tree_ids({path: entry.oid for path, entry in self.tree(commit).items()})

    def last_commits(self, commit: str, paths: set[str]) -> dict[str, CommitRecord]:
        """For each path (a file or folder) the newest commit that touched it."""
        found: dict[str, CommitRecord] = {}
        open_paths = set(paths)
        for record in self.history(commit):
            if not open_paths:
                break
            touched: set[str] = set()
            for change in record.changes:
                if change.action != "unchanged":
                    path = change.path
                    while path and path not in touched:
                        touched.add(path)
                        path = path.rpartition("/")[0]
            for path in open_paths & touched:
                found[path] = record
            open_paths -= touched
        return found

    def text_at(self, commit: str, path: str) -> str:
        """Text of a small regular file at a commit, empty when there is none."""
        entry = self.tree(commit).get(path)
        if entry is None or entry.lfs:
            return ""
        return self.objects.blob_path(entry.oid).read_bytes().decode("utf-8", "replace")
