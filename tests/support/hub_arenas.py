"""The two Hubs that the contract suite runs against: the real adapter on the local Hub, and the Hub in memory.

Both speak one small vocabulary of misfortunes, so that a promise is written once.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import anyio

from conveyor.actors.ports import CommitRequest, Hub
from conveyor.protocol.commit_text import commit_body
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.work import AttemptFile, UploadMode
from conveyor.runtime.adapters.hub import HuggingFaceHub
from conveyor.runtime.adapters.hub_credentials import HubCredentials
from conveyor.runtime.adapters.hub_options import HubOptions
from conveyor.runtime.adapters.memory_hub import MemoryHub
from conveyor.runtime.adapters.memory_hub_faults import (
    Fault,
    FaultEffect,
    HubCall,
    busy,
    rate_limited,
    refused,
)
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from tests.support.local_hub import LocalHubUnderTest

LOST_ANSWERS: Final = (
    "answer dropped",
    "answer reset",
    "500 after landing",
    "504 after landing",
    "silence after landing",
    "answer cut",
)
"""Each lets a commit land and keeps its answer back."""
LOST_REQUESTS: Final = ("request dropped", "request reset", "500 instead", "408 instead", "silence")
"""Each keeps a commit from landing, without saying so."""

WRITER: Final = "hf_writer_token_canary"
READER: Final = "hf_reader_token_canary"


def commit_request(
    repository: str,
    parent: str,
    inline: dict[str, bytes],
    objects: dict[str, bytes] | None = None,
    *,
    delivery: str = "d" * 32,
) -> CommitRequest:
    """A commit with its delivery id."""
    files = [AttemptFile(path, digest_bytes(content), UploadMode.REGULAR) for path, content in inline.items()]
    files += [AttemptFile(path, digest_bytes(content), UploadMode.LFS) for path, content in (objects or {}).items()]
    contents = {digest_bytes(content).sha256: content for content in inline.values()}
    return CommitRequest(repository, parent, "Stage run files for a", commit_body(delivery), tuple(files), contents)


class HubArena(Protocol):
    """A Hub to test, with what stands behind it in view."""

    repository: str

    def open(self) -> Any:
        """An async context manager that gives the adapter."""

    def misfortune(self, what: str, call: HubCall, *, times: int = 1, path: str | None = None) -> None:
        """Let it meet the next call of this kind, or the next of a path."""

    def foreign_commit(self, files: dict[str, bytes]) -> str:
        """Another writer commits; gives the id."""

    def landed(self) -> list[str]:
        """The ids of the commits that came from the adapter, oldest first."""

    def use_credential(self, which: str) -> None:
        """`write`, `read`, `missing` or `revoked` from here on."""

    def settle(self) -> None:
        """Undo all misfortunes; what stands still may go on."""


class MemoryArena:
    """The Hub in memory."""

    def __init__(self) -> None:
        self.repository = "acme/data"
        self.hub = MemoryHub(
            MemoryHubOptions(latency_s=0.05, upload_bytes_per_s=1e6, stall_s=2.0, answer_s=2.0),
            repositories=[self.repository],
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Hub]:
        """The Hub itself."""
        yield self.hub

    def misfortune(self, what: str, call: HubCall, *, times: int = 1, path: str | None = None) -> None:
        """As the protocol says."""
        self.hub.fault(_memory_fault(what, call, self.repository, times, path))

    def foreign_commit(self, files: dict[str, bytes]) -> str:
        """As the protocol says."""
        return self.hub.foreign_commit(self.repository, files)

    def landed(self) -> list[str]:
        """As the protocol says."""
        return [commit.commit_id for commit in self.hub.landed(self.repository)]

    def use_credential(self, which: str) -> None:
        """As the protocol says."""
        self.hub.credential = which  # type: ignore[assignment]

    def settle(self) -> None:
        """As the protocol says."""
        self.hub.script.clear()


def _memory_fault(what: str, call: HubCall, repository: str, times: int, path: str | None) -> Fault:
    common: dict[str, Any] = {"repository": repository, "times": times, "path": path}
    if what in LOST_ANSWERS:
        return Fault(call, FaultEffect.LOSE_ANSWER, **common)
    match what:
        case "silence" | "stall":
            return Fault(call, FaultEffect.STALL, **common)
        case "corrupt":
            return Fault(call, FaultEffect.CORRUPT, **common)
        case "lands late":
            return Fault(call, FaultEffect.LAND_LATE, late_s=0.5, **common)
        case "409":
            return Fault(call, FaultEffect.REFUSE, outcome=busy(), **common)
        case "429":
            return Fault(call, FaultEffect.REFUSE, outcome=rate_limited(120.0), **common)
        case "400":
            return Fault(call, FaultEffect.REFUSE, outcome=refused(400, *([path] if path else [])), **common)
        case _ if what in LOST_REQUESTS:
            return Fault(call, FaultEffect.LOSE_REQUEST, **common)
        case _:
            raise ValueError(what)


_KINDS: Final = {
    HubCall.HEAD: "repo-info",
    HubCall.RECENT_COMMITS: "commits",
    HubCall.PREUPLOAD: "preupload",
    HubCall.UPLOAD: "lfs-put",
    HubCall.COMMIT: "commit",
    HubCall.PATHS_INFO: "paths-info",
    HubCall.LAST_COMMIT: "paths-info",
    HubCall.DOWNLOAD: "resolve",
}
_ACTIONS: Final[dict[str, dict[str, Any]]] = {
    "answer dropped": {"do": "land_then_drop"},
    "answer reset": {"do": "land_then_drop", "reset": True},
    "500 after landing": {"do": "land_then_status", "status": 500},
    "504 after landing": {"do": "land_then_status", "status": 504},
    "silence after landing": {"do": "stall_answer"},
    "answer cut": {"do": "truncate"},
    "request dropped": {"do": "drop_before"},
    "request reset": {"do": "drop_before", "reset": True},
    "500 instead": {"do": "status", "status": 500},
    "408 instead": {"do": "status", "status": 408},
    "silence": {"do": "stall_request"},
    "stall": {"do": "stall_request"},
    "corrupt": {"do": "corrupt"},
    "lands late": {"do": "hold_slot"},
    "409": {"do": "status", "status": 409, "error_message": "Another commit operation is in progress"},
    "429": {"do": "rate_limit", "scope": "api", "reset_s": 120},
}


class LocalHubArena:
    """The real adapter on the local Hub, over loopback.

    Args:
        server: the local Hub.
        patience_s: the adapter's limits. Short only where something stands still on purpose, so that a busy machine
            does not make outcomes of its own.
    """

    _count = 0

    def __init__(self, server: LocalHubUnderTest, *, patience_s: float = 10.0) -> None:
        LocalHubArena._count += 1
        self.server = server
        self.repository = f"acme/data-{os.getpid()}-{LocalHubArena._count}"
        self.environ = {"HF_TOKEN": WRITER}
        self.options = HubOptions(endpoint=server.url, connect_s=10.0, answer_s=patience_s, stall_s=patience_s)
        self.create(self.repository)

    def create(self, repository: str) -> None:
        """Make a dataset repository."""
        owner, _, name = repository.partition("/")
        body = {"name": name, "organization": owner, "type": "dataset", "visibility": "public"}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {WRITER}"}
        request = urllib.request.Request(f"{self.server.url}/api/repos/create", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=30).close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[HuggingFaceHub]:
        """The adapter, with a credential that the arena can change."""
        async with HuggingFaceHub(self.options, HubCredentials(self.environ, Path("/nonexistent"))) as hub:
            yield hub

    def misfortune(self, what: str, call: HubCall, *, times: int = 1, path: str | None = None) -> None:
        """As the protocol says."""
        action = dict(_ACTIONS[what]) if what != "400" else {"do": "status", "status": 400}
        if what == "400":
            action["error_message"] = f"Invalid path: {path}"
        match = {"repo": self.repository} if call is not HubCall.UPLOAD else {}
        if path is not None and call is not HubCall.UPLOAD:
            match["path"] = path
        kind: Any = _KINDS[call]
        if what == "corrupt" and call is HubCall.DOWNLOAD:
            kind = ["resolve", "download"]
        self.server.fault(f"{what} {call}", action, times=times, kind=kind, **match)

    def foreign_commit(self, files: dict[str, bytes]) -> str:
        """As the protocol says."""
        texts = {path: content.decode() for path, content in files.items()}
        return str(self.server.foreign_commit(self.repository, texts)["id"])

    def landed(self) -> list[str]:
        """As the protocol says."""
        return [row["id"] for row in self.server.commits(self.repository)]

    def use_credential(self, which: str) -> None:
        """As the protocol says."""
        match which:
            case "missing":
                self.environ.clear()
            case "revoked":
                self.server.revoke_tokens()
            case "read":
                self.environ["HF_TOKEN"] = READER
            case _:
                self.environ["HF_TOKEN"] = WRITER

    def settle(self) -> None:
        """As the protocol says."""
        self.server.clear_faults()


async def wait_until(condition: Any, *, within_s: float = 10.0) -> None:
    """Let other tasks and threads go on until something holds."""
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(0)


__all__ = [
    "LOST_ANSWERS",
    "LOST_REQUESTS",
    "READER",
    "WRITER",
    "HubArena",
    "LocalHubArena",
    "MemoryArena",
    "commit_request",
    "wait_until",
]
