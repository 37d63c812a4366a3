"""The migrations and the tables they are said to make."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from conveyor.runtime.store import StoreAdapter, StoreOptions, open_store
from conveyor.runtime.store.creation import fill
from conveyor.runtime.store.migrate import alembic_config, upgrade
from conveyor.runtime.store.schema import HEAD_VERSION, KNOWN_VERSIONS, metadata
from conveyor.runtime.store.sqlite import APPLICATION_ID, connect
from tests.support.stores import run_files, write


def tables(connection: Connection) -> dict[str, str]:
    """Every table and index with its definition, white space aside."""
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").all()
    return {name: "".join(sql.split()).replace('"', "") for name, sql in rows}


def test_migrating_makes_what_a_new_store_has() -> None:
    """Column by column and index by index, partial ones too: a new store takes no way round the migrations."""
    with connect(None) as migrated, connect(None) as made, migrated.begin(), made.begin():
        upgrade(migrated)
        fill(made)
        expected = tables(made)
        assert tables(migrated) == expected
        assert compare_metadata(MigrationContext.configure(migrated), metadata) == []
        assert compare_metadata(MigrationContext.configure(made), metadata) == []
        versions = migrated.exec_driver_sql("SELECT version_num FROM alembic_version").all()
        assert versions == made.exec_driver_sql("SELECT version_num FROM alembic_version").all()
    assert len(expected) == len(metadata.tables) + 1 + sum(len(table.indexes) for table in metadata.tables.values())


def test_the_known_versions_are_those_of_the_scripts() -> None:
    """The constants that opening compares with, so that it need not load Alembic."""
    with connect(None) as connection:
        scripts = ScriptDirectory.from_config(alembic_config(connection))
        assert scripts.get_heads() == [HEAD_VERSION]
        assert {script.revision for script in scripts.walk_revisions()} == KNOWN_VERSIONS


def test_the_scripts_are_in_the_package() -> None:
    """Found where the installed package is, as Alembic looks for them."""
    package = resources.files("conveyor.runtime.store.migrations")
    assert package.joinpath("env.py").is_file()
    assert [entry.name for entry in package.joinpath("versions").iterdir() if entry.name.startswith("v0001")]


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.parametrize("adapter", [StoreAdapter.INLINE, StoreAdapter.THREAD])
async def test_a_store_without_a_version_is_brought_up_to_date(tmp_path: Path, adapter: StoreAdapter) -> None:
    """The oldest there can be: our mark and no table. Logging is not touched by it."""
    path = tmp_path / "store.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.close()
    path.chmod(0o600)
    before = (logging.root.handlers[:], logging.root.level, logging.getLogger("alembic").handlers[:])
    async with await open_store(path, StoreOptions(adapter=adapter)) as store:
        await write(store, run_files({"a": b"1"}))
        assert len(store.store_id) == 32
    assert (logging.root.handlers, logging.root.level, logging.getLogger("alembic").handlers) == before


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    """A table in the way: everything is taken back, and the error is typed."""
    path = tmp_path / "store.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE runs (in_the_way)")
    connection.close()
    path.chmod(0o600)
    with pytest.raises(Exception, match="could not do it"):
        await open_store(path, StoreOptions(adapter=StoreAdapter.INLINE))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("runs",)]
    connection.close()


def test_an_ordinary_start_loads_no_alembic() -> None:
    """Import and open stay quick: Alembic, aiosqlite and the asyncio half come only where they are used."""
    program = (
        "import sys, conveyor.runtime.store; print([m for m in ('alembic', 'aiosqlite', 'trio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
