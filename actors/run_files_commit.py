"""One commit of everything that a repository has pending of run files (hand-over protocol, section 5.5)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from ..protocol.commit_text import commit_body, delivery_id, run_files_title
from ..protocol.digests import ContentDigests, digest_bytes
from ..protocol.lease import Lease
from ..protocol.limits import PREUPLOAD_SAMPLE_BYTES
from ..protocol.outcome import HubError, Outcome, OutcomeKind
from ..protocol.receipts import DeliveryCode
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
from .store_operations import ParkPaths, PendingRunFiles, PlanOutdated, ReadContents, ReadPending, SettleUnchanged

RUN_INDEX_MAX_BYTES = 64 * 1024 * 1024
"""A larger index is not read: its entries wait and are reported, the files go without it."""
PREUPLOADS_MAX = 64
"""Questions of one cycle in search of refused paths; what is not answered by then stays pending for the next one."""


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
    held_runs: tuple[str, ...] = ()
    """Runs whose entries wait because `runs.json` cannot be brought up to date; files went without it."""
    is_narrowed: bool = False
    """Something in it was refused for good: the next cycle carries less, or goes without what was set aside."""


@dataclass(frozen=True, slots=True)
class _Index:
    """The part of one commit that is the run index."""

    content: bytes | None = None
    """The merged document, if it has to be committed."""
    file: AttemptFile | None = None
    entries: tuple[PendingEntry, ...] = ()
    """The entries that the commit settles: in `content`, or in the repository already."""
    held_runs: tuple[str, ...] = ()
    """Runs whose entries have to wait."""


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
        self._most_files: int | None = None
        self._without_index = False

    async def run(self, lease: Lease) -> CommitResult:
        """Commit every pending path, due or not, of every run, and every pending index entry.

        What exceeds the bounds of one request stays pending for the next cycle (finding W11). A conflict is planned
        again on the new head, a few times, and is no failure (N-HUB-02). What the Hub refuses for good is set aside;
        where it does not say which file it means, fewer go at a time until it is found (N-HUB-05).

        Raises:
            LeaseLost: the lease is gone; nothing was sent.
        """
        for round_number in range(self._world.limits.conflict_rounds):
            if round_number:
                await anyio.sleep(self._world.jitter() * 2.0**round_number)
            pending = await self._world.store.query(ReadPending(self._repository))
            if not pending.paths and not pending.entries:
                return CommitResult()
            try:
                planned = await self._plan_and_send(pending, lease)
            except HubError as error:
                return CommitResult(outcome=error.outcome, runs=_files_by_run(pending))
            except PlanOutdated:
                continue
            if planned is not None:
                return planned
        return CommitResult(outcome=Outcome(OutcomeKind.CONFLICT, "HeadMoved"))

    async def _plan_and_send(self, pending: PendingRunFiles, lease: Lease) -> CommitResult | None:
        """One round; None when the plan has to be made again."""
        chosen, contents = await self._with_contents(self._bounded(pending.paths))
        if pending.paths and not chosen:
            return None
        head = await self._world.hub.head(self._repository)
        files = await self._classify(chosen, contents, lease, head)
        index = await self._index(pending.entries, head)
        held = index.held_runs
        if not files and not index.entries:
            return CommitResult(held_runs=held)
        inline = {
            file.digests.sha256: contents[file.digests.sha256] for file in files if file.mode is UploadMode.REGULAR
        }
        sent = list(files)
        if index.file is not None and index.content is not None:
            sent.append(index.file)
            inline[index.file.digests.sha256] = index.content
        attempt = self._attempt(files, sent, index, head)
        if not sent:
            await self._sender.settle_present(attempt, lease, head)
            return CommitResult(held_runs=held)
        result = await self._sender.send(attempt, inline, lease, index_content=index.content)
        match result:
            case Landed(commit_id):
                self._without_index = False
                if self._most_files is not None:
                    self._most_files *= 2
                return CommitResult(commit_id=commit_id, held_runs=held)
            case HeadMoved():
                return None
            case Rejected(outcome):
                return await self._narrow(files, index, outcome, lease)
            case StillUnknown(outcome):
                return CommitResult(outcome=outcome, is_unknown=True, held_runs=held)

    def _attempt(self, files: Sequence[AttemptFile], sent: Sequence[AttemptFile], index: _Index, head: str) -> Attempt:
        items = [(file.path, file.version, file.digests.sha256) for file in files]
        # The merged index differs from head to head; what is delivered with it are the entries.
        for entry in index.entries:
            items.append((f"{RUN_INDEX_PATH}#{entry.run_id}", 0, digest_bytes(entry.text.encode()).sha256))
        delivery = delivery_id(self._world.store.store_id, self._repository, items)
        runs = [file.run_id for file in files if file.run_id is not None]
        return Attempt(
            delivery_id=delivery,
            repository=self._repository,
            kind=AttemptKind.RUN_FILES,
            parent=head,
            title=run_files_title(runs + [entry.run_id for entry in index.entries]),
            body=commit_body(delivery),
            files=tuple(sent),
            entries=index.entries,
            index_sha256=index.file.digests.sha256 if index.file is not None else None,
        )

    async def _narrow(
        self, files: Sequence[AttemptFile], index: _Index, outcome: Outcome, lease: Lease
    ) -> CommitResult:
        """After a refusal for good: set aside what is the cause, or carry less until it is found."""
        if outcome.kind is not OutcomeKind.REFUSED_ITEM:
            return CommitResult(outcome=outcome, held_runs=index.held_runs)
        named = [file for file in files if file.path in outcome.paths]
        if index.content is not None and (RUN_INDEX_PATH in outcome.paths or (not named and len(files) <= 1)):
            self._without_index = bool(files)
            return CommitResult(outcome=outcome, is_narrowed=bool(files), held_runs=_runs_of(index.entries))
        if not named and len(files) > 1:
            self._most_files = len(files) // 2
        else:
            await self._set_aside(named or files, lease, _refusal(outcome))
            self._most_files = None
        return CommitResult(outcome=outcome, is_narrowed=True, held_runs=index.held_runs)

    async def _set_aside(self, files: Sequence[AttemptFile | PendingPath], lease: Lease, reason: str) -> None:
        """Park files that no commit will ever carry as they are, so that they hold up no others (findings W7, W8)."""
        world = self._world
        await world.ledger.write(
            ParkPaths(
                repository=self._repository,
                lease=lease,
                versions=tuple((file.path, file.version) for file in files),
                error_code=DeliveryCode.UPLOAD_FAILED,
                reason=reason,
                now_unix_s=world.clock.unix_s(),
            ),
            then=lambda: world.board.settled(self._repository),
        )
        world.warn.warn(
            "path-set-aside", self._repository, "a file that cannot be committed was set aside; the status names it"
        )

    def _bounded(self, paths: Iterable[PendingPath]) -> list[PendingPath]:
        """As many paths as one request may carry, those that are due first before the others."""
        limits = self._world.limits
        most_files = min(self._most_files or limits.max_operations, max(1, limits.max_operations - 1))
        chosen: list[PendingPath] = []
        size_bytes = 0
        for pending in sorted(paths, key=lambda pending: (pending.due_unix_s, pending.path)):
            size_bytes += pending.digests.size_bytes
            if chosen and (len(chosen) >= most_files or size_bytes > limits.max_inline_bytes):
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
    ) -> list[AttemptFile]:
        """Ask how each file is to be sent; settle what is there already, and upload what is not inline.

        Gives the files to commit, without those that the repository's ignore rules keep out or that the Hub refuses:
        they are set aside.
        """
        world = self._world
        answers = await self._ask_modes(paths, contents, lease)
        ignored: list[AttemptFile] = []
        unchanged: list[AttemptFile] = []
        changed: list[AttemptFile] = []
        for pending, answer in answers:
            file = AttemptFile(
                pending.path,
                pending.digests,
                upload_mode(answer, pending.digests),
                version=pending.version,
                run_id=pending.run_id,
            )
            if answer.is_ignored:
                ignored.append(file)
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
                ),
                then=lambda: world.board.settled(self._repository),
            )
        if ignored:
            await self._set_aside(
                ignored, lease, "the repository's .gitignore keeps it out; change that and hand it over again"
            )
        accepted: list[AttemptFile] = []
        for file in changed:
            if file.mode is UploadMode.LFS:
                source = BytesSource(file.digests, contents[file.digests.sha256])
                try:
                    await world.hub.upload_object(self._repository, file.path, source, _no_progress)
                except HubError as error:
                    if error.outcome.kind is not OutcomeKind.REFUSED_ITEM:
                        raise
                    await self._set_aside([file], lease, _refusal(error.outcome))
                    continue
            accepted.append(file)
        return accepted

    async def _ask_modes(
        self, paths: list[PendingPath], contents: dict[str, bytes], lease: Lease
    ) -> list[tuple[PendingPath, PreuploadAnswer]]:
        """Ask the Hub how each path goes; a path that it refuses even to be asked about is set aside (N-HUB-05).

        One such path fails the question for all. Where the Hub does not say which one it means, the halves are asked
        about at once, until it is found: a question makes no commit, so no spacing applies to it.
        """
        answered: list[tuple[PendingPath, PreuploadAnswer]] = []
        groups = [paths] if paths else []
        for _ in range(PREUPLOADS_MAX):
            if not groups:
                break
            group = groups.pop()
            asked = [
                PreuploadFile(
                    path.path, path.digests.size_bytes, contents[path.digests.sha256][:PREUPLOAD_SAMPLE_BYTES]
                )
                for path in group
            ]
            try:
                answers = await self._world.hub.preupload(self._repository, asked)
            except HubError as error:
                outcome = error.outcome
                if outcome.kind is not OutcomeKind.REFUSED_ITEM:
                    raise
                culprits = [path for path in group if path.path in outcome.paths] or (group if len(group) == 1 else [])
                if culprits:
                    await self._set_aside(culprits, lease, _refusal(outcome))
                    parts = [[path for path in group if path not in culprits]]
                else:
                    parts = [group[len(group) // 2 :], group[: len(group) // 2]]
                groups += [part for part in parts if part]
            else:
                answered += zip(group, answers, strict=True)
        return answered

    async def _index(self, entries: tuple[PendingEntry, ...], head: str) -> _Index:
        """The index at the head with the pending entries; where that cannot be made it is left alone (W1, W2)."""
        if not entries:
            return _Index()
        if self._without_index:
            return self._held_index(entries, "RefusedByTheHub")
        hub = self._world.hub
        try:
            document = await hub.download(self._repository, head, RUN_INDEX_PATH, max_bytes=RUN_INDEX_MAX_BYTES)
            merged = merge_run_index(document, entries, now_unix_s=self._world.clock.unix_s())
            if document is not None and _runs_in(document) == _runs_in(merged):
                # Committed before, by a copy of this store for example: only its time would change (N-HUB-15).
                return _Index(entries=entries)
            digests = digest_bytes(merged)
            (answer,) = await hub.preupload(
                self._repository, [PreuploadFile(RUN_INDEX_PATH, digests.size_bytes, merged[:PREUPLOAD_SAMPLE_BYTES])]
            )
            if answer.is_ignored:
                return self._held_index(entries, "PathIgnored")
            file = AttemptFile(RUN_INDEX_PATH, digests, upload_mode(answer, digests))
            if file.mode is UploadMode.LFS:
                await hub.upload_object(self._repository, RUN_INDEX_PATH, BytesSource(digests, merged), _no_progress)
        except RunIndexUnreadable as error:
            return self._held_index(entries, error.code)
        except HubError as error:
            if error.outcome.kind is not OutcomeKind.REFUSED_ITEM:
                raise
            return self._held_index(entries, error.outcome.error_type)
        self._world.warn.clear("run-index-held", self._repository)
        return _Index(merged, file, entries)

    def _held_index(self, entries: tuple[PendingEntry, ...], why: str) -> _Index:
        self._world.warn.warn(
            "run-index-held",
            self._repository,
            f"runs.json cannot be brought up to date ({why}) and was left as it is; its entries wait, files go "
            "without it",
        )
        return _Index(held_runs=_runs_of(entries))


def upload_mode(answer: PreuploadAnswer, digests: ContentDigests) -> UploadMode:
    """How a file goes: as the Hub says, but an empty one always inline (hub API notes, section 4)."""
    return answer.mode if digests.size_bytes else UploadMode.REGULAR


def is_unchanged(answer: PreuploadAnswer, digests: ContentDigests) -> bool:
    """Whether the path has this content already, by whichever identity the Hub shows for it."""
    return answer.remote_oid is not None and answer.remote_oid in (digests.git_oid, digests.sha256)


def _refusal(outcome: Outcome) -> str:
    status = f" (HTTP {outcome.status})" if outcome.status is not None else ""
    said = f": {outcome.server_text}" if outcome.server_text else ""
    return f"the Hub refuses it{status}{said}; correct it and hand it over again"


def _files_by_run(pending: PendingRunFiles) -> dict[str, int]:
    runs = {entry.run_id: 0 for entry in pending.entries}
    for path in pending.paths:
        runs[path.run_id] = runs.get(path.run_id, 0) + 1
    return runs


def _runs_of(entries: Iterable[PendingEntry]) -> tuple[str, ...]:
    return tuple(entry.run_id for entry in entries)


def _runs_in(document: bytes) -> object:
    return json.loads(document)["runs"]


def _no_progress(passed_bytes: int) -> None:
    """Run files are small; nobody watches their bytes pass."""


__all__ = ["CommitResult", "RunFilesCommit", "is_unchanged", "upload_mode"]
