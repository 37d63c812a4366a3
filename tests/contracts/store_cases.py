"""The stores that the contract of the `Store` port is checked on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from conveyor.runtime.store import SqliteStore
from tests.support.stores import opened
from tests.support.virtual_time import Backend, real_time_backend_options

KINDS = [
    "memory",
    "thread",
    pytest.param("aiosqlite", marks=pytest.mark.asyncio_only("aiosqlite exists under asyncio alone")),
]


@pytest.fixture
def quick_directory(tmp_path: Path) -> Iterator[Path]:
    """A private directory in memory where there is one: rules need no disk that takes its time."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="conveyor-test-") as directory:
        yield Path(directory)


@pytest.fixture(params=KINDS)
async def store(
    request: pytest.FixtureRequest, quick_directory: Path, real_time_backend: object
) -> AsyncIterator[SqliteStore]:
    """A fresh store of each adapter, on each loop that it works on."""
    async with opened(request.param, quick_directory) as fresh:
        yield fresh


@pytest.fixture(params=["memory-trio", "thread-trio", "aiosqlite-asyncio"])
def rules_backend(request: pytest.FixtureRequest) -> Backend:
    """Each adapter on one loop: what the operations mean does not depend on the loop."""
    loop: str = request.param.partition("-")[2]
    return real_time_backend_options(loop)


@pytest.fixture
async def rules_store(
    request: pytest.FixtureRequest, quick_directory: Path, anyio_backend: Backend
) -> AsyncIterator[SqliteStore]:
    """A fresh store of the adapter that `rules_backend` stands for."""
    kind = str(request.node.callspec.params["anyio_backend"]).partition("-")[0]
    async with opened(kind, quick_directory) as fresh:
        yield fresh


__all__ = ["KINDS", "quick_directory", "rules_backend", "rules_store", "store"]
