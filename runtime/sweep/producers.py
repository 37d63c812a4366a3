"""The producers of a sweep: each is a build that writes files, hands them over, and rewrites them at once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import anyio
import anyio.to_thread

from ...protocol.receipts import BundleStatus, RunFilesStatus
from ...protocol.requests import BundleFile, RunFile, StageDatasetBundle, StageRunFiles
from ..app import Conveyor
from .plan import SweepPlan

RETRY_PAUSE_S = 0.5
"""Before a hand-over that could not be made durable in time is made again."""


@dataclass(slots=True)
class SweepTally:
    """What the producers did."""

    hand_overs: int = 0
    unavailable: int = 0
    """Hand-overs that were answered `unavailable` and made again."""
    refused: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    handed_bytes: int = 0
    jobs_done: int = 0
    expected: dict[str, dict[str, str]] = field(default_factory=dict)
    """By repository and path, the SHA-256 of the bytes handed over last."""


class Producers:
    """Runs all producers of a sweep at once.

    Every answered hand-over is written as one JSON line into `expected.jsonl`, before anything else is done with it: so
    that after a kill anybody can tell what had been accepted.

    Args:
        plan: what they make.
        conveyor: whom they hand over to.
        directory: where their files and `expected.jsonl` are.
        tally: what they did so far; read by others for the progress.
    """

    def __init__(self, plan: SweepPlan, conveyor: Conveyor, directory: Path, tally: SweepTally) -> None:
        self._plan = plan
        self._conveyor = conveyor
        self._directory = directory
        self._tally = tally

    async def run(self) -> None:
        """Run the producers to their end."""
        with (self._directory / "expected.jsonl").open("a", buffering=1) as accepted:
            async with anyio.create_task_group() as tasks:
                for job in range(self._plan.jobs):
                    tasks.start_soon(self._run_job, job, accepted)

    async def _run_job(self, job: int, accepted: IO[str]) -> None:
        folder = self._directory / "jobs" / self._plan.run_id(job)
        await anyio.to_thread.run_sync(lambda: folder.mkdir(parents=True, exist_ok=True))
        for rewrite in range(self._plan.rewrites):
            files = list(self._plan.run_files(job, rewrite))
            await self._write(folder, files)
            await self._hand_over_files(job, folder, files, accepted)
        bundle = self._plan.bundle_files(job)
        await self._write(folder, [(name, content) for name, _, content in bundle])
        await self._hand_over_bundle(job, folder, bundle, accepted)
        self._tally.jobs_done += 1

    async def _hand_over_files(self, job: int, folder: Path, files: list[tuple[str, bytes]], accepted: IO[str]) -> None:
        run_id = self._plan.run_id(job)
        request = StageRunFiles(
            self._plan.repository_of(job), run_id, tuple(RunFile(name, folder / name) for name, _ in files)
        )
        while True:
            began = anyio.current_time()
            ticket = await self._conveyor.stage_run_files(request)
            self._count(began, ticket.receipt.status is RunFilesStatus.UNAVAILABLE)
            if ticket.receipt.status is not RunFilesStatus.UNAVAILABLE:
                break
            await anyio.sleep(RETRY_PAUSE_S)
        if ticket.receipt.status is RunFilesStatus.REFUSED:
            self._tally.refused.append(f"{run_id}: {ticket.receipt.message}")
            return
        self._accept(request.repository, [(f"runs/{run_id}/{name}", content) for name, content in files], accepted)

    async def _hand_over_bundle(
        self, job: int, folder: Path, files: list[tuple[str, str, bytes]], accepted: IO[str]
    ) -> None:
        run_id = self._plan.run_id(job)
        request = StageDatasetBundle(
            self._plan.repository_of(job),
            run_id,
            tuple(
                BundleFile(name, role, folder / name, hashlib.sha256(content).hexdigest(), len(content))
                for name, role, content in files
            ),
        )
        while True:
            began = anyio.current_time()
            ticket = await self._conveyor.stage_dataset_bundle(request)
            self._count(began, ticket.receipt.status is BundleStatus.UNAVAILABLE)
            if ticket.receipt.status is not BundleStatus.UNAVAILABLE:
                break
            await anyio.sleep(RETRY_PAUSE_S)
        if ticket.receipt.status is BundleStatus.REFUSED:
            self._tally.refused.append(f"{run_id}: {ticket.receipt.message}")
            return
        self._accept(request.repository, [(f"staged/{run_id}/{name}", content) for name, _, content in files], accepted)

    def _count(self, began: float, was_unavailable: bool) -> None:
        self._tally.latencies_s.append(anyio.current_time() - began)
        if was_unavailable:
            self._tally.unavailable += 1
        else:
            self._tally.hand_overs += 1

    def _accept(self, repository: str, files: list[tuple[str, bytes]], accepted: IO[str]) -> None:
        digests = {path: hashlib.sha256(content).hexdigest() for path, content in files}
        self._tally.expected.setdefault(repository, {}).update(digests)
        self._tally.handed_bytes += sum(len(content) for _, content in files)
        accepted.write(json.dumps({"repository": repository, "sha256": digests}) + "\n")

    async def _write(self, folder: Path, files: list[tuple[str, bytes]]) -> None:
        def write() -> None:
            for name, content in files:
                (folder / name).write_bytes(content)

        await anyio.to_thread.run_sync(write)


def read_expected(file: Path) -> dict[str, dict[str, str]]:
    """What had been accepted, from an `expected.jsonl`; a last line cut by a kill is left out."""
    expected: dict[str, dict[str, str]] = {}
    for line in file.read_text().splitlines():
        try:
            accepted = json.loads(line)
        except ValueError:
            continue
        expected.setdefault(accepted["repository"], {}).update(accepted["sha256"])
    return expected


__all__ = ["Producers", "SweepTally", "read_expected"]
