"""How the Hub in memory behaves, and what it notes of each call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from ...protocol.limits import HUB_INLINE_FILE_MAX_BYTES
from .memory_hub_faults import HubCall

Credential = Literal["write", "read", "revoked", "missing"]

LFS_PATTERNS: Final = ("*.bin", "*.parquet", "*.h5", "*.npz", "*.npy", "*.zip", "*.gz", "*.pt", "*.safetensors")


@dataclass(frozen=True, slots=True)
class MemoryHubOptions:
    """How the Hub in memory behaves when nothing goes wrong. Times in seconds."""

    latency_s: float = 0.0
    """From a call to its answer, half of it before the effect."""
    commit_s: float = 0.0
    """How long a commit keeps others of its repository out (409), from its effect on."""
    upload_bytes_per_s: float = math.inf
    answer_s: float = 90.0
    """When a call that stands still is given up."""
    stall_s: float = 120.0
    """When an upload that stands still is given up."""
    commits_page: int = 50
    commits_per_hour: int = 0
    """0 for no limit."""
    regular_limit_bytes: int = HUB_INLINE_FILE_MAX_BYTES
    lfs_patterns: tuple[str, ...] = LFS_PATTERNS
    ignore_patterns: tuple[str, ...] = ()
    first_unix_s: float = 1_700_000_000.0
    """Wall-clock time when the event loop's clock is at 0."""


@dataclass(slots=True)
class RecordedCall:
    """One call: what, where, when, and what it came to."""

    call: HubCall
    repository: str
    paths: tuple[str, ...]
    started_s: float
    ended_s: float | None = None
    """None while it runs."""
    end: str = "running"
    """`done`, `cancelled`, or the kind of its outcome."""


__all__ = ["LFS_PATTERNS", "Credential", "MemoryHubOptions", "RecordedCall"]
