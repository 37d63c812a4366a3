"""Wakes the repositories that have work: handed over here, left at the start, or put into the store by others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from .behaviour import ActorContext, Behaviour
from .errors import ActorStopped, SupervisorStopped
from .port_errors import StoreError
from .ports import Store
from .stop_gate import SettlementBoard, StopGate
from .store_operations import ListOpenRepositories


class WorkBoard:
    """The repositories that have work and no live actor yet.

    A set: each name once, however many hand-overs came. Adding never waits.
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._arrived = anyio.Event()

    def add(self, repository: str) -> None:
        """A repository has work."""
        self._names[repository] = None
        self._arrived.set()

    async def take(self) -> str:
        """Wait for a repository with work, and take its name off the board."""
        while not self._names:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        name = next(iter(self._names))
        del self._names[name]
        return name


class WorkWatch(Behaviour[None]):
    """Starts the actors of repositories with work.

    It looks at the store's change mark now and then; only when another process wrote does it read anything.

    Args:
        store: the store.
        gate: nothing is started once it has closed.
        settlements: waiters are woken after a foreign change.
        work: where repositories of this process's own hand-overs come in.
        start: wakes the actor of a repository, starting it on first use; it may wait for the start, never for a busy
            actor, which would hold up all other repositories.
        probe_every_s: how often the mark is looked at.
    """

    def __init__(
        self,
        *,
        store: Store,
        gate: StopGate,
        settlements: SettlementBoard,
        work: WorkBoard,
        start: Callable[[str], Awaitable[None]],
        probe_every_s: float,
    ) -> None:
        self._store = store
        self._gate = gate
        self._settlements = settlements
        self._work = work
        self._start = start
        self._probe_every_s = probe_every_s
        self._owes_look = True

    async def setup(self, context: ActorContext[None]) -> None:
        """Be ready at once; open work is looked for right after."""
        self._context = context
        context.start_task(self._start_all, name="start repositories")
        context.wake_at(anyio.current_time())

    async def handle(self, message: None) -> None:
        """It takes no messages."""

    async def wake(self) -> None:
        """Put the repositories with open work on the board, at the start and when another process changed the store."""
        self._context.wake_at(anyio.current_time() + self._probe_every_s)
        try:
            # The mark tells of a change once: a look that then fails stays owed.
            self._owes_look = await self._store.has_foreign_changes() or self._owes_look
            if not self._owes_look:
                return
            repositories = await self._store.query(ListOpenRepositories())
        except StoreError:
            # A busy or damaged store is met by whoever needs it; the next probe looks again.
            return
        self._owes_look = False
        self._settlements.settled_somewhere()
        for repository in repositories:
            self._work.add(repository)

    async def _start_all(self) -> None:
        while True:
            repository = await self._work.take()
            if self._gate.is_stopping:
                continue
            try:
                await self._start(repository)
            except (ActorStopped, SupervisorStopped):
                # It is being stopped at this moment; whoever comes next finds its work in the store.
                continue


__all__ = ["WorkBoard", "WorkWatch"]
