"""Stores for tests of the `Store` port: every adapter of it, and short ways to say what is handed over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

from conveyor.actors.ports import Failed, Store
from conveyor.actors.store_operations import (
    AcquireLease,
    IncomingFile,
    OpenAttempt,
    PendingRunFiles,
    ReadContents,
    ReadPending,
    ReadRunReceipt,
    ReadStatus,
    RecordBundle,
    RecordRunFiles,
    SettleLanded,
    StoreStatus,
    Write,
)
from conveyor.protocol.bundle_copy import files_to_copy
from conveyor.protocol.commit_text import delivery_id
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.handover_id import bundle_id
from conveyor.protocol.lease import LEASE_S, Lease
from conveyor.protocol.receipts import RunFilesReceipt
from conveyor.protocol.requests import BundleFile, CheckedBundle
from conveyor.protocol.work import Attempt, AttemptFile, AttemptKind, PendingEntry, UploadMode
from conveyor.runtime.store import SqliteStore, StoreAdapter, StoreOptions, open_memory_store, open_store

R = TypeVar("R")

REPOSITORY = "acme/data"
ENDPOINT = "https://hub.example"
NOW = 1_000_000.0


@asynccontextmanager
async def opened(kind: str, directory: Path) -> AsyncIterator[SqliteStore]:
    """A fresh store: in memory, or of the adapter named so in a file of the directory."""
    store: SqliteStore
    if kind == "memory":
        store = await open_memory_store()
    else:
        store = await open_store(directory / "store.sqlite3", StoreOptions(adapter=StoreAdapter(kind)))
    async with store:
        yield store


async def write(store: Store, operation: Write[R]) -> R:
    """Carry out one write; raise what it refuses with."""
    (answer,) = await store.transact([operation])
    if isinstance(answer, Failed):
        raise answer.error
    return cast(R, answer)


def incoming(path: str, content: bytes) -> IncomingFile:
    """A run file, read and hashed."""
    return IncomingFile(path, digest_bytes(content), content)


def sha256(content: bytes) -> str:
    """The digest that contents are known by."""
    return digest_bytes(content).sha256


def run_files(
    files: Mapping[str, bytes] | None = None,
    *,
    run_id: str = "r1",
    entry: str | None = None,
    flush: bool = False,
    interval_s: float = 30.0,
    now: float = NOW,
    repository: str = REPOSITORY,
) -> RecordRunFiles:
    """A run-file hand-over."""
    return RecordRunFiles(
        repository=repository,
        run_id=run_id,
        files=tuple(incoming(path, content) for path, content in (files or {}).items()),
        index_entry_text=entry,
        flush=flush,
        interval_s=interval_s,
        now_unix_s=now,
        endpoint=ENDPOINT,
    )


def bundle(
    run_id: str = "b1",
    *,
    data: bytes = b"data",
    now: float = NOW,
    repository: str = REPOSITORY,
    large_bytes: int | None = None,
) -> RecordBundle:
    """A bundle hand-over of an inventory and a data file, and with `large_bytes` a third too large to be copied."""
    contents = {"staged_manifest.json": b"{}" + run_id.encode(), "data.h5": data}
    files = [
        BundleFile(name, role, f"/data/{run_id}/{name}", sha256(contents[name]), len(contents[name]))
        for name, role in (("data.h5", "dataset"), ("staged_manifest.json", "staged_manifest"))
    ]
    if large_bytes is not None:
        files.append(BundleFile("large.h5", "dataset", f"/data/{run_id}/large.h5", "ab" * 32, large_bytes))
    checked = CheckedBundle(repository, run_id, "staged", tuple(files), None)
    copies = {file.name: incoming(file.name, contents[file.name]) for file in files_to_copy(files)}
    return RecordBundle(bundle_id(checked), checked, copies, now, ENDPOINT)


async def take_lease(store: Store, *, owner: str = "me", now: float = NOW, repository: str = REPOSITORY) -> Lease:
    """The repository's lease, which must be free."""
    answer = await write(store, AcquireLease(repository, owner, now, LEASE_S))
    assert isinstance(answer, Lease)
    return answer


async def pending(store: Store, repository: str = REPOSITORY) -> PendingRunFiles:
    """What a run-file commit may carry."""
    return await store.query(ReadPending(repository))


async def receipt(store: Store, run_id: str = "r1", repository: str = REPOSITORY) -> RunFilesReceipt:
    """A run's receipt."""
    return await store.query(ReadRunReceipt(repository, run_id))


async def kept(store: Store, contents: Iterable[bytes]) -> list[bytes]:
    """Which of these contents the store keeps."""
    wanted = list(contents)
    found = await store.query(ReadContents(tuple(sha256(content) for content in wanted)))
    assert all(sha256(content) == digest for digest, content in found.items())
    return [content for content in wanted if sha256(content) in found]


async def totals(store: Store, now: float = NOW) -> StoreStatus:
    """The status, once its totals were seen to add up (N-UX-03)."""
    status = await store.query(ReadStatus(now, 3600.0))
    assert status.accepted == status.delivered + status.superseded + status.waiting + status.parked
    return status


def plan(
    what: PendingRunFiles,
    *,
    parent: str = "p0",
    repository: str = REPOSITORY,
    index: bytes | None = None,
    mode: UploadMode = UploadMode.REGULAR,
) -> Attempt:
    """The commit that carries everything pending."""
    files = [AttemptFile(path.path, path.digests, mode, path.version, path.run_id) for path in what.paths]
    entries: tuple[PendingEntry, ...] = ()
    if index is not None:
        entries = what.entries
        files.append(AttemptFile("runs.json", digest_bytes(index), UploadMode.REGULAR))
    items = [(file.path, file.version, file.digests.sha256) for file in files]
    return Attempt(
        delivery_id=delivery_id("5" * 32, repository, items),
        repository=repository,
        kind=AttemptKind.RUN_FILES,
        parent=parent,
        title="Stage run files",
        body="Conveyor-Delivery: x",
        files=tuple(files),
        entries=entries,
        index_sha256=None if index is None else sha256(index),
    )


def bundle_plan(handed_over: RecordBundle, *, parent: str = "p0") -> Attempt:
    """The commit that carries one bundle."""
    files = tuple(
        AttemptFile(
            f"{handed_over.bundle.folder}/{name}",
            copy.digests,
            UploadMode.REGULAR,
            handover_id=handed_over.handover_id,
        )
        for name, copy in handed_over.copies.items()
    )
    return Attempt(
        delivery_id=delivery_id(
            "5" * 32, handed_over.bundle.repository, [(f.path, 0, f.digests.sha256) for f in files]
        ),
        repository=handed_over.bundle.repository,
        kind=AttemptKind.BUNDLES,
        parent=parent,
        title="Stage b1",
        body="",
        files=files,
        handover_ids=(handed_over.handover_id,),
    )


async def open_commit(
    store: Store, lease: Lease, *, now: float = NOW, parent: str = "p0", index: bytes | None = None
) -> Attempt:
    """Record the commit of everything pending."""
    attempt = plan(await pending(store, lease.repository), parent=parent, repository=lease.repository, index=index)
    await write(store, OpenAttempt(attempt, lease, now, index_content=index))
    return attempt


async def land(store: Store, lease: Lease, *, commit_id: str = "c1", now: float = NOW) -> Attempt:
    """Commit everything pending."""
    attempt = await open_commit(store, lease, now=now)
    await write(store, SettleLanded(attempt.delivery_id, commit_id, now))
    return attempt


__all__ = [
    "ENDPOINT",
    "NOW",
    "REPOSITORY",
    "bundle",
    "bundle_plan",
    "incoming",
    "kept",
    "land",
    "open_commit",
    "opened",
    "pending",
    "plan",
    "receipt",
    "run_files",
    "sha256",
    "take_lease",
    "totals",
    "write",
]
