"""Object ids by git's rules: blobs, LFS pointers, trees and commits (hub API notes section 13)."""

import hashlib
from collections.abc import Iterable, Mapping

EMPTY_TREE_ID = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _object_id(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """Git blob id (40 hex digits) of whole content."""
    return _object_id("blob", content)


def pointer_text(sha256: str, size_bytes: int) -> bytes:
    """The LFS pointer file that git stores in place of the content."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size_bytes}\n".encode()


def tree_ids(blobs: Mapping[str, str]) -> dict[str, str]:
    """Tree id of every folder, the root under ``""``, for a mapping of file path to blob id."""
    children: dict[str, dict[str, tuple[str, bool]]] = {"": {}}
    for path, oid in blobs.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, {})[name] = (oid, False)
        while folder:
            parent, _, name = folder.rpartition("/")
            siblings = children.setdefault(parent, {})
            if name in siblings:
                break
            siblings[name] = ("", True)
            folder = parent
    found: dict[str, str] = {}
    for folder in sorted(children, key=lambda item: item.count("/") if item else -1, reverse=True):
        rows = []
        for name, (oid, is_tree) in children[folder].items():
            child_oid = found[f"{folder}/{name}" if folder else name] if is_tree else oid
            # Git sorts folders as if their names ended with a slash.
            rows.append((f"{name}/" if is_tree else name, is_tree, name, child_oid))
        rows.sort(key=lambda row: row[0].encode())
        content = b"".join(
            f"{'40000' if is_tree else '100644'} {name}".encode() + b"\0" + bytes.fromhex(oid)
            for _, is_tree, name, oid in rows
        )
        found[folder] = _object_id("tree", content)
    return found


def commit_id(
    *, tree: str, parents: Iterable[str], author: str, time_unix_ms: int, title: str, description: str
) -> str:
    """Git commit id (40 hex digits); the time enters in whole seconds, UTC."""
    stamp = f"{author} <{author}@users.noreply.local> {time_unix_ms // 1000} +0000"
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {stamp}", f"committer {stamp}", ""]
    message = title if not description else f"{title}\n\n{description}"
    return _object_id("commit", ("\n".join(lines) + f"\n{message}").encode())
