"""Trouble of the delivery stays there: actors are restarted and reported, producers go on (N-RUN-08, N-UX-04)."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from conveyor.actors.supervisor import Supervisor
from conveyor.runtime import Conveyor, RunFilesStatus, open_conveyor
from conveyor.runtime.localhub.options import TokenGrant
from conveyor.runtime.tree import ActorTree
from tests.support.app import REPOSITORY, TOKEN, app_settings, hand_over, run_file_request
from tests.support.local_hub import LocalHubUnderTest, running_local_hub
from tests.support.virtual_time import Backend

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.slow]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A local Hub with the one repository and the one token."""
    tokens = (TokenGrant(TOKEN, "ann"),)
    with running_local_hub(tmp_path / "hub", repositories=(REPOSITORY,), tokens=tokens) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def tree_of(conveyor: Conveyor) -> ActorTree:
    """The actors inside."""
    assert conveyor._life is not None
    return conveyor._life.tree


def kill_life(supervisor: Supervisor, name: str) -> None:
    """Cancel the present life of an actor, as a stray cancellation would; its supervisor knows nothing of it."""
    life = supervisor._children[name]._life
    if life is not None:  # None: the last one is over and the next one has not begun
        life.kill()


async def restarts(conveyor: Conveyor, name: str) -> int:
    """How often an actor was restarted."""
    return next((actor.restarts for actor in (await conveyor.status()).actors if actor.name == name), 0)


@pytest.mark.parametrize("name", ["ledger", "intake", "hashing-pool", "work-watch", "upkeep"])
async def test_a_killed_actor_is_reported_and_restarted(
    name: str,
    anyio_backend: Backend,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    """Its task is cancelled, by hand where asyncio allows it: the report is there at once, work goes on (N-RUN-08)."""
    caplog.set_level(logging.WARNING, "conveyor.actors")
    request.addfinalizer(gc.unfreeze)
    gc.collect()
    gc.freeze()  # what thousands of tests before left behind would make each collection take its time
    async with open_conveyor(app_settings(tmp_path, shutdown_s=1)) as conveyor:
        await hand_over(conveyor, tmp_path, "before.txt")
        if anyio_backend[0] == "asyncio":
            (task,) = [task for task in asyncio.all_tasks() if task.get_name() == f"actor {name}"]
            task.cancel()
        else:
            kill_life(next(s for s in tree_of(conveyor)._supervisors if name in s._children), name)
        report_by = anyio.current_time() + 1
        while f"actor '{name}' ended unexpectedly" not in caplog.text:
            assert anyio.current_time() < report_by
            gc.collect()
            await anyio.lowlevel.checkpoint()
        for number in range(5):
            ticket = await conveyor.stage_run_files(run_file_request(tmp_path, f"{number}.txt", "x"))
            assert ticket.receipt.status is RunFilesStatus.RECORDED
        with anyio.fail_after(5):
            while not await restarts(conveyor, name):
                await anyio.lowlevel.checkpoint()
        assert (await conveyor.status()).waiting == 6


async def test_producers_go_on_whatever_happens_to_the_delivery(
    hub: LocalHubUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delivery actor is killed, the token corrupted, the Hub unplugged: hand-overs never raise (N-UX-04)."""
    took_s: list[float] = []
    async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:

        async def produce(count: int) -> None:
            for _ in range(count):
                request = run_file_request(tmp_path, f"f{len(took_s)}.txt", "x", flush=True)
                began = anyio.current_time()
                ticket = await conveyor.stage_run_files(request)
                took_s.append(anyio.current_time() - began)
                assert ticket.receipt.status is RunFilesStatus.RECORDED

        await produce(10)
        for _ in range(3):
            if tree_of(conveyor).registry.live(REPOSITORY) is not None:
                kill_life(tree_of(conveyor)._repositories, f"repository {REPOSITORY}")
            await produce(10)
        monkeypatch.setenv("HF_TOKEN", "hf_corrupted")
        await produce(20)
        hub.fault("unplugged", {"do": "drop_before", "reset": True})
        await produce(20)
        # The speed is measured by the benchmarks; here the machine may be busy.
        assert sorted(took_s)[len(took_s) * 99 // 100] < 2
        hub.clear_faults()
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        await conveyor.resume()
        status = await conveyor.drain(within_s=90)
        assert (status.waiting, status.parked) == (0, 0)
    paths = [change["path"] for commit in hub.commits(REPOSITORY) for change in commit["changes"]]
    assert sorted(paths) == sorted(f"runs/run/f{number}.txt" for number in range(len(took_s)))
