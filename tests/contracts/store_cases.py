"""The stores that the contract of the `Store` port is checked on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from conveyor.runtime.store import SqliteStore
from tests.support.stores import opened

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
    """A fresh store of each adapter."""
    async with opened(request.param, quick_directory) as fresh:
        yield fresh


__all__ = ["KINDS", "quick_directory", "store"]
