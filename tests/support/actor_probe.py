"""An actor that the test plays by hand: it hands out an address and lets the test take and answer what arrives."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import anyio

from conveyor.actors import ActorRef, ActorState, ActorStatistics, Mailbox, Pending

M = TypeVar("M")
T = TypeVar("T")


class ActorProbe(Generic[M]):
    """The other side of an `ActorRef`, without a task of its own.

    Give `probe.ref` to the code under test, then `await probe.expect(SomeCommand)` and answer what comes.
    """

    def __init__(self, name: str = "probe", *, capacity: int = 64) -> None:
        self._name = name
        self._mailbox: Mailbox[M] = Mailbox(capacity=capacity, owner=name)
        self.ref: ActorRef[M] = ActorRef(name, self._mailbox, self._statistics)

    async def receive(self, *, within_s: float = 60.0) -> Pending[M]:
        """Return the next message; fails the test when none comes within `within_s` seconds."""
        with anyio.move_on_after(within_s):
            while not self._mailbox.has_messages:
                await self._mailbox.wait_arrival()
        pending = self._mailbox.take()
        assert pending is not None, f"probe {self._name!r} got no message within {within_s:g} s"
        return pending

    async def expect(self, kind: type[T], *, within_s: float = 60.0) -> Pending[T]:
        """Return the next message, which must be of the class `kind`."""
        pending: Pending[Any] = await self.receive(within_s=within_s)
        assert isinstance(pending.message, kind), f"expected {kind.__name__}, got {pending.message!r}"
        return pending

    async def expect_silence(self, *, for_s: float) -> None:
        """Fail the test when a message comes within `for_s` seconds."""
        with anyio.move_on_after(for_s):
            await self._mailbox.wait_arrival()
        pending = self._mailbox.take()
        if pending is not None:
            raise AssertionError(f"probe {self._name!r} expected silence, got {pending.message!r}")

    def stop(self) -> None:
        """Behave like an actor that has stopped for good: waiting asks get ActorStopped."""
        self._mailbox.close()

    def _statistics(self) -> ActorStatistics:
        state = ActorState.STOPPED if self._mailbox.is_closed else ActorState.RUNNING
        return ActorStatistics(self._name, state, 0, 0, 0, 0, 0, self._mailbox.statistics())
