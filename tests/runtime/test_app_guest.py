"""A good guest: the host's signals, hooks, loop policy and logging stay; its cancellation gets through."""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import random
import signal
import sqlite3
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from conveyor.runtime import RunFilesStatus, open_conveyor
from tests.support.app import REPOSITORY, TOKEN, app_settings, hand_over, run_file_request
from tests.support.local_hub import LocalHubUnderTest, running_local_hub
from tests.support.virtual_time import Backend

pytestmark = pytest.mark.slow

ROUNDS = 40


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A local Hub with the one repository."""
    with running_local_hub(tmp_path / "hub", repositories=(REPOSITORY,)) as hub:
        yield hub


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def what_belongs_to_the_host() -> dict[str, Any]:
    """Everything process-wide that a guest might be tempted to touch."""
    root = logging.getLogger()
    hub_log = logging.getLogger("huggingface_hub")
    # SIGINT is the loop library's own while it runs.
    handled = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1)
    return {
        "signals": [signal.getsignal(number) for number in handled],
        "wake-up": signal.set_wakeup_fd(-1) if threading.current_thread() is threading.main_thread() else None,
        "exit hooks": atexit._ncallbacks(),
        "loop policy": asyncio.get_event_loop_policy(),
        "root logger": (root.level, list(root.handlers), list(root.filters), root.disabled),
        "library logger": (hub_log.level, list(hub_log.handlers), hub_log.propagate),
        "own logger": (logging.getLogger("conveyor").level, list(logging.getLogger("conveyor").handlers)),
        "logger class": logging.getLoggerClass(),
        "warnings": list(warnings.filters),
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "streams": (sys.stdout, sys.stderr),
    }


def test_the_host_keeps_what_is_its_own(anyio_backend_name: str, hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Before, during and after, in the main thread and in another one (N-RUN-06)."""
    during: list[dict[str, Any]] = []

    async def use(place: Path) -> None:
        place.mkdir()
        inside = what_belongs_to_the_loop()
        async with open_conveyor(app_settings(place, hub.url)) as conveyor:
            await (await hand_over(conveyor, place, f"{place.name}.txt")).wait_delivered(within_s=60)
            assert what_belongs_to_the_loop() == inside
            during.append(what_belongs_to_the_host())
        assert what_belongs_to_the_loop() == inside

    def what_belongs_to_the_loop() -> object:
        if anyio_backend_name == "trio":
            return None
        loop = asyncio.get_running_loop()
        return (loop.get_exception_handler(), loop.get_debug(), loop.get_task_factory())

    async def nothing() -> None:
        await anyio.to_thread.run_sync(lambda: None)

    def run(place: Path) -> None:
        anyio.run(use, place, backend=anyio_backend_name)

    anyio.run(nothing, backend=anyio_backend_name)  # what the loop library itself sets up the first time
    before = what_belongs_to_the_host()
    thread = threading.Thread(target=run, args=(tmp_path / "thread",))
    thread.start()
    thread.join()
    run(tmp_path / "main")
    after = what_belongs_to_the_host()
    for name, value in before.items():
        assert after[name] == value, name
        if name != "wake-up":  # the loop library sets it for the time it runs
            assert all(seen[name] == value for seen in during), name
    assert {thread.name for thread in threading.enumerate() if "conveyor" in thread.name} == set()


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.timeout(180)
async def test_cancelled_at_random_times(anyio_backend: Backend, hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """The host's task group is cancelled in many short rounds: the store is consistent, no lease is left (N-RUN-04)."""
    chance = random.Random(f"rounds {anyio_backend[0]}")
    accepted = opened = 0
    for number in range(ROUNDS):
        moment_s = chance.uniform(0.0, 0.1)

        async def work(scope: anyio.CancelScope, number: int, moment_s: float) -> None:
            nonlocal accepted, opened
            async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
                opened += 1
                scope.deadline = anyio.current_time() + moment_s
                while True:
                    request = run_file_request(tmp_path, f"r{number}.txt", f"{accepted}", flush=bool(number % 4))
                    ticket = await conveyor.stage_run_files(request)
                    assert ticket.receipt.status is RunFilesStatus.RECORDED, ticket.receipt
                    accepted += 1

        async with anyio.create_task_group() as tasks:
            if number % 4 == 0:  # in the middle of opening, mostly
                tasks.cancel_scope.deadline = anyio.current_time() + 3 * moment_s
            tasks.start_soon(work, tasks.cancel_scope, number, moment_s)
    assert opened >= ROUNDS * 3 // 4
    assert accepted > ROUNDS // 2
    with sqlite3.connect(tmp_path / "state" / "store.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM repositories WHERE lease_owner IS NOT NULL").fetchall() == [
            (0,)
        ]
    connection.close()
    async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
        status = await conveyor.drain(within_s=60)
    assert status.waiting == 0
    # A cancelled hand-over may have been recorded without its answer.
    assert accepted <= status.accepted <= accepted + ROUNDS
    landed = [change["path"] for commit in hub.commits(REPOSITORY) for change in commit["changes"]]
    assert any(path.startswith("runs/") for path in landed)


@pytest.mark.anyio
@pytest.mark.real_time
async def test_cancelled_hand_overs_give_their_place_back(tmp_path: Path) -> None:
    """One may wait at a time; twenty are cancelled at random moments; the next one is taken at once (N-RUN-05)."""
    chance = random.Random(20)
    async with open_conveyor(app_settings(tmp_path, intake_capacity=1, shutdown_s=1)) as conveyor:
        for number in range(20):
            with anyio.move_on_after(chance.uniform(0.0, 0.01)):
                await conveyor.stage_run_files(run_file_request(tmp_path, "a.txt", str(number)))
        with anyio.fail_after(5):
            await hand_over(conveyor, tmp_path, "b.txt")


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_cancelled_host_is_let_through_at_once(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """The cancellation leaves the block though the Hub stands still; the leases are given back (N-RUN-04)."""
    hub.fault("stall", {"do": "stall_answer"}, kind="commit")
    with anyio.CancelScope() as scope:
        async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
            await hand_over(conveyor, tmp_path)
            await anyio.to_thread.run_sync(hub.wait_stalled, "stall")
            began = anyio.current_time()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - began < 5
    hub.clear_faults()
    async with open_conveyor(app_settings(tmp_path, hub.url)) as conveyor:
        assert (await conveyor.drain(within_s=60)).waiting == 0
    assert len(hub.commits(REPOSITORY)) == 1
