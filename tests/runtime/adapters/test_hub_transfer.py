"""Transfers in threads: what is read, what is counted, and how one is left behind."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conveyor.actors.port_errors import ContentChanged
from conveyor.actors.ports import BytesSource, FileSource
from conveyor.protocol.digests import digest_bytes
from conveyor.runtime.adapters.daemon_threads import ThreadCall, ThreadStock, run_in_daemon_thread
from conveyor.runtime.adapters.hub_transfer import (
    BLOCK_BYTES,
    BandwidthCap,
    TransferAbandoned,
    TransferFile,
    TransferWatch,
)

CONTENT = os.urandom(BLOCK_BYTES * 2 + 12345)


def watch(told: list[int] | None = None) -> TransferWatch:
    """A watch without a cap."""
    return TransferWatch(BandwidthCap(None), (told if told is not None else []).append)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of more than two blocks."""
    path = tmp_path_factory.mktemp("transfer") / "x.bin"
    path.write_bytes(CONTENT)
    return path


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(CONTENT) + 10),
            st.one_of(st.just(-1), st.integers(0, 3 * BLOCK_BYTES), st.sampled_from([512, 65536, BLOCK_BYTES])),
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_reads_like_a_file(path: Path, steps: list[tuple[int, int]], in_memory: bool) -> None:
    """However it is read, it gives what the same reading of the content in memory gives."""
    digests = digest_bytes(CONTENT)
    source = BytesSource(digests, CONTENT) if in_memory else FileSource(digests, str(path))
    expected = io.BytesIO(CONTENT)
    with TransferFile(source, watch()) as file:
        assert file.read() == CONTENT
        file.start_sending()
        for offset, size in steps:
            assert file.seek(offset) == expected.seek(offset)
            assert file.read(size) == expected.read(size)
            assert file.tell() == expected.tell()
        assert file.seek(0, os.SEEK_END) == len(CONTENT)
        assert file.readable()
        assert file.seekable()


def test_progress_counts_each_byte_once(path: Path) -> None:
    """Hashing is no progress, and a part that is sent again is not counted again."""
    told: list[int] = []
    with TransferFile(FileSource(digest_bytes(CONTENT), str(path)), watch(told)) as file:
        file.read()
        assert told == []
        file.start_sending()
        file.seek(0)
        file.read(1000)
        file.seek(0)
        file.read(1500)
        file.read()
    assert told == [1000, 500, len(CONTENT) - 1500]


def test_changed_block_is_not_given_out(tmp_path: Path) -> None:
    """A block that differs from the first reading is refused before a byte of it leaves (finding W15)."""
    path = tmp_path / "x.bin"
    path.write_bytes(CONTENT)
    with TransferFile(FileSource(digest_bytes(CONTENT), str(path)), watch()) as file:
        file.read()
        file.start_sending()
        file.seek(0)
        assert file.read(10) == CONTENT[:10]
        changed = bytearray(CONTENT)
        changed[BLOCK_BYTES + 1] ^= 1
        path.write_bytes(changed)
        file.seek(0)
        assert file.read(BLOCK_BYTES) == CONTENT[:BLOCK_BYTES]
        with pytest.raises(ContentChanged):
            file.read(1)


def test_block_that_was_never_hashed_is_not_given_out(path: Path) -> None:
    """Without a first reading nothing is sent."""
    with TransferFile(FileSource(digest_bytes(CONTENT), str(path)), watch()) as file:
        file.start_sending()
        with pytest.raises(ContentChanged):
            file.read(1)


def test_shortened_file(tmp_path: Path) -> None:
    """A file that loses its end while it is read has changed."""
    path = tmp_path / "x.bin"
    path.write_bytes(CONTENT)
    with TransferFile(FileSource(digest_bytes(CONTENT), str(path)), watch()) as file:
        file.read(1)
        os.truncate(path, BLOCK_BYTES + 1)
        with pytest.raises(ContentChanged):
            file.read()


def test_wrong_length_is_seen_at_once(path: Path) -> None:
    """Nothing is read of a file that has another length."""
    with pytest.raises(ContentChanged, match="were handed over"):
        TransferFile(FileSource(digest_bytes(b"short"), str(path)), watch())
    with pytest.raises(ContentChanged):
        TransferFile(BytesSource(digest_bytes(b"short"), b"shorter"), watch())


def test_abandoned_transfer_ends_at_its_next_reading(path: Path) -> None:
    """The thread of an abandoned transfer is stopped by the file it reads."""
    abandoned = watch()
    with TransferFile(FileSource(digest_bytes(CONTENT), str(path)), abandoned) as file:
        file.read(1)
        abandoned.abandon()
        with pytest.raises(TransferAbandoned):
            file.read(1)


def test_closed_file_cannot_be_read(path: Path) -> None:
    """An abandoned thread cannot read from a file that is closed."""
    file = TransferFile(FileSource(digest_bytes(CONTENT), str(path)), watch())
    file.close()
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.read(1)


def test_bandwidth_is_shared() -> None:
    """Two users of a cap together get what it allows."""
    now_s = [100.0]
    cap = BandwidthCap(1000, lambda: now_s[0])
    assert cap.reserve(500) == 0.0
    assert cap.reserve(1000) == 0.5
    assert cap.reserve(1) == 1.5
    now_s[0] = 110.0
    assert cap.reserve(1000) == 0.0
    assert BandwidthCap(None).reserve(10**12) == 0.0


def test_waiting_for_bandwidth_ends_when_abandoned() -> None:
    """A transfer that waits for its turn can be left behind, too."""
    cap = BandwidthCap(1)
    cap.reserve(10**9)
    waiting = TransferWatch(cap, lambda _: None)
    waiting.abandon()
    with pytest.raises(TransferAbandoned):
        waiting.pass_bytes(10)


@pytest.mark.anyio
@pytest.mark.real_time
async def test_result_and_error_of_a_thread() -> None:
    """A call in a thread gives its value, or its exception, on both event loops."""
    assert await run_in_daemon_thread(threading.get_ident, name="test") != threading.get_ident()

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_in_daemon_thread(fail, name="test")


@pytest.mark.anyio
@pytest.mark.real_time
async def test_waiter_may_leave() -> None:
    """Cancelling the waiter neither waits for the thread nor loses it from sight."""
    release = threading.Event()
    call = ThreadCall(release.wait, name="test")
    with anyio.move_on_after(0.01) as scope:
        await call.wait_finished()
    assert scope.cancelled_caught
    assert call.is_alive
    assert not call.is_finished
    release.set()
    await call.wait_finished()
    assert call.result() is True


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_thread_that_outlives_its_loop(backend: str) -> None:
    """A thread that ends after its event loop is gone does so in silence."""
    release = threading.Event()

    async def leave() -> ThreadCall[bool]:
        return ThreadCall(release.wait, name="test")

    call = anyio.run(leave, backend=backend)
    release.set()
    assert call.join(10)
    assert not call.is_alive


def test_threads_of_a_stock_are_used_again() -> None:
    """Calls one after another share a thread, calls at the same time do not, and closing lets idle ones end."""

    async def main() -> None:
        stock = ThreadStock()

        async def ident() -> int:
            call = ThreadCall(threading.get_ident, name="stocked", stock=stock)
            await call.wait_finished()
            while call.is_alive:
                await anyio.lowlevel.checkpoint()
            return call.result()

        release = threading.Event()
        first = await ident()
        held = ThreadCall(release.wait, name="stocked", stock=stock)
        others = {await ident() for _ in range(20)}
        assert first not in others
        release.set()
        await held.wait_finished()
        stock.close()
        while any(thread.name == "stocked" for thread in threading.enumerate()):
            await anyio.lowlevel.checkpoint()

    anyio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_stuck_thread_does_not_hold_the_exit(backend: str) -> None:
    """The interpreter ends although a thread of ours never does."""
    program = f"""
import anyio, threading
from conveyor.runtime.adapters.daemon_threads import ThreadCall
async def main():
    call = ThreadCall(threading.Event().wait, name="stuck")
    with anyio.move_on_after(0.01):
        await call.wait_finished()
anyio.run(main, backend={backend!r})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_library_is_imported_late() -> None:
    """Importing the adapter does not import huggingface_hub, which takes a second."""
    program = "import sys, conveyor.runtime.adapters.hub; sys.exit('huggingface_hub' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
