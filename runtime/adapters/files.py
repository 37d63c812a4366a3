"""The LocalFiles port on a POSIX filesystem: small files in one consistent reading, large ones hashed in chunks."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import anyio

from ...actors.port_errors import LocalFileMissing, LocalFileTooLarge
from ...actors.ports import BytesSource, FileReading, Progress
from ...protocol.digests import ContentDigester, ContentDigests, digest_bytes
from ...protocol.errors import shown
from .daemon_threads import ThreadCall, ThreadStock, waker_of_this_loop

R = TypeVar("R")

CHUNK_BYTES: Final = 1024 * 1024
"""How much is read between two looks at whether the work is still wanted."""

MAX_READINGS: Final = 4
"""How often a file that changes while it is read is read again."""

MAX_ABANDONED_THREADS: Final = 32
"""Threads whose caller has left and that have not ended, above which they keep their slot."""

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class _Abandoned(Exception):
    """Nobody waits for the result any more; raised in the thread, seen by nobody."""


class _Changed(Exception):
    """The file was not the same before and after a reading.

    Attributes:
        content: what was read.
        is_whole: it has the length that the file had before and after.
    """

    def __init__(self, content: bytes, *, is_whole: bool) -> None:
        super().__init__()
        self.content = content
        self.is_whole = is_whole


class PosixFiles:
    """Reads the build's files in daemon threads.

    Bound: `threads` calls work at the same time, further ones wait for a slot, first come first served. Cancelling a
    call returns at once; its thread ends by itself after the chunk in hand. A thread that is stuck in the system (a
    network filesystem that does not answer) gives its slot to others, until 32 of them are stuck; the interpreter's
    exit waits for none of them.

    Args:
        threads: how many files are read at the same time, 1 or more.
    """

    def __init__(self, *, threads: int = 4) -> None:
        self._slots = anyio.CapacityLimiter(threads)
        self._abandoned: set[object] = set()
        self._stock = ThreadStock()

    def close(self) -> None:
        """Let the threads end: idle ones now, the others with their call. Later calls use threads of their own."""
        self._stock.close()

    @property
    def abandoned_threads(self) -> int:
        """Threads whose caller has left and that have not ended yet."""
        return len(self._abandoned)

    async def read_small(self, readings: Sequence[FileReading], *, together_bytes: int) -> list[BytesSource] | None:
        """As `read_all`, if they have at most `together_bytes` bytes together; else None, with nothing read."""
        return await self._in_thread(partial(_read_small, tuple(readings), together_bytes))

    async def read_all(self, readings: Sequence[FileReading]) -> list[BytesSource]:
        """The whole contents of regular files, links followed, each as one consistent reading; in one thread.

        A file that changes meanwhile is read again, up to four times in all. One that only grows, such as a log, gives
        what it held at one moment.

        Raises:
            LocalFileMissing: one is no regular file, cannot be read, or would not keep still.
            LocalFileTooLarge: one has more than its `max_bytes` bytes; no more than that was read.
        """
        return await self._in_thread(partial(_read_all, tuple(readings)))

    async def sizes_bytes(self, local_paths: Sequence[str]) -> list[int]:
        """Their sizes now, in one thread. Raises LocalFileMissing for the first that is no readable file."""
        return await self._in_thread(partial(_sizes_bytes, tuple(local_paths)))

    async def digest(self, local_path: str, progress: Progress) -> ContentDigests:
        """Both digests in one reading, in chunks of 1 MiB; `progress` is called in the thread with each chunk's length.

        Raises:
            LocalFileMissing: it is no regular file, cannot be read, or changed its length while it was read.
        """
        return await self._in_thread(partial(_digest, local_path, progress))

    async def sample(self, local_path: str, sample_bytes: int) -> bytes:
        """The first bytes, all of a shorter file. Raises LocalFileMissing."""
        return await self._in_thread(partial(_sample, local_path, sample_bytes))

    async def _in_thread(self, work: Callable[[threading.Event], R]) -> R:
        slot = object()
        left = threading.Event()
        wake = waker_of_this_loop()

        def run() -> R:
            try:
                return work(left)
            finally:
                wake(partial(self._thread_ended, slot))

        await self._slots.acquire_on_behalf_of(slot)
        try:
            call = ThreadCall(run, name="conveyor-files", stock=self._stock)
        except BaseException:
            self._slots.release_on_behalf_of(slot)
            raise
        try:
            await call.wait_finished()
        except BaseException:
            left.set()
            # A thread that has ended has its notice under way, which gives the slot back.
            if call.is_alive and len(self._abandoned) < MAX_ABANDONED_THREADS:
                self._abandoned.add(slot)
                self._slots.release_on_behalf_of(slot)
            raise
        return call.result()

    def _thread_ended(self, slot: object) -> None:
        if slot in self._abandoned:
            self._abandoned.remove(slot)
        else:
            self._slots.release_on_behalf_of(slot)


def _read_small(
    readings: tuple[FileReading, ...], together_bytes: int, left: threading.Event
) -> list[BytesSource] | None:
    seen_bytes = 0
    for reading in readings:
        try:
            seen_bytes += os.stat(reading.local_path).st_size
        except (OSError, ValueError):
            continue  # the reading says what is wrong with it
        if seen_bytes > together_bytes:
            return None
    return _read_all(readings, left)


def _read_all(readings: tuple[FileReading, ...], left: threading.Event) -> list[BytesSource]:
    contents = [_read_consistently(reading.local_path, reading.max_bytes, left) for reading in readings]
    return [BytesSource(digest_bytes(content), content) for content in contents]


def _read_consistently(local_path: str, max_bytes: int, left: threading.Event) -> bytes:
    prefix: bytes | None = None
    last = _Changed(b"", is_whole=False)
    for _ in range(MAX_READINGS):
        previous = last
        try:
            return _read_once(local_path, max_bytes, left)
        except _Changed as changed:
            last = changed
        # Seen twice, it was all there at the first moment, and what came since was appended (N-HUB-06).
        is_appended = bool(previous.content) and last.content.startswith(previous.content)
        prefix = previous.content if is_appended else None
    if prefix is not None:
        return prefix
    if last.is_whole:
        return last.content
    raise LocalFileMissing(
        f"{shown(local_path)} changed each of the {MAX_READINGS} times it was read; "
        "hand it over once it is complete, or write a new file and rename it into place"
    )


def _read_once(local_path: str, max_bytes: int, left: threading.Event) -> bytes:
    with _opened(local_path) as (descriptor, before):
        if before.st_size > max_bytes:
            raise LocalFileTooLarge(
                f"{shown(local_path)} has {before.st_size} bytes; the limit is {max_bytes}. "
                "Hand over a smaller file, or this one as part of a bundle"
            )
        chunks: list[bytes] = []
        missing_bytes = before.st_size
        while missing_bytes:
            _stop_if_left(left)
            chunk = os.read(descriptor, min(CHUNK_BYTES, missing_bytes))
            if not chunk:
                break
            chunks.append(chunk)
            missing_bytes -= len(chunk)
        content = b"".join(chunks)
        has_more = bool(os.read(descriptor, 1))
        after = os.fstat(descriptor)
    if _identity(before) == _identity(after):
        if missing_bytes or has_more:
            raise LocalFileMissing(
                f"{shown(local_path)} does not have the {before.st_size} bytes that its filesystem names, "
                "as files of /proc and /sys do not; copy it to a regular file and hand that over"
            )
        return content
    raise _Changed(content, is_whole=not missing_bytes and after.st_size == before.st_size)


def _sizes_bytes(local_paths: tuple[str, ...], left: threading.Event) -> list[int]:
    return [_size_bytes(local_path, left) for local_path in local_paths]


def _size_bytes(local_path: str, left: threading.Event) -> int:
    _stop_if_left(left)
    # Opened, so that a file that cannot be read is found now and not when it is to be uploaded.
    with _opened(local_path) as (_, status):
        return status.st_size


def _digest(local_path: str, progress: Progress, left: threading.Event) -> ContentDigests:
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with _opened(local_path) as (descriptor, status):
        digester = ContentDigester(status.st_size)
        while digester.seen_bytes < status.st_size:
            _stop_if_left(left)
            read_bytes = os.readv(descriptor, [buffer[: status.st_size - digester.seen_bytes]])
            if not read_bytes:
                break
            digester.update(buffer[:read_bytes])
            _stop_if_left(left)
            progress(read_bytes)
        if digester.seen_bytes < status.st_size or os.read(descriptor, 1):
            raise LocalFileMissing(
                f"{shown(local_path)} had {status.st_size} bytes and changed its length while it was read; "
                "hand it over once it is complete"
            )
        return digester.finish()


def _sample(local_path: str, sample_bytes: int, left: threading.Event) -> bytes:
    with _opened(local_path) as (descriptor, _):
        chunks: list[bytes] = []
        while sample_bytes:
            _stop_if_left(left)
            chunk = os.read(descriptor, min(CHUNK_BYTES, sample_bytes))
            if not chunk:
                break
            chunks.append(chunk)
            sample_bytes -= len(chunk)
        return b"".join(chunks)


@contextmanager
def _opened(local_path: str) -> Iterator[tuple[int, os.stat_result]]:
    """A descriptor of a regular file and its status; errors of the system in the block become LocalFileMissing."""
    try:
        os.fsencode(local_path)
    except ValueError:
        raise LocalFileMissing(
            f"{shown(local_path)} is not the name of any file; hand over the file's own path"
        ) from None
    try:
        # Looked at before it is opened: opening a device may act on it. And again after, as it may have been replaced.
        _check_regular(local_path, os.stat(local_path))
        descriptor = os.open(local_path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            _check_regular(local_path, status)
            yield descriptor, status
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LocalFileMissing(
            f"{shown(local_path)} cannot be read: {reason}. Check that the file is there and may be read by this user, "
            "then hand it over again"
        ) from error


def _check_regular(local_path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((words for is_kind, words in _KINDS if is_kind(status.st_mode)), "something else")
        raise LocalFileMissing(f"{shown(local_path)} is {kind}; only regular files can be handed over")


def _identity(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _stop_if_left(left: threading.Event) -> None:
    if left.is_set():
        raise _Abandoned


__all__ = ["CHUNK_BYTES", "MAX_ABANDONED_THREADS", "MAX_READINGS", "PosixFiles"]
