"""What is special to files on disk: their kinds, writers that do not wait, and readings that do not come back."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from conveyor.actors.port_errors import LocalFileMissing, LocalFileTooLarge
from conveyor.runtime.adapters import files as files_module
from conveyor.runtime.adapters.daemon_threads import waker_of_this_loop
from conveyor.runtime.adapters.files import CHUNK_BYTES, MAX_READINGS
from tests.support.file_arenas import OnDisk, read_one, size_of, unheeded

pytestmark = pytest.mark.anyio

ROOT_READS_EVERYTHING = pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")


@pytest.fixture
def disk(tmp_path: Path, real_time_backend: object) -> OnDisk:
    """The adapter on disk alone."""
    return OnDisk(tmp_path)


class TestKindsOfFiles:
    """What counts as a file on disk."""

    async def test_links_are_followed(self, disk: OnDisk) -> None:
        """Section 3, *local path*: symbolic links lead to the file."""
        disk.write("target", b"content")
        (disk.root / "link").symlink_to("target")
        (disk.root / "chain").symlink_to("link")
        assert await read_one(disk.files, disk.path("chain"), max_bytes=10) == b"content"
        assert await size_of(disk.files, disk.path("link")) == 7

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("directory", "is a directory; only regular files"),
            ("pipe", "is a named pipe; only regular files"),
            ("socket", "is a socket; only regular files"),
            ("device", "is a device; only regular files"),
            ("dangling", "No such file or directory"),
            ("loop", "Too many levels of symbolic links"),
            ("below a file", "Not a directory"),
            ("slash", "Not a directory"),
            ("long", "File name too long"),
            ("surrogate", "is not the name of any file"),
        ],
    )
    async def test_what_is_no_regular_file_is_refused(self, disk: OnDisk, kind: str, words: str) -> None:
        """Nothing else is read, and nothing waits: a named pipe without a writer is refused at once."""
        path = disk.path(kind)
        listener = socket.socket(socket.AF_UNIX)
        with listener:
            if kind == "directory":
                os.mkdir(path)
            elif kind == "pipe":
                os.mkfifo(path)
            elif kind == "socket":
                short = os.path.relpath(path)
                listener.bind(short if len(short) < len(path) else path)
            elif kind == "device":
                path = "/dev/null"
            elif kind == "dangling":
                os.symlink("nowhere", path)
            elif kind == "loop":
                os.symlink(path, path)
            elif kind == "below a file":
                path = disk.write("file", b"") + "/below"
            elif kind == "slash":
                path = disk.write("file", b"") + "/"
            elif kind == "long":
                path = disk.path("x" * 300)
            elif kind == "surrogate":
                path = disk.path("\ud800")
            with anyio.fail_after(30):
                with pytest.raises(LocalFileMissing, match=words):
                    await read_one(disk.files, path, max_bytes=10)
                with pytest.raises(LocalFileMissing, match=words):
                    await disk.files.digest(path, unheeded)

    @ROOT_READS_EVERYTHING
    async def test_a_file_without_permission_is_named_with_the_reason(self, disk: OnDisk) -> None:
        """Permission is asked when a size is asked for, not first when the file is to be uploaded."""
        path = disk.write("secret", b"content")
        os.chmod(path, 0)
        with pytest.raises(LocalFileMissing, match=r"Permission denied\. Check that the file is there and may be read"):
            await size_of(disk.files, path)

    async def test_names_that_are_not_utf_8_are_read(self, disk: OnDisk) -> None:
        """A name in another encoding comes as surrogate escapes and leads to its file."""
        name = os.fsdecode(b"latin-\xe9")
        try:
            path = disk.write(name, b"content")
        except OSError:
            pytest.skip("this filesystem takes UTF-8 names only")
        assert await read_one(disk.files, path, max_bytes=10) == b"content"

    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
    async def test_files_without_a_true_length_are_refused(self, disk: OnDisk) -> None:
        """A file of /proc names 0 bytes and has more: it is refused, not taken as empty."""
        with pytest.raises(LocalFileMissing, match="does not have the 0 bytes that its filesystem names"):
            await read_one(disk.files, "/proc/self/status", max_bytes=10**6)


class Reads:
    """Has something happen right before a file's bytes are read, in the thread that reads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[], None] = lambda: None
        self.count = 0
        real_read = os.read

        def read(descriptor: int, length: int) -> bytes:
            if threading.current_thread().name == "conveyor-files" and length > 1:
                self.count += 1
                self.before()
            return real_read(descriptor, length)

        monkeypatch.setattr(os, "read", read)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """A hook before each reading of a chunk."""
    return Reads(monkeypatch)


class TestFilesThatChange:
    """One consistent reading of a file that others write (N-HUB-06)."""

    async def test_a_file_changed_once_is_read_again(self, disk: OnDisk, reads: Reads) -> None:
        """Rewritten in place while it was read, the file comes in its new form as a whole."""
        path = disk.write("a", b"old old old")

        def rewrite() -> None:
            if reads.count == 1:
                Path(path).write_bytes(b"NEW NEW NEW NEW")

        reads.before = rewrite
        assert await read_one(disk.files, path, max_bytes=100) == b"NEW NEW NEW NEW"
        assert reads.count == 2

    async def test_a_file_replaced_by_renaming_comes_in_one_of_its_forms(self, disk: OnDisk, reads: Reads) -> None:
        """Renaming a new file into place never mixes the two."""
        path = disk.write("a", b"old old old")

        def replace() -> None:
            if reads.count == 1:
                Path(disk.write("b", b"new")).rename(path)

        reads.before = replace
        assert await read_one(disk.files, path, max_bytes=100) in (b"old old old", b"new")

    async def test_a_log_that_never_rests_gives_what_it_held_at_one_moment(self, disk: OnDisk, reads: Reads) -> None:
        """Appended to during every reading, a file comes as a prefix that was there at one moment."""
        path = disk.write("log", b"line 0\n")

        def append() -> None:
            with open(path, "ab") as log:
                log.write(b"line %d\n" % reads.count)

        reads.before = append
        content = await read_one(disk.files, path, max_bytes=1000)
        assert content == b"".join(b"line %d\n" % number for number in range(MAX_READINGS - 1))
        assert reads.count == MAX_READINGS

    async def test_a_file_of_one_length_that_never_rests(self, disk: OnDisk, reads: Reads) -> None:
        """Overwritten in place at every reading, its last reading is taken, as its length was stable."""
        path = disk.write("a", b"000")

        def overwrite() -> None:
            Path(path).write_bytes(b"%03d" % reads.count)
            os.utime(path, ns=(reads.count, reads.count))

        reads.before = overwrite
        assert await read_one(disk.files, path, max_bytes=100) == b"%03d" % MAX_READINGS

    async def test_a_file_that_changes_its_length_each_time_is_refused(self, disk: OnDisk, reads: Reads) -> None:
        """Rewritten with another length at every reading, nothing can be frozen; the message says what to do."""
        path = disk.write("a", b"xx")

        def rewrite() -> None:
            Path(path).write_bytes(bytes([64 + reads.count]) * (2 + reads.count))

        reads.before = rewrite
        with pytest.raises(
            LocalFileMissing, match=rf"changed each of the {MAX_READINGS} times .* rename it into place"
        ):
            await read_one(disk.files, path, max_bytes=100)

    async def test_a_file_that_outgrows_the_limit_is_refused(self, disk: OnDisk, reads: Reads) -> None:
        """The limit holds for each reading."""
        path = disk.write("a", b"xx")

        def grow() -> None:
            Path(path).write_bytes(b"x" * 11)

        reads.before = grow
        with pytest.raises(LocalFileTooLarge, match="has 11 bytes; the limit is 10"):
            await read_one(disk.files, path, max_bytes=10)


class Stuck:
    """A reading that does not come back until it is let go, like that of a network filesystem that has gone away."""

    def __init__(self, reads: Reads) -> None:
        self.let_go = threading.Event()
        self._wake = waker_of_this_loop()
        self._begun = 0
        self._changed = anyio.Event()
        reads.before = self._wait

    def _wait(self) -> None:
        self._wake(self._note)
        assert self.let_go.wait(timeout=60)

    def _note(self) -> None:
        self._begun += 1
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def wait_begun(self, readings: int) -> None:
        """Wait until as many readings are stuck."""
        while self._begun < readings:
            await self._changed.wait()


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """A small bound on abandoned threads."""
    monkeypatch.setattr(files_module, "MAX_ABANDONED_THREADS", 1)
    return 1


class TestCancellation:
    """Leaving is immediate; what the thread does then is accounted for."""

    async def test_hashing_ends_at_the_next_chunk(self, disk: OnDisk) -> None:
        """Cancelled between two chunks, the call returns at once and no further chunk is reported."""
        path = disk.write("a", b"x" * (20 * CHUNK_BYTES))
        wake, reported = waker_of_this_loop(), anyio.Event()
        go_on = threading.Event()
        passed: list[int] = []

        def progress(passed_bytes: int) -> None:
            passed.append(passed_bytes)
            wake(reported.set)
            assert go_on.wait(timeout=60)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(disk.files.digest, path, progress)
                await reported.wait()
                tasks.cancel_scope.cancel()
            assert disk.files.abandoned_threads == 1
            go_on.set()
            while disk.files.abandoned_threads:
                await anyio.sleep(0)
        assert passed == [CHUNK_BYTES]

    async def test_a_stuck_file_keeps_nobody_from_other_files(self, disk: OnDisk, reads: Reads) -> None:
        """Every slot stuck and then left: other files are read all the same, and the stuck threads are counted."""
        path, other = disk.write("stuck", b"x" * 100), disk.write("other", b"x")
        stuck = Stuck(reads)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(partial(read_one, disk.files, path, max_bytes=100))
                await stuck.wait_begun(2)
                tasks.cancel_scope.cancel()
            assert disk.files.abandoned_threads == 2
            assert await size_of(disk.files, other) == 1
            stuck.let_go.set()
            while disk.files.abandoned_threads:
                await anyio.sleep(0)

    async def test_stuck_threads_have_a_bound(self, disk: OnDisk, reads: Reads, bound: int) -> None:
        """Beyond the bound a stuck thread keeps its slot, so that threads never grow without end."""
        path = disk.write("stuck", b"x" * 100)
        stuck = Stuck(reads)
        finished = anyio.Event()

        async def read_once_more() -> None:
            assert await disk.files.sample(path, 1) == b"x"
            finished.set()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(partial(read_one, disk.files, path, max_bytes=100))
                await stuck.wait_begun(2)
                tasks.cancel_scope.cancel()
            assert disk.files.abandoned_threads == bound
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(read_one, disk.files, path, max_bytes=100))  # takes the slot that was given up
                await stuck.wait_begun(3)
                tasks.start_soon(read_once_more)
                await anyio.wait_all_tasks_blocked()
                assert not finished.is_set()
                stuck.let_go.set()
            assert finished.is_set()

    @pytest.mark.slow
    async def test_a_stuck_thread_does_not_hold_up_the_end_of_the_program(self, tmp_path: Path) -> None:
        """N-RUN-01: a program whose read never comes back still ends when its main code does."""
        program = """
import anyio, os, sys, threading
from conveyor.actors.ports import FileReading
from conveyor.runtime.adapters.files import PosixFiles

begun = threading.Event()
def read(descriptor, length):
    begun.set()
    threading.Event().wait()

async def main():
    files = PosixFiles(threads=1)
    os.read = read
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: files.read_all([FileReading(sys.argv[1], 10)]))
        while not begun.is_set():
            await anyio.sleep(0)
        tasks.cancel_scope.cancel()

anyio.run(main)
print("ended")
"""
        path = tmp_path / "a"
        path.write_bytes(b"x" * 5)
        ended = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60, check=True
        )
        assert ended.stdout == "ended\n"
