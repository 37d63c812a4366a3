"""One commit of everything that a repository has pending of run files (hand-over protocol, section 5.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import anyio

from ..protocol.commit_text import commit_body, delivery_id, run_files_title
from ..protocol.digests import ContentDigests, digest_bytes
from ..protocol.lease import Lease
from ..protocol.limits import PREUPLOAD_SAMPLE_BYTES
from ..protocol.outcome import HubError, Outcome, OutcomeKind
from ..protocol.run_index import RUN_INDEX_PATH, RunIndexUnreadable, merge_run_index
from ..protocol.work import (
    Attempt,
    AttemptFile,
    AttemptKind,
    PendingEntry,
    PendingPath,
    PreuploadAnswer,
    PreuploadFile,
    UploadMode,
)
from .commit_sender import CommitSender, HeadMoved, Landed, Rejected, StillUnknown
from .delivery_world import DeliveryWorld
from .ports import BytesSource
from .store_operations import PendingRunFiles, ReadContents, ReadPending, SettleUnchanged

RUN_INDEX_MAX_BYTES = 64 * 1024 * 1024
"""A larger index is not read: its entries wait and are reported, the files go without it."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What one cycle came to."""

    commit_id: str | None = None
    """The commit that landed, if one did."""
    outcome: Outcome | None = None
    """Why it failed, if it did."""
    is_unknown: bool = False
    """The attempt is recorded and its outcome is not known."""
    runs: Mapping[str, int] | None = None
    """For a failure before anything was recorded: how many files of each run it would have carried."""


class RunFilesCommit:
    """Makes the run-file commits of one repository.

    Args:
        repository: which one.
        world: the ports.
        sender: what sends and settles attempts.
    """

    def __init__(self, repository: str, world: DeliveryWorld, sender: CommitSender) -> None:
        self._repository = repository
        self._world = world
        self._sender = sender

    async def run(self, lease: Lease) -> CommitResult:
        """Commit every pending path, due or not, of every run, and every pending index entry.

        What exceeds the bounds of one request stays pending for the next cycle (finding W11). A conflict is planned
        again on the new head, a few times, and is no failure (N-HUB-02).

        Raises:
            LeaseLost: the lease is gone; nothing was sent.
        """
        pending = await self._world.store.query(ReadPending(self._repository))
        if not pending.paths and not pending.entries:
            return CommitResult()
        runs = _files_by_run(pending)
        result = CommitResult(outcome=Outcome(OutcomeKind.CONFLICT, "HeadMoved"), runs=runs)
        for round_number in range(self._world.limits.conflict_rounds):
            if round_number:
                await anyio.sleep(self._world.jitter() * 2.0**round_number)
            try:
                planned = await self._plan_and_send(pending, lease)
            except HubError as error:
                return CommitResult(outcome=error.outcome, runs=runs)
            if planned is not None:
                return planned
            pending = await self._world.store.query(ReadPending(self._repository))
            if not pending.paths and not pending.entries:
                return CommitResult()
        return result

    async def _plan_and_send(self, pending: PendingRunFiles, lease: Lease) -> CommitResult | None:
        """One round; None when the head moved and the plan has to be made again."""
        world = self._world
        chosen, contents = await self._with_contents(self._bounded(pending.paths))
        head = await world.hub.head(self._repository)
        files, has_ignored = await self._classify(chosen, contents, lease, head)
        entries: tuple[PendingEntry, ...] = ()
        index: bytes | None = None
        if pending.entries:
            index = await self._merged_index(pending, head)
            entries = pending.entries if index is not None else ()
        if not files and index is None:
            if has_ignored or (pending.entries and index is None):
                # What is left waits for somebody to change the repository: look again after a pause.
                return CommitResult(outcome=Outcome(OutcomeKind.REFUSED_ITEM, "NothingCommittable"))
            return CommitResult()
        inline = {
            file.digests.sha256: contents[file.digests.sha256] for file in files if file.mode is UploadMode.REGULAR
        }
        sent = list(files)
        if index is not None:
            digests = digest_bytes(index)
            mode = await self._index_mode(digests, index)
            sent.append(AttemptFile(RUN_INDEX_PATH, digests, mode))
            inline[digests.sha256] = index
        items = [(file.path, file.version, file.digests.sha256) for file in files]
        # The merged index differs from head to head; what is delivered with it are the entries.
        for entry in entries:
            items.append((f"{RUN_INDEX_PATH}#{entry.run_id}", 0, digest_bytes(entry.text.encode()).sha256))
        delivery = delivery_id(world.store.store_id, self._repository, items)
        attempt = Attempt(
            delivery_id=delivery,
            repository=self._repository,
            kind=AttemptKind.RUN_FILES,
            parent=head,
            title=run_files_title(
                [file.run_id for file in files if file.run_id is not None] + [entry.run_id for entry in entries]
            ),
            body=commit_body(delivery),
            files=tuple(sent),
            entries=entries,
            index_sha256=digest_bytes(index).sha256 if index is not None else None,
        )
        result = await self._sender.send(attempt, inline, lease, index_content=index)
        match result:
            case Landed(commit_id):
                return CommitResult(commit_id=commit_id)
            case HeadMoved():
                return None
            case Rejected(outcome):
                return CommitResult(outcome=outcome)
            case StillUnknown(outcome):
                return CommitResult(outcome=outcome, is_unknown=True)

    def _bounded(self, paths: Iterable[PendingPath]) -> list[PendingPath]:
        """As many paths as one request may carry, those that are due first before the others."""
        limits = self._world.limits
        chosen: list[PendingPath] = []
        size_bytes = 0
        for pending in sorted(paths, key=lambda pending: (pending.due_unix_s, pending.path)):
            size_bytes += pending.digests.size_bytes
            if chosen and (len(chosen) >= limits.max_operations - 1 or size_bytes > limits.max_inline_bytes):
                break
            chosen.append(pending)
        return sorted(chosen, key=lambda pending: pending.path)

    async def _with_contents(self, paths: list[PendingPath]) -> tuple[list[PendingPath], dict[str, bytes]]:
        """The bytes of the chosen paths, read before the Hub is asked anything: a build may replace them any moment.

        A path that was rewritten between the two reads has other bytes pending and is left to the next cycle.
        """
        wanted = tuple({pending.digests.sha256 for pending in paths})
        contents = dict(await self._world.store.query(ReadContents(wanted))) if wanted else {}
        return [pending for pending in paths if pending.digests.sha256 in contents], contents

    async def _classify(
        self, paths: list[PendingPath], contents: dict[str, bytes], lease: Lease, head: str
    ) -> tuple[list[AttemptFile], bool]:
        """Ask how each file is to be sent; settle what is there already, and upload what is not inline.

        Gives the files to commit, and whether the repository's ignore rules keep any out.
        """
        world = self._world
        if not paths:
            return [], False
        answers = await world.hub.preupload(
            self._repository,
            [
                PreuploadFile(
                    pending.path,
                    pending.digests.size_bytes,
                    contents[pending.digests.sha256][:PREUPLOAD_SAMPLE_BYTES],
                )
                for pending in paths
            ],
        )
        has_ignored = False
        unchanged: list[AttemptFile] = []
        changed: list[AttemptFile] = []
        for pending, answer in zip(paths, answers, strict=True):
            file = AttemptFile(
                pending.path,
                pending.digests,
                upload_mode(answer, pending.digests),
                version=pending.version,
                run_id=pending.run_id,
            )
            if answer.is_ignored:
                has_ignored = True
                world.warn.warn(
                    "path-ignored",
                    self._repository,
                    "the repository's .gitignore keeps a handed-over file out; it stays queued until that changes",
                )
            elif is_unchanged(answer, pending.digests):
                unchanged.append(file)
            else:
                changed.append(file)
        if unchanged:
            await world.ledger.write(
                SettleUnchanged(
                    repository=self._repository,
                    lease=lease,
                    files=tuple(unchanged),
                    commit_id=head,
                    now_unix_s=world.clock.unix_s(),
                )
            )
            world.board.settled(self._repository)
        for file in changed:
            if file.mode is UploadMode.LFS:
                source = BytesSource(file.digests, contents[file.digests.sha256])
                await world.hub.upload_object(self._repository, file.path, source, _no_progress)
        return changed, has_ignored

    async def _merged_index(self, pending: PendingRunFiles, head: str) -> bytes | None:
        """The index at the head with the pending entries; None when it cannot be read, and is left alone (W1, W2)."""
        world = self._world
        document = await world.hub.download(self._repository, head, RUN_INDEX_PATH, max_bytes=RUN_INDEX_MAX_BYTES)
        try:
            merged = merge_run_index(document, pending.entries, now_unix_s=world.clock.unix_s())
        except RunIndexUnreadable as error:
            world.warn.warn(
                "run-index-unreadable",
                self._repository,
                f"runs.json cannot be read ({error.code}) and was left as it is; its entries wait, files go without it",
            )
            return None
        world.warn.clear("run-index-unreadable", self._repository)
        return merged

    async def _index_mode(self, digests: ContentDigests, content: bytes) -> UploadMode:
        answers = await self._world.hub.preupload(
            self._repository,
            [PreuploadFile(RUN_INDEX_PATH, digests.size_bytes, content[:PREUPLOAD_SAMPLE_BYTES])],
        )
        mode = upload_mode(answers[0], digests)
        if mode is UploadMode.LFS:
            await self._world.hub.upload_object(
                self._repository, RUN_INDEX_PATH, BytesSource(digests, content), _no_progress
            )
        return mode


def upload_mode(answer: PreuploadAnswer, digests: ContentDigests) -> UploadMode:
    """How a file goes: as the Hub says, but an empty one always inline (hub API notes, section 4)."""
    return answer.mode if digests.size_bytes else UploadMode.REGULAR


def is_unchanged(answer: PreuploadAnswer, digests: ContentDigests) -> bool:
    """Whether the path has this content already, by whichever identity the Hub shows for it."""
    return answer.remote_oid is not None and answer.remote_oid in (digests.git_oid, digests.sha256)


def _files_by_run(pending: PendingRunFiles) -> dict[str, int]:
    runs = {entry.run_id: 0 for entry in pending.entries}
    for path in pending.paths:
        runs[path.run_id] = runs.get(path.run_id, 0) + 1
    return runs


def _no_progress(passed_bytes: int) -> None:
    """Run files are small; nobody watches their bytes pass."""


__all__ = ["CommitResult", "RunFilesCommit", "is_unchanged", "upload_mode"]
