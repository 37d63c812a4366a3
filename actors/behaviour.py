"""What an actor does: the class its author writes, and what the kernel lends to it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, TypeVarTuple, Unpack

import anyio

from .mailbox import Pending
from .ref import ActorRef

M = TypeVar("M")
Ts = TypeVarTuple("Ts")


class ExitReason(enum.Enum):
    """Why a life of an actor ended (Erlang/OTP's words)."""

    NORMAL = "normal"
    """It had done its work, or passivated."""
    SHUTDOWN = "shutdown"
    """It was asked to stop and did so in time."""
    KILLED = "killed"
    """It was cancelled: it overran its shutdown limit, the host was cancelled, or its task was, from outside."""
    FAILED = "failed"
    """An unexpected error."""


class TaskHandle:
    """A task that an actor owns. It ends with the life of its actor at the latest."""

    __slots__ = ("_finished", "_scope", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._scope = anyio.CancelScope()
        self._finished = anyio.Event()

    @property
    def is_running(self) -> bool:
        """Whether the task has not ended; a cancelled task runs until its clean-up is done."""
        return not self._finished.is_set()

    def cancel(self) -> None:
        """Ask the task to end; returns at once and does no harm when it has ended."""
        self._scope.cancel()

    async def wait_finished(self) -> None:
        """Wait until the task has ended in any way; cancelling the wait leaves the task alone."""
        await self._finished.wait()

    async def run(self, func: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts) -> None:
        """Run the task to its end; the kernel calls this once."""
        try:
            with self._scope:
                await func(*args)
        finally:
            self._finished.set()


class Life(Protocol):
    """What one life of an actor lets its behaviour do; `ActorContext` passes everything on to it."""

    def set_wake(self, deadline: float | None) -> None:
        """Set or drop the time of the next wake."""

    def start_task(self, func: Callable[..., Awaitable[object]], args: tuple[Any, ...], name: str) -> TaskHandle:
        """Start a task owned by this life."""

    def passivate(self) -> None:
        """End once the mailbox is empty."""

    def stop(self, reason: ExitReason) -> None:
        """End after the message in hand."""


class ActorContext(Generic[M]):
    """What an actor knows about itself and may ask of the kernel. Each life has its own; it is dead after that life."""

    __slots__ = ("_life", "name", "ref")

    def __init__(self, name: str, ref: ActorRef[M], life: Life) -> None:
        self.name = name
        self.ref = ref
        self._life = life

    def wake_at(self, deadline: float | None) -> None:
        """Have `wake` called at `deadline`, in seconds on the scale of `anyio.current_time()`.

        It replaces the deadline set before; None drops it. A deadline in the past wakes before the next message. The
        deadline is spent when `wake` is called: set the next one there.
        """
        self._life.set_wake(deadline)

    def start_task(
        self, func: Callable[[Unpack[Ts]], Awaitable[object]], *args: *Ts, name: str | None = None
    ) -> TaskHandle:
        """Start a task that this life owns and return at once.

        Bound: `max_tasks` of the child spec; raises TaskLimitReached beyond it. An error in the task crashes the actor.
        When the life ends, for any reason, its tasks are cancelled and waited for before `terminate` is called.
        Raises RuntimeError once the life is over.
        """
        return self._life.start_task(func, args, name or str(getattr(func, "__qualname__", repr(func))))

    def passivate(self) -> None:
        """Ask to end normally when the mailbox is empty; a message that comes first cancels the request.

        Owned tasks are cancelled then and a wake that was set is dropped. A message that arrives while the actor is in
        `terminate` is not lost: the actor starts again and handles it. Raises RuntimeError for a PERMANENT actor,
        which would be restarted at once.
        """
        self._life.passivate()

    def stop(self, reason: ExitReason = ExitReason.NORMAL) -> None:
        """Ask to end after the message in hand, however full the mailbox; the restart policy decides what follows."""
        self._life.stop(reason)


class Behaviour(ABC, Generic[M]):
    """The code and state of one actor: subclass it and implement `handle`. Each life gets a new instance.

    All methods of one instance run one after another, never at the same time; only tasks started with
    `context.start_task` run beside them.
    """

    answers: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors besides ReplyError that are answers: raised by `handle`, they go to the asker and the actor lives on."""

    async def setup(self, context: ActorContext[M]) -> None:
        """Get ready; the start returns when this does.

        An error is a failed start: the starter gets it, and `terminate` is not called, so undo what was half done.
        """

    @abstractmethod
    async def handle(self, message: M) -> object:
        """Handle one message; the value answers an ask.

        Validation is an answer: raise a ReplyError, a type listed in `answers`, or `Answer(error)`. Any other error is
        a crash: the asker gets ActorCrashed, the rest of the mailbox waits for the next life.
        """

    async def wake(self) -> None:
        """Do what was due; called when the time set by `context.wake_at` has come, before further messages."""

    async def terminate(self, reason: ExitReason) -> None:
        """Clean up; the last call of a life whose `setup` returned, with its tasks already ended.

        Shielded from cancellation and cancelled itself after the child's `shutdown_s` seconds.
        """


class BatchBehaviour(Behaviour[M]):
    """A behaviour that takes several waiting messages at once: implement `handle_batch` in place of `handle`."""

    max_batch: int = 64
    """At most this many messages come in one batch; the others wait in the mailbox."""

    @abstractmethod
    async def handle_batch(self, messages: Sequence[Pending[M]]) -> None:
        """Handle 1 to `max_batch` messages, oldest first, and answer, refuse or defer each ask before returning.

        An error is a crash: every unanswered ask of the batch gets ActorCrashed, answers already given stand.
        """

    async def handle(self, message: M) -> object:
        """Handle one message as a batch of one; raises the error it was refused with."""
        pending = Pending(message)
        await self.handle_batch([pending])
        return pending.outcome()


__all__ = ["ActorContext", "BatchBehaviour", "Behaviour", "ExitReason", "Life", "TaskHandle"]
