"""The lane of asyncio: SQLAlchemy's aiosqlite dialect, the operations run through `run_sync`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import anyio.lowlevel
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from .fork_guard import Pin
from .sqlite import (
    THREAD_PATIENCE_MS,
    Role,
    connect_arguments,
    current_target,
    give_role,
    prepare_engine,
    target_of,
)
from .threads import wait_to_end

T = TypeVar("T")


@cache
def _engine() -> AsyncEngine:
    """Connections are made by hand and closed by hand: no pool keeps any, so none is bound to an event loop."""
    engine = create_async_engine("sqlite+aiosqlite://", async_creator=_make, poolclass=NullPool)
    prepare_engine(engine.sync_engine)
    return engine


async def _make() -> aiosqlite.Connection:
    connection = aiosqlite.connect(current_target(), **connect_arguments())
    thread = _thread_of(connection)
    if thread is not None:
        # A store that somebody forgot to close must not keep the interpreter from ending (N-RUN-11).
        thread.daemon = True
    return await connection


def _thread_of(connection: object) -> threading.Thread | None:
    """The thread that aiosqlite gives a connection; older versions are that thread themselves."""
    thread = getattr(connection, "_thread", connection)
    return thread if isinstance(thread, threading.Thread) else None


class AiosqliteLane:
    """Runs work through an aiosqlite connection, each piece in a task of its own that nobody cancels.

    Args:
        connection: opened; the lane owns it.
        pin: keeps it from being finalised in a forked child.
        thread: aiosqlite's thread of it.
    """

    def __init__(self, connection: AsyncConnection, pin: Pin, thread: threading.Thread | None) -> None:
        self._connection: AsyncConnection | None = connection
        self._pin = pin
        self._thread = thread

    @classmethod
    async def open(cls, path: Path, role: Role) -> AiosqliteLane:
        """Open a connection.

        Raises:
            DBAPIError, sqlite3.Error: it could not be opened; no thread is left.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        opened: list[AiosqliteLane] = []
        try:
            await _run_to_end(cls._open(path, role, opened))
        except BaseException:
            for lane in opened:
                await lane.aclose()
            raise
        return opened[0]

    @classmethod
    async def _open(cls, path: Path, role: Role, opened: list[AiosqliteLane]) -> None:
        with target_of(path):
            connection = await _engine().connect()
        raw = await connection.get_raw_connection()
        opened.append(cls(connection, Pin(connection.sync_connection), _thread_of(raw.driver_connection)))
        await connection.run_sync(give_role, role, patience_ms=THREAD_PATIENCE_MS)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run work on the connection and wait for its end."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        assert self._connection is not None, "a closed lane runs nothing"
        return await _run_to_end(self._connection.run_sync(work))

    async def aclose(self) -> None:
        """Close the connection, and see its thread end."""
        await _run_to_end(self._close())

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await connection.close()
        finally:
            self._pin.release()
            if self._thread is not None:
                # Its last act is done; what is left of it takes no time.
                self._thread.join(timeout=5.0)


class _ToItsEnd(asyncio.Task[None]):
    """A task that nobody cancels, not even the end of the event loop, which waits for it instead.

    Cancelled, SQLAlchemy would throw the connection away and make another in the midst of the work. In a forked child,
    where the connection's thread is missing, it would never end, and is cancelled like any other.
    """

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        super().__init__(work, loop=asyncio.get_running_loop())
        self._process_id = os.getpid()

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse, in the process that made it."""
        return os.getpid() != self._process_id and super().cancel(msg)


async def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a task that no cancellation reaches, and wait for its end."""
    ended = anyio.Event()
    values: list[T] = []
    errors: list[BaseException] = []

    async def run() -> None:
        # The task itself never fails: if the loop ends and the caller is gone, nobody is to be told of it.
        try:
            values.append(await work)
        except BaseException as error:
            errors.append(error)

    task = _ToItsEnd(run())
    task.add_done_callback(lambda _: ended.set())
    await wait_to_end(ended)
    if errors:
        raise errors.pop()
    return values[0]


__all__ = ["AiosqliteLane"]
