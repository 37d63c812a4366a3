"""The `Store` port over SQLite: three adapters that differ in where the work runs."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar, cast

import anyio
import anyio.lowlevel
from sqlalchemy import Connection

from ...actors.port_errors import StoreBusy, StoreClosed, StoreDamaged
from ...actors.store_operations import Prune, Query, Write
from .fork_guard import ProcessGuard
from .lanes import Lane
from .options import StoreAdapter, StoreOptions
from .sqlite import data_version, reclaim_space, truncate_wal
from .sqlite_errors import DATABASE_ERRORS, is_busy, store_error
from .transactions import read_one, write_all

T = TypeVar("T")
R = TypeVar("R")

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1
_RECLAIM_PAGES: Final = 4096
_PATIENCE_MS: Final = 200


class SqliteStore:
    """The durable state in one SQLite database. Opened by `open_store`; close it with `aclose` or `async with`.

    Every method may raise StoreClosed, UsedAfterFork and the other errors of the port (see `port_errors`).

    Args:
        path: the database, or None for one in memory.
        options: how it was opened.
        writer: the connection for transactions.
        readers: connections for queries; the writer itself where there are none.
        store_id: the identity that the store was born with.
    """

    adapter: ClassVar[StoreAdapter]

    def __init__(
        self, path: Path | None, options: StoreOptions, writer: Lane, readers: Sequence[Lane], store_id: str
    ) -> None:
        self._path = path
        self._options = options
        self._guard = ProcessGuard()
        self._writer = writer
        self._writer_lock = anyio.Lock()
        self._readers = tuple(readers)
        self._free_readers = list(readers)
        self._reader_room = anyio.Semaphore(len(self._readers)) if self._readers else None
        self._store_id = store_id
        self._seen_version: int | None = None
        self._wal_tried_bytes = 0
        self._is_closing = False
        self._closed = anyio.Event()

    @property
    def store_id(self) -> str:
        """The random identity that the store was born with, 32 hexadecimal digits."""
        self._guard.check()
        return self._store_id

    @property
    def path(self) -> Path | None:
        """The database file, None for a store in memory."""
        return self._path

    async def transact(self, operations: Sequence[Write[Any]]) -> list[Any]:
        """Carry out the operations, in order, in one durable transaction (see the port).

        Waiting for other processes can be cancelled; a transaction that has begun runs to its end.
        """
        self._check_open()
        if not operations:
            await anyio.lowlevel.checkpoint()
            return []
        async with self._writer_lock:
            answers = await self._retry(self._writer, lambda connection: write_all(connection, operations))
            with anyio.CancelScope(shield=True):
                await self._tidy(has_pruned=any(isinstance(operation, Prune) for operation in operations))
            return answers

    async def query(self, operation: Query[R]) -> R:
        """Read a consistent state on a connection of its own; never waits for a writer."""
        self._check_open()
        if self._reader_room is None:
            async with self._writer_lock:
                return await self._retry(self._writer, lambda connection: read_one(connection, operation))
        async with self._reader_room:
            lane = self._free_readers.pop()
            try:
                return await self._retry(lane, lambda connection: read_one(connection, operation))
            finally:
                self._free_readers.append(lane)

    async def has_foreign_changes(self) -> bool:
        """Whether another process may have changed the store since the last call.

        The writer's own connection is asked, because its own changes do not count there.
        """
        self._check_open()
        async with self._writer_lock:
            version = await self._retry(self._writer, data_version)
        has_changed = version != self._seen_version
        self._seen_version = version
        return has_changed

    async def aclose(self) -> None:
        """Move everything into the database file and close it. Shielded; the second call waits for the first.

        Transactions under way end first; what waits for another process gives up with StoreClosed.
        """
        self._guard.check()
        with anyio.CancelScope(shield=True):
            if self._is_closing:
                await self._closed.wait()
                return
            self._is_closing = True
            try:
                async with self._writer_lock:
                    await self._close_lanes()
            finally:
                self._closed.set()
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        guard = getattr(self, "_guard", None)
        if guard is not None and guard.is_here and not self._is_closing:
            warnings.warn(
                f"the store {self._path or 'in memory'} was not closed; what it accepted is durable all the same",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    def _check_open(self) -> None:
        self._guard.check()
        if self._is_closing:
            raise StoreClosed(f"the store {self._path or 'in memory'} was closed; open it again")

    async def _retry(self, lane: Lane, work: Callable[[Connection], T]) -> T:
        """Run work, again after a pause where another process is in the way; database errors become the port's."""
        began = anyio.current_time()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await lane.run(work)
            except DATABASE_ERRORS as error:
                if not is_busy(error):
                    raise store_error(error, self._path) from error
            waited_s = anyio.current_time() - began
            if waited_s >= self._options.busy_limit_s:
                raise StoreBusy(
                    f"other processes held the store {self._path} for {self._options.busy_limit_s:g} s; try again"
                )
            # Jitter, so that many processes do not come back in step. Who has waited long comes back sooner than who
            # has not, so that among many none is left waiting for good (N-STO-02).
            await anyio.sleep(pause_s * random.uniform(0.5, 1.5))
            self._check_open()
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S / (1.0 + waited_s))

    async def _tidy(self, *, has_pruned: bool) -> None:
        """Keep the files small; nothing that was answered depends on it."""
        if self._path is None:
            return
        try:
            if has_pruned:
                await self._writer.run(lambda connection: reclaim_space(connection, _RECLAIM_PAGES))
            size_bytes = self._wal_bytes()
            if size_bytes <= self._options.wal_limit_bytes:
                self._wal_tried_bytes = 0
            elif size_bytes >= 2 * self._wal_tried_bytes:
                await self._cut_wal(size_bytes)
            elif await self._writer.run(truncate_wal):
                self._wal_tried_bytes = 0
        except DATABASE_ERRORS as error:
            if not is_busy(error):
                self._options.warn("STORE_UPKEEP_FAILED", type(error).__name__)

    async def _cut_wal(self, size_bytes: int) -> None:
        """Cut the write-ahead file, which needs a moment without readers: our own wait, for others there is patience.

        If somebody's reader stays in the way that is reported, and tried again with patience only once the file has
        doubled.
        """
        room = len(self._readers) if self._reader_room is not None else 0
        for _ in range(room):
            await cast(anyio.Semaphore, self._reader_room).acquire()
        try:
            is_cut = await self._writer.run(partial(truncate_wal, patience_ms=_PATIENCE_MS))
        finally:
            for _ in range(room):
                cast(anyio.Semaphore, self._reader_room).release()
        if is_cut:
            self._wal_tried_bytes = 0
        else:
            self._wal_tried_bytes = size_bytes
            self._options.warn("WAL_TOO_LARGE", f"{size_bytes} bytes")

    def _wal_bytes(self) -> int:
        try:
            return os.stat(f"{self._path}-wal").st_size
        except OSError:
            return 0

    async def _close_lanes(self) -> None:
        if self._reader_room is not None:
            for _ in self._readers:
                await self._reader_room.acquire()
        for lane in self._readers:
            await lane.aclose()
        try:
            if self._path is not None:
                await self._writer.run(truncate_wal)
        except DATABASE_ERRORS as error:
            # Closing must not fail: the write-ahead file holds what could not be moved, and the next one reads it.
            if isinstance(store_error(error, self._path), StoreDamaged):
                self._options.warn("STORE_DAMAGED", type(error).__name__)
        finally:
            await self._writer.aclose()


class AsyncSqliteStore(SqliteStore):
    """Under asyncio, through SQLAlchemy's aiosqlite dialect."""

    adapter = StoreAdapter.AIOSQLITE


class ThreadSqliteStore(SqliteStore):
    """Under any event loop: one dedicated thread for each connection."""

    adapter = StoreAdapter.THREAD


class InlineSqliteStore(SqliteStore):
    """In the calling task, without threads: for simulation and virtual time. In memory or in a file."""

    adapter = StoreAdapter.INLINE


__all__ = ["AsyncSqliteStore", "InlineSqliteStore", "SqliteStore", "ThreadSqliteStore"]
