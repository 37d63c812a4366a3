"""The whole sweep: start, produce, deliver, stop, read back, judge."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import anyio
import anyio.to_thread

from ...protocol.errors import ConveyorError
from ..adapters.assembly import open_adapters
from ..adapters.hub_credentials import HubCredentials
from ..app import Conveyor, open_conveyor
from ..settings import Settings
from ..status import Status
from .hub_process import local_hub_process
from .plan import SweepPlan
from .producers import Producers, SweepTally
from .report import SweepReport, count_requests, figures_of_log, is_verified, percentile
from .verify import Verification, verify

LOCAL_TOKEN = "hf_local"  # noqa: S105 - the local Hub takes any token of this form
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """How far a sweep is."""

    stage: str
    """`produce`, `deliver`, `stop` or `verify`."""
    tally: SweepTally
    status: Status | None = None
    verified_files: int = 0
    elapsed_s: float = 0.0


class NoWriteAccess(ConveyorError):
    """The Hub would take nothing; nothing was handed over."""

    code: ClassVar[str] = "NO_WRITE_ACCESS"


OnProgress = Callable[[SweepProgress], None]


@dataclass(slots=True)
class Sweep:
    """One sweep in a directory of its own.

    Args:
        plan: what is produced, and for which repositories.
        settings: how the runtime runs; its store is placed in the directory.
        directory: where the store, the producers' files and the local Hub are.
        is_local: whether to start the local Hub; else the settings' endpoint and the user's credential are used.
        deliver_within_s: how long the delivery may take after the last hand-over.
    """

    plan: SweepPlan
    settings: Settings
    directory: Path
    is_local: bool = True
    deliver_within_s: float = 600.0

    @property
    def hub_root(self) -> Path:
        """Where the local Hub keeps its repositories."""
        return self.directory / "hub"

    @property
    def store_path(self) -> Path:
        """The runtime's store."""
        return self.directory / "store" / "store.db"

    async def run(self, on_progress: OnProgress) -> SweepReport:
        """Run it to its verdict.

        Raises:
            ConveyorError: the store, the local Hub or a setting cannot be used; or there is no write access.
        """
        await anyio.to_thread.run_sync(lambda: self.directory.mkdir(parents=True, exist_ok=True))
        async with self._endpoint() as endpoint:
            settings = replace(self.settings, endpoint=endpoint, store_path=self.store_path)
            credentials = HubCredentials(environ={"HF_TOKEN": LOCAL_TOKEN}) if self.is_local else HubCredentials()
            tally = SweepTally()
            began = anyio.current_time()
            async with (
                open_adapters(settings, credentials) as adapters,
                open_conveyor(settings, adapters=adapters) as conveyor,
            ):

                def tell(status: Status) -> None:
                    stage = "produce" if tally.jobs_done < self.plan.jobs else "deliver"
                    on_progress(SweepProgress(stage, tally, status, elapsed_s=anyio.current_time() - began))

                if not self.is_local:
                    await self._check_access(conveyor)
                producers = Producers(self.plan, conveyor, self.directory, tally)
                await self._watched(conveyor, tell, producers.run)
                produced = anyio.current_time()
                await self._watched(conveyor, tell, lambda: conveyor.drain(within_s=self.deliver_within_s))
                on_progress(SweepProgress("stop", tally, elapsed_s=anyio.current_time() - began))
                shutdown = await conveyor.aclose()
            delivered = anyio.current_time()
            verification = await self._read_back(endpoint, await credentials.find(), tally, on_progress)
        figures = figures_of_log(self.hub_root, settings.commit_spacing_s, shutdown.commits) if self.is_local else ()
        left = sum(row.files + row.entries + row.bundles for row in shutdown.left_over)
        return SweepReport(
            verified=is_verified(verification, figures, settings.commit_spacing_s) and not left and not tally.refused,
            jobs=self.plan.jobs,
            hand_overs=tally.hand_overs,
            unavailable=tally.unavailable,
            refused=tuple(tally.refused),
            p50_s=percentile(tally.latencies_s, 50),
            p95_s=percentile(tally.latencies_s, 95),
            max_s=max(tally.latencies_s, default=0.0),
            repositories=figures,
            requests=count_requests(self.hub_root) if self.is_local else None,
            handed_bytes=tally.handed_bytes,
            files_read_back=verification.files,
            bytes_read_back=verification.size_bytes,
            missing=verification.missing,
            different=verification.different,
            left_over=left,
            produce_s=produced - began,
            deliver_s=delivered - began,
            verify_s=anyio.current_time() - delivered,
            directory=str(self.directory),
        )

    async def _check_access(self, conveyor: Conveyor) -> None:
        for repository in self.plan.repositories:
            access = await conveyor.check_write_access(repository)
            if access.credential == "missing":
                raise NoWriteAccess("a sweep on the Hub needs a token: set HF_TOKEN or run `hf auth login`")
            if not access.can_write:
                why = f" ({access.error_type})" if access.error_type else ""
                raise NoWriteAccess(
                    f"the token may not write to {repository}, or there is no such dataset repository{why}; "
                    "create it, or use a token with write rights"
                )

    async def _read_back(
        self, endpoint: str, token: str | None, tally: SweepTally, on_progress: OnProgress
    ) -> Verification:
        """Read everything back in threads, telling the progress twice a second."""
        began = anyio.current_time()
        read: list[None] = []  # appending is one step for every thread

        async def watch() -> None:
            while True:
                progress = SweepProgress("verify", tally, verified_files=len(read))
                on_progress(replace(progress, elapsed_s=anyio.current_time() - began))
                await anyio.sleep(PROGRESS_EVERY_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            verification = await anyio.to_thread.run_sync(
                lambda: verify(
                    tally.expected,
                    endpoint=endpoint,
                    token=token,
                    cache=self.directory / "read-back",
                    on_file=lambda: read.append(None),
                )
            )
            tasks.cancel_scope.cancel("everything is read back")
        on_progress(SweepProgress("verify", tally, verified_files=len(read)))
        return verification

    @asynccontextmanager
    async def _endpoint(self) -> AsyncIterator[str]:
        if not self.is_local:
            yield self.settings.endpoint
            return
        # Nothing that the reading client fetches may come from, or go to, the user's own cache.
        os.environ["HF_HUB_DISABLE_XET"] = "1"
        async with local_hub_process(self.hub_root, repositories=self.plan.repositories) as endpoint:
            yield endpoint

    async def _watched(
        self, conveyor: Conveyor, tell: Callable[[Status], None], work: Callable[[], Awaitable[object]]
    ) -> None:
        """Run one stage, telling the progress twice a second."""

        async def watch() -> None:
            while True:
                tell(await conveyor.status())
                await anyio.sleep(PROGRESS_EVERY_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await work()
            tasks.cancel_scope.cancel("the stage is done")


__all__ = ["LOCAL_TOKEN", "NoWriteAccess", "Sweep", "SweepProgress"]
