"""Files for the tests of the `LocalFiles` port: on disk, and in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from conveyor.actors.ports import BytesSource, FileReading, LocalFiles
from conveyor.protocol.digests import digest_bytes
from conveyor.runtime.adapters.files import PosixFiles
from conveyor.runtime.adapters.memory_files import MemoryFiles


class FilesArena(ABC):
    """A LocalFiles adapter and a way to make its files."""

    files: LocalFiles

    @abstractmethod
    def write(self, name: str, content: bytes) -> str:
        """Make a file; gives its path."""

    @abstractmethod
    def path(self, name: str) -> str:
        """The path of a file that need not be there."""


class OnDisk(FilesArena):
    """Files in a directory of the test, two read at the same time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: PosixFiles = PosixFiles(threads=2)

    def write(self, name: str, content: bytes) -> str:
        """Make a file; gives its path."""
        (self.root / name).write_bytes(content)
        return self.path(name)

    def path(self, name: str) -> str:
        """The path of a file that need not be there."""
        return str(self.root / name)


class InMemory(FilesArena):
    """Files in a mapping."""

    def __init__(self) -> None:
        self.files: MemoryFiles = MemoryFiles()

    def write(self, name: str, content: bytes) -> str:
        """Make a file; gives its path."""
        self.files.write(self.path(name), content)
        return self.path(name)

    def path(self, name: str) -> str:
        """The path of a file that need not be there."""
        return f"/memory/{name}"


def unheeded(_passed_bytes: int) -> None:
    """Progress that nobody looks at."""


async def read_one(files: LocalFiles, local_path: str, *, max_bytes: int) -> bytes:
    """The content of one file, whose digests are checked on the way."""
    (source,) = await files.read_all([FileReading(local_path, max_bytes)])
    assert isinstance(source, BytesSource)
    assert source.digests == digest_bytes(source.content)
    return source.content


async def size_of(files: LocalFiles, local_path: str) -> int:
    """The size of one file."""
    (size_bytes,) = await files.sizes_bytes([local_path])
    return size_bytes


__all__ = ["FilesArena", "InMemory", "OnDisk", "read_one", "size_of", "unheeded"]
