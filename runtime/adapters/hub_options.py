"""How the Hub adapter works: one frozen value, given once."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Literal

LargeUpload = Literal["lfs", "xet"]


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Options of the Hub adapter. All times are seconds, all rates bytes per second."""

    endpoint: str = "https://huggingface.co"
    """Where the Hub is, without a trailing slash."""
    library_name: str = "conveyor"
    library_version: str = "0"
    connect_s: float = 10.0
    """The limit for a connection to be made, or to come free in the pool."""
    answer_s: float = 90.0
    """The limit for each wait on a connection. The Hub's gateway itself gives up on a commit after 60 s, so a shorter
    one makes outcomes unknown without need (hub API notes, section 11)."""
    stall_s: float = 120.0
    """A transfer that moves no byte for so long is abandoned (N-HUB-14)."""
    upload_parallelism: int = 4
    """Large objects that are uploaded at the same time."""
    bandwidth_bytes_per_s: float | None = None
    """A cap for all uploads of large objects together; None for none. Does not hold for Xet."""
    large_upload: LargeUpload = "lfs"
    """By which protocol large objects go. LFS can be watched, capped and cancelled; Xet is quicker for very large files
    (hub API notes, section 7)."""

    def __post_init__(self) -> None:
        for name in ("connect_s", "answer_s", "stall_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)!r}")
        if self.upload_parallelism < 1:
            raise ValueError(f"upload_parallelism must be at least 1, not {self.upload_parallelism!r}")
        if self.bandwidth_bytes_per_s is not None and not self.bandwidth_bytes_per_s > 0:
            raise ValueError(f"bandwidth_bytes_per_s must be more than 0, not {self.bandwidth_bytes_per_s!r}")
        if self.large_upload not in ("lfs", "xet"):
            raise ValueError(f"large_upload must be 'lfs' or 'xet', not {self.large_upload!r}")
        if not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint must begin with http:// or https://")
        object.__setattr__(self, "endpoint", self.endpoint.rstrip("/"))

    @property
    def user_agent(self) -> str:
        """What the adapter calls itself in each request."""
        return f"{self.library_name}/{self.library_version}; python/{platform.python_version()}"


__all__ = ["HubOptions", "LargeUpload"]
