"""Preparing one claimed bundle: verify, look, upload its objects; all outside the repository's commit slot.

Source: hand-over protocol, section 5.6. Run files of the same repository go on being committed meanwhile; only the
final commit of the bundle takes the slot (finding W19).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import anyio

from ..protocol.digests import ContentDigests
from ..protocol.inventory import names_same_outputs
from ..protocol.lease import Lease
from ..protocol.limits import PREUPLOAD_SAMPLE_BYTES
from ..protocol.outcome import HubError, Outcome, OutcomeKind
from ..protocol.receipts import BundleStatus, DeliveryCode
from ..protocol.requests import INVENTORY_ROLE, SIDECAR_ROLES, BundleFile
from ..protocol.work import AttemptFile, BundleWork, BundleWorkFile, PreuploadFile, UploadMode
from .delivery_world import DeliveryWorld
from .hashing_pool import HashFile
from .port_errors import ContentChanged, LocalFileMissing
from .ports import BytesSource, FileSource, UploadSource
from .run_files_commit import upload_mode
from .store_operations import ReadContents, ReadSamples, RecordObject, RetryBundle, SettleBundle

INVENTORY_MAX_BYTES = 64 * 1024 * 1024
"""A larger inventory in the repository is different from any of ours."""


class Presence(Enum):
    """What a repository holds of a bundle."""

    ABSENT = "absent"
    SAME = "same"
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"
    """The same inventory, but outputs are missing: committing the bundle again restores them (finding W14)."""


@dataclass(frozen=True, slots=True)
class ReadyBundle:
    """A bundle whose objects are all on the Hub; only its commit is missing."""

    work: BundleWork
    files: tuple[AttemptFile, ...]
    head: str
    """The revision at which the repository was last looked at."""


class BundleUpload:
    """Prepares the bundles of one repository.

    Args:
        world: the ports.
    """

    def __init__(self, world: DeliveryWorld) -> None:
        self._world = world

    async def prepare(self, work: BundleWork, lease: Lease) -> ReadyBundle | None:
        """Bring a claimed bundle to where only its commit is missing, or settle or postpone it.

        Objects that were uploaded before a restart are neither hashed nor sent again (N-HUB-07).

        Returns:
            The bundle ready to commit; None when it was settled (`already_staged`, `failed`) or given back for later.

        Raises:
            LeaseLost: the claim is not ours any more; nothing was recorded.
        """
        try:
            digests = await self._verify(work)
            head = await self._world.hub.head(work.repository)
            if await self._settle_if_present(work, digests, lease, head):
                return None
            files = await self._upload(work, digests, lease)
        except LocalFileMissing:
            await self.postpone(work, lease, DeliveryCode.PRESERVED_FILES_MISSING)
        except ContentChanged:
            await self.fail(work, lease, DeliveryCode.PRESERVED_BYTES_CHANGED)
        except HubError as error:
            await self.postpone_for(work, lease, error.outcome)
        else:
            return ReadyBundle(work, files, head)
        return None

    async def _settle_if_present(
        self, work: BundleWork, digests: Sequence[ContentDigests], lease: Lease, head: str
    ) -> bool:
        """Settle or postpone a bundle by what the repository holds of it; False if it is to be uploaded."""
        try:
            presence = await self.presence(work, digests, head)
            return await self.settle_present(work, lease, presence, head)
        except HubError as error:
            retry_after_s = error.outcome.retry_after_s or 0.0
            await self.postpone(work, lease, DeliveryCode.REPOSITORY_UNAVAILABLE, retry_after_s=retry_after_s)
            return True

    async def presence(self, work: BundleWork, digests: Sequence[ContentDigests], revision: str) -> Presence:
        """What the repository holds of a bundle at one revision.

        Raises:
            HubError: the Hub could not say.
        """
        hub = self._world.hub
        inventory = next(file for file in work.files if file.role == INVENTORY_ROLE)
        path = f"{work.folder}/{inventory.name}"
        there = await hub.paths_info(work.repository, revision, [path])
        if path not in there:
            return Presence.ABSENT
        if there[path].size_bytes > INVENTORY_MAX_BYTES:
            return Presence.DIFFERENT
        document = await hub.download(work.repository, revision, path, max_bytes=INVENTORY_MAX_BYTES)
        outputs = {
            f"{work.folder}/{file.name}": (file, digest)
            for file, digest in zip(work.files, digests, strict=True)
            if file.role not in SIDECAR_ROLES
        }
        declared = [
            BundleFile(file.name, file.role, file.local_path, file.sha256, file.size_bytes)
            for file, _ in outputs.values()
        ]
        if document is None or not names_same_outputs(document, declared):
            return Presence.DIFFERENT
        remote = await hub.paths_info(work.repository, revision, list(outputs))
        if any(not remote[path].holds(outputs[path][1]) for path in remote):
            return Presence.DIFFERENT
        return Presence.SAME if remote.keys() == outputs.keys() else Presence.INCOMPLETE

    async def settle_present(self, work: BundleWork, lease: Lease, presence: Presence, revision: str) -> bool:
        """Settle a bundle that the repository already holds, or holds otherwise; answers whether it was settled."""
        if presence is Presence.SAME:
            inventory = next(file for file in work.files if file.role == INVENTORY_ROLE)
            path = f"{work.folder}/{inventory.name}"
            own = await self._world.hub.last_commit(work.repository, revision, path)
            await self._settle(work, lease, BundleStatus.ALREADY_STAGED, None, own or revision)
            return True
        if presence is Presence.DIFFERENT:
            await self.fail(work, lease, DeliveryCode.REMOTE_DIFFERS)
            return True
        return False

    async def fail(self, work: BundleWork, lease: Lease, code: DeliveryCode) -> None:
        """Settle a bundle as failed for good."""
        await self._settle(work, lease, BundleStatus.FAILED, code, None)

    async def postpone(self, work: BundleWork, lease: Lease, code: DeliveryCode, *, retry_after_s: float = 0.0) -> None:
        """Record a failed attempt; the bundle is tried again after its backoff, or when the Hub asked to."""
        world = self._world
        now = world.clock.unix_s()
        pause_s = max(world.backoff.pause_s(work.attempts + 1), retry_after_s)
        world.warn.warn(
            "bundle-attempt-failed", code, "a bundle could not be delivered; it stays queued and is retried"
        )
        await world.ledger.write(
            RetryBundle(
                handover_id=work.handover_id,
                lease=lease,
                error_code=code,
                next_attempt_unix_s=now + pause_s,
                pause_until_unix_s=now + retry_after_s if retry_after_s else 0.0,
            )
        )

    async def postpone_for(self, work: BundleWork, lease: Lease, outcome: Outcome) -> None:
        """Record an attempt that the Hub did not let succeed."""
        if outcome.kind is OutcomeKind.REFUSED_ITEM:
            # Repeating alone does not help: somebody has to know which repository and which answer it is.
            status = f" (HTTP {outcome.status})" if outcome.status is not None else ""
            self._world.warn.warn(
                "bundle-refused",
                work.repository,
                f"the Hub refuses a file of bundle {work.handover_id}{status}; the bundle stays queued and is tried "
                "again after growing pauses, correct the bundle or the repository",
            )
        is_read = outcome.kind in (OutcomeKind.REFUSED_REPOSITORY, OutcomeKind.UNKNOWN)
        code = DeliveryCode.REPOSITORY_UNAVAILABLE if is_read else DeliveryCode.UPLOAD_FAILED
        await self.postpone(work, lease, code, retry_after_s=outcome.retry_after_s or 0.0)

    async def _settle(
        self, work: BundleWork, lease: Lease, status: BundleStatus, code: DeliveryCode | None, revision: str | None
    ) -> None:
        world = self._world
        await world.ledger.write(
            SettleBundle(
                handover_id=work.handover_id,
                lease=lease,
                status=status,
                error_code=code,
                revision=revision,
                now_unix_s=world.clock.unix_s(),
            ),
            then=lambda: world.board.settled(work.repository),
        )

    async def _verify(self, work: BundleWork) -> list[ContentDigests]:
        """Check every file that is neither copied nor uploaded; gives the digests of all, in their order."""
        digests: list[ContentDigests] = []
        for file in work.files:
            if file.git_oid is not None and (file.is_copied or file.is_uploaded):
                digests.append(ContentDigests(file.sha256, file.git_oid, file.size_bytes))
                continue
            if await self._world.files.sizes_bytes([file.local_path]) != [file.size_bytes]:
                raise ContentChanged(f"{file.name!r} has another size than when it was handed over")
            measured = await self._world.hashing.ask(HashFile(file.local_path), within_s=24 * 3600.0)
            if measured.sha256 != file.sha256 or measured.size_bytes != file.size_bytes:
                raise ContentChanged(f"{file.name!r} has other bytes than when it was handed over")
            digests.append(measured)
        return digests

    async def _upload(
        self, work: BundleWork, digests: Sequence[ContentDigests], lease: Lease
    ) -> tuple[AttemptFile, ...]:
        """Upload every object that is not there yet, several at once within the Hub adapter's cap."""
        samples = [await self._sample(file) for file in work.files]
        answers = await self._world.hub.preupload(
            work.repository,
            [
                PreuploadFile(f"{work.folder}/{file.name}", file.size_bytes, sample)
                for file, sample in zip(work.files, samples, strict=True)
            ],
        )
        for answer in answers:
            if answer.is_ignored:
                raise HubError(Outcome(OutcomeKind.REFUSED_ITEM, "PathIgnored", paths=(answer.path,)))
        planned = tuple(
            AttemptFile(answer.path, digest, upload_mode(answer, digest), handover_id=work.handover_id)
            for digest, answer in zip(digests, answers, strict=True)
        )
        failure: list[Exception] = []
        async with anyio.create_task_group() as tasks:
            for file, attempt_file, answer in zip(work.files, planned, answers, strict=True):
                if attempt_file.mode is UploadMode.LFS and not file.is_uploaded:
                    is_there = answer.remote_oid == file.sha256
                    tasks.start_soon(self._upload_one, work, file, attempt_file, is_there, lease, failure, tasks)
        if failure:
            raise failure[0]
        return planned

    async def _upload_one(
        self,
        work: BundleWork,
        file: BundleWorkFile,
        attempt_file: AttemptFile,
        is_there: bool,
        lease: Lease,
        failure: list[Exception],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Upload one object and record it before anything else builds on it; the first failure stops the others."""
        try:
            if not is_there:
                # Copies are in memory from here to the end of their upload; large files are read where they lie.
                async with self._world.memory.hold(file.size_bytes if file.is_copied else 0):
                    source = await self._source(file, attempt_file.digests)
                    await self._world.hub.upload_object(work.repository, attempt_file.path, source, _no_progress)
            await self._world.ledger.write(
                RecordObject(
                    handover_id=work.handover_id, lease=lease, name=file.name, git_oid=attempt_file.digests.git_oid
                )
            )
        except Exception as error:
            failure.append(error)
            tasks.cancel_scope.cancel("another object of the bundle failed")

    async def _sample(self, file: BundleWorkFile) -> bytes:
        if file.is_copied:
            return (await self._world.store.query(ReadSamples((file.sha256,), PREUPLOAD_SAMPLE_BYTES)))[file.sha256]
        return await self._world.files.sample(file.local_path, PREUPLOAD_SAMPLE_BYTES)

    async def _source(self, file: BundleWorkFile, digests: ContentDigests) -> UploadSource:
        if file.is_copied:
            kept = await self._world.store.query(ReadContents((file.sha256,)))
            return BytesSource(digests, kept[file.sha256])
        return FileSource(digests, file.local_path)


def _no_progress(passed_bytes: int) -> None:
    """Progress of uploads is counted by the Hub adapter."""


__all__ = ["BundleUpload", "Presence", "ReadyBundle"]
