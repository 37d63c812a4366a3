"""The commit of bundles whose objects are on the Hub: the only part of a bundle that takes the repository's slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from ..protocol.commit_text import bundle_title, bundles_title, commit_body, delivery_id, message_lines
from ..protocol.digests import digest_bytes
from ..protocol.lease import Lease
from ..protocol.outcome import HubError, Outcome, OutcomeKind
from ..protocol.receipts import DeliveryCode
from ..protocol.work import Attempt, AttemptFile, AttemptKind, BundleWork, UploadMode
from .bundle_upload import BundleUpload, Presence, ReadyBundle
from .commit_sender import CommitSender, HeadMoved, Landed, Rejected, StillUnknown
from .delivery_world import DeliveryWorld
from .port_errors import LocalFileMissing, LocalFileTooLarge
from .ports import FileReading
from .run_files_commit import CommitResult
from .store_operations import ReadContents


class BundleCommit:
    """Commits ready bundles of one repository, as many as one request may carry in one commit.

    Args:
        repository: which one.
        world: the ports.
        sender: what sends and settles attempts.
        upload: what settles and postpones bundles.
        on_done: told the hand-over id of each bundle once it is settled or postponed.
    """

    def __init__(
        self,
        repository: str,
        world: DeliveryWorld,
        sender: CommitSender,
        upload: BundleUpload,
        on_done: Callable[[str], None],
    ) -> None:
        self._repository = repository
        self._world = world
        self._sender = sender
        self._upload = upload
        self._on_done = on_done
        self._done: set[str] = set()
        self._suspects: set[str] = set()

    def choose(self, ready: Sequence[ReadyBundle]) -> list[ReadyBundle]:
        """The bundles of the next commit, first come first: as many as one request may carry, at least one.

        Of several for the same folder only the first: the others differ from it, and are compared with what it left.
        """
        limits = self._world.limits
        chosen: list[ReadyBundle] = []
        operations, inline_bytes = 0, 0
        for bundle in ready:
            if any(bundle.work.folder == other.work.folder for other in chosen):
                continue
            if bundle.work.handover_id in self._suspects:
                # A commit with it was refused, and the Hub did not say why: it goes alone.
                if not chosen:
                    return [bundle]
                continue
            operations += len(bundle.files)
            inline_bytes += sum(file.digests.size_bytes for file in bundle.files if file.mode is UploadMode.REGULAR)
            if chosen and (operations > limits.max_operations or inline_bytes > limits.max_inline_bytes):
                break
            chosen.append(bundle)
        return chosen

    async def run(self, bundles: Sequence[ReadyBundle], lease: Lease) -> CommitResult:
        """Commit bundles, pinned to a head at which none of them is present.

        What is not told to `on_done` stays ready: after an unknown outcome or a conflict, which charges nothing to
        anybody (N-HUB-02), and after an error.

        Raises:
            LeaseLost: the lease is gone.
        """
        self._done = set()
        remaining = list(bundles)
        for round_number in range(self._world.limits.conflict_rounds):
            if round_number:
                await anyio.sleep(self._world.jitter() * 2.0**round_number)
            try:
                head = await self._world.hub.head(self._repository)
                remaining = await self._still_absent(remaining, head, lease)
                contents, remaining = await self._inline_contents(remaining, lease)
            except HubError as error:
                return await self._postpone_all(remaining, lease, error.outcome)
            if not remaining:
                return CommitResult()
            result = await self._sender.send(self._attempt(remaining, head), contents, lease)
            match result:
                case Landed(commit_id):
                    for bundle in remaining:
                        self._finish(bundle)
                    return CommitResult(commit_id=commit_id)
                case HeadMoved():
                    continue
                case Rejected(outcome):
                    return await self._after_refusal(remaining, lease, outcome)
                case StillUnknown(outcome):
                    return CommitResult(outcome=outcome, is_unknown=True)
        return CommitResult(outcome=Outcome(OutcomeKind.CONFLICT, "HeadMoved"))

    async def _postpone_all(self, bundles: Sequence[ReadyBundle], lease: Lease, outcome: Outcome) -> CommitResult:
        for bundle in bundles:
            if bundle.work.handover_id not in self._done:
                await self._upload.postpone_for(bundle.work, lease, outcome)
                self._finish(bundle)
        return CommitResult(outcome=outcome)

    async def _after_refusal(self, bundles: Sequence[ReadyBundle], lease: Lease, outcome: Outcome) -> CommitResult:
        """One bundle that the Hub refuses does not hold up those that shared its commit (N-HUB-05)."""
        if outcome.kind is not OutcomeKind.REFUSED_ITEM or len(bundles) == 1:
            return await self._postpone_all(bundles, lease, outcome)
        named = [bundle for bundle in bundles if any(file.path in outcome.paths for file in bundle.files)]
        if not named:
            self._suspects.update(bundle.work.handover_id for bundle in bundles)
        await self._postpone_all(named, lease, outcome)
        return CommitResult(outcome=outcome, is_narrowed=True)

    def _finish(self, bundle: ReadyBundle) -> None:
        self._done.add(bundle.work.handover_id)
        self._suspects.discard(bundle.work.handover_id)
        self._on_done(bundle.work.handover_id)

    async def _still_absent(self, bundles: Sequence[ReadyBundle], head: str, lease: Lease) -> list[ReadyBundle]:
        """Look again at the revision that the commit is pinned to (finding W12)."""
        absent: list[ReadyBundle] = []
        for bundle in bundles:
            if bundle.head != head:
                digests = [file.digests for file in bundle.files]
                presence = await self._upload.presence(bundle.work, digests, head)
                if presence not in (Presence.ABSENT, Presence.INCOMPLETE):
                    await self._upload.settle_present(bundle.work, lease, presence, head)
                    self._finish(bundle)
                    continue
            absent.append(ReadyBundle(bundle.work, bundle.files, head))
        return absent

    async def _inline_contents(
        self, bundles: Sequence[ReadyBundle], lease: Lease
    ) -> tuple[dict[str, bytes], list[ReadyBundle]]:
        """The bytes that go inline, each checked once more; a bundle whose bytes changed or vanished drops out."""
        world = self._world
        contents: dict[str, bytes] = {}
        good: list[ReadyBundle] = []
        for bundle in bundles:
            regular = [file for file in bundle.files if file.mode is UploadMode.REGULAR]
            kept = await world.store.query(ReadContents(tuple({file.digests.sha256 for file in regular})))
            try:
                own = dict(kept)
                for file in regular:
                    if file.digests.sha256 not in own:
                        own[file.digests.sha256] = await self._read_local(bundle.work, file)
            except LocalFileMissing:
                await self._upload.postpone(bundle.work, lease, DeliveryCode.PRESERVED_FILES_MISSING)
                self._finish(bundle)
            except LocalFileTooLarge:
                await self._upload.fail(bundle.work, lease, DeliveryCode.PRESERVED_BYTES_CHANGED)
                self._finish(bundle)
            else:
                if all(digest_bytes(own[file.digests.sha256]) == file.digests for file in regular):
                    contents.update(own)
                    good.append(bundle)
                else:
                    await self._upload.fail(bundle.work, lease, DeliveryCode.PRESERVED_BYTES_CHANGED)
                    self._finish(bundle)
        return contents, good

    async def _read_local(self, work: BundleWork, file: AttemptFile) -> bytes:
        name = file.path.rsplit("/", 1)[1]
        local_path = next(known.local_path for known in work.files if known.name == name)
        return (await self._world.files.read_all([FileReading(local_path, file.digests.size_bytes)]))[0].content

    def _attempt(self, bundles: Sequence[ReadyBundle], head: str) -> Attempt:
        files = tuple(file for bundle in bundles for file in bundle.files)
        delivery = delivery_id(
            self._world.store.store_id, self._repository, [(file.path, 0, file.digests.sha256) for file in files]
        )
        works = [bundle.work for bundle in bundles]
        titles = [bundle_title(work.run_id, work.folder, work.commit_message) for work in works]
        if len(works) == 1:
            title, lines = titles[0], list(message_lines(works[0].commit_message))
        else:
            title, lines = bundles_title([work.run_id for work in works]), titles
        return Attempt(
            delivery_id=delivery,
            repository=self._repository,
            kind=AttemptKind.BUNDLES,
            parent=head,
            title=title,
            body=commit_body(delivery, lines),
            files=files,
            handover_ids=tuple(work.handover_id for work in works),
        )


__all__ = ["BundleCommit"]
