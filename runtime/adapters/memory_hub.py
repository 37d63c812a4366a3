"""The `Hub` port in memory: the same promises as the real one, in virtual time, with scripted faults.

For simulations and for tests of actors. All waiting is `anyio.sleep`, so a virtual clock passes it at once. A commit
takes effect at one instant: cancelled before it, nothing landed; cancelled after it, the commit stands and its answer
is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import anyio

from ...actors.port_errors import ContentChanged, CredentialMissing
from ...actors.ports import BytesSource, CommitRequest, FileSource, Progress, UploadSource
from ...protocol.digests import digest_bytes
from ...protocol.errors import LocalProtocolError
from ...protocol.limits import HUB_INLINE_FILE_MAX_BYTES
from ...protocol.outcome import HubError, Outcome, OutcomeKind
from ...protocol.receipts import WriteAccess
from ...protocol.work import HubCommit, PreuploadAnswer, PreuploadFile, RemoteFile, UploadMode
from . import memory_hub_faults as answers
from .memory_hub_faults import Fault, FaultEffect, FaultScript, HubCall
from .memory_hub_options import Credential, MemoryHubOptions, RecordedCall
from .memory_hub_state import LandedCommit, MemoryRepository, StoredFile, stored_file

_UPLOAD_STEPS: Final = 8


class MemoryHub:
    """The Hub in memory.

    Args:
        options: its behaviour.
        repositories: what exists from the beginning, as `OWNER/NAME`.
        read_file: gives the bytes of a local file to upload; reads the real filesystem by default.

    Attributes:
        credential: the token of the one user, which may be changed at any time.
        calls: every call, in order of their start.
        script: the faults in force.
        refused_paths: paths that no commit may carry; the refusal names them.
    """

    def __init__(
        self,
        options: MemoryHubOptions | None = None,
        *,
        repositories: Sequence[str] = (),
        read_file: Callable[[str], bytes] | None = None,
    ) -> None:
        self._options = options if options is not None else MemoryHubOptions()
        self._read_file = read_file if read_file is not None else lambda path: Path(path).read_bytes()
        self._repositories: dict[str, MemoryRepository] = {}
        self._late: list[tuple[float, CommitRequest]] = []
        self._stuck: list[tuple[str, float]] = []
        self.credential: Credential = "write"
        self.calls: list[RecordedCall] = []
        self.script = FaultScript()
        self.refused_paths: set[str] = set()
        for name in repositories:
            self._repositories[name] = MemoryRepository(name, at_s=0.0, unix_s=self._options.first_unix_s)

    # What tests and simulations look at and do.

    def create_repository(self, name: str) -> None:
        """Make a repository; nothing if it exists."""
        if name not in self._repositories:
            self._repositories[name] = MemoryRepository(name, at_s=self._now_s(), unix_s=self._unix_s())

    def delete_repository(self, name: str) -> None:
        """Remove a repository with all it holds."""
        self._repositories.pop(name, None)

    def fault(self, *faults: Fault) -> None:
        """Put faults in force."""
        self.script.add(*faults)

    def foreign_commit(self, repository: str, files: Mapping[str, bytes]) -> str:
        """Another writer commits now; gives the commit id."""
        self._settle()
        changed = {path: stored_file(content, is_lfs=False) for path, content in files.items()}
        return self._land(self._repositories[repository], "Commit of another writer", "", changed, is_foreign=True)

    def landed(self, repository: str | None = None) -> list[LandedCommit]:
        """The commits that came through the port, in order of landing, of one repository or of all."""
        self._settle()
        names = [repository] if repository is not None else list(self._repositories)
        commits = [c for name in names for c in self._repositories[name].commits if not c.is_foreign]
        return sorted(commits, key=lambda commit: commit.at_s)

    def content(self, repository: str, path: str) -> bytes | None:
        """What is at a path of `main` now."""
        self._settle()
        file = self._repositories[repository].head.tree.get(path)
        return file.content if file is not None else None

    def calls_of(self, call: HubCall, repository: str | None = None) -> list[RecordedCall]:
        """The calls of one method, of one repository or of all; for `UPLOAD` this is every upload start."""
        return [row for row in self.calls if row.call is call and repository in (None, row.repository)]

    # The port.

    async def has_credential(self) -> bool:
        """Whether a token is found now."""
        await anyio.sleep(0)
        return self.credential != "missing"

    async def head(self, repository: str) -> str:
        """The commit id of `main`."""
        async with self._call(HubCall.HEAD, repository):
            return self._repository(repository).head.commit_id

    async def recent_commits(self, repository: str, *, back_to: str | None = None) -> Sequence[HubCommit]:
        """Commits of `main`, newest first: one page, or as far as `back_to`."""
        async with self._call(HubCall.RECENT_COMMITS, repository):
            commits = [commit.to_hub_commit() for commit in reversed(self._repository(repository).commits)]
            ids = [commit.commit_id for commit in commits]
            if back_to is None:
                return commits[: self._options.commits_page]
            return commits[: ids.index(back_to) + 1] if back_to in ids else commits

    async def preupload(self, repository: str, files: Sequence[PreuploadFile]) -> Sequence[PreuploadAnswer]:
        """Ask how each file is to be sent."""
        paths = [file.path for file in files]
        async with self._call(HubCall.PREUPLOAD, repository, paths, writes=True):
            tree = self._repository(repository).head.tree
            return [self._preupload_answer(file, tree.get(file.path)) for file in files]

    async def upload_object(self, repository: str, path: str, source: UploadSource, progress: Progress) -> None:
        """Make the object present."""
        async with self._call(HubCall.UPLOAD, repository, [path], writes=True):
            content = self._read(source)
            if digest_bytes(content) != source.digests:
                raise ContentChanged("the file's bytes are not those that were handed over; hand it over again")
            step_bytes = max(1, -(-len(content) // _UPLOAD_STEPS))
            for start in range(0, len(content), step_bytes):
                count_bytes = len(content[start : start + step_bytes])
                await anyio.sleep(count_bytes / self._options.upload_bytes_per_s)
                progress(count_bytes)
            self._repository(repository).objects[source.digests.sha256] = content

    async def commit(self, request: CommitRequest) -> str:
        """Commit all files or none, if the head is still the parent."""
        paths = [file.path for file in request.files]
        async with self._call(HubCall.COMMIT, request.repository, paths, writes=True, request=request):
            repository = self._repository(request.repository)
            if repository.is_busy:
                raise HubError(answers.busy())
            self._check_quota(repository)
            changed = self._changes(repository, request)
            if repository.head.commit_id != request.parent:
                raise HubError(answers.moved())
            commit_id = self._land(repository, request.title, request.body, changed)
            if self._options.commit_s:
                repository.is_busy = True
                try:
                    await anyio.sleep(self._options.commit_s)
                finally:
                    repository.is_busy = False
            return commit_id

    async def paths_info(self, repository: str, revision: str, paths: Sequence[str]) -> dict[str, RemoteFile]:
        """What is at these paths at that revision."""
        async with self._call(HubCall.PATHS_INFO, repository, paths):
            tree = self._revision(repository, revision).tree
            return {path: tree[path].to_remote_file(path) for path in paths if path in tree}

    async def last_commit(self, repository: str, revision: str, path: str) -> str | None:
        """The id of the commit that last changed a path, seen from that revision."""
        async with self._call(HubCall.LAST_COMMIT, repository, [path]):
            self._revision(repository, revision)
            return self._repository(repository).last_change(revision, path)

    async def download(self, repository: str, revision: str, path: str, *, max_bytes: int) -> bytes | None:
        """A file's bytes, or None if it is not there."""
        async with self._call(HubCall.DOWNLOAD, repository, [path]):
            file = self._revision(repository, revision).tree.get(path)
            if file is None:
                return None
            if len(file.content) > max_bytes:
                raise HubError(Outcome(OutcomeKind.REFUSED_ITEM, "FileTooLarge", paths=(path,)))
            return file.content

    async def write_access(self, repository: str) -> WriteAccess:
        """Whether the credential may write there."""
        try:
            await self.head(repository)
        except CredentialMissing:
            return WriteAccess(credential="missing")
        except HubError as error:
            return WriteAccess(credential="present", reachable=False, error_type=error.outcome.error_type)
        return WriteAccess(credential="present", reachable=True, can_write=self.credential == "write")

    def unfinished_threads(self, repository: str) -> int:
        """How many stalled uploads still hold a thread."""
        now_s = self._now_s()
        self._stuck = [(name, until_s) for name, until_s in self._stuck if until_s > now_s]
        return sum(name == repository for name, _ in self._stuck)

    # One call: its record, its time, its faults.

    @asynccontextmanager
    async def _call(
        self,
        call: HubCall,
        repository: str,
        paths: Sequence[str] = (),
        *,
        writes: bool = False,
        request: CommitRequest | None = None,
    ) -> AsyncIterator[None]:
        """Wait for the call's effect, let the caller carry it out, and wait for the answer; faults on the way."""
        if self.credential == "missing":
            raise CredentialMissing("no Hugging Face token was found: set HF_TOKEN or log in")
        record = RecordedCall(call, repository, tuple(paths), self._now_s())
        self.calls.append(record)
        faults = self.script.met_by(call, repository, paths)
        try:
            await anyio.sleep(self._options.latency_s / 2 + sum(fault.before_s for fault in faults))
            self._settle()
            for fault in faults:
                await self._meet_before(fault, call, repository, request)
            if self.credential == "revoked" or (writes and self.credential == "read"):
                raise HubError(answers.needs_person(401 if self.credential == "revoked" else 403))
            yield
            await anyio.sleep(self._options.latency_s / 2 + sum(fault.after_s for fault in faults))
            if any(fault.effect is FaultEffect.LOSE_ANSWER for fault in faults):
                raise HubError(answers.unanswered(call, "RemoteProtocolError"))
            if any(fault.effect is FaultEffect.CORRUPT for fault in faults):
                raise HubError(Outcome(OutcomeKind.TRANSIENT, "DigestMismatch", 200))
            record.end = "done"
        except (HubError, ContentChanged) as error:
            record.end = error.outcome.kind.value if isinstance(error, HubError) else error.code
            raise
        finally:
            record.ended_s = self._now_s()
            if record.end == "running":
                record.end = "cancelled"

    async def _meet_before(self, fault: Fault, call: HubCall, repository: str, request: CommitRequest | None) -> None:
        match fault.effect:
            case FaultEffect.REFUSE if fault.outcome is not None:
                raise HubError(fault.outcome)
            case FaultEffect.LOSE_REQUEST:
                raise HubError(answers.unanswered(call, "RemoteProtocolError"))
            case FaultEffect.LAND_LATE if request is not None:
                self._late.append((self._now_s() + fault.late_s, request))
                raise HubError(answers.unanswered(call))
            case FaultEffect.FOREIGN_COMMIT:
                self.foreign_commit(repository, fault.files)
            case FaultEffect.STALL:
                is_upload = call is HubCall.UPLOAD
                try:
                    await anyio.sleep(self._options.stall_s if is_upload else self._options.answer_s)
                finally:
                    if is_upload:
                        self._stuck.append((repository, self._now_s() + fault.late_s))
                raise HubError(answers.unanswered(call, "TransferStalled" if is_upload else "ReadTimeout"))

    # The state.

    def _now_s(self) -> float:
        return anyio.current_time()

    def _unix_s(self) -> float:
        return self._options.first_unix_s + self._now_s()

    def _repository(self, name: str) -> MemoryRepository:
        repository = self._repositories.get(name)
        if repository is None:
            raise HubError(answers.not_found())
        return repository

    def _revision(self, name: str, revision: str) -> LandedCommit:
        commit = self._repository(name).at(revision)
        if commit is None:
            raise HubError(answers.not_found("Revision"))
        return commit

    def _read(self, source: UploadSource) -> bytes:
        match source:
            case BytesSource():
                return source.content
            case FileSource():
                try:
                    return self._read_file(source.local_path)
                except OSError as error:
                    raise HubError(Outcome(OutcomeKind.TRANSIENT, type(error).__name__)) from None
            case _:
                raise LocalProtocolError(f"an upload takes BytesSource or FileSource, not {type(source).__name__}")

    def _preupload_answer(self, file: PreuploadFile, there: StoredFile | None) -> PreuploadAnswer:
        options = self._options
        is_lfs = file.size_bytes > options.regular_limit_bytes or _fits(file.path, options.lfs_patterns)
        mode = UploadMode.LFS if is_lfs and file.size_bytes else UploadMode.REGULAR
        return PreuploadAnswer(file.path, mode, _fits(file.path, options.ignore_patterns), there.oid if there else None)

    def _changes(self, repository: MemoryRepository, request: CommitRequest) -> dict[str, StoredFile]:
        """The files of a commit; one that cannot be taken refuses them all."""
        changed: dict[str, StoredFile] = {}
        for file in request.files:
            if file.path in self.refused_paths:
                raise HubError(answers.refused(400, file.path))
            if file.mode is UploadMode.LFS and file.digests.size_bytes:
                content = repository.objects.get(file.digests.sha256)
                if content is None:
                    raise HubError(answers.refused(400, file.path))
                changed[file.path] = StoredFile(content, file.digests, is_lfs=True)
                continue
            content = request.contents[file.digests.sha256] if file.digests.size_bytes else b""
            if len(content) > HUB_INLINE_FILE_MAX_BYTES:
                raise HubError(answers.refused(400, file.path))
            changed[file.path] = stored_file(content, is_lfs=False)
        return changed

    def _check_quota(self, repository: MemoryRepository) -> None:
        limit = self._options.commits_per_hour
        recent = [commit.at_s for commit in repository.commits[1:] if commit.at_s > self._now_s() - 3600]
        if limit and len(recent) >= limit:
            raise HubError(answers.rate_limited(recent[-limit] + 3600 - self._now_s()))

    def _land(
        self,
        repository: MemoryRepository,
        title: str,
        body: str,
        changed: Mapping[str, StoredFile],
        *,
        is_foreign: bool = False,
        at_s: float | None = None,
    ) -> str:
        at_s = self._now_s() if at_s is None else at_s
        unix_s = self._options.first_unix_s + at_s
        parent = repository.head.commit_id
        landed = repository.land(title, body, changed, at_s=at_s, unix_s=unix_s, is_foreign=is_foreign, parent=parent)
        return landed.commit_id

    def _settle(self) -> None:
        """Let the commits land that were still being worked on and are due by now."""
        if not self._late:
            return
        now_s = self._now_s()
        due = sorted((item for item in self._late if item[0] <= now_s), key=lambda item: item[0])
        self._late = [item for item in self._late if item[0] > now_s]
        for at_s, request in due:
            repository = self._repositories.get(request.repository)
            if repository is None or repository.head.commit_id != request.parent:
                continue
            with suppress(HubError):
                self._land(repository, request.title, request.body, self._changes(repository, request), at_s=at_s)


def _fits(path: str, patterns: Sequence[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path, pattern) or fnmatchcase(name, pattern) for pattern in patterns)


__all__ = ["MemoryHub"]
