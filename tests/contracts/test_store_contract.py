"""The promises of the `Store` port that every adapter keeps, whatever the operations mean."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from conveyor.actors.port_errors import StoreClosed
from conveyor.actors.ports import Failed
from conveyor.actors.store_operations import (
    FlushEverything,
    ListLeases,
    ListOpenRepositories,
    PauseRepository,
    Query,
    ReadStatus,
    RenewLease,
    Write,
)
from conveyor.protocol.errors import LeaseLost, LocalProtocolError
from conveyor.protocol.lease import Lease
from conveyor.runtime.store import SqliteStore, StoreAdapter, StoreOptions, open_store
from tests.contracts.store_cases import quick_directory, store
from tests.support.cancel_points import at_each_wait, cancelled_at
from tests.support.stores import NOW, REPOSITORY, pending, receipt, run_files, totals, write

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

__all__ = ["quick_directory", "store"]

STALE = RenewLease(Lease(REPOSITORY, "nobody", 7, NOW + 1), NOW, 120.0)


async def test_answers_come_in_the_order_of_the_operations(store: SqliteStore) -> None:
    """Each operation of a transaction gets its own answer, and later ones see earlier ones."""
    first, flushed, second = await store.transact(
        [run_files({"a": b"1"}), FlushEverything(NOW), run_files({"a": b"2", "b": b"3"})]
    )
    assert first.versions == (("a", 1),)
    assert flushed == 1
    assert second.versions == (("a", 2), ("b", 1))
    assert second.receipt == await receipt(store)


async def test_a_refused_operation_disturbs_no_other(store: SqliteStore) -> None:
    """An operation that raises is answered with its error and takes back its own effects only."""
    answers = await store.transact([run_files({"a": b"1"}), STALE, run_files({"b": b"2"}, run_id="r2")])
    assert isinstance(answers[1], Failed)
    assert isinstance(answers[1].error, LeaseLost)
    assert [path.path for path in (await pending(store)).paths] == ["a", "b"]
    assert answers[2].receipt.pending_files == 1
    assert (await totals(store)).accepted == 2


async def test_a_refused_operation_alone_changes_nothing(store: SqliteStore) -> None:
    """Not even the row of a repository that it was the first to name."""
    (answer,) = await store.transact([STALE])
    assert isinstance(answer, Failed)
    assert (await totals(store)).known_repositories == 0


async def test_a_transaction_of_nothing_is_answered(store: SqliteStore) -> None:
    """No operations, no answers."""
    assert await store.transact([]) == []


async def test_text_that_no_database_takes_is_refused_alone(store: SqliteStore) -> None:
    """A value that cannot be stored fails its operation, not its neighbours."""
    refused, taken = await store.transact([PauseRepository("a/b", "\ud800", NOW), run_files({"a": b"1"})])
    assert isinstance(refused, Failed)
    assert taken.versions == (("a", 1),)


@dataclass(frozen=True)
class Unheard(Write[None], Query[None]):
    """An operation of some later version."""


async def test_an_unknown_operation_is_refused(store: SqliteStore) -> None:
    """Reads and writes that this store does not know are the caller's mistake."""
    with pytest.raises(LocalProtocolError, match="Unheard is no write"):
        await write(store, Unheard())
    with pytest.raises(LocalProtocolError, match="Unheard is no query"):
        await store.query(Unheard())
    assert (await totals(store)).accepted == 0


async def test_many_tasks_write_and_read_at_once(store: SqliteStore) -> None:
    """Every transaction is whole, and every query sees totals that add up (N-UX-03)."""

    async def produce(number: int) -> None:
        for version in range(3):
            await write(store, run_files({f"{number}": b"%d" % version}, run_id=f"r{number}"))
            await totals(store)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(produce, number)
    status = await totals(store)
    assert (status.accepted, status.superseded, status.waiting) == (24, 16, 8)


async def test_a_cancelled_transaction_is_whole_or_absent(store: SqliteStore) -> None:
    """Wherever the caller is cancelled, both hand-overs are there or neither, and the next transaction goes through."""
    seen: set[int] = set()

    async def attempt(index: int) -> bool:
        before = len((await pending(store)).paths)
        operations = [run_files({f"{index}-a": b"1"}), run_files({f"{index}-b": b"1"}, repository="acme/other")]
        was_cancelled = await cancelled_at(index, lambda: store.transact(operations))
        here, there = (await pending(store)).paths, (await pending(store, "acme/other")).paths
        assert len(here) == len(there)
        seen.add(len(here) - before)
        return was_cancelled

    await at_each_wait(attempt)
    assert 1 in seen


async def test_a_cancelled_query_leaves_its_connection_free(store: SqliteStore) -> None:
    """Cancelling readers at every wait never uses the connections up."""
    await at_each_wait(lambda index: cancelled_at(index, lambda: store.query(ListOpenRepositories())))
    for _ in range(5):
        assert await store.query(ListLeases()) == ()


async def test_a_closed_store_refuses(store: SqliteStore) -> None:
    """Use after close raises the typed error; closing again is harmless."""
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreClosed, match="was closed"):
        await store.transact([run_files({"a": b"1"})])
    with pytest.raises(StoreClosed):
        await store.query(ReadStatus(NOW, 1.0))
    with pytest.raises(StoreClosed):
        await store.has_foreign_changes()


async def test_own_changes_are_not_foreign(store: SqliteStore) -> None:
    """The probe is quiet about what this store wrote itself."""
    await store.has_foreign_changes()
    await write(store, run_files({"a": b"1"}))
    assert not await store.has_foreign_changes()
    assert len(store.store_id) == 32
    assert set(store.store_id) <= set("0123456789abcdef")


FILE_KINDS = [
    "thread",
    "inline",
    pytest.param("aiosqlite", marks=pytest.mark.asyncio_only("aiosqlite exists under asyncio alone")),
]


@pytest.fixture(params=FILE_KINDS)
def options(request: pytest.FixtureRequest) -> StoreOptions:
    """Every adapter that keeps a file; patient for a tenth of a second only."""
    return StoreOptions(adapter=StoreAdapter(request.param), busy_limit_s=0.1)


async def test_what_was_answered_is_there_after_a_restart(quick_directory: Path, options: StoreOptions) -> None:
    """Bytes, versions and identity outlive the process that took them (N-HUB-12, N-STO-08)."""
    path = quick_directory / "store.sqlite3"
    async with await open_store(path, options) as first:
        store_id = first.store_id
        await write(first, run_files({"a": b"1"}))
        await write(first, run_files({"a": b"2"}))
    async with await open_store(path, options) as second:
        assert second.store_id == store_id
        (found,) = (await pending(second)).paths
        assert (found.version, found.path) == (2, "a")


async def test_changes_of_another_process_are_noticed(quick_directory: Path, options: StoreOptions) -> None:
    """The probe tells another's writes from one's own, once each."""
    path = quick_directory / "store.sqlite3"
    async with await open_store(path, options) as mine, await open_store(path, options) as others:
        await mine.has_foreign_changes()
        await write(mine, run_files({"a": b"1"}))
        assert not await mine.has_foreign_changes()
        await write(others, run_files({"b": b"1"}))
        assert await mine.has_foreign_changes()
        assert not await mine.has_foreign_changes()
        assert len((await pending(mine)).paths) == 2


async def test_queries_do_not_wait_for_a_writer(quick_directory: Path, options: StoreOptions) -> None:
    """While another process is in the middle of a transaction, reads see the state before it."""
    path = quick_directory / "store.sqlite3"
    async with await open_store(path, options) as store:
        await write(store, run_files({"a": b"1"}))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM run_paths")
        assert len((await pending(store)).paths) == 1
        other.rollback()
        other.close()
