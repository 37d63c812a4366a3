"""One object on its way: a file object that huggingface_hub reads from, in a thread, and that we watch and can stop.

The library reads the content twice: to hash it, then to send it. During the first reading a digest of each block is
kept, and once the whole has been found to be what was expected, every block that is sent is compared with it before a
byte of it leaves. So a file that changes in between is never uploaded under a wrong name (finding W15).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from ...actors.port_errors import ContentChanged
from ...actors.ports import BytesSource, FileSource, Progress, UploadSource
from ...protocol.errors import LocalProtocolError
from ...protocol.limits import MIB

BLOCK_BYTES: Final = MIB
_DIGEST_BYTES: Final = 16


class TransferAbandoned(Exception):
    """The transfer was given up; its thread is to end."""


class BandwidthCap:
    """Spreads bytes over time; safe in any thread.

    Args:
        bytes_per_s: the rate for all users together; None for no cap.
        monotonic: the clock, in seconds.
    """

    def __init__(self, bytes_per_s: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def reserve(self, count_bytes: int) -> float:
        """Take room for so many bytes, and give the seconds to wait before they may pass."""
        if self._bytes_per_s is None:
            return 0.0
        with self._lock:
            now_s = self._monotonic()
            start_s = max(now_s, self._free_at_s)
            self._free_at_s = start_s + count_bytes / self._bytes_per_s
            return start_s - now_s


class TransferWatch:
    """What the event loop sees of a transfer, and its way to stop it."""

    def __init__(self, bandwidth: BandwidthCap, progress: Progress) -> None:
        self._bandwidth = bandwidth
        self._progress = progress
        self._abandoned = threading.Event()
        self._sent_bytes = 0
        self._touched_s = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since something moved."""
        return time.monotonic() - self._touched_s

    def abandon(self) -> None:
        """Have the thread end at its next reading."""
        self._abandoned.set()

    def touch(self) -> None:
        """Something moved. Raises TransferAbandoned if nobody waits for it any more."""
        if self._abandoned.is_set():
            raise TransferAbandoned
        self._touched_s = time.monotonic()

    def pass_bytes(self, count_bytes: int) -> None:
        """Wait until so many bytes may pass."""
        wait_s = self._bandwidth.reserve(count_bytes)
        while wait_s > 0:
            piece_s = min(wait_s, 1.0)
            self._abandoned.wait(piece_s)
            self.touch()
            wait_s -= piece_s

    def reached(self, position_bytes: int) -> None:
        """Tell of the bytes up to here, those told of already left out: a repeated part is not counted twice."""
        self.touch()
        if position_bytes > self._sent_bytes:
            further, self._sent_bytes = position_bytes - self._sent_bytes, position_bytes
            self._progress(further)


class TransferFile(io.BufferedIOBase):
    """The content of one object, as a binary file open for reading.

    Args:
        source: bytes in memory, or a local file, links followed.
        watch: told of every reading.

    Raises:
        ContentChanged: the file has another length than was handed over.
        OSError: it cannot be opened.
    """

    def __init__(self, source: UploadSource, watch: TransferWatch) -> None:
        super().__init__()
        self._watch = watch
        self._size_bytes = source.digests.size_bytes
        self._position = 0
        self._is_sending = False
        self._digests = bytearray()
        self._block_index = -1
        self._block = b""
        self._descriptor: int | None = None
        self._content: bytes | None = None
        match source:
            case BytesSource():
                self._content = source.content
                actual_bytes = len(source.content)
            case FileSource():
                self._descriptor = os.open(source.local_path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                actual_bytes = os.fstat(self._descriptor).st_size
            case _:
                raise LocalProtocolError(f"an upload takes BytesSource or FileSource, not {type(source).__name__}")
        if actual_bytes != self._size_bytes:
            self.close()
            raise ContentChanged(
                f"the file has {actual_bytes} bytes where {self._size_bytes} were handed over: hand it over again"
            )

    def start_sending(self) -> None:
        """The content was read once and found right: from here on each block must stay the same."""
        self._is_sending = True

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position, which may lie beyond the end."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to so many bytes, no further than the end of a block; all that are left without a size.

        Raises:
            TransferAbandoned: the transfer was given up.
            ContentChanged: what is there is not what was read before.
        """
        self._watch.touch()
        left = max(0, self._size_bytes - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        pieces = []
        while wanted:
            piece = self._piece(wanted)
            if self._is_sending:
                self._watch.pass_bytes(len(piece))
            self._position += len(piece)
            wanted -= len(piece)
            pieces.append(piece)
            self._watch.touch()
        if self._is_sending:
            self._watch.reached(self._position)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the local file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        super().close()

    def _piece(self, wanted: int) -> bytes:
        if self._content is not None:
            return self._content[self._position : self._position + wanted]
        index, start = divmod(self._position, BLOCK_BYTES)
        if index != self._block_index:
            self._block, self._block_index = self._load(index), index
        return self._block[start : start + wanted]

    def _load(self, index: int) -> bytes:
        offset = index * BLOCK_BYTES
        expected_bytes = min(BLOCK_BYTES, self._size_bytes - offset)
        block = self._read_at(offset, expected_bytes)
        digest = hashlib.blake2b(block, digest_size=_DIGEST_BYTES).digest()
        at = index * _DIGEST_BYTES
        if at < len(self._digests):
            if self._digests[at : at + _DIGEST_BYTES] != digest:
                raise _changed()
        elif at == len(self._digests) and not self._is_sending:
            self._digests += digest
        else:
            raise _changed()  # a block that the first reading never saw
        return block

    def _read_at(self, offset: int, count_bytes: int) -> bytes:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the file is closed")
        pieces, got = [], 0
        while got < count_bytes:
            piece = os.pread(self._descriptor, count_bytes - got, offset + got)
            if not piece:
                raise _changed()
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)


def _changed() -> ContentChanged:
    return ContentChanged("the file's bytes are not those that were handed over: it was changed; hand it over again")


__all__ = ["BLOCK_BYTES", "BandwidthCap", "TransferAbandoned", "TransferFile", "TransferWatch"]
