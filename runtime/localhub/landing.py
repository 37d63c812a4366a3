"""Landing a commit: all checks first, then the objects, then one durable record."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .gitids import EMPTY_TREE_ID, blob_id, commit_id, pointer_text, tree_ids
from .problems import HubRefusal, bad_request, entry_not_found
from .records import CommitRecord, FileEntry, PathChange, iso_time
from .repository import Repository

if TYPE_CHECKING:
    from .state import HubState

MOVED = "A commit has happened since. Please refresh and try again."


@dataclass(frozen=True, slots=True)
class Put:
    """A regular file with its whole content."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class PutLfs:
    """A file whose content was uploaded before; ``size`` in bytes may be unknown to the client."""

    path: str
    sha256: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Remove:
    """A file to delete."""

    path: str


@dataclass(frozen=True, slots=True)
class RemoveFolder:
    """A folder to delete with all below it; ``path`` without the trailing slash."""

    path: str


Operation = Put | PutLfs | Remove | RemoveFolder


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """What a commit asks for. ``parent`` (5 to 40 hex digits) makes it conditional on the head of ``ref``.

    ``base`` is the commit to build on when ``ref`` does not exist yet (a pull request).
    """

    ref: str
    parent: str | None
    title: str
    description: str
    author: str
    operations: tuple[Operation, ...]
    origin: Literal["client", "system", "foreign"] = "client"
    request: int | None = None
    base: str | None = None


def land(state: "HubState", repository: Repository, draft: CommitDraft, *, folder_limit: int = 10_000) -> CommitRecord:
    """Land a commit or refuse it whole.

    Raises:
        HubRefusal: 412 the head is not ``parent``; 404 ``EntryNotFound`` a path to delete is absent; 400 an LFS object
            was never uploaded, a file and a folder clash, or a folder would exceed ``folder_limit`` entries.
        OSError: the disk refused; nothing landed.
    """
    with repository.lock:
        repository.require_alive()
        head = repository.refs.get(draft.ref, draft.base)
        if draft.parent is not None and (head is None or not head.startswith(draft.parent)):
            raise HubRefusal(412, MOVED)
        before = dict(repository.tree(head)) if head else {}
        after = dict(before)
        touched: dict[str, None] = {}
        contents: dict[str, bytes] = {}
        for operation in draft.operations:
            _apply(repository, operation, after, touched, contents)
        added = [path for path in touched if path in after and path not in before]
        _require_no_clash(after, added, folder_limit)
        changes = tuple(_change(path, before.get(path), after.get(path)) for path in touched)
        for path, content in contents.items():
            if path in after and not after[path].lfs:
                repository.objects.add_blob(content)
        tree = tree_ids({path: entry.oid for path, entry in after.items()})[""] if after else EMPTY_TREE_ID
        now = state.now_unix_ms()
        if head is not None:
            # Commit times never run backwards within a branch, whatever the machine's clock does.
            now = max(now, repository.commits[head].time_unix_ms)
        new_id = commit_id(
            tree=tree,
            parents=[head] if head else [],
            author=draft.author,
            time_unix_ms=now,
            title=draft.title,
            description=draft.description,
        )
        record = CommitRecord(
            repo_type=repository.repo_type,
            repo=repository.repo_id,
            ref=draft.ref,
            id=new_id,
            parent=head,
            tree=tree,
            time=iso_time(now),
            time_unix_ms=now,
            title=draft.title,
            description=draft.description,
            author=draft.author,
            origin=draft.origin,
            request=draft.request,
            changes=changes,
        )
        state.record(record)
        return record


def squash(state: "HubState", repository: Repository, ref: str, title: str, author: str) -> CommitRecord:
    """Replace the history of a branch by one commit with the same files."""
    with repository.lock:
        repository.require_alive()
        entries = repository.tree(repository.refs[ref]).values()
        tree = tree_ids({entry.path: entry.oid for entry in entries})[""] if entries else EMPTY_TREE_ID
        now = state.now_unix_ms()
        new_id = commit_id(tree=tree, parents=[], author=author, time_unix_ms=now, title=title, description="")
        changes = tuple(_change(entry.path, None, entry) for entry in entries)
        record = CommitRecord(
            repo_type=repository.repo_type,
            repo=repository.repo_id,
            ref=ref,
            id=new_id,
            parent=None,
            tree=tree,
            time=iso_time(now),
            time_unix_ms=now,
            title=title,
            description="",
            author=author,
            origin="client",
            request=None,
            changes=changes,
        )
        state.record(record)
        return record


def _apply(
    repository: Repository,
    operation: Operation,
    after: dict[str, FileEntry],
    touched: dict[str, None],
    contents: dict[str, bytes],
) -> None:
    path = operation.path
    match operation:
        case Put(content=content):
            contents[path] = content
            digest = hashlib.sha256(content).hexdigest()
            after[path] = FileEntry(path, blob_id(content), len(content), digest)
            touched[path] = None
        case PutLfs(sha256=digest, size=size):
            stored_bytes = repository.objects.lfs_size(digest)
            if stored_bytes is None or (size is not None and size != stored_bytes):
                raise bad_request(
                    "Your push was rejected because an LFS pointer pointed to a file that does not exist. "
                    f"Upload the content first. Offending file: {path} (oid sha256:{digest}, size {size})"
                )
            after[path] = FileEntry(path, blob_id(pointer_text(digest, stored_bytes)), stored_bytes, digest, lfs=True)
            touched[path] = None
        case Remove():
            if after.pop(path, None) is None:
                raise entry_not_found("A file with this name doesn't exist")
            touched[path] = None
        case RemoveFolder():
            below = [known for known in after if known.startswith(f"{path}/")]
            if not below:
                raise entry_not_found("A folder with this name doesn't exist")
            for known in below:
                del after[known]
                touched[known] = None


def _require_no_clash(after: dict[str, FileEntry], added: list[str], folder_limit: int) -> None:
    if not added:
        return
    new = set(added)
    for path in after:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in after and (folder in new or path in new):
                raise bad_request(f"{folder} cannot be a file and a folder at once (folder because of {path}).")
            folder = folder.rpartition("/")[0]
    children: Counter[str] = Counter()
    seen: set[str] = set()
    for path in after:
        child = path
        while child and child not in seen:
            seen.add(child)
            child_folder = child.rpartition("/")[0]
            children[child_folder] += 1
            child = child_folder
    for path in added:
        folder = path.rpartition("/")[0]
        if children[folder] > folder_limit:
            raise bad_request(
                f"Folder {folder or '/'} would have {children[folder]} entries; the limit is {folder_limit}. "
                "Spread the files over more folders."
            )


def _change(path: str, old: FileEntry | None, new: FileEntry | None) -> PathChange:
    if new is None:
        return PathChange(path, "delete")
    if old is None:
        action: Literal["add", "modify", "unchanged"] = "add"
    else:
        action = "unchanged" if old == new else "modify"
    return PathChange(path, action, new.oid, new.size, new.sha256, new.lfs)
