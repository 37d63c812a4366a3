"""The promises of the `LocalFiles` port, kept by files on disk and by files in memory alike; and the clocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from conveyor.actors.port_errors import LocalFileMissing, LocalFileTooLarge
from conveyor.actors.ports import FileReading
from conveyor.protocol.digests import digest_bytes
from conveyor.runtime.adapters.clock import SystemClock, VirtualClock
from conveyor.runtime.adapters.memory_files import MemoryFiles
from tests.support.file_arenas import FilesArena, InMemory, OnDisk, read_one, size_of, unheeded

pytestmark = pytest.mark.anyio

LARGE = bytes(range(256)) * 4096 * 2 + b"tail"  # 2 MiB and a little: three chunks


@pytest.fixture(params=["disk", "memory"])
def arena(request: pytest.FixtureRequest, tmp_path: Path, real_time_backend: object) -> FilesArena:
    """Both adapters; threads need real time."""
    return OnDisk(tmp_path) if request.param == "disk" else InMemory()


class TestEveryAdapter:
    """What the actors rely on."""

    @pytest.mark.parametrize("content", [b"", b"x", b"\0\xff" * 100, LARGE], ids=["empty", "one", "binary", "large"])
    async def test_the_content_comes_whole(self, arena: FilesArena, content: bytes) -> None:
        """Content, size, both digests and the first bytes are those of the file, whatever its length."""
        path = arena.write("a file é", content)
        passed: list[int] = []
        assert await read_one(arena.files, path, max_bytes=len(content)) == content
        assert await size_of(arena.files, path) == len(content)
        assert await arena.files.digest(path, passed.append) == digest_bytes(content)
        assert sum(passed) == len(content)
        assert await arena.files.sample(path, 512) == content[:512]

    async def test_small_files_are_read_in_one_go_and_larger_ones_are_left(self, arena: FilesArena) -> None:
        """Files within the limit, itself included, come at once; with one byte more nothing is read."""
        readings = [FileReading(arena.write("a", b"123"), 10), FileReading(arena.write("b", b"45"), 10)]
        sources = await arena.files.read_small(readings, together_bytes=5)
        assert sources is not None
        assert [source.content for source in sources] == [b"123", b"45"]
        assert [source.digests for source in sources] == [digest_bytes(b"123"), digest_bytes(b"45")]
        assert await arena.files.read_small(readings, together_bytes=4) is None

    async def test_a_missing_small_file_is_named(self, arena: FilesArena) -> None:
        """A file that is not there is an error of the reading, not a small file."""
        with pytest.raises(LocalFileMissing, match="nothing"):
            await arena.files.read_small([FileReading(arena.path("nothing"), 10)], together_bytes=5)

    async def test_a_file_above_the_limit_is_refused(self, arena: FilesArena) -> None:
        """The limit itself is allowed, one byte more is not; the message names the path, the size and the limit."""
        path = arena.write("a", b"12345")
        assert await read_one(arena.files, path, max_bytes=5) == b"12345"
        with pytest.raises(LocalFileTooLarge, match=r"/a' has 5 bytes; the limit is 4\. Hand over a smaller file"):
            await read_one(arena.files, path, max_bytes=4)

    @pytest.mark.parametrize("what", ["read", "size_bytes", "digest", "sample"])
    async def test_a_missing_file_is_named(self, arena: FilesArena, what: str) -> None:
        """Each method says which path is missing and why."""
        path = arena.path("nothing")
        calls: dict[str, Callable[[], Any]] = {
            "read": lambda: read_one(arena.files, path, max_bytes=10),
            "size_bytes": lambda: size_of(arena.files, path),
            "digest": lambda: arena.files.digest(path, unheeded),
            "sample": lambda: arena.files.sample(path, 10),
        }
        with pytest.raises(LocalFileMissing, match=f"'{path}' cannot be read: No such file or directory"):
            await calls[what]()

    async def test_a_file_may_be_rewritten_between_calls(self, arena: FilesArena) -> None:
        """Nothing is remembered of a path."""
        path = arena.write("a", b"first")
        assert await read_one(arena.files, path, max_bytes=10) == b"first"
        arena.write("a", b"second")
        assert await read_one(arena.files, path, max_bytes=10) == b"second"
        assert await arena.files.digest(path, unheeded) == digest_bytes(b"second")

    @pytest.mark.parametrize("later", [LARGE + b"more", LARGE[:-1], LARGE[:1]], ids=["longer", "shorter", "cut"])
    async def test_a_length_that_changes_is_no_content(self, arena: FilesArena, later: bytes) -> None:
        """A file that grows or shrinks while it is hashed has no digests."""
        path = arena.write("a", LARGE)
        if isinstance(arena, InMemory):
            arena.files.write_while_hashed(path, later)

        def change(_passed_bytes: int) -> None:
            arena.write("a", later)

        with pytest.raises(LocalFileMissing, match=f"had {len(LARGE)} bytes and changed its length"):
            await arena.files.digest(path, unheeded if isinstance(arena, InMemory) else change)

    async def test_many_files_at_once(self, arena: FilesArena) -> None:
        """More calls than slots all come to their end, each with its own content."""
        paths = [arena.write(str(number), str(number).encode()) for number in range(40)]
        contents: dict[str, bytes] = {}

        async def read(path: str) -> None:
            contents[path] = await read_one(arena.files, path, max_bytes=10)

        async with anyio.create_task_group() as tasks:
            for path in paths:
                tasks.start_soon(read, path)
        assert contents == {path: str(number).encode() for number, path in enumerate(paths)}


class TestFilesInMemory:
    """The faults that simulations ask for."""

    async def test_time_passes_for_each_chunk(self) -> None:
        """Hashing takes the time that was set for a chunk, on the loop's clock."""
        files = MemoryFiles({"/a": b"12345"}, chunk_bytes=2, chunk_s=10.0)
        passed: list[int] = []
        began = anyio.current_time()
        assert await files.digest("/a", passed.append) == digest_bytes(b"12345")
        assert anyio.current_time() - began == pytest.approx(30.0)
        assert passed == [2, 2, 1]

    async def test_a_broken_file_is_read_again_once_mended(self) -> None:
        """A path fails with the reason given until it is mended."""
        files = MemoryFiles({"/a": b"x"})
        files.break_file("/a", "Stale file handle")
        with pytest.raises(LocalFileMissing, match="'/a' cannot be read: Stale file handle"):
            await size_of(files, "/a")
        files.mend_file("/a")
        assert await size_of(files, "/a") == 1
        files.remove("/a")
        with pytest.raises(LocalFileMissing, match="No such file"):
            await size_of(files, "/a")

    async def test_a_held_file_waits_until_it_is_mended(self) -> None:
        """A held path neither fails nor answers; cancellation leaves it held."""
        files = MemoryFiles({"/a": b"x"})
        files.hold_file("/a")
        with anyio.move_on_after(1000) as scope:
            await read_one(files, "/a", max_bytes=1)
        assert scope.cancelled_caught
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: read_one(files, "/a", max_bytes=1))
            await anyio.wait_all_tasks_blocked()
            assert files.readings["/a"] == 0
            files.mend_file("/a")
        assert files.readings["/a"] == 1


class TestClocks:
    """The two clocks."""

    async def test_the_virtual_clock_moves_with_the_loop_and_jumps_when_told(self) -> None:
        """It follows the loop's time, forward only unless an administrator sets it back (W24)."""
        clock = VirtualClock(offset_s=1_000_000.0)
        began = clock.unix_s()
        assert began == pytest.approx(anyio.current_time() + 1_000_000.0)
        with anyio.move_on_after(3600):
            await anyio.sleep_forever()
        assert clock.unix_s() - began == pytest.approx(3600.0)
        clock.jump(-7200.0)
        assert clock.unix_s() - began == pytest.approx(-3600.0)

    async def test_the_system_clock_is_the_machines(self, tmp_path: Path) -> None:
        """It agrees with the times that the filesystem gives to files."""
        path = tmp_path / "now"
        before = SystemClock().unix_s()
        path.touch()
        assert before - 60 < path.stat().st_mtime < SystemClock().unix_s() + 60
