"""SQLite as the store uses it: how connections are made, and the few statements that only SQLite knows."""

from __future__ import annotations

import inspect
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only

from .leases import HOLDER

APPLICATION_ID: Final = 0x434E5659
"""Written into the header of our databases ("CNVY"), so that any other program's is recognised and left alone."""

WAL_AUTOCHECKPOINT_PAGES: Final = 1000
SIDE_FILE_KEPT_BYTES: Final = 16 * 1024 * 1024
"""A write-ahead file that has grown larger is cut back to this once it starts over."""

WRITE_AHEAD: Final = "wal"
"""The journal mode in which readers and the writer do not wait for each other. Its users share memory."""

SAFE: Final = "delete"
"""Rollback journal: with directory syncs it is also right on network filesystems, as long as these keep file locks."""

_ROLE: Final = "conveyor.role"
_PATIENCE_MS: Final = "conveyor.patience_ms"

THREAD_PATIENCE_MS: Final = 100
"""How long a statement in a thread of its own waits for other processes, before the task has a chance to leave."""


class Role(Enum):
    """What a connection is for."""

    WRITER = "BEGIN IMMEDIATE"
    """Takes the write lock when its transaction begins, so that it never has to give up in the middle."""
    READER = "BEGIN"


def uri_of(path: Path, query: str) -> str:
    """A SQLite URI of a file."""
    return f"file:{quote(str(path))}?{query}"


def connect_arguments() -> dict[str, Any]:
    """Arguments of the driver: explicit transactions, and no long waits inside SQLite."""
    return {"uri": True, "timeout": 1.0, "isolation_level": None, "check_same_thread": False, "cached_statements": 256}


_target: ContextVar[str] = ContextVar("conveyor_store_target")


@contextmanager
def target_of(path: Path | None) -> Iterator[None]:
    """Say which database the next connection is to: an existing file, or a new one in memory.

    One engine serves all of them, because it is the engine that keeps the compiled statements.
    """
    token = _target.set(":memory:" if path is None else uri_of(path, "mode=rw"))
    try:
        yield
    finally:
        _target.reset(token)


def current_target() -> str:
    """The database of `target_of`."""
    return _target.get()


def connect(path: Path | None) -> Connection:
    """Open a connection, in the calling thread, to an existing database or to a new one in memory (None).

    Raises:
        DBAPIError, sqlite3.Error: it could not be opened.
    """
    with target_of(path):
        return _engine().connect()


@cache
def _engine() -> Engine:
    """Connections are made by hand and closed by hand: no pool keeps any."""

    def make() -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(current_target(), **connect_arguments())
        return connection

    engine = create_engine("sqlite://", creator=make, poolclass=NullPool)
    prepare_engine(engine)
    return engine


def prepare_engine(engine: Engine) -> None:
    """Give every connection of an engine its settings, and every transaction its explicit beginning."""

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode")
        for pragma in _settings(str(cursor.fetchall()[0][0])):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        role: Role = connection.info.get(_ROLE, Role.WRITER)
        connection.exec_driver_sql(role.value)


def _settings(journal_mode: str) -> tuple[str, ...]:
    shared = ("cache_size = -8000", "temp_store = MEMORY", "trusted_schema = OFF")
    if journal_mode == WRITE_AHEAD:
        return (
            *shared,
            "busy_timeout = 0",
            "synchronous = FULL",
            f"wal_autocheckpoint = {WAL_AUTOCHECKPOINT_PAGES}",
            f"journal_size_limit = {SIDE_FILE_KEPT_BYTES}",
        )
    # Readers hold back the end of a transaction here, so a short wait inside SQLite is worth it.
    return (*shared, "synchronous = EXTRA", "busy_timeout = 250")


def give_role(connection: Connection, role: Role, *, patience_ms: int = 0) -> None:
    """Say what a connection is for, who holds it, and how long each statement waits inside SQLite for other processes.

    Waiting there costs little: SQLite looks again every few milliseconds. It blocks the thread, so it has to be short.
    """
    connection.info[_ROLE] = role
    connection.info[HOLDER] = (socket.gethostname(), os.getpid())
    ((known_ms,),) = run_pragma(connection, "busy_timeout")
    connection.info[_PATIENCE_MS] = max(known_ms, patience_ms)
    run_pragma(connection, f"busy_timeout = {connection.info[_PATIENCE_MS]}")
    if role is Role.READER:
        run_pragma(connection, "query_only = ON")


def run_pragma(connection: Connection, pragma: str) -> list[Any]:
    """Run a pragma outside any transaction; gives its rows.

    Raises:
        sqlite3.Error: it failed.
    """
    return run_sql(connection, f"PRAGMA {pragma}")


def run_sql(connection: Connection, sql: str) -> list[Any]:
    """Run a statement in a transaction of its own, without a write lock before it needs one; gives its rows.

    Raises:
        sqlite3.Error: it failed.
    """
    cursor: Any = connection.connection.cursor()
    try:
        cursor.execute(sql)
        return list(cursor.fetchall())
    finally:
        cursor.close()


def truncate_wal(connection: Connection, *, patience_ms: int = 0) -> bool:
    """Move the whole write-ahead file into the database and cut it to nothing; False if a reader is in the way.

    Args:
        connection: the writer.
        patience_ms: how long to wait for readers.
    """
    run_pragma(connection, f"busy_timeout = {patience_ms}")
    try:
        ((is_blocked, _, _),) = run_pragma(connection, "wal_checkpoint(TRUNCATE)")
    finally:
        run_pragma(connection, f"busy_timeout = {connection.info[_PATIENCE_MS]}")
    return not is_blocked


def reclaim_space(connection: Connection, pages: int) -> None:
    """Give free pages back to the filesystem."""
    # As a script, because the driver would take one step of it only, which is one page.
    driver: Any = connection.connection.driver_connection
    running = driver.executescript(f"PRAGMA incremental_vacuum({pages})")
    if inspect.isawaitable(running):
        await_only(running)


def data_version(connection: Connection) -> int:
    """A number that changes when another connection changes the database; reads no table."""
    ((version,),) = run_pragma(connection, "data_version")
    return int(version)


__all__ = [
    "APPLICATION_ID",
    "SAFE",
    "THREAD_PATIENCE_MS",
    "WRITE_AHEAD",
    "Role",
    "connect",
    "connect_arguments",
    "current_target",
    "data_version",
    "give_role",
    "prepare_engine",
    "reclaim_space",
    "run_pragma",
    "run_sql",
    "target_of",
    "truncate_wal",
    "uri_of",
]
