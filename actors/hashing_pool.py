"""The hashing pool: a fixed number of workers that pull files to hash, so that hashing never takes over the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from ..protocol.digests import ContentDigests
from ..protocol.errors import ConveyorError
from .behaviour import ActorContext, BatchBehaviour, ExitReason
from .mailbox import Pending
from .ports import LocalFiles, Progress
from .ref import Command


@dataclass(frozen=True, slots=True)
class HashFile(Command[ContentDigests]):
    """Compute both digests of a local file, as it is now.

    The answer is an error if the file cannot be read (LocalFileMissing), or whatever `progress` raised.
    """

    local_path: str
    progress: Progress | None = None
    """Told how many further bytes have passed; called from any thread, must not block."""


@dataclass(frozen=True, slots=True)
class HashingStatistics:
    """One look at a hashing pool, over all its lives. Commands that wait are in the statistics of its mailbox."""

    workers: int
    busy: int
    """Files that are being hashed now."""
    hashed: int
    """Files that were hashed to the end."""
    failed: int
    """Files that could not be hashed."""
    given_up: int
    """Files that nobody waited for any more, before their hashing began or in the middle of it."""
    hashed_bytes: int
    """Bytes that have passed, also of files that were not finished."""


class _Hashing:
    """One command from its arrival to its answer."""

    def __init__(self, pending: Pending[HashFile]) -> None:
        self.pending = pending
        self.seen_bytes = 0
        self.progress_error: Exception | None = None
        self.is_given_up = False
        self.waiting = anyio.CancelScope()
        self.working = anyio.CancelScope()

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        self.is_given_up = True
        self.waiting.cancel()
        self.working.cancel()

    def note_progress(self, passed_bytes: int) -> None:
        """Count what has passed and pass it on; called from the thread that reads."""
        self.seen_bytes += passed_bytes
        progress = self.pending.message.progress
        if progress is not None and self.progress_error is None:
            try:
                progress(passed_bytes)
            except Exception as error:  # the caller's own, and not a reason for the others to suffer
                self.progress_error = error


class HashingTally:
    """What the pools of one runtime have done; it outlives the lives of the actor."""

    def __init__(self) -> None:
        self.workers = 0
        self.hashed = 0
        self.failed = 0
        self.given_up = 0
        self.finished_bytes = 0
        self.in_progress: set[_Hashing] = set()

    def statistics(self) -> HashingStatistics:
        """Return one look at the pool; call it inside the event loop that the actor runs in."""
        return HashingStatistics(
            workers=self.workers,
            busy=len(self.in_progress),
            hashed=self.hashed,
            failed=self.failed,
            given_up=self.given_up,
            hashed_bytes=self.finished_bytes + sum(hashing.seen_bytes for hashing in self.in_progress),
        )


class HashingPool(BatchBehaviour[HashFile]):
    """Hashes at most `workers` files at the same time, first come, first served.

    Bound: a command leaves the mailbox only when a worker is free for it, one more is in hand; all others wait in the
    mailbox, and senders wait for room in it. A caller that gives up takes its command out of the mailbox, or frees the
    worker at the next chunk. Owns `workers` tasks, so its child spec needs `max_tasks` of at least that.

    A life that ends cancels what it was hashing; those callers get ActorCrashed and may ask again, as hashing changes
    nothing. While every worker is busy a stop takes the whole `shutdown_s` of the child spec: keep it short.

    Args:
        files: where the files are.
        workers: files that are hashed at the same time, 1 or more.
        tally: where to count; a fresh one if left out.
    """

    max_batch = 1

    def __init__(self, files: LocalFiles, *, workers: int = 4, tally: HashingTally | None = None) -> None:
        if workers < 1:
            raise ValueError(f"a hashing pool has {workers} workers; it must have 1 or more")
        self._files = files
        self._workers = workers
        self._tally = tally if tally is not None else HashingTally()
        self._tally.workers = workers

    def statistics(self) -> HashingStatistics:
        """Return one look at the pool; call it inside the event loop that the actor runs in."""
        return self._tally.statistics()

    async def setup(self, context: ActorContext[HashFile]) -> None:
        """Start the workers. Raises TaskLimitReached if the child spec allows fewer tasks."""
        # Without a buffer: what is sent is in the hands of a worker, so nothing waits where its caller cannot see it.
        self._send, self._receive = anyio.create_memory_object_stream[_Hashing](0)
        try:
            for number in range(self._workers):
                context.start_task(self._work, name=f"hash worker {number + 1}")
        except BaseException:
            self._close()
            raise

    async def handle_batch(self, messages: Sequence[Pending[HashFile]]) -> None:
        """Hand each command to a worker, waiting until one is free or the caller has given up."""
        for pending in messages:
            if not pending.is_ask:
                pending.answer()  # nobody would get the digests
                continue
            hashing = _Hashing(pending)
            pending.defer(on_abandoned=hashing.give_up)
            with hashing.waiting:
                await self._send.send(hashing)
            if hashing.waiting.cancelled_caught:
                self._drop(hashing)

    async def terminate(self, reason: ExitReason) -> None:
        """Close the way to the workers, which have ended."""
        self._close()

    def _close(self) -> None:
        self._send.close()
        self._receive.close()

    async def _work(self) -> None:
        async for hashing in self._receive:
            if hashing.is_given_up:
                self._drop(hashing)  # the caller left while it changed hands
                continue
            self._tally.in_progress.add(hashing)
            try:
                await self._hash(hashing)
            finally:
                self._tally.in_progress.discard(hashing)
                self._tally.finished_bytes += hashing.seen_bytes

    async def _hash(self, hashing: _Hashing) -> None:
        pending = hashing.pending
        with hashing.working:
            try:
                digests = await self._files.digest(pending.message.local_path, hashing.note_progress)
            except ConveyorError as error:
                self._tally.failed += 1
                pending.refuse(error)
                return
            if hashing.progress_error is not None:
                self._tally.failed += 1
                pending.refuse(hashing.progress_error)
                return
            self._tally.hashed += 1
            pending.answer(digests)
        if hashing.working.cancelled_caught:
            self._drop(hashing)

    def _drop(self, hashing: _Hashing) -> None:
        """Mark a command as done whose caller has left: the kernel keeps an account of what is owed."""
        if not hashing.pending.is_answered:
            self._tally.given_up += 1
            hashing.pending.answer()


__all__ = ["HashFile", "HashingPool", "HashingStatistics", "HashingTally"]
