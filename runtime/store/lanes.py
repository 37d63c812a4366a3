"""A lane is one database connection and what runs on it: one piece of work at a time, each to its end.

There are three: inline (simulation and virtual time), a thread of its own (any event loop), and aiosqlite (asyncio).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, cast

import anyio.lowlevel
from sqlalchemy import Connection

from .fork_guard import Pin
from .sqlite import THREAD_PATIENCE_MS, Role, connect, give_role
from .threads import Completion

T = TypeVar("T")


class Lane(Protocol):
    """Runs work on its connection."""

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run work to its end, whatever happens to the caller; a cancellation takes effect before or after it."""
        ...

    async def aclose(self) -> None:
        """Close the connection; nothing of the lane is left. Shielded, and harmless the second time."""
        ...


class InlineLane:
    """Runs work in the calling task itself. Blocks the loop meanwhile, so time can be virtual.

    Args:
        path: an existing database, or None for a new one in memory.
        role: what the connection is for.
    """

    def __init__(self, path: Path | None, role: Role) -> None:
        self._connection: Connection | None = connect(path)
        self._pin = Pin(self._connection)
        give_role(self._connection, role)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run work between two points at which other tasks may run; only the first can be cancelled."""
        await anyio.lowlevel.checkpoint()
        assert self._connection is not None, "a closed lane runs nothing"
        try:
            return work(self._connection)
        finally:
            await anyio.lowlevel.cancel_shielded_checkpoint()

    async def aclose(self) -> None:
        """Close the connection."""
        self.close()
        await anyio.lowlevel.cancel_shielded_checkpoint()

    def close(self) -> None:
        """The same, at once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
            self._pin.release()


_Job = tuple[Completion, Callable[[], object]]


class ThreadLane:
    """Runs work in one dedicated thread, which opens, uses and closes the connection."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._pin: Pin | None = None

    @classmethod
    async def open(cls, path: Path, role: Role) -> ThreadLane:
        """Start the thread and open the connection in it.

        Raises:
            DBAPIError, sqlite3.Error: it could not be opened; no thread is left.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        lane = cls()
        lane._thread = threading.Thread(target=lane._serve, name=f"conveyor store {role.name.lower()}", daemon=True)
        lane._thread.start()
        try:
            await lane._do(lambda: lane._connect(path, role))
        except BaseException:
            await lane.aclose()
            raise
        return lane

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            completion, work = job
            completion.run(work)
            # The job holds its result; a thread that waits must not keep that alive.
            del job, completion, work

    def _connect(self, path: Path, role: Role) -> None:
        self._connection = connect(path)
        self._pin = Pin(self._connection)
        give_role(self._connection, role, patience_ms=THREAD_PATIENCE_MS)

    async def _do(self, work: Callable[[], T]) -> T:
        completion = Completion()
        self._jobs.put((completion, work))
        return cast(T, await completion.wait())

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run work in the thread and wait for its end."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        connection = self._connection
        assert connection is not None, "a closed lane runs nothing"
        return await self._do(lambda: work(connection))

    async def aclose(self) -> None:
        """Close the connection and end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await self._do(self._close)
        finally:
            self._jobs.put(None)
            thread.join()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._pin is not None:
            self._pin.release()


__all__ = ["InlineLane", "Lane", "ThreadLane"]
