"""An append-only file of JSON lines whose last complete line is the truth, whatever killed the writer."""

import os
import threading
from pathlib import Path

import msgspec

from .problems import HubRootUnusable


def cut_torn_tail(path: Path) -> int:
    """Remove an unfinished last line; returns the number of bytes cut.

    A line is finished when it ends in a newline and is JSON: the rest of one interrupted append, or the zero bytes that
    a power cut may leave, is not a record.

    Raises:
        HubRootUnusable: a line before the last one is not JSON. Nothing is changed then.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return 0
    good_bytes = 0
    lines = content.split(b"\n")
    for number, line in enumerate(lines):
        if number == len(lines) - 1:
            break
        try:
            msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            if any(later.strip(b"\0") for later in lines[number + 1 :]):
                raise HubRootUnusable(
                    f"{path}: line {number + 1} is not JSON and is not the last one, so the file was damaged after it "
                    "was written. Restore the directory from a copy, or serve an empty one."
                ) from error
            break
        good_bytes += len(line) + 1
    torn_bytes = len(content) - good_bytes
    if torn_bytes:
        with path.open("r+b") as file:
            file.truncate(good_bytes)
            os.fsync(file.fileno())
    return torn_bytes


class JsonLines:
    """The one writer of a JSON-lines file. ``append`` is one write of whole lines, synced when ``sync`` is set."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self.torn_bytes = cut_torn_tail(path)
        self._sync = sync
        self._lock = threading.Lock()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._closed = False

    def append(self, *records: object) -> None:
        """Write the records in order; when this returns they are in the file (and on the disk, with ``sync``).

        Raises:
            OSError: the disk is full or failing. What was partly written is taken back, so later appends stay whole.
        """
        data = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        with self._lock:
            if self._closed:
                raise OSError(f"{self.path} is closed: the local Hub is shutting down.")
            before_bytes = os.fstat(self._descriptor).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                if self._sync:
                    os.fsync(self._descriptor)
            except OSError:
                os.ftruncate(self._descriptor, before_bytes)
                raise

    def close(self) -> None:
        """Close the file; calling it twice is harmless."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._descriptor)
