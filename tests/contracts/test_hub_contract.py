"""The real adapter on the local Hub and the Hub in memory keep the same promises; and what only the real one meets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from conveyor.actors.port_errors import ContentChanged
from conveyor.actors.ports import BytesSource, FileSource, Hub
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.outcome import OutcomeKind
from conveyor.protocol.work import PreuploadFile
from conveyor.runtime.adapters.memory_hub_faults import HubCall
from conveyor.runtime.localhub.options import TokenGrant
from tests.contracts.hub_promises import LARGE, HubPromises, deliver, outcome_of
from tests.support.hub_arenas import (
    READER,
    WRITER,
    LocalHubArena,
    MemoryArena,
    commit_request,
)
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

# huggingface_hub hands its HTTP library a file in a way that the latter calls outdated.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]


@pytest.fixture(scope="session")
def contract_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHubUnderTest]:
    """One local Hub for all promises; each test has a repository of its own."""
    tokens = (
        TokenGrant(WRITER, user="writer", organisations=("acme",)),
        TokenGrant(READER, user="reader", role="read", organisations=("acme",)),
    )
    with running_local_hub(tmp_path_factory.mktemp("hub"), tokens=tokens) as server:
        yield server


class TestMemoryHub(HubPromises):
    """The Hub in memory, in virtual time."""

    @pytest.fixture
    def arena(self) -> MemoryArena:
        """A fresh Hub."""
        return MemoryArena()

    @pytest.fixture
    async def hub(self, arena: MemoryArena) -> AsyncIterator[Hub]:
        """The adapter."""
        async with arena.open() as hub:
            yield hub


@pytest.mark.real_time
class TestHuggingFaceHub(HubPromises):
    """The real adapter, over loopback, in real time with short limits."""

    @pytest.fixture
    def arena(self, contract_hub: LocalHubUnderTest, request: pytest.FixtureRequest) -> Iterator[LocalHubArena]:
        """A fresh repository."""
        stands_still = any(word in request.node.name for word in ("silence", "late", "stalled", "held"))
        arena = LocalHubArena(contract_hub, patience_s=0.6 if stands_still else 10.0)
        yield arena
        arena.settle()

    @pytest.fixture
    async def hub(self, arena: LocalHubArena) -> AsyncIterator[Hub]:
        """The adapter."""
        async with arena.open() as hub:
            yield hub

    async def test_held_commit_keeps_others_out(self, hub: Hub, arena: LocalHubArena) -> None:
        """While the Hub still works on a commit whose answer came too late, the same request is told to wait."""
        request = commit_request(arena.repository, await hub.head(arena.repository), {"late.txt": b"a"})
        arena.misfortune("lands late", HubCall.COMMIT)
        assert (await outcome_of(hub.commit(request))).kind is OutcomeKind.UNKNOWN
        outcome = await outcome_of(hub.commit(request))
        assert (outcome.kind, outcome.same_parent) == (OutcomeKind.CONFLICT, True)
        arena.settle()
        assert [await deliver(hub, request)] == arena.landed()

    async def test_ignored_file_is_reported(self, hub: Hub, arena: LocalHubArena) -> None:
        """A file that the repository's .gitignore matches is said to be ignored (finding W8)."""
        arena.foreign_commit({".gitignore": b"*.log\n"})
        answers = await hub.preupload(arena.repository, [PreuploadFile(f"a.{end}", 1, b"a") for end in ("log", "txt")])
        assert [answer.is_ignored for answer in answers] == [True, False]

    async def test_invalid_card_is_refused_before_the_commit(self, hub: Hub, arena: LocalHubArena) -> None:
        """Invalid metadata in README.md is a refusal of that path, and no commit is sent (hub API notes, section 5)."""
        head = await hub.head(arena.repository)
        files = {"README.md": b"---\nlicense: [\n---\n", "a.txt": b"a"}
        outcome = await outcome_of(hub.commit(commit_request(arena.repository, head, files)))
        assert (outcome.kind, outcome.paths) == (OutcomeKind.REFUSED_ITEM, ("README.md",))
        assert not [row for row in arena.server.requests("commit") if row["repo"] == arena.repository]
        files["README.md"] = b"---\nlicense: mit\n---\n"
        assert await hub.commit(commit_request(arena.repository, head, files))

    async def test_file_that_changes_between_hashing_and_sending(
        self, hub: Hub, arena: LocalHubArena, tmp_path: Path
    ) -> None:
        """Bytes that change after they were hashed do not leave the machine (finding W15)."""
        content = LARGE + b"changes"
        path = tmp_path / "x.bin"
        path.write_bytes(content)

        def change(_: int) -> None:
            path.write_bytes(LARGE[::-1] + b"changes")

        source = FileSource(digest_bytes(content), str(path))
        with pytest.raises(ContentChanged):
            await hub.upload_object(arena.repository, "x.bin", source, change)
        head = await hub.head(arena.repository)
        outcome = await outcome_of(hub.commit(commit_request(arena.repository, head, {}, {"x.bin": content})))
        assert outcome.kind is OutcomeKind.REFUSED_ITEM

    async def test_expired_storage_address_is_transient(self, hub: Hub, arena: LocalHubArena) -> None:
        """The storage's 403 for an address that ran out is no word about the credential."""
        content = LARGE + b"expired"
        arena.server.fault("expire", {"do": "expire_grant", "after_s": 0.0}, kind="lfs-batch", times=1)
        source = BytesSource(digest_bytes(content), content)
        outcome = await outcome_of(hub.upload_object(arena.repository, "x.bin", source, lambda _: None))
        assert (outcome.kind, outcome.status) == (OutcomeKind.TRANSIENT, 403)
        await hub.upload_object(arena.repository, "x.bin", source, lambda _: None)

    async def test_credential_renewed_in_the_middle(self, hub: Hub, arena: LocalHubArena) -> None:
        """A 401 is met once with a freshly read credential before it counts (N-HUB-13)."""
        head = await hub.head(arena.repository)
        source = BytesSource(digest_bytes(b"renewed"), b"renewed")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "repo-info": lambda: hub.head(arena.repository),
            "preupload": lambda: hub.preupload(arena.repository, [PreuploadFile("a.txt", 1, b"a")]),
            "commit": lambda: hub.commit(commit_request(arena.repository, head, {"a.txt": b"a"})),
            "lfs-batch": lambda: hub.upload_object(arena.repository, "x.bin", source, lambda _: None),
        }
        for kind, call in calls.items():
            arena.server.fault(f"stale {kind}", {"do": "status", "status": 401}, kind=kind, times=1)
            await call()
            assert arena.server.fired(f"stale {kind}") == 1
        assert len(arena.landed()) == 1

    async def test_whoami_is_asked_by_write_access_alone(self, hub: Hub, arena: LocalHubArena) -> None:
        """`whoami` is rate limited on purpose, so nothing else asks it."""
        before = len(arena.server.requests("whoami"))
        head = await hub.head(arena.repository)
        await hub.commit(commit_request(arena.repository, head, {"a.txt": b"a"}))
        await hub.upload_object(arena.repository, "x.bin", BytesSource(digest_bytes(b"w"), b"w"), lambda _: None)
        assert len(arena.server.requests("whoami")) == before
        await hub.write_access(arena.repository)
        assert len(arena.server.requests("whoami")) == before + 1

    async def test_request_id_is_kept(self, hub: Hub, arena: LocalHubArena) -> None:
        """The Hub's id of a failed request is in its outcome."""
        outcome = await outcome_of(hub.commit(commit_request(arena.repository, "0" * 40, {"a.txt": b"a"})))
        rows = [row for row in arena.server.requests("commit") if row["repo"] == arena.repository]
        assert outcome.request_id == rows[-1]["request_id"]
