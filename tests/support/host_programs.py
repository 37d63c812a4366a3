"""Programs that embed Conveyor, run as processes of their own: `host_programs.py NAME LOOP PLACE ENDPOINT`.

Each works in the directory PLACE and prints what it found, one word or number a line.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio

from conveyor.runtime import (
    BundleFile,
    Conveyor,
    RunFile,
    Settings,
    StageDatasetBundle,
    StageRunFiles,
    UsedAfterFork,
    open_conveyor,
)

NAME, LOOP, PLACE, ENDPOINT = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
REPOSITORY = "lab/host"


def settings(**more: Any) -> Settings:
    """Settings for a store in PLACE and the Hub at ENDPOINT."""
    return Settings.load(store_path=PLACE / "state" / "store.db", endpoint=ENDPOINT, **more)


def say(text: object) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def enqueue(conveyor: Conveyor, count: int, first: int = 0, within_s: float = 5.0) -> None:
    """Hand over so many small files, and remove each at once (N-STO-08)."""
    for number in range(first, first + count):
        file = PLACE / f"{os.getpid()}-{number}.txt"
        file.write_text(f"content {number}")
        request = StageRunFiles(REPOSITORY, "run", (RunFile(f"f{number}.txt", file),))
        ticket = await conveyor.stage_run_files(request, within_s=within_s)
        await ticket.wait_durable()
        file.unlink()


async def forget() -> None:
    """Enqueue 50 items and end without a close (N-RUN-02, N-RUN-11)."""
    conveyor = await open_conveyor(settings()).__aenter__()
    await enqueue(conveyor, 50)
    say(time.time())


async def forget_and_exit() -> None:
    """The same, by SystemExit out of the middle."""
    await forget()
    sys.exit(7)


async def be_killed() -> None:
    """Enqueue, and be ended by the kernel in the next line."""
    conveyor = await open_conveyor(settings()).__aenter__()
    await enqueue(conveyor, 5)
    say("enqueued")
    os.kill(os.getpid(), 9)


async def stop_under_a_stall() -> None:
    """Hand over a run file and a bundle to a Hub that stands still, and close within 2 s once told to (N-RUN-01)."""
    async with open_conveyor(settings()) as conveyor:
        if "commit" in NAME:
            await enqueue(conveyor, 1)
        else:
            import hashlib

            content = os.urandom(11 * 1024 * 1024)
            (PLACE / "weights.bin").write_bytes(content)
            files = [
                BundleFile(
                    "weights.bin", "output", PLACE / "weights.bin", hashlib.sha256(content).hexdigest(), len(content)
                )
            ]
            inventory = b'{"run_id": "run", "files": {}}'
            (PLACE / "inventory.json").write_bytes(inventory)
            digest = hashlib.sha256(inventory).hexdigest()
            files.append(
                BundleFile("staged_manifest.json", "staged_manifest", PLACE / "inventory.json", digest, len(inventory))
            )
            ticket = await conveyor.stage_dataset_bundle(StageDatasetBundle(REPOSITORY, "run", tuple(files)))
            await ticket.wait_durable()
        say("waiting")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        began = anyio.current_time()
        report = await conveyor.aclose(within_s=2)
        say(anyio.current_time() - began)
        (left,) = report.left_over
        say(left.repository)
        say((left.files, left.bundles, left.has_unknown_commit))
        say((report.leases_left, report.unfinished_uploads))
        assert await conveyor.aclose() is report


def child_uses(conveyor: Conveyor) -> None:
    """In a forked child: the inherited object refuses, whatever is asked of it, and the child ends normally."""

    async def use() -> None:
        refused = 0
        for call in (conveyor.status, conveyor.aclose, conveyor.drain, conveyor.resume, conveyor.has_credential):
            try:
                await call()
            except UsedAfterFork:
                refused += 1
        try:
            await conveyor.stage_run_files(StageRunFiles(REPOSITORY, "run", ()))
        except UsedAfterFork:
            refused += 1
        assert refused == 6, refused

    anyio.run(use)


def square(number: int) -> int:
    """Work for a pool."""
    return number * number


async def fork_children() -> None:
    """Fork after the start: ten children that use the object and a pool of four; the parent goes on (N-RUN-03)."""
    forking = multiprocessing.get_context("fork")
    async with open_conveyor(settings()) as conveyor:
        await enqueue(conveyor, 5)

        def fork() -> list[int]:
            children = [forking.Process(target=child_uses, args=(conveyor,)) for _ in range(10)]
            for child in children:
                child.start()
            for child in children:
                child.join(30)
            with forking.Pool(4) as pool:
                assert pool.map(square, range(20)) == [number * number for number in range(20)]
            return [child.exitcode if child.exitcode is not None else -1 for child in children]

        codes = await anyio.to_thread.run_sync(fork)
        say(sum(code == 0 for code in codes))
        await enqueue(conveyor, 20, first=5)
        status = await conveyor.drain(within_s=60)
        say(status.waiting)


async def enqueue_and_close(worker: int) -> None:
    """One of many processes on one store; nobody delivers, because nobody listens at ENDPOINT."""
    async with open_conveyor(settings(shutdown_s=1)) as conveyor:
        await enqueue(conveyor, 5, first=5 * worker, within_s=60.0)


def many_at_once() -> None:
    """32 processes, on either loop in turn, open one store in the same moment and enqueue 5 items each (N-STO-02)."""
    forking = multiprocessing.get_context("fork")
    barrier = forking.Barrier(32)

    def work(worker: int) -> None:
        barrier.wait(60)
        anyio.run(enqueue_and_close, worker, backend=("asyncio", "trio")[worker % 2])

    workers = [forking.Process(target=work, args=(number,)) for number in range(32)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    say(sum(worker.exitcode == 0 for worker in workers))


PROGRAMS = {
    "forget": forget,
    "forget-and-exit": forget_and_exit,
    "be-killed": be_killed,
    "stall-at-commit": stop_under_a_stall,
    "stall-at-upload": stop_under_a_stall,
    "fork": fork_children,
}

if __name__ == "__main__":
    if NAME == "many":
        many_at_once()
    else:
        anyio.run(PROGRAMS[NAME], backend=LOOP)
