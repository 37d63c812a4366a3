"""From a key to a live actor: started on first use, forgotten when it passivates or stops."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from .child_spec import ChildSpec
from .ref import ActorRef, Command
from .statistics import RegistryStatistics
from .supervisor import Supervisor

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")
R = TypeVar("R")


class _Entry(Generic[M]):
    """A key that has an actor, or is about to have one."""

    __slots__ = ("error", "ref", "settled")

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.ref: ActorRef[M] | None = None
        self.error: Exception | None = None


class Registry(Generic[K, M]):
    """The live actors of one kind, by key.

    Bound: `max_live` actors at once. Who waits: a first use beyond it, in the order they came, until another actor has
    stopped. A key without a live actor costs nothing: no task, no entry. Cancelled, a first use that was starting the
    actor undoes the start; others who waited for that start begin it themselves.
    """

    def __init__(self, supervisor: Supervisor, spec_for: Callable[[K], ChildSpec[M]], *, max_live: int = 1024) -> None:
        if max_live < 1:
            raise ValueError(f"max_live is {max_live}; a registry needs room for 1 or more live actors")
        self._supervisor = supervisor
        self._spec_for = spec_for
        self._max_live = max_live
        self._entries: dict[K, _Entry[M]] = {}
        self._waiting: OrderedDict[anyio.Event, None] = OrderedDict()
        self._granted = 0  # room given to first uses that were woken and have not run yet
        self._started = 0

    async def get(self, key: K) -> ActorRef[M]:
        """Return the address of the actor of `key`, starting it on first use; concurrent first uses start one.

        The actor may passivate before the address is used; `tell` and `ask` of the registry keep it awake. Raises the
        error of a failed start (everyone who waited for that start gets it), or SupervisorStopped.
        """
        return await self._get(key, hold=False)

    def live(self, key: K) -> ActorRef[M] | None:
        """Return the address of the actor of `key` if it is ready now; never starts one."""
        entry = self._entries.get(key)
        return None if entry is None else entry.ref

    async def tell(self, key: K, message: M) -> None:
        """Send a message to the actor of `key`, starting it when needed, waiting for room in its mailbox.

        The actor does not passivate before the message lies in its mailbox; one that is just ending so starts again.
        Raises what `get` raises, and ActorStopped when the actor is stopped meanwhile. Cancelled, it has sent nothing.
        """
        ref = await self._get(key, hold=True)
        try:
            await ref.tell(message)
        finally:
            ref.release()

    async def ask(self, key: K, command: Command[R], *, within_s: float) -> R:
        """Ask the actor of `key`, starting it when needed; the `within_s` seconds begin when it is ready.

        The actor does not passivate before the answer is here. Raises what `get` and `ActorRef.ask` raise.
        """
        ref = await self._get(key, hold=True)
        try:
            return await ref.ask(command, within_s=within_s)
        finally:
            ref.release()

    async def _get(self, key: K, *, hold: bool) -> ActorRef[M]:
        while True:
            entry = self._entries.get(key)
            if entry is None:
                if len(self._entries) + self._granted < self._max_live and not self._waiting:
                    return await self._start(key, hold=hold)
                await self._wait_room()
                if key not in self._entries:
                    return await self._start(key, hold=hold)
                self._grant_room()
            elif entry.ref is not None:
                await checkpoint()
                if self._entries.get(key) is entry:
                    if hold:
                        entry.ref.hold()
                    return entry.ref
            else:
                await entry.settled.wait()
                if entry.error is not None:
                    raise entry.error

    async def _start(self, key: K, *, hold: bool) -> ActorRef[M]:
        entry: _Entry[M] = _Entry()
        self._entries[key] = entry

        def forget() -> None:
            if self._entries.get(key) is entry:
                del self._entries[key]
                self._grant_room()

        try:
            entry.ref = await self._supervisor.start_child(self._spec_for(key), when_stopped=forget, hold=hold)
        except BaseException as error:
            if isinstance(error, Exception):
                entry.error = error
            forget()
            raise
        finally:
            entry.settled.set()
        self._started += 1
        return entry.ref

    async def _wait_room(self) -> None:
        turn = anyio.Event()
        self._waiting[turn] = None
        try:
            await turn.wait()
        except BaseException:
            if turn in self._waiting:
                del self._waiting[turn]
            else:
                self._granted -= 1
                self._grant_room()
            raise
        self._granted -= 1

    def _grant_room(self) -> None:
        while self._waiting and len(self._entries) + self._granted < self._max_live:
            turn, _ = self._waiting.popitem(last=False)
            self._granted += 1
            turn.set()

    def statistics(self) -> RegistryStatistics:
        """Return one look at the registry."""
        return RegistryStatistics(
            live=len(self._entries),
            max_live=self._max_live,
            waiting=len(self._waiting) + self._granted,
            started=self._started,
        )


__all__ = ["Registry"]
