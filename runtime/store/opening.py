"""Opening a store: look at the place, make or migrate it if need be, then open the connections."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
from sqlalchemy import Connection

from ...actors.port_errors import StoreBusy
from .agenda import read_store_id
from .creation import ensure_safe_journal, fill, tighten_modes, try_set_up
from .lanes import InlineLane, Lane, ThreadLane
from .options import StoreAdapter, StoreOptions
from .place import Place, Readiness, check_version, look
from .planner import teach_planner
from .schema import HEAD_VERSION, VERSION_TABLE
from .sqlite import Role, run_sql
from .sqlite_errors import DATABASE_ERRORS, is_busy, store_error
from .store import AsyncSqliteStore, InlineSqliteStore, SqliteStore, ThreadSqliteStore
from .threads import is_under_asyncio, run_in_short_thread

T = TypeVar("T")

_PAUSE_S: Final = 0.03
DEFAULT_OPTIONS: Final = StoreOptions()


async def open_store(path: str | os.PathLike[str], options: StoreOptions = DEFAULT_OPTIONS) -> SqliteStore:
    """Open the store at a path, made if there is nothing there.

    Many processes may open one store at the same time: one of them makes or migrates it, the others wait. Cancelling
    leaves no thread, handle or transaction behind.

    Args:
        path: the database file. Missing directories are made, private.
        options: see `StoreOptions`.

    Raises:
        StoreUnusable: the place or file cannot serve: foreign, newer, read-only, not private, refused network
            filesystem. It was left untouched.
        StoreDamaged: it is a store that cannot be read. It was left as it is.
        StoreFull: there is no room to make it.
        StoreBusy: other processes held it for longer than the limit.
    """
    adapter = options.adapter
    if adapter is StoreAdapter.AUTO:
        adapter = StoreAdapter.AIOSQLITE if is_under_asyncio() else StoreAdapter.THREAD
    run_blocking = _run_inline if adapter is StoreAdapter.INLINE else run_in_short_thread
    deadline = anyio.current_time() + options.busy_limit_s
    while True:
        place = await _make_ready(Path(path), options, run_blocking, deadline)
        try:
            return await _open_lanes(place, options, adapter)
        except _NotReady:
            # It was replaced or is older than it seemed; look again.
            await _pause(Path(path), deadline)
        except DATABASE_ERRORS as error:
            if not is_busy(error):
                raise store_error(error, place.path) from error
            await _pause(Path(path), deadline)


async def open_memory_store(options: StoreOptions = DEFAULT_OPTIONS) -> InlineSqliteStore:
    """Open a new store in memory, for simulation and tests; it is gone when it is closed."""
    await anyio.lowlevel.checkpoint()
    writer = InlineLane(None, Role.WRITER)

    def prepare(connection: Connection) -> str:
        with connection.begin():
            fill(connection)
            teach_planner(connection)
            return read_store_id(connection)

    try:
        store_id = await writer.run(prepare)
    except BaseException:
        writer.close()
        raise
    return InlineSqliteStore(None, options, writer, (), store_id)


class _NotReady(Exception):
    """What was found ready is not, now that it is open."""


class _RunBlocking(Protocol):
    async def __call__(self, work: Callable[[], T]) -> T: ...


async def _make_ready(path: Path, options: StoreOptions, run_blocking: _RunBlocking, deadline: float) -> Place:
    while True:
        place = await run_blocking(partial(_look, path, options))
        if place is None:
            await _pause(path, deadline)
        elif place.readiness is not Readiness.READY:
            if not await run_blocking(partial(try_set_up, path, options)):
                await _pause(path, deadline)
        elif place.is_on_network and not await run_blocking(partial(ensure_safe_journal, place.path)):
            await _pause(path, deadline)
        else:
            return place


def _look(path: Path, options: StoreOptions) -> Place | None:
    """What is there; None if others are just busy with it."""
    try:
        place = look(path, options)
    except StoreBusy:
        return None
    if place.readiness is Readiness.READY:
        tighten_modes(place.path)
    return place


async def _pause(path: Path, deadline: float) -> None:
    if anyio.current_time() >= deadline:
        raise StoreBusy(f"other processes were busy setting up the store {path} for too long; try again")
    await anyio.sleep(_PAUSE_S * random.uniform(0.3, 1.7))


async def _run_inline(work: Callable[[], T]) -> T:
    await anyio.lowlevel.checkpoint()
    return work()


async def _open_lanes(place: Place, options: StoreOptions, adapter: StoreAdapter) -> SqliteStore:
    lanes: list[Lane] = []
    try:
        store_id = ""
        number_of_readers = 1 if adapter is StoreAdapter.INLINE else options.readers
        open_lane = _lane_opener(place.path, adapter)
        for role in (Role.WRITER, *[Role.READER] * number_of_readers):
            lanes.append(await open_lane(role))
            if role is Role.WRITER:
                store_id = await lanes[0].run(lambda connection: _identify(connection, place.path))
    except BaseException:
        with anyio.CancelScope(shield=True):
            for lane in reversed(lanes):
                await lane.aclose()
        raise
    kind = {
        StoreAdapter.INLINE: InlineSqliteStore,
        StoreAdapter.THREAD: ThreadSqliteStore,
        StoreAdapter.AIOSQLITE: AsyncSqliteStore,
    }[adapter]
    return kind(place.path, options, lanes[0], lanes[1:], store_id)


def _lane_opener(path: Path, adapter: StoreAdapter) -> Callable[[Role], Awaitable[Lane]]:
    if adapter is StoreAdapter.AIOSQLITE:
        from .aiosqlite_lane import AiosqliteLane

        return partial(AiosqliteLane.open, path)
    return partial(ThreadLane.open if adapter is StoreAdapter.THREAD else _open_inline, path)


async def _open_inline(path: Path, role: Role) -> Lane:
    await anyio.lowlevel.checkpoint()
    return InlineLane(path, role)


def _identify(connection: Connection, path: Path) -> str:
    """The store's identity, once its version is sure to be the newest."""
    rows = run_sql(connection, f"SELECT version_num FROM {VERSION_TABLE}")
    version = str(rows[0][0]) if rows else None
    check_version(path, version)
    if version != HEAD_VERSION:
        raise _NotReady
    ((store_id,),) = run_sql(connection, "SELECT value FROM meta WHERE name = 'store_id'")
    return str(store_id)


__all__ = ["DEFAULT_OPTIONS", "open_memory_store", "open_store"]
