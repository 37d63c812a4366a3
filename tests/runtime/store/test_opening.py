"""What may serve as a store, and what is refused untouched (N-STO-01, N-SEC-02, W26)."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from conveyor.actors.port_errors import StoreBusy, StoreDamaged, StoreUnusable
from conveyor.runtime.store import OnNetwork, StoreAdapter, StoreOptions, open_store
from conveyor.runtime.store.schema import HEAD_VERSION
from conveyor.runtime.store.sqlite import APPLICATION_ID
from tests.support.stores import pending, run_files, write

pytestmark = pytest.mark.real_time

INLINE = StoreOptions(adapter=StoreAdapter.INLINE, busy_limit_s=0.2)


def picture(directory: Path) -> dict[str, tuple[int, str]]:
    """Every file of a directory: mode and digest."""
    return {
        path.name: (path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in directory.iterdir()
        if path.is_file()
    }


async def make(path: Path, options: StoreOptions = INLINE) -> None:
    """A store with one hand-over."""
    async with await open_store(path, options) as store:
        await write(store, run_files({"a": b"1"}))


def execute(path: Path, *statements: str) -> None:
    """Change a database by other means."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


class TestForeignFiles:
    """Another program's data is recognised and left exactly as it was."""

    @pytest.mark.parametrize("what", ["database", "empty database", "text", "nothing", "old events"])
    @pytest.mark.anyio
    async def test_it_is_refused_untouched(self, tmp_path: Path, what: str) -> None:
        """Databases of others, also without any table, files that are none, and empty files."""
        path = tmp_path / "store.sqlite3"
        if what == "database":
            execute(path, "PRAGMA journal_mode = WAL", "CREATE TABLE theirs (a)", "INSERT INTO theirs VALUES (1)")
        elif what == "empty database":
            execute(path, "PRAGMA user_version = 1")
        elif what == "old events":
            execute(path, "CREATE TABLE alembic_version (version_num)", "INSERT INTO alembic_version VALUES ('x')")
        else:
            path.write_bytes(b"not a database, but long enough to have a header " * 9 if what == "text" else b"")
        path.chmod(0o644)
        before = picture(tmp_path)
        with pytest.raises(StoreUnusable, match=r"left untouched.*choose another path") as refused:
            await open_store(path, INLINE)
        assert str(path) in str(refused.value)
        assert picture(tmp_path) == before

    @pytest.mark.anyio
    async def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        """With its path in the message."""
        (tmp_path / "store").mkdir()
        with pytest.raises(StoreUnusable, match="is no regular file"):
            await open_store(tmp_path / "store", INLINE)
        assert list((tmp_path / "store").iterdir()) == []

    @pytest.mark.anyio
    async def test_a_file_in_place_of_the_directory(self, tmp_path: Path) -> None:
        """A path below a file names that file."""
        (tmp_path / "file").write_text("x")
        with pytest.raises(StoreUnusable, match="choose a path below a directory"):
            await open_store(tmp_path / "file" / "sub" / "store.sqlite3", INLINE)

    @pytest.mark.parametrize("is_in_use", [False, True], ids=["closed", "in use"])
    @pytest.mark.anyio
    async def test_a_newer_store_is_refused_untouched(self, tmp_path: Path, is_in_use: bool) -> None:
        """It names both versions, and changes nothing."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        user = sqlite3.connect(path)
        user.execute("UPDATE alembic_version SET version_num = '9999'")
        user.commit()
        if not is_in_use:
            user.close()
        before = picture(tmp_path)
        with pytest.raises(StoreUnusable, match=f"version 9999.*knows up to {HEAD_VERSION}.*left untouched"):
            await open_store(path, INLINE)
        after = picture(tmp_path)
        # Readers of a database in use note themselves in the shared memory file.
        before.pop("store.sqlite3-shm", None)
        after.pop("store.sqlite3-shm", None)
        assert after == before
        user.close()


class TestDamage:
    """A store that cannot be read is left as it is."""

    @pytest.mark.anyio
    async def test_a_cut_file_is_reported(self, tmp_path: Path) -> None:
        """Half of the database is gone: typed, with advice, and not a byte changes."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        content = path.read_bytes()
        path.write_bytes(content[:4096] + bytes(len(content) // 4096 * 4096 - 4096))
        before = picture(tmp_path)
        with pytest.raises(StoreDamaged, match="left as it is"):
            await open_store(path, INLINE)
        assert picture(tmp_path) == before

    @pytest.mark.anyio
    async def test_damage_found_later_is_typed(self, tmp_path: Path) -> None:
        """A broken page that only a query meets raises StoreDamaged there; the store can still be closed."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        with sqlite3.connect(path) as connection:
            ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'run_paths_pending'")
        connection.close()
        with path.open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
        async with await open_store(path, INLINE) as store:
            with pytest.raises(StoreDamaged, match=str(path)):
                await pending(store)


class TestPlacesAndModes:
    """Where a store may be, and who may read it."""

    @pytest.mark.anyio
    async def test_everything_made_is_private(self, tmp_path: Path) -> None:
        """W26: directories 0700, database and side files 0600, whatever the umask."""
        old = os.umask(0)
        try:
            path = tmp_path / "one" / "two" / "store.sqlite3"
            async with await open_store(path, INLINE) as store:
                await write(store, run_files({"a": b"1"}))
                modes = {name.name: stat.S_IMODE(name.stat().st_mode) for name in path.parent.iterdir()}
        finally:
            os.umask(old)
        assert set(modes.values()) == {0o600}
        assert {"store.sqlite3", "store.sqlite3-wal", "store.sqlite3-shm"} < modes.keys()
        assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700

    @pytest.mark.anyio
    async def test_only_the_lock_file_stays_beside_it(self, tmp_path: Path) -> None:
        """W50: after closing there are the database and its lock, inside the store's directory."""
        await make(tmp_path / "store.sqlite3")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".store.sqlite3.lock", "store.sqlite3"]

    @pytest.mark.anyio
    async def test_what_a_killed_process_left_is_cleared_away(self, tmp_path: Path) -> None:
        """A half-made database is never at the store's own name, and is deleted by the next who makes one."""
        (tmp_path / ".store.sqlite3.new-0123").write_bytes(b"half")
        await make(tmp_path / "store.sqlite3")
        assert not list(tmp_path.glob("*new*"))

    @pytest.mark.anyio
    async def test_a_directory_that_others_may_write_is_refused(self, tmp_path: Path) -> None:
        """N-SEC-02: with the mode and the command that mends it; nothing is created."""
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o775)
        with pytest.raises(StoreUnusable, match=f"mode 0775.*chmod go-w {shared}"):
            await open_store(shared / "store.sqlite3", INLINE)
        assert list(shared.iterdir()) == []

    @pytest.mark.anyio
    async def test_everybodys_directory_is_left_as_it_is(self, tmp_path: Path) -> None:
        """The advice for a sticky directory, such as /tmp, is another place and not another mode."""
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        with pytest.raises(StoreUnusable, match=r"mode 1777.*of your own below it") as caught:
            await open_store(shared / "store.sqlite3", INLINE)
        assert "chmod" not in str(caught.value)

    @pytest.mark.anyio
    async def test_a_file_that_others_may_write_is_refused(self, tmp_path: Path) -> None:
        """N-SEC-02: its content cannot be trusted."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        path.chmod(0o620)
        with pytest.raises(StoreUnusable, match=r"mode 0620.*chmod 600"):
            await open_store(path, INLINE)

    @pytest.mark.anyio
    async def test_reading_is_taken_from_others(self, tmp_path: Path) -> None:
        """W26: a copy or restore that made it readable for all is put right."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        path.chmod(0o644)
        await make(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    @pytest.mark.parametrize("what", ["directory", "file"])
    @pytest.mark.anyio
    async def test_another_users_place_is_refused(self, tmp_path: Path, what: str) -> None:
        """N-SEC-02: the owner is checked before anything is read."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        os.chown(path if what == "file" else tmp_path, 12345, 12345)
        with pytest.raises(StoreUnusable, match=f"belongs to user 12345, not to {os.geteuid()}"):
            await open_store(path, INLINE)
        os.chown(tmp_path, 0, 0)

    @pytest.mark.parametrize(("name", "mode"), [("store.sqlite3", 0o400), (".", 0o500)])
    def test_a_read_only_store_is_refused(self, tmp_path: Path, name: str, mode: int) -> None:
        """A file or directory without the right to write is refused with advice, by an ordinary user."""
        place = tmp_path / "place"
        place.mkdir(mode=0o700)
        path = place / "store.sqlite3"
        anyio.run(make, path)
        if os.geteuid() == 0:
            for one in (place, *place.iterdir()):
                os.chown(one, 12345, 12345)
            for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
                parent.chmod(0o711)
        (place / name).chmod(mode)
        program = (
            "import os, sys, anyio\n"
            "from conveyor.runtime.store import open_store\n"
            "from conveyor.actors.port_errors import StoreUnusable\n"
            "if os.geteuid() == 0: os.setgid(12345); os.setuid(12345)\n"
            "async def main():\n"
            "    try: await open_store(sys.argv[1])\n"
            "    except StoreUnusable as error: print(error)\n"
            "anyio.run(main)\n"
        )
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
        (place / name).chmod(0o700)
        assert "cannot be written" in done.stdout
        assert "make it writable" in done.stdout

    @pytest.mark.anyio
    async def test_links_are_followed_to_the_real_place(self, tmp_path: Path) -> None:
        """Through a link the same store is opened, and its lock lies beside the real file."""
        real = tmp_path / "real"
        real.mkdir(mode=0o700)
        (tmp_path / "link").symlink_to(real)
        await make(tmp_path / "link" / "store.sqlite3")
        async with await open_store(real / "store.sqlite3", INLINE) as store:
            assert len((await pending(store)).paths) == 1
        assert (real / ".store.sqlite3.lock").exists()

    @pytest.mark.anyio
    async def test_odd_names_are_taken_literally(self, tmp_path: Path) -> None:
        """Spaces, question marks, percent and hash signs in a path mean nothing to SQLite."""
        for name in ("a b?mode=memory", "50%20#1", "é"):
            await make(tmp_path / name / "store.sqlite3")
            assert (tmp_path / name / "store.sqlite3").stat().st_size > 4096


class TestNetworkFilesystems:
    """N-STO-01: a probe decides; a stand-in for it does here."""

    @pytest.mark.anyio
    async def test_it_is_refused_with_advice_where_asked(self, tmp_path: Path) -> None:
        """Before anything is made there."""
        options = StoreOptions(
            adapter=StoreAdapter.INLINE, on_network=OnNetwork.REFUSE, filesystem_probe=lambda _: "nfs4"
        )
        with pytest.raises(StoreUnusable, match=r"network filesystem \(nfs4\).*local disk.*safe journal"):
            await open_store(tmp_path / "new" / "store.sqlite3", options)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.anyio
    async def test_otherwise_it_runs_in_the_safe_mode(self, tmp_path: Path) -> None:
        """A rollback journal, every sync there is, and no shared memory file."""
        path = tmp_path / "store.sqlite3"
        options = StoreOptions(adapter=StoreAdapter.INLINE, filesystem_probe=lambda _: "nfs4")
        async with await open_store(path, options) as store:
            await write(store, run_files({"a": b"1"}))
            assert {name.name for name in tmp_path.iterdir()} == {"store.sqlite3", ".store.sqlite3.lock"}
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
        connection.close()
        await make(path)

    @pytest.mark.anyio
    async def test_a_store_moved_there_leaves_write_ahead_mode(self, tmp_path: Path) -> None:
        """Opened on a network filesystem for the first time it is converted; while others use it, that waits."""
        path = tmp_path / "store.sqlite3"
        await make(path)
        options = StoreOptions(adapter=StoreAdapter.INLINE, filesystem_probe=lambda _: "cifs", busy_limit_s=0.1)
        async with await open_store(path, INLINE) as user:
            await write(user, run_files({"b": b"1"}))
            with pytest.raises(StoreBusy):
                await open_store(path, options)
        async with await open_store(path, options) as store:
            assert len((await pending(store)).paths) == 2
            assert not Path(f"{path}-wal").exists()

    @pytest.mark.anyio
    async def test_many_write_in_the_safe_mode(self, tmp_path: Path) -> None:
        """Readers and writers of several connections get by without an error."""
        path = tmp_path / "store.sqlite3"
        options = StoreOptions(adapter=StoreAdapter.THREAD, filesystem_probe=lambda _: "nfs")
        async with await open_store(path, options) as one, await open_store(path, options) as other:
            for number in range(5):
                for store in (one, other):
                    await write(store, run_files({f"{number}": b"1"}))
                    assert len((await pending(store)).paths) == number + 1


@pytest.mark.anyio
async def test_our_databases_carry_our_mark(tmp_path: Path) -> None:
    """The application id is in the header's bytes 68 to 71, where `file` and other programs look."""
    path = tmp_path / "store.sqlite3"
    await make(path)
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big") == b"CNVY"
