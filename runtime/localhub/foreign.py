"""Commits of somebody else, made on purpose to move a head under a client."""

from collections.abc import Mapping, Sequence

from .landing import CommitDraft, Operation, Put, PutLfs, Remove, land
from .patterns import lfs_by_attributes
from .records import CommitRecord
from .repository import Repository
from .state import HubState


def commit_foreign(
    state: HubState,
    repository: Repository,
    revision: str,
    title: str,
    files: Mapping[str, str] | None,
    delete: Sequence[str] = (),
) -> CommitRecord:
    """Commit as user ``another-writer``; without files and deletions one generated file is written.

    Raises:
        HubRefusal: the revision or a path to delete does not exist.
    """
    ref = repository.ref_for_commit(revision)
    if files is None and not delete:
        files = {"foreign/latest.txt": f"commit number {len(repository.commits)}\n"}
    attributes = repository.text_at(repository.refs[ref], ".gitattributes")
    operations: list[Operation] = [Remove(path) for path in delete]
    for path, text in (files or {}).items():
        content = text.encode()
        if lfs_by_attributes(attributes, path):
            operations.append(PutLfs(path, repository.objects.add_lfs(content), len(content)))
        else:
            operations.append(Put(path, content))
    draft = CommitDraft(ref, None, title, "", "another-writer", tuple(operations), origin="foreign")
    return land(state, repository, draft)
