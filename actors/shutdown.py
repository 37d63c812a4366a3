"""The shutdown of deliveries: named phases in an exact order, each with a limit, and a report of what is left.

Source: hand-over protocol, section 6. All phases up to the second final commit share one deadline; releasing leases is
never skipped, and has a limit of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import anyio

from .errors import ActorCrashed, ActorStopped, AskTimeout, SupervisorStopped
from .port_errors import StoreError
from .ports import Store
from .repository import FinalCommit, FinalCommitDone
from .stop_gate import InFlight, StopGate
from .store_operations import ListOpenRepositories

INTAKE_SHARE: Final = 1 / 3
"""The part of the time before the deadline that hand-overs under way may take."""


class ShutdownPhase(StrEnum):
    """The steps of a shutdown, in their order."""

    CLOSE_INTAKE = "close_intake"
    """Nothing new is taken; what is being taken is finished. No new upload starts from here on."""
    FINAL_COMMIT = "final_commit"
    """Every repository with pending run files commits them, concurrently, whatever their due time and spacing."""
    UPLOADS_IN_FLIGHT = "uploads_in_flight"
    """Uploads that had passed their last check get until the deadline. A repository without any commits again what its
    final commit could not, so that none waits for the uploads of another (finding W36)."""
    SECOND_FINAL_COMMIT = "second_final_commit"
    """Once more, for each repository that still has pending run files."""
    RELEASE_LEASES = "release_leases"
    """The repositories' actors end; their leases and claims are given back, except under a thread still running."""
    CLOSE_STORE = "close_store"
    """The other actors end and the store is closed."""


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """How one phase went."""

    phase: ShutdownPhase
    took_s: float
    overran: bool
    """It was cut off by its limit."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What one repository still has: accepted, durable, not delivered."""

    repository: str
    files: int
    entries: int
    bundles: int
    size_bytes: int
    has_unknown_commit: bool


@dataclass(frozen=True, slots=True)
class ShutdownReport:
    """What a shutdown did and what it left; any later process on the store goes on with that (N-HUB-09)."""

    phases: tuple[PhaseReport, ...] = ()
    commits: tuple[str, ...] = ()
    """Ids of the final commits made."""
    left_over: tuple[LeftOver, ...] = ()
    leases_left: tuple[str, ...] = ()
    """Repositories whose lease is left to expire, because a thread that cannot be interrupted still runs."""
    unfinished_uploads: tuple[str, ...] = ()
    """Repositories whose uploads were cut off by the deadline; they are given back without counting an attempt."""
    parked: int = 0

    @property
    def is_clean(self) -> bool:
        """Everything accepted was delivered and every phase kept its limit."""
        return not (self.left_over or self.leases_left or self.unfinished_uploads or self.parked) and not any(
            phase.overran for phase in self.phases
        )


@dataclass(slots=True)
class DeliveryShutdown:
    """Takes the deliveries of one runtime through the phases up to the released leases.

    Args:
        store: to see which repositories have work.
        gate: closed first.
        in_flight: the uploads to wait for.
        drain_intake: returns when no hand-over is being taken any more.
        ask: sends a final commit to a repository's actor, starting it on first use.
        stop_actors: ends the repositories' actors, all at once, within so many seconds; answers those whose lease
            stays.
    """

    store: Store
    gate: StopGate
    in_flight: InFlight
    drain_intake: Callable[[], Awaitable[None]]
    ask: Callable[[str, FinalCommit, float], Awaitable[FinalCommitDone]]
    stop_actors: Callable[[float], Awaitable[Iterable[str]]]
    release_s: float = 2.0
    """The limit of releasing leases, after the deadline if need be."""
    phases: list[PhaseReport] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)

    async def run(self, *, within_s: float) -> ShutdownReport:
        """Carry out the phases; the first four end `within_s` seconds from now at the latest.

        Cancelling it cuts the waiting short and leaves the rest to whoever closes the store.
        """
        began = anyio.current_time()
        deadline = began + within_s
        self.gate.begin()
        # A hand-over that hangs on a file must not take the time of the final commits.
        intake_until = began + within_s * INTAKE_SHARE
        await self._phase(ShutdownPhase.CLOSE_INTAKE, intake_until, self.drain_intake)
        await self._phase(ShutdownPhase.FINAL_COMMIT, deadline, self._commit_all, deadline)
        await self._phase(ShutdownPhase.UPLOADS_IN_FLIGHT, deadline, self._wait_uploads, deadline)
        await self._phase(ShutdownPhase.SECOND_FINAL_COMMIT, deadline, self._commit_all, deadline)
        unfinished = self.in_flight.repositories
        left: list[str] = []

        async def release() -> None:
            # Each gets it twice: for the message in hand, and to give its lease back.
            left.extend(await self.stop_actors(self.release_s * 0.45))

        await self._phase(ShutdownPhase.RELEASE_LEASES, max(deadline, anyio.current_time()) + self.release_s, release)
        return ShutdownReport(
            phases=tuple(self.phases),
            commits=tuple(self.commits),
            leases_left=tuple(sorted(left)),
            unfinished_uploads=unfinished,
        )

    async def _phase(
        self, phase: ShutdownPhase, deadline: float, step: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        began = anyio.current_time()
        if began >= deadline:
            # The phases before took all the time, and say so.
            self.phases.append(PhaseReport(phase, 0.0, overran=False))
            return
        with anyio.CancelScope(deadline=deadline) as scope:
            await step(*args)
        self.phases.append(PhaseReport(phase, anyio.current_time() - began, overran=scope.cancelled_caught))

    async def _wait_uploads(self, deadline: float) -> None:
        async with anyio.create_task_group() as tasks:
            for repository in await self._open_repositories():
                tasks.start_soon(self._commit_after_uploads, repository, deadline)
            await self.in_flight.wait_none()

    async def _commit_after_uploads(self, repository: str, deadline: float) -> None:
        await self.in_flight.wait_none_of(repository)
        await self._commit_one(repository, deadline)

    async def _open_repositories(self) -> tuple[str, ...]:
        try:
            return await self.store.query(ListOpenRepositories())
        except StoreError:
            # It cannot say who has work; the phases that give things back follow all the same.
            return ()

    async def _commit_all(self, deadline: float) -> None:
        """Final commits of every repository with open work, concurrently; a slow one holds up none of the others."""
        async with anyio.create_task_group() as tasks:
            for repository in await self._open_repositories():
                tasks.start_soon(self._commit_one, repository, deadline)

    async def _commit_one(self, repository: str, deadline: float) -> None:
        within_s = max(0.0, deadline - anyio.current_time())
        try:
            done = await self.ask(repository, FinalCommit(until=deadline), within_s)
        except (ActorCrashed, ActorStopped, AskTimeout, SupervisorStopped):
            # What it could not commit is named in the report from the store's own state.
            return
        self.commits.extend(done.commit_ids)


__all__ = ["DeliveryShutdown", "LeftOver", "PhaseReport", "ShutdownPhase", "ShutdownReport"]
