"""Cancelled at any wait, a store leaves no thread, no handle and no transaction behind (N-STO-03, N-RUN-11)."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import anyio
import pytest

from conveyor.runtime.store import SqliteStore, StoreAdapter, StoreOptions, open_memory_store, open_store
from tests.support.cancel_points import at_each_wait, cancelled_at
from tests.support.stores import pending, run_files, totals, write

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

ADAPTERS = [
    "inline",
    "thread",
    pytest.param("aiosqlite", marks=pytest.mark.asyncio_only("aiosqlite exists under asyncio alone")),
]


def handles(directory: Path) -> list[str]:
    """Open files of this process below a directory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith(str(directory)):
            found.append(target)
    return found


def what_is_left(directory: Path) -> list[str]:
    """Threads of stores, open files below the directory, and a lock that keeps another process from writing at once."""
    path = directory / "store.sqlite3"
    left = [thread.name for thread in threading.enumerate() if "store" in thread.name or "aiosqlite" in thread.name]
    left += handles(directory)
    if path.exists():
        other = sqlite3.connect(path, timeout=0)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.rollback()
        except sqlite3.OperationalError as error:
            left.append(str(error))
        other.close()
    return left


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "known"])
async def test_opening(tmp_path: Path, adapter: str, is_new: bool) -> None:
    """Wherever opening is cancelled nothing is left; the next attempt succeeds."""
    options = StoreOptions(adapter=StoreAdapter(adapter))
    path = tmp_path / "store.sqlite3"

    async def attempt(index: int) -> bool:
        if is_new:
            path.unlink(missing_ok=True)
        opened: list[SqliteStore] = []

        async def operation() -> None:
            opened.append(await open_store(path, options))

        was_cancelled = await cancelled_at(index, operation)
        for store in opened:
            await store.aclose()
        assert what_is_left(tmp_path) == []
        return was_cancelled

    assert await at_each_wait(attempt) > 0
    async with await open_store(path, options) as store:
        await write(store, run_files({"a": b"1"}))


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_whole_life(tmp_path: Path, adapter: str) -> None:
    """Open, write, read, probe and close, cancelled at every wait of all that."""
    options = StoreOptions(adapter=StoreAdapter(adapter))

    async def life() -> None:
        async with await open_store(tmp_path / "store.sqlite3", options) as store:
            await store.transact([run_files({"a": b"1"}), run_files({"b": b"1"})])
            await pending(store)
            await store.has_foreign_changes()

    async def attempt(index: int) -> bool:
        was_cancelled = await cancelled_at(index, life)
        assert what_is_left(tmp_path) == []
        return was_cancelled

    assert await at_each_wait(attempt) > 3
    async with await open_store(tmp_path / "store.sqlite3", options) as store:
        assert len((await pending(store)).paths) == 2


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_closing(tmp_path: Path, adapter: str) -> None:
    """A close that is cancelled still closes."""
    options = StoreOptions(adapter=StoreAdapter(adapter))

    async def attempt(index: int) -> bool:
        store = await open_store(tmp_path / "store.sqlite3", options)
        await write(store, run_files({f"{index}": b"1"}))
        was_cancelled = await cancelled_at(index, store.aclose)
        assert what_is_left(tmp_path) == []
        return was_cancelled

    await at_each_wait(attempt)


async def test_waiting_for_another_process(tmp_path: Path) -> None:
    """A writer that waits for somebody else's lock leaves at once when it is cancelled; nothing of it was done."""
    path = tmp_path / "store.sqlite3"
    async with await open_store(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with anyio.move_on_after(0.05) as scope:
            await write(store, run_files({"a": b"1"}))
        assert scope.cancelled_caught
        other.rollback()
        other.close()
        assert (await totals(store)).accepted == 0
        await write(store, run_files({"a": b"1"}))


@pytest.mark.asyncio_only("a task of asyncio's own is cancelled")
@pytest.mark.parametrize("adapter", ["thread", "aiosqlite"])
async def test_asyncios_own_cancellation(tmp_path: Path, adapter: str) -> None:
    """`task.cancel()` at many moments: each transaction is whole or absent, and the store goes on."""
    async with await open_store(tmp_path / "store.sqlite3", StoreOptions(adapter=StoreAdapter(adapter))) as store:
        for turns in range(12):
            task = asyncio.ensure_future(
                store.transact([run_files({f"{turns}": b"1"}), run_files({f"{turns}": b"1"}, repository="acme/other")])
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert len((await pending(store)).paths) == len((await pending(store, "acme/other")).paths)
        await write(store, run_files({"last": b"1"}))
    assert what_is_left(tmp_path) == []


async def test_closing_ends_those_who_wait(tmp_path: Path) -> None:
    """A writer that waits for another process gives up when the store is closed under it, with the typed error."""
    path = tmp_path / "store.sqlite3"
    store = await open_store(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    errors: list[BaseException] = []

    async def wait() -> None:
        try:
            await write(store, run_files({"a": b"1"}))
        except Exception as error:
            errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await store.aclose()
    other.rollback()
    other.close()
    assert [type(error).__name__ for error in errors] == ["StoreClosed"]
    assert what_is_left(tmp_path) == []


async def test_a_forgotten_store_warns(tmp_path: Path) -> None:
    """Dropped without a close it says so, once, and what it accepted is durable."""
    store = await open_memory_store()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del store
        gc.collect()
    assert ["was not closed" in str(warning.message) for warning in caught] == [True]


@pytest.mark.parametrize("adapter", ["thread", "aiosqlite"])
def test_a_forgotten_close_does_not_hang_the_interpreter(tmp_path: Path, adapter: str) -> None:
    """N-RUN-11: the program ends by itself, and the next one finds everything."""
    program = (
        "import sys, anyio\n"
        "from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store\n"
        "from tests.support.stores import run_files, write\n"
        "async def main():\n"
        "    global store\n"
        "    store = await open_store(sys.argv[1], StoreOptions(adapter=StoreAdapter(sys.argv[2])))\n"
        "    await write(store, run_files({'a': b'1'}))\n"
        "anyio.run(main)\n"
        "print('end')\n"
    )
    path = tmp_path / "store.sqlite3"
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), adapter],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=30,
        check=True,
    )
    assert done.stdout == "end\n"
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT accepted FROM repositories").fetchall() == [(1,)]
    connection.close()
