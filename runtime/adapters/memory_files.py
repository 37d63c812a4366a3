"""The LocalFiles port in memory, for tests, simulations and examples, with the faults that real files have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import anyio
from anyio.lowlevel import checkpoint

from ...actors.port_errors import LocalFileMissing, LocalFileTooLarge
from ...actors.ports import BytesSource, FileReading, Progress
from ...protocol.digests import ContentDigester, ContentDigests, digest_bytes
from ...protocol.errors import shown


class MemoryFiles:
    """Files that are a mapping from path to content.

    Args:
        files: what is there at first.
        chunk_bytes: how much is hashed between two chances to cancel, 1 or more.
        chunk_s: how long the hashing of one chunk takes, in seconds of the event loop.
    """

    def __init__(
        self, files: Mapping[str, bytes] | None = None, *, chunk_bytes: int = 1024 * 1024, chunk_s: float = 0.0
    ) -> None:
        self._files = dict(files or {})
        self._chunk_bytes = chunk_bytes
        self._chunk_s = chunk_s
        self._reasons: dict[str, str] = {}
        self._held: dict[str, anyio.Event] = {}
        self._following: dict[str, bytes] = {}
        self.readings: Counter[str] = Counter()
        """How often each file was opened to be read or hashed."""
        self.hashing = 0
        """How many files are being hashed now."""
        self.most_hashing = 0
        """The most that were being hashed at the same time."""

    def write(self, local_path: str, content: bytes) -> None:
        """Make the file have this content from now on."""
        self._files[local_path] = content

    def remove(self, local_path: str) -> None:
        """Delete the file. Raises KeyError if there is none."""
        del self._files[local_path]

    def break_file(self, local_path: str, reason: str = "Input/output error") -> None:
        """Make every reading of the path fail, until it is mended."""
        self._reasons[local_path] = reason

    def mend_file(self, local_path: str) -> None:
        """Undo `break_file` and `hold_file`; who waits for the file goes on."""
        self._reasons.pop(local_path, None)
        held = self._held.pop(local_path, None)
        if held is not None:
            held.set()

    def hold_file(self, local_path: str) -> None:
        """Make every reading of the path wait until it is mended, as a network filesystem does that has gone away."""
        self._held[local_path] = anyio.Event()

    def write_while_hashed(self, local_path: str, content: bytes) -> None:
        """Have the file replaced by this content after the first chunk of its next hashing."""
        self._following[local_path] = content

    async def read_all(self, readings: Sequence[FileReading]) -> list[BytesSource]:
        """The whole contents with their digests. Raises LocalFileMissing, or LocalFileTooLarge above `max_bytes`."""
        sources: list[BytesSource] = []
        for reading in readings:
            content = await self._open(reading.local_path)
            if len(content) > reading.max_bytes:
                raise LocalFileTooLarge(
                    f"{shown(reading.local_path)} has {len(content)} bytes; the limit is {reading.max_bytes}. "
                    "Hand over a smaller file"
                )
            sources.append(BytesSource(digest_bytes(content), content))
        return sources

    async def read_small(self, readings: Sequence[FileReading], *, together_bytes: int) -> list[BytesSource] | None:
        """As `read_all`, if they have at most `together_bytes` bytes together; else None."""
        sizes_bytes = [len(self._files.get(reading.local_path, b"")) for reading in readings]
        if sum(sizes_bytes) > together_bytes:
            await checkpoint()
            return None
        return await self.read_all(readings)

    async def sizes_bytes(self, local_paths: Sequence[str]) -> list[int]:
        """Their sizes now. Raises LocalFileMissing."""
        await checkpoint()
        return [len(self._look(local_path)) for local_path in local_paths]

    async def digest(self, local_path: str, progress: Progress) -> ContentDigests:
        """Both digests; takes `chunk_s` a chunk. Raises LocalFileMissing, also if the length changed meanwhile."""
        self.hashing += 1
        self.most_hashing = max(self.most_hashing, self.hashing)
        try:
            content = await self._open(local_path)
            digester = ContentDigester(len(content))
            while digester.seen_bytes < len(content):
                await anyio.sleep(self._chunk_s)
                chunk = content[digester.seen_bytes : digester.seen_bytes + self._chunk_bytes]
                digester.update(chunk)
                progress(len(chunk))
                if local_path in self._following:
                    self.write(local_path, self._following.pop(local_path))
            if len(self._look(local_path)) != len(content):
                raise LocalFileMissing(
                    f"{shown(local_path)} had {len(content)} bytes and changed its length while it was read; "
                    "hand it over once it is complete"
                )
            return digester.finish()
        finally:
            self.hashing -= 1

    async def sample(self, local_path: str, sample_bytes: int) -> bytes:
        """The first bytes. Raises LocalFileMissing."""
        return (await self._open(local_path))[:sample_bytes]

    async def _open(self, local_path: str) -> bytes:
        await checkpoint()
        while local_path in self._held:
            await self._held[local_path].wait()
        self.readings[local_path] += 1
        return self._look(local_path)

    def _look(self, local_path: str) -> bytes:
        reason = self._reasons.get(local_path)
        if reason is None and local_path not in self._files:
            reason = "No such file or directory"
        if reason is not None:
            raise LocalFileMissing(f"{shown(local_path)} cannot be read: {reason}. Check the file, then try again")
        return self._files[local_path]


__all__ = ["MemoryFiles"]
