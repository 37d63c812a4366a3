"""A kill in the middle of a checkpoint leaves a file that is a database only together with its write-ahead file."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from conveyor.actors.port_errors import StoreDamaged
from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from tests.support.stores import pending, run_files, write

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

INLINE = StoreOptions(adapter=StoreAdapter.INLINE)
PAGE_BYTES = 4096


async def cut_in_a_checkpoint(directory: Path) -> Path:
    """A copy of a store as a kill leaves it once the first page was written back, and before the file has grown."""
    live, copy = directory / "live" / "s.db", directory / "copy" / "s.db"
    async with await open_store(live, INLINE):
        pass
    holder = sqlite3.connect(live)  # keeps the write-ahead file alive when the store is closed
    try:
        holder.execute("SELECT count(*) FROM sqlite_master").fetchone()
        async with await open_store(live, INLINE) as store:
            await write(store, run_files({f"f{number}": b"x" * 20_000 for number in range(20)}))
            copy.parent.mkdir(mode=0o700)
            for name in ("s.db", "s.db-wal"):
                shutil.copyfile(live.with_name(name), copy.with_name(name))
                copy.with_name(name).chmod(0o600)
        holder.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    finally:
        holder.close()
    first_page = live.read_bytes()[:PAGE_BYTES]
    old = copy.read_bytes()
    assert len(live.read_bytes()) > len(old)
    copy.write_bytes(first_page + old[PAGE_BYTES:])
    return copy


async def test_a_store_cut_in_a_checkpoint_opens_whole(tmp_path: Path) -> None:
    """Everything that was durable is there: such a store is not damaged."""
    path = await cut_in_a_checkpoint(tmp_path)
    with pytest.raises(sqlite3.DatabaseError):
        sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True).execute("SELECT * FROM sqlite_master")
    async with await open_store(path, INLINE) as store:
        assert [one.path for one in (await pending(store)).paths] == sorted(f"f{number}" for number in range(20))
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_the_same_file_without_its_write_ahead_file_is_damaged(tmp_path: Path) -> None:
    """What was in the lost file cannot be made up for; the rest is left as it is."""
    path = await cut_in_a_checkpoint(tmp_path)
    path.with_name("s.db-wal").unlink()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged):
        await open_store(path, INLINE)
    assert path.read_bytes() == before
