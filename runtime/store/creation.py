"""Making a store, and bringing an older one up to date: by one process at a time, the others wait (N-STO-02).

A new database is built under another name and appears at its own only when it is whole and on the disk. So whatever is
found at that name is a store or somebody else's, never a half-made one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Dialect, Index, insert, select
from sqlalchemy.schema import CreateIndex, CreateTable

from ...actors.port_errors import StoreBusy, StoreError, StoreFull, StoreUnusable
from .options import StoreOptions
from .place import Place, Readiness, look
from .planner import teach_planner
from .schema import HEAD_VERSION, VERSION_TABLE, meta, metadata
from .sqlite import APPLICATION_ID, SAFE, WRITE_AHEAD, connect, run_pragma, uri_of
from .sqlite_errors import DATABASE_ERRORS, is_busy, store_error


def try_set_up(path: Path, options: StoreOptions) -> bool:
    """Make or migrate the store, unless another process is just doing that; then answer False.

    Raises:
        StoreError: it cannot be done; what was there before is as it was.
    """
    real = Path(os.path.realpath(path))
    try:
        _make_directories(real.parent)
        lock = _try_lock(real)
    except OSError as error:
        raise _os_error(error, real) from error
    if lock is None:
        return False
    try:
        # Another process may have been faster: what is there now decides.
        place = look(path, options)
        if place.readiness is Readiness.ABSENT:
            _create(place)
        elif place.readiness is Readiness.OLDER:
            _migrate(place)
    except OSError as error:
        raise _os_error(error, real) from error
    finally:
        # Explicitly, because a forked child may still hold the descriptor.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
    return True


def ensure_safe_journal(path: Path) -> bool:
    """Take a store on a network filesystem out of write-ahead mode; False if others hold it.

    Raises:
        StoreError: it could not be done.
    """
    try:
        connection = sqlite3.connect(uri_of(path, "mode=rw"), uri=True, isolation_level=None, timeout=0.2)
        try:
            # In exclusive mode SQLite does without the shared memory that such a filesystem does not give.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
            if mode == WRITE_AHEAD:
                ((mode,),) = connection.execute(f"PRAGMA journal_mode = {SAFE}").fetchall()
            return bool(mode != WRITE_AHEAD)
        finally:
            connection.close()
    except sqlite3.Error as error:
        if is_busy(error):
            return False
        raise store_error(error, path) from error


def fill(connection: Connection) -> None:
    """Make the tables of a new store, in the caller's transaction."""
    for statement in _definitions(connection.dialect):
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
        f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
    )
    connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES ('{HEAD_VERSION}')")
    _give_identity(connection)


def _give_identity(connection: Connection) -> None:
    """Name the store, once and for all."""
    known = connection.scalar(select(meta.c.value).where(meta.c.name == "store_id"))
    if known is None:
        connection.execute(insert(meta).values(name="store_id", value=secrets.token_hex(16)))


_KNOWN_DEFINITIONS: Final[dict[str, list[str]]] = {}


def _definitions(dialect: Dialect) -> list[str]:
    """Every table and index as SQL, worked out once: stores in memory are made by the hundred."""
    if dialect.name in _KNOWN_DEFINITIONS:
        return _KNOWN_DEFINITIONS[dialect.name]
    made: list[str] = []
    for table in metadata.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=dialect)))
        made += [str(CreateIndex(index).compile(dialect=dialect)) for index in sorted(table.indexes, key=_name_of)]
    _KNOWN_DEFINITIONS[dialect.name] = made
    return made


def _name_of(index: Index) -> str:
    return str(index.name)


def tighten_modes(path: Path) -> None:
    """Take reading from others, which an earlier copy or restore may have given (finding W26)."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-journal")):
        with contextlib.suppress(FileNotFoundError):
            if os.stat(name).st_mode & 0o077:
                os.chmod(name, 0o600)


def _make_directories(directory: Path) -> None:
    if directory.is_dir():
        return
    _make_directories(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)


def _try_lock(path: Path) -> int | None:
    lock = os.open(path.parent / f".{path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _create(place: Place) -> None:
    path = place.path
    for left in path.parent.glob(f".{path.name}.new-*"):
        # Only the holder of the lock makes these, so this one is from a process that was killed.
        left.unlink(missing_ok=True)
    new = path.parent / f".{path.name}.new-{secrets.token_hex(8)}"
    try:
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        _build(new, SAFE if place.is_on_network else WRITE_AHEAD)
        _sync(new)
        _give_name(new, path)
    finally:
        for name in (new, Path(f"{new}-journal"), Path(f"{new}-wal"), Path(f"{new}-shm")):
            name.unlink(missing_ok=True)
    _sync(path.parent)


def _build(path: Path, journal_mode: str) -> None:
    try:
        with connect(path) as connection:
            # Nobody else knows this file yet, and an unfinished one is thrown away: no journal is needed.
            for pragma in (
                "journal_mode = MEMORY",
                "auto_vacuum = INCREMENTAL",
                f"application_id = {APPLICATION_ID}",
            ):
                run_pragma(connection, pragma)
            with connection.begin():
                fill(connection)
                teach_planner(connection)
            run_pragma(connection, f"journal_mode = {journal_mode}")
    except DATABASE_ERRORS as error:
        raise store_error(error, path) from error


def _give_name(new: Path, path: Path) -> None:
    try:
        os.link(new, path)
    except FileExistsError:
        raise StoreUnusable(
            f"something appeared at {path} while a store was made there; look at it, then start again"
        ) from None
    except OSError:
        # A filesystem without hard links. The lock keeps every other Conveyor away.
        if path.exists():
            raise StoreUnusable(
                f"something appeared at {path} while a store was made there; look at it, then start again"
            ) from None
        new.rename(path)


def _migrate(place: Place) -> None:
    from .migrate import upgrade

    try:
        with connect(place.path) as connection, connection.begin():
            upgrade(connection)
            _give_identity(connection)
            teach_planner(connection)
    except DATABASE_ERRORS as error:
        if is_busy(error):
            raise StoreBusy(
                f"the store {place.path} has to be brought up to date, and another process is writing; try again"
            ) from error
        raise store_error(error, place.path) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _os_error(error: OSError, path: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"there is no room to make the store {path}; free some space on its disk")
    return StoreUnusable(
        f"the store {path} cannot be made ({error.strerror or type(error).__name__}); check its directory, or choose "
        "another path"
    )


__all__ = ["ensure_safe_journal", "fill", "tighten_modes", "try_set_up"]
