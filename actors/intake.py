"""The Intake: validates hand-overs, copies their bytes, and answers once they are durable; refuses once stopping.

Source: hand-over protocol, sections 4.1 and 4.4. The build may rewrite or delete its files as soon as it has the answer
(N-STO-08).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import anyio

from ..protocol.bundle_copy import files_to_copy
from ..protocol.errors import ConveyorError
from ..protocol.handover_id import bundle_id
from ..protocol.limits import RUN_FILE_MAX_BYTES, RUN_FILES_TOGETHER_MAX_BYTES
from ..protocol.receipts import BundleReceipt, BundleStatus, DeliveryCode
from ..protocol.requests import (
    BundleFile,
    CheckedRunFiles,
    HandOverRefused,
    RefusalCode,
    StageDatasetBundle,
    StageRunFiles,
    check_bundle,
    check_run_files,
)
from .behaviour import ActorContext, BatchBehaviour
from .byte_budget import ByteBudget
from .ledger import LedgerRef
from .mailbox import Pending
from .port_errors import LocalFileMissing, LocalFileTooLarge
from .ports import BytesSource, Clock, FileReading, LocalFiles, Store
from .ref import Command
from .stop_gate import InFlight, StopGate
from .store_operations import IncomingFile, ReadBundleReceipt, RecordBundle, RecordRunFiles, RunFilesRecorded

INTAKE_CONCURRENT: Final = 32
"""Hand-overs that are read at once; further ones wait in the mailbox."""

SMALL_BYTES: Final = 1024 * 1024
"""Hand-overs up to this size are measured and read in one go."""


class Stopping(ConveyorError):
    """The shutdown has begun: nothing new is taken. What was accepted before is kept."""

    code: ClassVar[str] = "STOPPING"


@dataclass(frozen=True, slots=True)
class RunFilesTaken:
    """A run-file hand-over is durable."""

    recorded: RunFilesRecorded
    entry_text: str | None
    """The index entry that came with it, as it is recorded."""


@dataclass(frozen=True, slots=True)
class HandOverRunFiles(Command[RunFilesTaken]):
    """Take files of a running build."""

    request: StageRunFiles


@dataclass(frozen=True, slots=True)
class HandOverBundle(Command[BundleReceipt]):
    """Take the files of a finished build."""

    request: StageDatasetBundle


HandOver = HandOverRunFiles | HandOverBundle


class Intake(BatchBehaviour[HandOver]):
    """Takes hand-overs, many at once.

    Bounds: so many are read at once, so many bytes are held; others wait in its mailbox, beyond that the asker waits.
    An asker that gives up cancels the reading; what was already given to the store is recorded all the same.

    Args:
        store: for the receipts of known bundles.
        ledger: where hand-overs are recorded.
        files: the build's files.
        clock: for due times.
        gate: whether the shutdown has begun.
        memory: the bound on bytes held.
        endpoint: the Hub that hand-overs are for.
        interval_s: the commit interval of hand-overs that name none.
        taking: counts the hand-overs being taken, for the shutdown.
        on_recorded: told the repository of each recorded hand-over.
    """

    max_batch = INTAKE_CONCURRENT

    def __init__(
        self,
        *,
        store: Store,
        ledger: LedgerRef,
        files: LocalFiles,
        clock: Clock,
        gate: StopGate,
        memory: ByteBudget,
        endpoint: str,
        interval_s: float,
        taking: InFlight,
        on_recorded: Callable[[str], None],
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._files = files
        self._clock = clock
        self._gate = gate
        self._memory = memory
        self._endpoint = endpoint
        self._interval_s = interval_s
        self._taking = taking
        self._on_recorded = on_recorded
        self._slots = anyio.CapacityLimiter(INTAKE_CONCURRENT)

    async def setup(self, context: ActorContext[HandOver]) -> None:
        """Nothing to prepare."""
        self._context = context

    async def handle_batch(self, messages: Sequence[Pending[HandOver]]) -> None:
        """Begin each hand-over in a task of its own, when there is a free slot; refuse all once stopping."""
        for pending in messages:
            slot = object()
            await self._slots.acquire_on_behalf_of(slot)
            if self._gate.is_stopping:
                self._slots.release_on_behalf_of(slot)
                pending.refuse(Stopping("the runtime is stopping and takes no new hand-overs; start another one"))
                continue
            self._taking.enter("")
            scope = anyio.CancelScope()
            pending.defer(on_abandoned=scope.cancel)
            self._context.start_task(self._take, pending, scope, slot, name="hand-over")

    async def _take(self, pending: Pending[HandOver], scope: anyio.CancelScope, slot: object) -> None:
        try:
            with scope:
                message: Any = pending.message
                if isinstance(message, HandOverRunFiles):
                    answer: object = await self._take_run_files(message.request)
                else:
                    answer = await self._take_bundle(message.request)
                pending.answer(answer)
            if scope.cancelled_caught:
                # Nobody waits any more; the kernel need not remember it.
                pending.answer(None)
        except ConveyorError as error:
            pending.refuse(error)
        finally:
            self._taking.leave("")
            self._slots.release_on_behalf_of(slot)

    async def _take_run_files(self, request: StageRunFiles) -> RunFilesTaken:
        checked = check_run_files(request, interval_s=self._interval_s)
        readings = [FileReading(local_path, RUN_FILE_MAX_BYTES) for _, local_path in checked.sources]
        try:
            with _refusing_local_trouble():
                async with self._memory.hold(SMALL_BYTES):
                    sources = await self._files.read_small(readings, together_bytes=SMALL_BYTES)
                    if sources is not None:
                        return await self._record_run_files(checked, sources)
                sizes_bytes = await self._files.sizes_bytes([reading.local_path for reading in readings])
                _check_run_file_sizes(checked, sizes_bytes)
                async with self._memory.hold(sum(sizes_bytes)):
                    return await self._record_run_files(checked, await self._files.read_all(readings))
        except LocalFileTooLarge as error:
            raise HandOverRefused(RefusalCode.FILE_TOO_LARGE, str(error)) from None

    async def _record_run_files(self, checked: CheckedRunFiles, sources: Sequence[BytesSource]) -> RunFilesTaken:
        # They may have grown since they were measured.
        _check_run_file_sizes(checked, [source.digests.size_bytes for source in sources])
        recorded = await self._ledger.write(
            RecordRunFiles(
                repository=checked.repository,
                run_id=checked.run_id,
                files=tuple(
                    IncomingFile(path, source.digests, source.content)
                    for (path, _), source in zip(checked.sources, sources, strict=True)
                ),
                index_entry_text=checked.index_entry_text,
                flush=checked.flush,
                interval_s=checked.commit_interval_s,
                now_unix_s=self._clock.unix_s(),
                endpoint=self._endpoint,
            ),
            # Told there: what is durable has to be delivered, even if whoever handed it over has left meanwhile.
            then=lambda: self._on_recorded(checked.repository),
        )
        return RunFilesTaken(recorded, checked.index_entry_text)

    async def _take_bundle(self, request: StageDatasetBundle) -> BundleReceipt:
        checked = check_bundle(request)
        handover_id = bundle_id(checked)
        known = await self._store.query(ReadBundleReceipt(handover_id))
        if known is not None and not _may_be_queued_again(known):
            # Looked up before any file is touched: the build may have rewritten what was copied (finding W17).
            return known
        await self._check_bundle_sizes(checked.files)
        chosen = files_to_copy(checked.files)
        async with self._memory.hold(sum(file.size_bytes for file in chosen)):
            copies = await self._copy(chosen)
            return await self._ledger.write(
                RecordBundle(
                    handover_id=handover_id,
                    bundle=checked,
                    copies=copies,
                    now_unix_s=self._clock.unix_s(),
                    endpoint=self._endpoint,
                ),
                then=lambda: self._on_recorded(checked.repository),
            )

    async def _check_bundle_sizes(self, files: Sequence[BundleFile]) -> None:
        with _refusing_local_trouble():
            sizes_bytes = await self._files.sizes_bytes([str(file.local_path) for file in files])
        for file, size_bytes in zip(files, sizes_bytes, strict=True):
            if size_bytes != file.size_bytes:
                raise HandOverRefused(RefusalCode.FILE_SIZE_DIFFERS, _size_differs(file, f"{size_bytes} bytes"))

    async def _copy(self, files: Sequence[BundleFile]) -> dict[str, IncomingFile]:
        try:
            with _refusing_local_trouble():
                sources = await self._files.read_all(
                    [FileReading(str(file.local_path), file.size_bytes) for file in files]
                )
        except LocalFileTooLarge as error:
            raise HandOverRefused(RefusalCode.FILE_SIZE_DIFFERS, str(error)) from None
        copies: dict[str, IncomingFile] = {}
        for file, source in zip(files, sources, strict=True):
            digests = source.digests
            if digests.size_bytes != file.size_bytes:
                raise HandOverRefused(RefusalCode.FILE_SIZE_DIFFERS, _size_differs(file, f"{digests.size_bytes} bytes"))
            if digests.sha256 != file.sha256:
                raise HandOverRefused(
                    RefusalCode.FILE_DIGEST_DIFFERS,
                    f"{file.name!r} has the SHA-256 {digests.sha256} where {file.sha256} was declared; "
                    "hand it over again once it is complete, with the digest it has then",
                )
            copies[file.name] = IncomingFile(file.name, digests, source.content)
        return copies


@contextmanager
def _refusing_local_trouble() -> Iterator[None]:
    try:
        yield
    except LocalFileMissing as error:
        raise HandOverRefused(RefusalCode.LOCAL_FILE_MISSING, str(error)) from None


def _may_be_queued_again(receipt: BundleReceipt) -> bool:
    return receipt.status is BundleStatus.FAILED and receipt.error_code is DeliveryCode.PRESERVED_BYTES_CHANGED


def _check_run_file_sizes(checked: CheckedRunFiles, sizes_bytes: Sequence[int]) -> None:
    together_bytes = 0
    for (_, local_path), size_bytes in zip(checked.sources, sizes_bytes, strict=True):
        if size_bytes > RUN_FILE_MAX_BYTES:
            raise HandOverRefused(
                RefusalCode.FILE_TOO_LARGE,
                f"{local_path!r} has {size_bytes} bytes; a run file may have {RUN_FILE_MAX_BYTES} at most: "
                "hand it over as a bundle",
            )
        together_bytes += size_bytes
        if together_bytes > RUN_FILES_TOGETHER_MAX_BYTES:
            raise HandOverRefused(
                RefusalCode.FILE_TOO_LARGE,
                f"with {local_path!r} the files of this hand-over have {together_bytes} bytes together; "
                f"the limit is {RUN_FILES_TOGETHER_MAX_BYTES}: hand them over in several parts",
            )


def _size_differs(file: BundleFile, measured: str) -> str:
    return (
        f"{file.name!r} has {measured} where {file.size_bytes} were declared; "
        "hand it over again once it is complete, with the size it has then"
    )


__all__ = ["INTAKE_CONCURRENT", "HandOver", "HandOverBundle", "HandOverRunFiles", "Intake", "RunFilesTaken", "Stopping"]
