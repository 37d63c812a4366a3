"""Deliveries in virtual time: whole runtimes over one store and one Hub in memory, started, ended, killed at will."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from conveyor.actors.ports import Failed, Hub
from conveyor.actors.store_operations import (
    Query,
    ReadAgenda,
    ReadBundleReceipt,
    ReadStatus,
    RecordBundle,
    StoreStatus,
    Write,
)
from conveyor.protocol.bundle_copy import files_to_copy
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.handover_id import bundle_id
from conveyor.protocol.lease import LeaseHeld
from conveyor.protocol.receipts import BundleReceipt
from conveyor.protocol.requests import BundleFile, RunFile, StageDatasetBundle, StageRunFiles, check_bundle
from conveyor.protocol.work import RepositoryAgenda
from conveyor.runtime.adapters.assembly import Adapters
from conveyor.runtime.adapters.clock import VirtualClock
from conveyor.runtime.adapters.memory_files import MemoryFiles
from conveyor.runtime.adapters.memory_hub import MemoryHub
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from conveyor.runtime.adapters.memory_hub_state import LandedCommit
from conveyor.runtime.app import Conveyor, open_conveyor
from conveyor.runtime.settings import Settings
from conveyor.runtime.store import InlineSqliteStore, open_memory_store
from conveyor.runtime.tickets import BundleTicket, RunFilesTicket
from conveyor.runtime.tree import ActorTree
from tests.support.stores import ENDPOINT, incoming, write
from tests.support.virtual_time import virtual_time_backend

R = TypeVar("R")

REPOSITORY = "acme/data"
OTHER = "acme/other"
FIRST_UNIX_S = 1_700_000_000.0
INVENTORY = "staged_manifest.json"

Operation = Write[Any] | Query[Any]
Hook = Callable[[Sequence[Operation]], Awaitable[None]]


class SpinDetected(RuntimeError):
    """An actor goes round and round without any time passing."""


class StepGuard:
    """Counts what is asked of the store at one instant; more than `most` steps without time passing is a hot loop."""

    def __init__(self, most: int = 2000) -> None:
        self._most = most
        self._at = float("-inf")
        self._steps = 0
        self.has_tripped = False

    def step(self) -> None:
        """One step; raises SpinDetected when there were too many at this instant."""
        now = anyio.current_time()
        if now != self._at:
            self._at, self._steps = now, 0
        self._steps += 1
        if self._steps > self._most:
            self.has_tripped = True
            raise SpinDetected(f"more than {self._most} steps at {now}")


class Database:
    """One store in memory, and who wrote to it how often."""

    def __init__(self, store: InlineSqliteStore) -> None:
        self.store = store
        self.writes: dict[int, int] = {}


class StoreView:
    """The Store port as one process has it: notices what others write, can be disturbed, and can be killed."""

    def __init__(self, database: Database, guard: StepGuard) -> None:
        self._database = database
        self._guard = guard
        self._seen: int | None = None
        self._killed = False
        self.before: Hook | None = None
        """Called before each transaction and query; what it raises is the answer, and nothing has an effect."""
        self.transactions: list[tuple[float, tuple[Write[Any], ...]]] = []

    @property
    def store_id(self) -> str:
        """The identity of the store."""
        return self._database.store.store_id

    def kill(self) -> None:
        """From now on this process does nothing any more: whoever asks waits for ever."""
        self._killed = True

    async def transact(self, operations: Sequence[Write[Any]]) -> list[Any]:
        """Carry out writes."""
        await self._begin(operations)
        answers = await self._database.store.transact(operations)
        if not all(isinstance(answer, Failed | LeaseHeld) for answer in answers):
            self._database.writes[id(self)] = self._database.writes.get(id(self), 0) + 1
        self.transactions.append((anyio.current_time(), tuple(operations)))
        return answers

    async def query(self, operation: Query[R]) -> R:
        """Read."""
        await self._begin([operation])
        return await self._database.store.query(operation)

    async def has_foreign_changes(self) -> bool:
        """Whether another view wrote."""
        await self._begin([])
        now = sum(count for view, count in self._database.writes.items() if view != id(self))
        changed, self._seen = now != self._seen, now
        return changed

    async def _begin(self, operations: Sequence[Operation]) -> None:
        if self._killed:
            await anyio.sleep_forever()
        self._guard.step()
        if self.before is not None:
            await self.before(operations)


@dataclass
class Rig:
    """One store, one Hub, the build's files and one wall clock; runtimes come and go on them."""

    database: Database
    hub: MemoryHub
    files: MemoryFiles
    clock: VirtualClock
    guard: StepGuard = field(default_factory=StepGuard)

    @property
    def store(self) -> InlineSqliteStore:
        """The store itself, beside all runtimes."""
        return self.database.store

    def view(self) -> StoreView:
        """The store as a further process has it."""
        return StoreView(self.database, self.guard)

    def conveyor(self, *, store: StoreView | None = None, hub: Hub | None = None, **settings: Any) -> Conveyor:
        """A further runtime on the store, to be opened with `async with`."""
        adapters = Adapters(
            store=store or self.view(),
            hub=hub or self.hub,
            files=self.files,
            clock=self.clock,
            jitter=lambda: 0.5,
        )
        return open_conveyor(
            Settings(store_path=Path("/virtual/store.db"), endpoint=ENDPOINT, **settings), adapters=adapters
        )

    async def agenda(self, repository: str = REPOSITORY) -> RepositoryAgenda:
        """What a repository has to do."""
        return await self.store.query(ReadAgenda(repository, self.clock.unix_s(), 3600.0))

    async def status(self) -> StoreStatus:
        """The totals, once they were seen to add up (N-UX-03)."""
        status = await self.store.query(ReadStatus(self.clock.unix_s(), 3600.0))
        assert status.accepted == status.delivered + status.superseded + status.waiting + status.parked
        return status

    async def hand_over(
        self,
        conveyor: Conveyor,
        files: Mapping[str, bytes],
        *,
        run_id: str = "r1",
        repository: str = REPOSITORY,
        interval_s: float = 30.0,
        flush: bool = False,
        entry: Mapping[str, Any] | None = None,
    ) -> RunFilesTicket:
        """Write run files, hand them over, and delete them at once (N-STO-08)."""
        sources = []
        for path, content in files.items():
            local_path = f"/build/{run_id}/{path}"
            self.files.write(local_path, content)
            sources.append(RunFile(path, local_path))
        request = StageRunFiles(
            repository=repository,
            run_id=run_id,
            files=tuple(sources),
            run_index_entry=entry,
            commit_interval_s=interval_s,
            flush=flush,
        )
        ticket = await conveyor.stage_run_files(request)
        for source in sources:
            self.files.remove(str(source.local_path))
        assert ticket.is_durable, ticket.receipt
        return ticket

    def bundle(
        self,
        run_id: str = "b1",
        files: Mapping[str, bytes] | None = None,
        *,
        repository: str = REPOSITORY,
        message: str | None = None,
    ) -> StageDatasetBundle:
        """Write the files of a bundle, with its inventory; gives the hand-over."""
        contents = dict(files if files is not None else {"data.h5": b"data of " + run_id.encode()})
        listed = {name: {"sha256": digest_bytes(content).sha256} for name, content in contents.items()}
        contents[INVENTORY] = json.dumps({"files": listed}).encode()
        described = []
        for name, content in contents.items():
            local_path = f"/build/{run_id}/{name}"
            self.files.write(local_path, content)
            role = "staged_manifest" if name == INVENTORY else "dataset"
            described.append(BundleFile(name, role, local_path, digest_bytes(content).sha256, len(content)))
        return StageDatasetBundle(
            repository=repository, run_id=run_id, prefix="staged", files=tuple(described), commit_message=message
        )

    async def hand_over_bundle(self, conveyor: Conveyor, request: StageDatasetBundle) -> BundleTicket:
        """Hand a bundle over; its copies may be rewritten afterwards."""
        ticket = await conveyor.stage_dataset_bundle(request)
        assert ticket.is_durable, ticket.receipt
        return ticket

    async def record_bundle(self, request: StageDatasetBundle, *, by_path: Sequence[str], store: StoreView) -> str:
        """Put a bundle into the store of which some files are not copied, whatever their size; gives its id."""
        checked = check_bundle(request)
        copies = {
            file.name: incoming(file.name, await self._read(str(file.local_path)))
            for file in files_to_copy(checked.files)
            if file.name not in by_path
        }
        handover_id = bundle_id(checked)
        await write(store, RecordBundle(handover_id, checked, copies, self.clock.unix_s(), ENDPOINT))
        return handover_id

    async def _read(self, local_path: str) -> bytes:
        return await self.files.sample(local_path, 1 << 40)

    async def conveyor_receipt(self, handover_id: str) -> BundleReceipt:
        """A bundle's receipt, from the store itself."""
        receipt = await self.store.query(ReadBundleReceipt(handover_id))
        assert receipt is not None
        return receipt

    async def copy(self) -> Rig:
        """A copy of the store as it is now, before the same Hub; whoever takes it closes its store."""
        store = await open_memory_store()
        _driver(self.store).backup(_driver(store))
        store._store_id = self.store.store_id
        return Rig(Database(store), self.hub, self.files, self.clock, self.guard)

    def landed(self, repository: str = REPOSITORY) -> list[LandedCommit]:
        """Our commits, after a check that no version of a path landed twice."""
        commits = self.hub.landed(repository)
        assert_landed_once(commits)
        return commits


def assert_landed_once(commits: Sequence[LandedCommit]) -> None:
    """No delivery landed twice, and no path got the bytes again that our last commit had given it."""
    bodies = [commit.body for commit in commits]
    assert len(set(bodies)) == len(bodies), "one delivery landed twice"
    last: dict[tuple[str, str], bytes] = {}
    for commit in commits:
        for path, file in commit.changed.items():
            assert last.get((commit.repository, path)) != file.content, f"{path} landed twice with the same bytes"
            last[commit.repository, path] = file.content


def _driver(store: InlineSqliteStore) -> sqlite3.Connection:
    writer: Any = store._writer
    connection = writer._connection.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    return connection


def on_one_loop(name: str) -> pytest.MarkDecorator:
    """For a long scenario that exercises nothing of a loop in particular: run it on this one alone."""
    return pytest.mark.parametrize("anyio_backend", [virtual_time_backend(name)], ids=[name])


def gaps_s(commits: Sequence[LandedCommit]) -> list[float]:
    """Seconds between commits."""
    return [later.at_s - earlier.at_s for earlier, later in pairwise(commits)]


def tree_of(conveyor: Conveyor) -> ActorTree:
    """The actors of an open runtime."""
    assert conveyor._life is not None
    return conveyor._life.tree


@asynccontextmanager
async def open_rig(
    options: MemoryHubOptions | None = None,
    *,
    repositories: Sequence[str] = (REPOSITORY, OTHER),
    most_steps: int = 2000,
) -> AsyncIterator[Rig]:
    """A fresh store and a fresh Hub; at the end no actor may have spun."""
    files = MemoryFiles()

    def read_file(local_path: str) -> bytes:
        try:
            return files._files[local_path]
        except KeyError:
            raise FileNotFoundError(local_path) from None

    hub = MemoryHub(options, repositories=repositories, read_file=read_file)
    async with await open_memory_store() as store:
        rig = Rig(Database(store), hub, files, VirtualClock(offset_s=FIRST_UNIX_S), StepGuard(most_steps))
        yield rig
        assert not rig.guard.has_tripped, "an actor went round and round without any time passing"


__all__ = [
    "FIRST_UNIX_S",
    "INVENTORY",
    "OTHER",
    "REPOSITORY",
    "Database",
    "Rig",
    "SpinDetected",
    "StepGuard",
    "StoreView",
    "assert_landed_once",
    "gaps_s",
    "on_one_loop",
    "open_rig",
    "tree_of",
]
