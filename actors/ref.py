"""The address of an actor: the only way to reach one from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import anyio

from .errors import AskTimeout
from .mailbox import Mailbox, Pending
from .statistics import ActorStatistics

M_contra = TypeVar("M_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Command(Generic[R_co]):
    """A message that has an answer of type R: derive from `Command[R]`, so that `ask` knows what it returns.

    Messages that are only told need no base class.
    """

    __slots__ = ()


class ActorRef(Generic[M_contra]):
    """The address of an actor. It stays valid over restarts; when the actor has stopped for good it says so."""

    __slots__ = ("_mailbox", "_statistics", "name")

    def __init__(self, name: str, mailbox: Mailbox[Any], statistics: Callable[[], ActorStatistics]) -> None:
        self.name = name
        self._mailbox = mailbox
        self._statistics = statistics

    async def tell(self, message: M_contra) -> None:
        """Send a message, waiting for room in the mailbox (backpressure).

        Returns once the message lies in the mailbox, before it is handled. Cancelled, it has sent nothing.
        Raises ActorStopped when the actor has stopped for good or stops during the wait.
        """
        await self._mailbox.put(Pending(message))

    def tell_nowait(self, message: M_contra) -> None:
        """Send a message now or not at all.

        Raises anyio.WouldBlock when the mailbox is full or others wait for room, ActorStopped when the actor is gone.
        """
        self._mailbox.put_nowait(Pending(message))

    async def ask(self, command: Command[R], *, within_s: float) -> R:
        """Send a command and wait for its answer, `within_s` seconds in all (waiting for room included).

        Raises AskTimeout when the time is over, ActorStopped when the actor stopped for good before it began the
        command, ActorCrashed when it ended while working on it, or the error that the behaviour answered with.
        Cancelled or timed out, a command that was not begun is taken back; one that was begun goes on, unanswered.
        """
        pending: Pending[Command[R]] = Pending(command, is_ask=True)
        begun = False
        with anyio.move_on_after(within_s):
            try:
                await self._mailbox.put(pending)
                await pending.wait_answered()
            finally:
                begun = pending.begun
                if begun and not pending.is_answered:
                    pending.abandon()
                elif not pending.is_answered:
                    self._mailbox.withdraw(pending)
        if pending.is_answered:
            return cast(R, pending.outcome())
        raise AskTimeout(self.name, within_s, begun=begun)

    def hold(self) -> None:
        """Keep the actor from passivating until `release` is called as often; it may still stop for other reasons."""
        self._mailbox.hold()

    def release(self) -> None:
        """Undo one `hold`."""
        self._mailbox.release()

    async def wait_stopped(self) -> None:
        """Wait until the actor has stopped for good; cancellation leaves everything as it is."""
        await self._mailbox.wait_closed()

    def statistics(self) -> ActorStatistics:
        """Return one look at the actor; call it inside the event loop that the actor runs in."""
        return self._statistics()

    def __repr__(self) -> str:
        return f"<ActorRef {self.name!r}>"


__all__ = ["ActorRef", "Command"]
