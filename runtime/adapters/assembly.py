"""The adapters of one runtime, opened together and closed together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import anyio

from ...actors.ports import Clock, Hub, LocalFiles, Store
from ...protocol.schedule import CommitPace
from ..settings import Settings
from ..status import Status, read_status
from ..store import OnNetwork, StoreOptions, open_store
from .clock import SystemClock
from .files import PosixFiles
from .hub import HuggingFaceHub
from .hub_credentials import HubCredentials
from .hub_options import HubOptions

CLOSE_STORE_S: Final = 5.0
"""What closing the store may take; what is not closed then is closed by the end of the process."""

FILE_THREADS: Final = 4
"""Threads that read hand-overs, beside those that hash."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """One adapter for each port."""

    store: Store
    hub: Hub
    files: LocalFiles
    clock: Clock
    jitter: Callable[[], float] | None = None
    """Numbers from 0 to 1; None for random ones."""


@asynccontextmanager
async def open_adapters(settings: Settings, credentials: HubCredentials | None = None) -> AsyncIterator[Adapters]:
    """Open the real adapters: SQLite, the Hub, the local files, the system's clock.

    Args:
        settings: where the store and the Hub are, and their limits.
        credentials: where the Hub's token comes from; the user's own by default.

    Raises:
        StoreError: the store cannot be opened.
    """
    async with HuggingFaceHub(hub_options(settings), credentials or HubCredentials()) as hub:
        store = await open_store(settings.store_path, store_options(settings))
        files = PosixFiles(threads=settings.hash_threads + FILE_THREADS)
        try:
            yield Adapters(store=store, hub=hub, files=files, clock=SystemClock())
        finally:
            files.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_STORE_S):
                await store.aclose()


def hub_options(settings: Settings) -> HubOptions:
    """The Hub adapter's options from the settings."""
    return HubOptions(
        endpoint=settings.endpoint,
        library_name=settings.library_name,
        library_version=library_version(),
        connect_s=settings.hub_connect_s,
        answer_s=settings.hub_answer_s,
        stall_s=settings.upload_stall_s,
        upload_parallelism=settings.upload_parallelism,
        bandwidth_bytes_per_s=float(settings.upload_bandwidth_bytes_per_s) or None,
        large_upload="xet" if settings.large_upload == "xet" else "lfs",
    )


def store_options(settings: Settings) -> StoreOptions:
    """The store's options from the settings."""
    return StoreOptions(
        on_network=OnNetwork.SAFE if settings.network_store == "safe" else OnNetwork.REFUSE,
    )


def library_version() -> str:
    """The installed version of Conveyor, for the name it gives itself in requests."""
    try:
        return version("conveyor")
    except PackageNotFoundError:
        return "0"


async def read_stored_status(settings: Settings) -> Status:
    """Look at a store without starting anything.

    Raises:
        StoreError: the store cannot be opened or read.
    """
    store = await open_store(settings.store_path, store_options(settings))
    try:
        return await read_status(store, state="stored", pace=commit_pace(settings), now_unix_s=SystemClock().unix_s())
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_STORE_S):
            await store.aclose()


def commit_pace(settings: Settings) -> CommitPace:
    """The pace of commits from the settings."""
    return CommitPace(settings.commit_spacing_s, settings.commits_per_hour, settings.commit_burst)


__all__ = [
    "Adapters",
    "commit_pace",
    "hub_options",
    "library_version",
    "open_adapters",
    "read_stored_status",
    "store_options",
]
