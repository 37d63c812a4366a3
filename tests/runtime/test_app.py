"""The runtime as a program meets it: open, hand over, wait, look, close; with real parts, on both loops."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from conveyor.actors.errors import ActorStopped, RestartIntensityExceeded
from conveyor.runtime import (
    BundleFile,
    BundleStatus,
    ConveyorNotOpen,
    NotAccepted,
    NotDelivered,
    RunFilesStatus,
    ShutdownPhase,
    StageDatasetBundle,
    StoreClosed,
    StoreUnusable,
    open_conveyor,
)
from tests.support.app import NOBODY, REPOSITORY, TOKEN, app_settings, hand_over, run_file_request
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.slow]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A local Hub with the one repository."""
    with running_local_hub(tmp_path / "hub", repositories=(REPOSITORY,)) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


async def test_a_run_file_is_delivered(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Durable at once, delivered soon, and the report of the stop is clean: all phases in their order."""
    async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
        ticket = await hand_over(conveyor, tmp_path, content="hello")
        assert ticket.is_durable
        receipt = await ticket.wait_delivered(within_s=30)
        assert (receipt.status, receipt.pending_files, receipt.commits) == (RunFilesStatus.RECORDED, 0, 1)
        status = await conveyor.status()
        assert (status.state, status.accepted, status.delivered, status.waiting) == ("running", 1, 1, 0)
        assert {"intake", "ledger", "hashing-pool", "work-watch", "upkeep"} <= {actor.name for actor in status.actors}
        report = await conveyor.aclose()
        assert report.is_clean
        assert [phase.phase for phase in report.phases] == list(ShutdownPhase)
        assert await conveyor.aclose() is report
        assert conveyor.final_status.state == "stopped"
    (commit,) = hub.commits(REPOSITORY)
    assert [change["sha256"] for change in commit["changes"]] == [hashlib.sha256(b"hello").hexdigest()]


async def test_a_bundle_is_delivered(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Its receipt is asked for by its id, later too."""
    content = {"weights.bin": b"w" * 5000, "staged_manifest.json": b'{"run_id": "run", "files": {}}'}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    roles = {"weights.bin": "output", "staged_manifest.json": "staged_manifest"}
    files = tuple(
        BundleFile(name, roles[name], tmp_path / name, hashlib.sha256(data).hexdigest(), len(data))
        for name, data in content.items()
    )
    async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
        ticket = await conveyor.stage_dataset_bundle(StageDatasetBundle(REPOSITORY, "run", files))
        assert set((await ticket.wait_durable()).copied_files) == set(content)
        receipt = await ticket.wait_delivered(within_s=30)
        assert receipt.status is BundleStatus.UPLOADED
        assert await conveyor.handover_receipt(receipt.handover_id) == receipt
        assert await conveyor.handover_receipt("0" * 64) is None
    assert len(hub.commits(REPOSITORY)) == 1


async def test_what_is_refused_raises_only_when_waited_for(tmp_path: Path) -> None:
    """A refusal is a receipt; waiting for it raises NotAccepted with the same words."""
    async with open_conveyor(app_settings(tmp_path)) as conveyor:
        request = run_file_request(tmp_path, "a.txt", "1", run_id="../up")
        ticket = await conveyor.stage_run_files(request)
        assert ticket.receipt.status is RunFilesStatus.REFUSED
        assert ticket.receipt.message
        for wait in (ticket.wait_durable, ticket.wait_delivered):
            with pytest.raises(NotAccepted) as caught:
                await wait()
            assert str(caught.value) == ticket.receipt.message
        bundle = await conveyor.stage_dataset_bundle(StageDatasetBundle("nobody", "run", ()))
        assert bundle.receipt.status is BundleStatus.REFUSED
        with pytest.raises(NotAccepted):
            await bundle.wait_delivered()


async def test_what_takes_longer_stays_queued(tmp_path: Path) -> None:
    """wait_delivered raises NotDelivered after its time; the report says what is left, and the next one sees it."""
    async with open_conveyor(app_settings(tmp_path, shutdown_s=1)) as conveyor:
        ticket = await hand_over(conveyor, tmp_path)
        with pytest.raises(NotDelivered, match="it stays queued"):
            await ticket.wait_delivered(within_s=0.2)
        assert (await conveyor.drain(within_s=0.2)).waiting == 1
        report = await conveyor.aclose()
        assert not report.is_clean
        assert [(left.repository, left.files) for left in report.left_over] == [(REPOSITORY, 1)]
    async with open_conveyor(app_settings(tmp_path, shutdown_s=1)) as conveyor:
        assert (await conveyor.status()).waiting == 1


async def test_after_the_close_nothing_hangs(tmp_path: Path) -> None:
    """Who waits is told; hand-overs are answered `unavailable`; questions get StoreClosed (N-RUN-07)."""
    told: list[str] = []
    async with open_conveyor(app_settings(tmp_path, shutdown_s=1)) as conveyor:
        ticket = await hand_over(conveyor, tmp_path)

        async def wait() -> None:
            try:
                await ticket.wait_delivered()
            except NotDelivered as error:
                told.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await conveyor.aclose()
        assert "the Conveyor was closed before" in told[0]
        late = await conveyor.stage_run_files(run_file_request(tmp_path, "b.txt", "2"))
        assert late.receipt.status is RunFilesStatus.UNAVAILABLE
        with pytest.raises(StoreClosed):
            await conveyor.status()
        with pytest.raises(StoreClosed):
            await conveyor.run_files_receipt(REPOSITORY, "run")
        with pytest.raises(ConveyorNotOpen):
            await conveyor.drain()


async def test_it_is_opened_once(tmp_path: Path) -> None:
    """Outside of its block there is nothing to use, and a second block needs a second object."""
    conveyor = open_conveyor(app_settings(tmp_path))
    for call in (conveyor.status, conveyor.drain, conveyor.aclose, conveyor.resume):
        with pytest.raises(ConveyorNotOpen):
            await call()
    async with conveyor:
        with pytest.raises(ConveyorNotOpen, match="no final status"):
            _ = conveyor.final_status
    with pytest.raises(ConveyorNotOpen, match="opened before"):
        await conveyor.__aenter__()


async def test_a_store_that_cannot_be_opened_raises_bare(tmp_path: Path) -> None:
    """StoreUnusable, no group around it, nothing left behind."""
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    (place / "store.db").write_text("not a database, and long enough not to be an empty one " * 20)
    (place / "store.db").chmod(0o600)
    with pytest.raises(StoreUnusable):
        async with open_conveyor(app_settings(tmp_path)):
            pass
    assert [file.name for file in place.iterdir()] == ["store.db"]


async def test_an_error_of_the_host_passes_as_it_is(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """What the block raises comes out bare, after a stop in order: what was handed over is committed."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
        async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
            await conveyor.stage_run_files(run_file_request(tmp_path, "a.txt", "1"))
            _ = 1 / 0
    assert len(hub.commits(REPOSITORY)) == 1


async def test_actors_that_fail_for_good_do_not_reach_into_the_block(tmp_path: Path) -> None:
    """The producer goes on and is told `unavailable`; leaving raises the error; everything is kept (N-UX-04)."""
    after: list[RunFilesStatus] = []
    with pytest.raises(RestartIntensityExceeded):  # noqa: PT012 - the block is what is tested
        async with open_conveyor(app_settings(tmp_path)) as conveyor:
            await hand_over(conveyor, tmp_path)
            life = conveyor._life
            assert life is not None
            while not life.has_ended:
                with contextlib.suppress(anyio.WouldBlock, ActorStopped):
                    life.tree.ledger._ref.tell_nowait(None)  # type: ignore[arg-type]
                await anyio.lowlevel.checkpoint()
            for _ in range(3):
                ticket = await conveyor.stage_run_files(run_file_request(tmp_path, "b.txt", "2"))
                after.append(ticket.receipt.status)
            with pytest.raises(RestartIntensityExceeded):
                await conveyor.drain()
    assert after == [RunFilesStatus.UNAVAILABLE] * 3
    async with open_conveyor(app_settings(tmp_path, shutdown_s=1)) as conveyor:
        status = await conveyor.status()
        assert status.waiting == 1


async def test_write_access_is_answered(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """It asks the Hub; one out of reach is an answer too, not an error."""
    async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
        assert await conveyor.has_credential()
        access = await conveyor.check_write_access(REPOSITORY)
        assert (access.credential, access.reachable, access.can_write) == ("present", True, True)
    async with open_conveyor(app_settings(tmp_path, NOBODY)) as conveyor:
        access = await conveyor.check_write_access(REPOSITORY)
        assert (access.credential, access.reachable, access.can_write) == ("present", False, None)
