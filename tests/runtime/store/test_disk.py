"""Full disks and side files: typed refusals, nothing accepted is lost, files stay bounded (N-STO-04, N-STO-05)."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from conveyor.actors.port_errors import StoreFull
from conveyor.actors.store_operations import Prune
from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from conveyor.runtime.store.sqlite_errors import store_error
from tests.support.stores import NOW, kept, land, pending, run_files, take_lease, totals, write

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

MIB = 1024 * 1024
ADAPTERS = [
    "thread",
    pytest.param("aiosqlite", marks=pytest.mark.asyncio_only("aiosqlite exists under asyncio alone")),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small filesystem; the page limit is tested instead")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path, adapter: str) -> None:
    """N-STO-05: typed, everything accepted is kept and readable, and no restart is needed."""
    ballast = small_disk / "ballast"
    async with await open_store(small_disk / "store.sqlite3", StoreOptions(adapter=StoreAdapter(adapter))) as store:
        await write(store, run_files({"first": b"1" * 1000}))
        ballast.write_bytes(bytes(2 * MIB))
        accepted = [b"1" * 1000]

        async def fill_up() -> None:
            for number in range(100):
                content = os.urandom(100_000)
                await write(store, run_files({f"{number}": content}))
                accepted.append(content)

        with pytest.raises(StoreFull, match=r"no room for the store .*nothing new was accepted.*no restart"):
            await fill_up()
        assert await kept(store, accepted) == accepted
        before = await totals(store)
        assert before.waiting == len(accepted)
        ballast.unlink()
        await write(store, run_files({"last": b"2"}))
        assert (await totals(store)).waiting == len(accepted) + 1
        lease = await take_lease(store)
        await land(store, lease)
        assert (await pending(store)).paths == ()


async def test_there_may_be_no_room_to_make_one(small_disk: Path) -> None:
    """Opening a new store on a full disk is refused with the same type, and leaves no half-made file."""
    (small_disk / "ballast").write_bytes(bytes(4 * MIB - 16384))
    with pytest.raises(StoreFull):
        await open_store(small_disk / "store.sqlite3")
    assert {path.name for path in small_disk.iterdir()} <= {"ballast", ".store.sqlite3.lock"}
    (small_disk / "ballast").unlink()
    async with await open_store(small_disk / "store.sqlite3") as store:
        await write(store, run_files({"a": b"1"}))


@pytest.mark.parametrize("adapter", ["inline", *ADAPTERS])
async def test_a_full_database_refuses_the_whole_transaction(tmp_path: Path, adapter: str) -> None:
    """One hand-over too large takes back its whole group, which the caller is told; smaller ones still go in."""
    path = tmp_path / "store.sqlite3"
    async with await open_store(path, StoreOptions(adapter=StoreAdapter(adapter))) as store:
        await write(store, run_files({"a": b"1"}))
        await store._writer.run(
            lambda connection: connection.connection.cursor().execute("PRAGMA max_page_count = 150")
        )
        with pytest.raises(StoreFull):
            await store.transact([run_files({"b": b"2"}), run_files({"c": os.urandom(MIB)})])
        assert [path.path for path in (await pending(store)).paths] == ["a"]
        await store.transact([run_files({"b": b"2"}), run_files({"c": b"3"})])
        assert (await totals(store)).waiting == 3


def test_an_input_output_error_on_a_disk_with_room_is_no_full_disk(tmp_path: Path) -> None:
    """A failing disk gets advice of its own."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    found = store_error(error, tmp_path / "store.sqlite3")
    assert type(found).__name__ == "StoreError"
    assert "SQLITE_IOERR_FSYNC" in str(found)
    assert "check disk, quota and mount" in str(found)


def test_a_file_size_limit_is_reported_without_damage(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a quota: the write fails with a typed error, what was accepted is sound."""
    path = tmp_path / "store.sqlite3"
    program = (
        "import os, resource, sys, anyio\n"
        "from conveyor.actors.port_errors import StoreError\n"
        "from conveyor.runtime.store import open_store\n"
        "from tests.support.stores import run_files, totals, write\n"
        "async def main():\n"
        "    async with await open_store(sys.argv[1]) as store:\n"
        "        await write(store, run_files({'a': b'1'}))\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))\n"
        "        try: await write(store, run_files({'b': os.urandom(3_000_000)}))\n"
        "        except StoreError as error: print(type(error).__mro__[-4].__name__)\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "        await write(store, run_files({'c': b'2'}))\n"
        "        print((await totals(store)).waiting)\n"
        "anyio.run(main)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        check=False,
    )
    assert done.stdout.split() == ["ConveyorError", "2"], done.stderr
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_side_files_stay_bounded_under_a_status_poller(tmp_path: Path, adapter: str) -> None:
    """N-STO-04: somebody reads the status all the time while many items pass through; the bound is kept."""
    path = tmp_path / "store.sqlite3"
    limit = 2 * MIB
    options = StoreOptions(adapter=StoreAdapter(adapter), wal_limit_bytes=limit, warn=lambda kind, detail: None)
    largest = 0
    async with await open_store(path, options) as store:
        lease = await take_lease(store)
        done = anyio.Event()

        async def poll() -> None:
            while not done.is_set():
                await totals(store)

        async with anyio.create_task_group() as group:
            group.start_soon(poll)
            for number in range(25):
                await write(store, run_files({f"{item}": os.urandom(20_000) for item in range(25)}))
                await land(store, lease, commit_id=f"c{number}")
                largest = max(largest, os.stat(f"{path}-wal").st_size)
            done.set()
        assert 0 < largest < limit + 4 * MIB
    assert not Path(f"{path}-wal").exists()


async def test_a_side_file_that_cannot_be_cut_is_reported_with_its_size(tmp_path: Path) -> None:
    """N-STO-04: a reader that stays open for long is in the way; one warning, again only when it has doubled."""
    path = tmp_path / "store.sqlite3"
    told: list[tuple[str, str]] = []
    options = StoreOptions(
        adapter=StoreAdapter.INLINE, wal_limit_bytes=MIB, warn=lambda kind, detail: told.append((kind, detail))
    )
    async with await open_store(path, options) as store:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchall()
        for number in range(14):
            await write(store, run_files({f"{number}": os.urandom(200_000)}))
        sizes = [int(detail.removesuffix(" bytes")) for kind, detail in told if kind == "WAL_TOO_LARGE"]
        assert len(sizes) == len(told) == 2
        assert sizes[0] > MIB
        assert 2 * sizes[0] <= sizes[1]
        reader.rollback()
        reader.close()
        await write(store, run_files({"last": b"1"}))
        assert os.stat(f"{path}-wal").st_size == 0


async def test_pruning_gives_space_back(tmp_path: Path) -> None:
    """W25: the file shrinks once what was in it is settled and forgotten."""
    path = tmp_path / "store.sqlite3"
    async with await open_store(path, StoreOptions(adapter=StoreAdapter.INLINE)) as store:
        await write(store, run_files({f"{number}": os.urandom(100_000) for number in range(40)}))
        await land(store, await take_lease(store))
    large = path.stat().st_size
    async with await open_store(path, StoreOptions(adapter=StoreAdapter.INLINE)) as store:
        while await write(store, Prune(NOW + 1)):
            pass
    assert large > 4_000_000
    assert path.stat().st_size < 500_000
