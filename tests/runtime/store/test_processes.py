"""Many processes on one store: starting at once, being killed, being forked (N-STO-02, N-STO-06, N-STO-08)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from conveyor.actors.port_errors import UsedAfterFork
from conveyor.actors.store_operations import StoreStatus
from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from tests.support.stores import NOW, run_files, totals, write

ROOT = Path(__file__).resolve().parents[3]


def integrity(path: Path) -> list[tuple[str]]:
    """SQLite's own opinion of a database."""
    with sqlite3.connect(path) as connection:
        found: list[tuple[str]] = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return found


def run_program(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program of its own, with this tree's tests importable."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
        check=False,
    )


# Imports and compiled statements are paid once, by the parent; each child is a process that opens the store for itself.
STORM = """
import os, sys, anyio
from pathlib import Path
from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from tests.support.stores import run_files, write

path, processes, backend, adapter = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], StoreAdapter(sys.argv[4])

async def produce(number, at=path):
    async with await open_store(at, StoreOptions(adapter=adapter, warn=lambda kind, detail: None)) as store:
        for item in range(20):
            await write(store, run_files({f"{number}/{item}": b"%d %d" % (number, item)}, run_id=f"r{number}"))

anyio.run(produce, 0, path.parent.parent / "other.sqlite3", backend=backend)
gate, go = os.pipe()
children = []
for number in range(processes):
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(gate, 1)
        try:
            anyio.run(produce, number, backend=backend)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(go)
failed = [child for child in children if os.waitpid(child, 0)[1]]
print("failed", len(failed))
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("processes", "backend", "adapter"),
    [(128, "asyncio", "thread"), (8, "asyncio", "aiosqlite"), (8, "trio", "auto")],
)
def test_many_processes_open_one_store_in_the_same_second(
    tmp_path: Path, processes: int, backend: str, adapter: str
) -> None:
    """N-STO-02: one of them makes it, each hands over 20 items, no error: of 128 processes 2,560 items."""
    path = tmp_path / "new" / "store.sqlite3"
    done = run_program(STORM, path, processes, backend, adapter)
    assert (done.stdout, done.stderr) == ("failed 0\n", "")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT accepted, parked FROM repositories").fetchall() == [(20 * processes, 0)]
        assert connection.execute("SELECT count(*) FROM run_paths WHERE is_pending").fetchall() == [(20 * processes,)]
        assert connection.execute("SELECT count(*) FROM contents").fetchall() == [(20 * processes,)]
    connection.close()
    assert integrity(path) == [("ok",)]


KILLED = """
import sys, anyio
from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from tests.support.stores import run_files, write

async def main():
    store = await open_store(sys.argv[1], StoreOptions(adapter=StoreAdapter(sys.argv[2])))
    for number in range(100_000):
        content = b"%d " % number * 5000
        recorded = await write(store, run_files({"state.json": content, f"f{number}": content}))
        print(recorded.versions[0][1], flush=True)

anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [StoreAdapter.THREAD, StoreAdapter.AIOSQLITE])
def test_everything_answered_outlives_kill_9(tmp_path: Path, adapter: StoreAdapter) -> None:
    """N-STO-08: killed in the middle of writes; what was answered is there, whole, and the file is sound."""
    path = tmp_path / "store.sqlite3"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), adapter.value], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    answered = [int(process.stdout.readline()) for _ in range(25)]
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    answered += [int(line) for line in rest.split("\n")[:-1]]
    assert process.returncode == -signal.SIGKILL

    async def look() -> StoreStatus:
        async with await open_store(path, StoreOptions(adapter=StoreAdapter.INLINE)) as store:
            return await totals(store)

    status = anyio.run(look)
    assert answered[-1] <= status.superseded + 1 <= answered[-1] + 1
    assert status.waiting == status.superseded + 2
    assert integrity(path) == [("ok",)]


FORKED = """
import asyncio, gc, json, os, selectors, sys, anyio
from conveyor.actors.port_errors import UsedAfterFork
from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from conveyor.runtime.store.sqlite import run_pragma
from tests.support.stores import pending, run_files, write

async def main():
    adapter = StoreAdapter(sys.argv[2])
    store = await open_store(sys.argv[1], StoreOptions(adapter=adapter))
    await write(store, run_files({"before": b"1"}))
    transaction = None
    if adapter is StoreAdapter.INLINE:
        # Large enough that part of it has left this process's memory for the files that the children share.
        connection = store._writer._connection
        run_pragma(connection, "cache_size = 10")
        transaction = connection.begin()
        for number in range(300):
            statement = f"INSERT INTO contents VALUES ('{number}', 20000, zeroblob(20000))"
            connection.exec_driver_sql(statement)
        connection = None
    children = []
    for number in range(10):
        child = os.fork()
        if child == 0:
            # Ends as an ordinary program does: every object is finalised, exit hooks run.
            del store, transaction
            gc.collect()
            sys.exit(0)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if transaction is not None:
        transaction.commit()
        kept = store._writer._connection.exec_driver_sql("SELECT count(*), sum(size_bytes) FROM contents").all()
        assert kept == [(301, 300 * 20000 + 1)], kept
        store._writer._connection.rollback()
    for number in range(20):
        await store.transact([run_files({f"{number}/{item}": b"%d" % item}) for item in range(50)])
    found = len((await pending(store)).paths)
    await store.aclose()
    print(json.dumps([statuses, found]))

# A child that ends closes its copy of the loop; with epoll that would also deafen the parent's, so select is used.
options = {"loop_factory": lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())}
anyio.run(main, backend_options=options)
"""


@pytest.mark.slow
@pytest.mark.parametrize("adapter", [StoreAdapter.THREAD, StoreAdapter.AIOSQLITE, StoreAdapter.INLINE])
def test_children_that_end_normally_leave_the_store_alone(tmp_path: Path, adapter: StoreAdapter) -> None:
    """N-STO-06: ten forked children exit, even in the middle of a transaction; then 1,000 items go in unharmed."""
    path = tmp_path / "store.sqlite3"
    done = run_program(FORKED, path, adapter.value)
    assert json.loads(done.stdout.splitlines()[-1]) == [[0] * 10, 1001], done.stderr
    assert integrity(path) == [("ok",)]


@pytest.mark.anyio
@pytest.mark.real_time
async def test_use_in_a_forked_child_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-STO-06: every public call names both processes and touches nothing; the parent goes on."""
    store = await open_store(tmp_path / "store.sqlite3", StoreOptions(adapter=StoreAdapter.THREAD))
    parent = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: parent + 1)
        for call in (
            lambda: store.transact([run_files({"a": b"1"})]),
            lambda: totals(store),
            store.has_foreign_changes,
            store.aclose,
        ):
            with pytest.raises(UsedAfterFork, match=f"process {parent} .* child {parent + 1}; open another"):
                await call()
        with pytest.raises(UsedAfterFork):
            _ = store.store_id
    await write(store, run_files({"a": b"1"}))
    assert (await totals(store)).waiting == 1
    await store.aclose()


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_waiting_writer_gives_up_with_a_typed_error(tmp_path: Path) -> None:
    """Another process in the middle of a long transaction: busy after the limit, and fine once it is done."""
    path = tmp_path / "store.sqlite3"
    async with await open_store(path, StoreOptions(busy_limit_s=0.05)) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(Exception, match=r"held the store .* for 0.05 s; try again"):
            await write(store, run_files({"a": b"1"}))
        assert time.monotonic() - started < 5
        other.rollback()
        other.close()
        await write(store, run_files({"a": b"1"}, now=NOW))
