"""Large objects over loopback: parts, caps, cancellation, and threads that will not end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from conveyor.actors.ports import BytesSource, FileSource
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.outcome import HubError, OutcomeKind
from conveyor.runtime.adapters.hub import HuggingFaceHub
from conveyor.runtime.adapters.hub_credentials import HubCredentials
from conveyor.runtime.adapters.hub_options import HubOptions
from tests.support.hub_arenas import WRITER, commit_request, wait_until
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),
]

REPOSITORY = "acme/data"
PART_BYTES = 256 * 1024


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHubUnderTest]:
    """A local Hub that asks for parts early."""
    parts = {"multipart_from_bytes": 2 * PART_BYTES, "multipart_part_bytes": PART_BYTES}
    with running_local_hub(tmp_path_factory.mktemp("hub"), repositories=(REPOSITORY,), **parts) as server:
        yield server


@pytest.fixture
def server(shared_server: LocalHubUnderTest) -> Iterator[LocalHubUnderTest]:
    """The same, without misfortunes left over."""
    yield shared_server
    shared_server.clear_faults()


@pytest.fixture
def options(server: LocalHubUnderTest) -> HubOptions:
    """Patient limits."""
    return HubOptions(endpoint=server.url, answer_s=20.0, stall_s=20.0)


@pytest.fixture
async def hub(options: HubOptions) -> AsyncIterator[HuggingFaceHub]:
    """The adapter."""
    async with opened(options) as hub:
        yield hub


def opened(options: HubOptions) -> HuggingFaceHub:
    """An adapter with a credential."""
    return HuggingFaceHub(options, HubCredentials({"HF_TOKEN": WRITER}, Path("/nonexistent")))


def content_of(name: str, size_bytes: int = 100_000) -> BytesSource:
    """An object that no other test has."""
    content = (name.encode() * (size_bytes // len(name) + 1))[:size_bytes]
    return BytesSource(digest_bytes(content), content)


async def test_parts(hub: HuggingFaceHub, server: LocalHubUnderTest, tmp_path: Path) -> None:
    """A file that the Hub wants in parts arrives whole, also when one part had to be sent again."""
    content = content_of(f"parts {anyio.current_time()}", 3 * PART_BYTES + 77).content
    path = tmp_path / "x.bin"
    path.write_bytes(content)
    server.fault("again", {"do": "status", "status": 500}, kind="lfs-part", nth=2, times=1)
    seen: list[int] = []
    await hub.upload_object(REPOSITORY, "x.bin", FileSource(digest_bytes(content), str(path)), seen.append)
    assert sum(seen) == len(content)
    assert server.fired("again") == 1
    head = await hub.head(REPOSITORY)
    commit = await hub.commit(commit_request(REPOSITORY, head, {}, {"x.bin": content}))
    assert await hub.download(REPOSITORY, commit, "x.bin", max_bytes=len(content)) == content


async def test_parallelism_is_capped(options: HubOptions, server: LocalHubUnderTest) -> None:
    """With one slot the transfers come one after the other."""
    since = len(server.requests())
    async with opened(replace(options, upload_parallelism=1)) as hub, anyio.create_task_group() as group:
        for number in range(4):
            name = f"one slot {number} {anyio.current_time()}"
            group.start_soon(hub.upload_object, REPOSITORY, f"{number}.bin", content_of(name), lambda _: None)
    rows = [row for row in server.requests()[since:] if row["kind"] in ("lfs-batch", "lfs-put")]
    assert [row["kind"] for row in rows] == ["lfs-batch", "lfs-put"] * 4


async def test_bandwidth_is_capped(options: HubOptions) -> None:
    """An object takes at least its size divided by the cap."""
    async with opened(replace(options, bandwidth_bytes_per_s=1e6)) as hub:
        started_s = anyio.current_time()
        name = f"capped {started_s}"
        await hub.upload_object(REPOSITORY, "x.bin", content_of(name, 300_000), lambda _: None)
        # The first piece passes at once.
        assert anyio.current_time() - started_s > (300_000 - 65_536) / 1e6


async def test_cancelled_upload_leaves_its_thread(hub: HuggingFaceHub, server: LocalHubUnderTest) -> None:
    """Cancelling waits for nobody; the thread is counted until it ends (N-HUB-14)."""
    server.fault("stuck", {"do": "stall_request"}, kind="lfs-put", times=1)
    source = content_of(f"cancelled {anyio.current_time()}")
    async with anyio.create_task_group() as group:
        group.start_soon(hub.upload_object, REPOSITORY, "x.bin", source, lambda _: None)
        await wait_until(server.stalled)
        assert hub.unfinished_threads(REPOSITORY) == 0
        group.cancel_scope.cancel()
    assert hub.unfinished_threads(REPOSITORY) == 1
    assert hub.unfinished_threads("acme/other") == 0
    server.clear_faults()
    await wait_until(lambda: hub.unfinished_threads(REPOSITORY) == 0)


async def test_stuck_threads_are_bounded(options: HubOptions, server: LocalHubUnderTest) -> None:
    """When too many threads are stuck, no further one is started until some have ended."""
    server.fault("stuck", {"do": "stall_request"}, kind="lfs-put")
    async with opened(replace(options, upload_parallelism=1, stall_s=0.25)) as hub:
        found = []
        for number in range(6):
            source = content_of(f"stuck {number} {anyio.current_time()}")
            with pytest.raises(HubError) as caught:
                await hub.upload_object(REPOSITORY, "x.bin", source, lambda _: None)
            assert caught.value.outcome.kind is OutcomeKind.TRANSIENT
            found.append(caught.value.outcome.error_type)
        assert found == ["TransferStalled"] * 4 + ["TooManyStuckTransfers"] * 2
        assert hub.unfinished_threads(REPOSITORY) == 4
    # Closing has waited for none of them, and they are still told of.
    assert hub.unfinished_threads(REPOSITORY) == 4
    server.clear_faults()
    await wait_until(lambda: hub.unfinished_threads(REPOSITORY) == 0)


async def test_xet_gets_a_path(options: HubOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With Xet chosen and there, the library is given what it sends by Xet: a path, or bytes; the digest is compared.

    No Xet storage can be had here, so the library's sending is replaced; everything before and after it is real.
    """
    import huggingface_hub

    from conveyor.runtime.adapters import hub_upload

    given: list[object] = []

    def keep(self: object, repo_id: str, additions: list[huggingface_hub.CommitOperationAdd], **rest: object) -> None:
        given.append(additions[0].path_or_fileobj)

    monkeypatch.setattr(huggingface_hub.HfApi, "preupload_lfs_files", keep)
    monkeypatch.setattr(hub_upload, "_has_xet", lambda: True)
    source = content_of("xet")
    path = tmp_path / "x.bin"
    path.write_bytes(source.content)
    async with opened(replace(options, large_upload="xet")) as hub:
        await hub.upload_object(REPOSITORY, "x.bin", source, lambda _: None)
        await hub.upload_object(REPOSITORY, "x.bin", FileSource(source.digests, str(path)), lambda _: None)
    assert given == [source.content, str(path)]
