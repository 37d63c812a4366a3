"""The tree of actors of one runtime: which there are, in which order they start and stop, and what they share."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import anyio

from ..actors.behaviour import ExitReason
from ..actors.byte_budget import ByteBudget
from ..actors.child_spec import ActorExit, ChildSpec, RestartPolicy
from ..actors.delivery_world import DeliveryLimits, DeliveryWorld
from ..actors.errors import ActorStopped
from ..actors.hashing_pool import HashingPool
from ..actors.intake import INTAKE_CONCURRENT, HandOver, Intake
from ..actors.intensity import RestartIntensity
from ..actors.ledger import LEDGER_CAPACITY, Ledger, LedgerRef
from ..actors.ref import ActorRef
from ..actors.registry import Registry
from ..actors.repository import FinalCommit, FinalCommitDone, RepositoryActor, RepositoryMessage, WorkArrived
from ..actors.shutdown import DeliveryShutdown, ShutdownReport
from ..actors.statistics import ActorStatistics
from ..actors.stop_gate import InFlight, SettlementBoard, StopGate
from ..actors.supervisor import Supervisor, open_supervisor
from ..actors.warnings import WarnOnce
from ..actors.work_watch import WorkBoard, WorkWatch
from ..protocol.schedule import Backoff
from .adapters.assembly import Adapters, commit_pace
from .settings import Settings
from .upkeep import Upkeep

REPOSITORY_STOP_S = 1.0
"""What a RepositoryActor gets to end its message in hand when it is stopped, and again to release its lease."""


class ActorTree:
    """The actors of one runtime, as an async context manager.

    They start in this order and stop in the reverse one: Ledger and HashingPool; the RepositoryActors, on demand;
    Intake, WorkWatch and Upkeep.

    Args:
        adapters: the ports.
        settings: limits and paces.
        work: where hand-overs put repositories that have no live actor.
        board: where those who wait for a delivery are woken.
    """

    def __init__(self, adapters: Adapters, settings: Settings, work: WorkBoard, board: SettlementBoard) -> None:
        self.store = adapters.store
        self.hub = adapters.hub
        self.clock = adapters.clock
        self.gate = StopGate()
        self.board = board
        self.has_failed = False
        """An actor ended for good that should not have: its supervisor stops, and everything with it."""
        self._files = adapters.files
        self._settings = settings
        self._work = work
        self._jitter = adapters.jitter or random.random
        self._taking = InFlight()
        self._in_flight = InFlight()
        self._stack = AsyncExitStack()
        self._supervisors: list[Supervisor] = []

    async def __aenter__(self) -> ActorTree:
        """Start the actors; returns when all are ready."""
        core = await self._open(
            "core",
            [
                ChildSpec("ledger", lambda: Ledger(self.store), mailbox_capacity=LEDGER_CAPACITY),
                ChildSpec(
                    "hashing-pool",
                    lambda: HashingPool(self._files, workers=self._settings.hash_threads),
                    max_tasks=self._settings.hash_threads + 1,
                    shutdown_s=1.0,  # hashing changes nothing: it is only cut off
                ),
            ],
        )
        self.ledger = LedgerRef(core.ref("ledger"))
        self.world = self._make_world(core)
        self._repositories = await self._open("repositories", [], RestartIntensity(max_restarts=20, period_s=60.0))
        self.registry: Registry[str, RepositoryMessage] = Registry(self._repositories, self._repository_spec)
        edge = await self._open(
            "edge",
            [
                ChildSpec(
                    "intake",
                    self._make_intake,
                    mailbox_capacity=self._settings.intake_capacity,
                    max_tasks=2 * INTAKE_CONCURRENT,
                ),
                ChildSpec("work-watch", self._make_watch),
                ChildSpec("upkeep", lambda: Upkeep(self.ledger, self.clock, self._settings.retention_s)),
            ],
        )
        self.intake: ActorRef[HandOver] = edge.ref("intake")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Stop the actors in reverse order."""
        return await self._stack.__aexit__(exc_type, exc, traceback)

    def nudge(self, repository: str) -> None:
        """Tell a repository's actor that it may have work, starting it if there is none; never waits."""
        live = self.registry.live(repository)
        if live is not None:
            try:
                live.tell_nowait(WorkArrived())
            except anyio.WouldBlock:
                return  # its mailbox is full of the same news
            except ActorStopped:
                pass
            else:
                return
        self._work.add(repository)

    def actor_statistics(self) -> tuple[ActorStatistics, ...]:
        """One look at every live actor."""
        return tuple(child for supervisor in self._supervisors for child in supervisor.statistics().children)

    async def shutdown(self, *, within_s: float) -> ShutdownReport:
        """Take the deliveries through their phases, up to the released leases."""
        return await DeliveryShutdown(
            store=self.store,
            gate=self.gate,
            in_flight=self._in_flight,
            drain_intake=self._taking.wait_none,
            ask=self._ask_final_commit,
            stop_actors=self._stop_repositories,
        ).run(within_s=within_s)

    async def stop_at_once(self) -> None:
        """Begin the stop and give all leases back, without any further commit."""
        self.gate.begin()
        await self._stop_repositories(REPOSITORY_STOP_S / 2)

    async def _ask_final_commit(self, repository: str, command: FinalCommit, within_s: float) -> FinalCommitDone:
        return await self.registry.ask(repository, command, within_s=within_s)

    async def _stop_repositories(self, within_s: float) -> Iterable[str]:
        """End all RepositoryActors at once; answers the repositories under which a thread still runs."""
        names = [child.name for child in self._repositories.statistics().children]
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(self._stop_repository, name, within_s)
        repositories = [name.removeprefix(_REPOSITORY_PREFIX) for name in names]
        return [repository for repository in repositories if self.hub.unfinished_threads(repository)]

    async def _stop_repository(self, name: str, within_s: float) -> None:
        await self._repositories.stop_child(name, ExitReason.SHUTDOWN, within_s=within_s)

    async def _open(
        self, name: str, specs: list[ChildSpec[Any]], intensity: RestartIntensity | None = None
    ) -> Supervisor:
        supervisor = await self._stack.enter_async_context(
            open_supervisor(specs, name=name, intensity=intensity, on_exit=self._note_exit)
        )
        self._supervisors.append(supervisor)
        return supervisor

    def _note_exit(self, ended: ActorExit) -> None:
        if ended.is_unexpected and not ended.restarts:
            self.has_failed = True

    def _repository_spec(self, repository: str) -> ChildSpec[RepositoryMessage]:
        return ChildSpec(
            f"{_REPOSITORY_PREFIX}{repository}",
            lambda: RepositoryActor(repository, self.world),
            restart=RestartPolicy.TRANSIENT,
            shutdown_s=REPOSITORY_STOP_S,
        )

    def _make_world(self, core: Supervisor) -> DeliveryWorld:
        settings = self._settings
        return DeliveryWorld(
            owner=secrets.token_hex(16),
            store=self.store,
            ledger=self.ledger,
            hub=self.hub,
            files=self._files,
            hashing=core.ref("hashing-pool"),
            clock=self.clock,
            gate=self.gate,
            board=self.board,
            in_flight=self._in_flight,
            warn=WarnOnce(),
            jitter=self._jitter,
            pace=commit_pace(settings),
            backoff=Backoff(settings.backoff_first_s, settings.backoff_max_s),
            limits=DeliveryLimits(
                lease_s=settings.lease_s,
                renew_every_s=settings.lease_renew_s,
                idle_s=settings.idle_s,
                max_operations=settings.commit_max_operations,
                max_inline_bytes=settings.commit_max_bytes,
            ),
        )

    def _make_intake(self) -> Intake:
        return Intake(
            store=self.store,
            ledger=self.ledger,
            files=self._files,
            clock=self.clock,
            gate=self.gate,
            memory=ByteBudget(self._settings.intake_memory_bytes),
            endpoint=self._settings.endpoint,
            interval_s=self._settings.commit_interval_s,
            taking=self._taking,
            on_recorded=self.nudge,
        )

    def _make_watch(self) -> WorkWatch:
        return WorkWatch(
            store=self.store,
            gate=self.gate,
            settlements=self.board,
            work=self._work,
            start=self._start,
            probe_every_s=self._settings.probe_interval_s,
        )

    async def _start(self, repository: str) -> None:
        live = self.registry.live(repository)
        if live is not None:
            # Waiting for room in the mailbox of a busy one would hold up the start of all others.
            with contextlib.suppress(ActorStopped):
                with contextlib.suppress(anyio.WouldBlock):
                    live.tell_nowait(WorkArrived())
                return
        await self.registry.tell(repository, WorkArrived())


_REPOSITORY_PREFIX = "repository "

__all__ = ["ActorTree"]
