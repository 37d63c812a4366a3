"""One life of an actor: from the making of its behaviour to the end of its tasks, and its last words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from .behaviour import ActorContext, BatchBehaviour, Behaviour, ExitReason, TaskHandle
from .child_spec import ChildSpec, RestartPolicy
from .errors import ActorCrashed, Answer, ReplyError, TaskLimitReached, UnansweredMessages
from .mailbox import Mailbox, Pending
from .ref import ActorRef

M = TypeVar("M")

_MESSAGES_WITHOUT_YIELD = 32
"""A behaviour that never waits is made to let other tasks run after this many messages."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a life ended."""

    reason: ExitReason
    error: Exception | None = None
    overran: bool = False
    was_ready: bool = True
    """Whether `setup` had returned."""
    passivated: bool = False


@dataclass(slots=True)
class Tally:
    """What an actor has done over all its lives."""

    handled: int = 0
    refused: int = 0
    crashed: int = 0
    restarts: int = 0


class Incarnation(Generic[M]):
    """One life. It runs shielded in the task of its child: only `request_stop`, `kill` and its own errors end it."""

    def __init__(
        self,
        spec: ChildSpec[M],
        mailbox: Mailbox[M],
        ref: ActorRef[M],
        tally: Tally,
        on_ready: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._mailbox = mailbox
        self._ref = ref
        self._tally = tally
        self._on_ready = on_ready
        self._scope = anyio.CancelScope(shield=True)
        self._behaviour: Behaviour[M] | None = None
        self._owned: TaskGroup | None = None
        self._tasks: set[TaskHandle] = set()
        self._answers: tuple[type[Exception], ...] = (ReplyError,)
        self._in_hand: Sequence[Pending[M]] = ()
        self._deferred: list[Pending[M]] = []
        self._error: Exception | None = None
        self._wake_at: float | None = None
        self._passivating = False
        self._passivated = False
        self._stop_reason: ExitReason | None = None
        self._terminate_limit_s = spec.shutdown_s
        self._killed = False
        self._ready = False

    # Asked by the supervisor

    def request_stop(self, reason: ExitReason, limit_s: float) -> None:
        """End after the message in hand; what is still going on after `limit_s` seconds is cancelled."""
        self._stop_reason = reason
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + limit_s)
        self._terminate_limit_s = min(self._terminate_limit_s, limit_s)
        self._mailbox.poke()

    def kill(self) -> None:
        """Cancel the message in hand and the tasks now; `terminate` still follows, with its limit."""
        self._killed = True
        self._scope.cancel()

    # Asked by the behaviour, through its context

    def set_wake(self, deadline: float | None) -> None:
        """Set or drop the time of the next wake."""
        self._wake_at = deadline
        self._mailbox.poke()

    def passivate(self) -> None:
        """End once the mailbox is empty, unless a message comes first."""
        if self._spec.restart is RestartPolicy.PERMANENT:
            raise RuntimeError(
                f"actor {self._spec.name!r} is PERMANENT and would be restarted at once: "
                "give its child spec RestartPolicy.TRANSIENT to let it passivate"
            )
        self._passivating = True
        self._mailbox.poke()

    def stop(self, reason: ExitReason) -> None:
        """End after the message in hand."""
        if reason not in (ExitReason.NORMAL, ExitReason.SHUTDOWN):
            raise ValueError(
                f"an actor stops itself with NORMAL or SHUTDOWN, not {reason.name}: raise an error to fail"
            )
        if self._stop_reason is None:
            self._stop_reason = reason
        self._mailbox.poke()

    def start_task(self, func: Callable[..., Awaitable[object]], args: tuple[Any, ...], name: str) -> TaskHandle:
        """Start a task owned by this life."""
        if self._owned is None:
            raise RuntimeError(f"this life of actor {self._spec.name!r} is over: start tasks in setup, handle or wake")
        if len(self._tasks) >= self._spec.max_tasks:
            raise TaskLimitReached(self._spec.name, self._spec.max_tasks)
        handle = TaskHandle(name)
        self._tasks.add(handle)
        self._owned.start_soon(self._run_task, handle, func, args, name=f"{self._spec.name}: {name}")
        return handle

    @property
    def running_tasks(self) -> int:
        """How many tasks this life owns now."""
        return len(self._tasks)

    # The life itself

    async def run(self) -> Ending:
        """Live until something ends this life, then answer what was in hand; `terminate` is left to `say_last_words`.

        Cancelled from outside through the event loop's own means (an asyncio task can be), the life ends KILLED.
        """
        completed = False
        try:
            with self._scope:
                async with anyio.create_task_group() as owned:
                    self._owned = owned
                    try:
                        await self._live()
                        completed = True
                    except Exception as error:
                        self._fail(error)
                    finally:
                        self._owned = None
                        owned.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            # Every enclosing scope is shielded off, so this cancellation was aimed at the task of this actor alone: its
            # end is reported and the supervisor decides, as for any other end (N-RUN-08).
            self._killed = True
            completed = False
        finally:
            self._answer_in_hand()
        if self._error is not None:
            return Ending(ExitReason.FAILED, self._error, was_ready=self._ready)
        if not completed:
            overran = not self._killed and self._stop_reason is not None
            return Ending(ExitReason.KILLED, overran=overran, was_ready=self._ready)
        return Ending(self._stop_reason or ExitReason.NORMAL, passivated=self._passivated)

    async def say_last_words(self, ending: Ending) -> Ending:
        """Call `terminate`, shielded and with a limit of its own; returns the ending, a worse one if it went wrong."""
        behaviour, self._behaviour = self._behaviour, None
        if behaviour is None or not ending.was_ready:
            return ending
        completed = False
        try:
            with anyio.move_on_after(self._terminate_limit_s, shield=True):
                await behaviour.terminate(ending.reason)
                completed = True
        except Exception as error:
            return Ending(ExitReason.FAILED, error)
        except anyio.get_cancelled_exc_class():
            return Ending(ExitReason.KILLED)  # aimed at this task alone, as in run()
        return ending if completed else Ending(ExitReason.KILLED, overran=True)

    async def _live(self) -> None:
        spec = self._spec
        behaviour = self._behaviour = spec.behaviour()
        self._answers = (ReplyError, *behaviour.answers)
        await behaviour.setup(ActorContext(spec.name, self._ref, self))
        self._ready = True
        self._on_ready()
        deliver = self._deliver_batch if isinstance(behaviour, BatchBehaviour) else self._deliver_one
        mailbox = self._mailbox
        without_yield = 0
        while self._stop_reason is None:
            if self._wake_at is not None and self._wake_at <= anyio.current_time():
                self._wake_at = None
                await behaviour.wake()
                without_yield += 1
            elif mailbox.has_messages:
                self._passivating = False
                await deliver(behaviour)
                without_yield += 1
            elif self._passivating and mailbox.is_quiet:
                self._passivated = True
                return
            else:
                await self._wait()
                without_yield = 0
            if without_yield >= _MESSAGES_WITHOUT_YIELD:
                await checkpoint()
                without_yield = 0

    async def _wait(self) -> None:
        if self._wake_at is None:
            await self._mailbox.wait_arrival()
        else:
            with anyio.CancelScope(deadline=self._wake_at):
                await self._mailbox.wait_arrival()

    async def _deliver_one(self, behaviour: Behaviour[M]) -> None:
        pending = self._mailbox.take()
        if pending is None:
            return
        self._in_hand = (pending,)
        try:
            value = await behaviour.handle(pending.message)
        except Answer as answer:
            self._tally.refused += 1
            pending.refuse(answer.error)
        except self._answers as error:
            self._tally.refused += 1
            pending.refuse(error)
        else:
            pending.answer(value)
        self._tally.handled += 1
        self._in_hand = ()

    async def _deliver_batch(self, behaviour: Behaviour[M]) -> None:
        assert isinstance(behaviour, BatchBehaviour)
        batch = self._mailbox.take_up_to(behaviour.max_batch)
        self._in_hand = batch
        await behaviour.handle_batch(batch)
        unanswered = sum(pending.is_ask and not (pending.is_answered or pending.is_deferred) for pending in batch)
        if unanswered:
            raise UnansweredMessages(self._spec.name, unanswered)
        owed = [pending for pending in (*self._deferred, *batch) if _is_owed(pending)]
        if len(owed) > self._spec.max_tasks:
            raise TaskLimitReached(self._spec.name, self._spec.max_tasks)
        self._deferred = owed
        self._tally.handled += len(batch)
        self._tally.refused += sum(pending.is_refused for pending in batch)
        self._in_hand = ()

    async def _run_task(
        self, handle: TaskHandle, func: Callable[..., Awaitable[object]], args: tuple[Any, ...]
    ) -> None:
        try:
            await handle.run(func, *args)
        except Exception as error:
            self._fail(error)
        finally:
            self._tasks.discard(handle)

    def _fail(self, error: Exception) -> None:
        """Let this life end with `error`; the first one counts, later ones are its consequences."""
        if self._error is None:
            self._error = error
        if self._owned is not None:
            self._owned.cancel_scope.cancel()

    def _answer_in_hand(self) -> None:
        for pending in (*self._in_hand, *(pending for pending in self._deferred if _is_owed(pending))):
            self._tally.crashed += 1
            if not pending.is_answered:
                pending.refuse(ActorCrashed(self._spec.name, self._error))
        self._in_hand = ()
        self._deferred = []


def _is_owed(pending: Pending[Any]) -> bool:
    """Whether an answer was promised for later and has not been given."""
    return pending.is_deferred and not pending.is_answered


__all__ = ["Ending", "Incarnation", "Tally"]
