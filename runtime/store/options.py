"""How a store is opened."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ...actors.ports import Warn
from .filesystems import FilesystemProbe, filesystem_type
from .sqlite import SIDE_FILE_KEPT_BYTES

_LOG: Final = logging.getLogger("conveyor.store")


class StoreAdapter(Enum):
    """Where the operations run."""

    AUTO = "auto"
    """Through aiosqlite under asyncio, in dedicated threads under trio."""
    AIOSQLITE = "aiosqlite"
    THREAD = "thread"
    INLINE = "inline"
    """In the calling task: for simulation and virtual time."""


class OnNetwork(Enum):
    """What to do where the store's directory lies on a network filesystem (N-STO-01)."""

    SAFE = "safe"
    """Use a rollback journal: slower, and right as long as the filesystem keeps file locks."""
    REFUSE = "refuse"


def log_warning(kind: str, detail: str) -> None:
    """Write a warning of the store to the log `conveyor.store`."""
    _LOG.warning("%s: %s", kind, detail)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Everything that can be chosen about an open store."""

    adapter: StoreAdapter = StoreAdapter.AUTO
    on_network: OnNetwork = OnNetwork.SAFE
    busy_limit_s: float = 30.0
    """How long a transaction, a query or the opening waits for other processes before StoreBusy."""
    readers: int = 2
    """Connections for queries; at least 1."""
    wal_limit_bytes: int = 4 * SIDE_FILE_KEPT_BYTES
    """A write-ahead file above this is cut by force, and reported if that fails (N-STO-04)."""
    filesystem_probe: FilesystemProbe = filesystem_type
    warn: Warn = log_warning
    """Told of `WAL_TOO_LARGE` with the size in bytes."""

    def __post_init__(self) -> None:
        if self.readers < 1 or self.busy_limit_s < 0 or self.wal_limit_bytes < 1:
            raise ValueError(
                "a store needs readers >= 1, busy_limit_s >= 0 and wal_limit_bytes >= 1, not "
                f"{self.readers}, {self.busy_limit_s} and {self.wal_limit_bytes}"
            )


__all__ = ["OnNetwork", "StoreAdapter", "StoreOptions", "log_warning"]
