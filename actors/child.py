"""A child as its supervisor sees it: one address and one mailbox over many lives."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from .behaviour import ExitReason
from .child_spec import ActorExit, ChildSpec
from .incarnation import Ending, Incarnation, Tally
from .mailbox import Mailbox
from .ref import ActorRef
from .statistics import ActorState, ActorStatistics

M = TypeVar("M")

_TURNS_TO_BEGIN = 3
"""A task that was started takes its first step in the next turn of the event loop; this is more than enough."""

_log = logging.getLogger("conveyor.actors")


class Next(enum.Enum):
    """What follows a life."""

    END = enum.auto()
    """Nothing: the child stops for good."""
    RESTART = enum.auto()
    """Another life, after the delay."""
    PARK = enum.auto()
    """A pause without a task; the supervisor begins the next life or stops the child."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The supervisor's decision about a child whose life has ended."""

    next: Next
    delay_s: float = 0.0


class Child(Generic[M]):
    """One child. Each of its lives is one task that the supervisor starts with `live`; between lives it may be parked.

    The events: `settled`, the present life is ready or over; `life_over`, it is over, clean-up included; `finished`,
    the child has stopped for good.
    """

    def __init__(
        self,
        spec: ChildSpec[M],
        *,
        decide: Callable[[Child[Any], Ending], Verdict],
        begin_life: Callable[[Child[Any], float], None],
        report: Callable[[ActorExit], None],
        forget: Callable[[Child[Any]], None],
    ) -> None:
        self.spec = spec
        self.mailbox: Mailbox[M] = Mailbox(capacity=spec.mailbox_capacity, owner=spec.name)
        self.ref: ActorRef[M] = ActorRef(spec.name, self.mailbox, self.statistics)
        self.state = ActorState.STARTING
        self.start_error: Exception | None = None
        self.stop_reason: ExitReason | None = None
        self.pausing = False
        self._failures_in_row = 0
        self.settled = anyio.Event()
        self.life_over = anyio.Event()
        self.finished = anyio.Event()
        self._decide = decide
        self._begin_life = begin_life
        self._report = report
        self._forget = forget
        self._tally = Tally()
        self.was_ready = False
        self._ready_at = 0.0
        self._life: Incarnation[M] | None = None
        self._begun = False
        self._stop_asked = anyio.Event()
        self._stop_limit_s = spec.shutdown_s

    # What the supervisor asks

    def begin_life(self, delay_s: float, *, is_restart: bool) -> None:
        """Have the supervisor start the task of the next life."""
        self.settled = anyio.Event()
        self.life_over = anyio.Event()
        self.pausing = False
        self._stop_asked = anyio.Event()
        self._begun = False
        if is_restart:
            self._tally.restarts += 1
        self._begin_life(self, delay_s)

    def request_stop(self, reason: ExitReason, limit_s: float | None = None) -> None:
        """Stop for good: after the message in hand, which gets `limit_s` seconds (default: the spec's)."""
        if self.stop_reason is None:
            self.stop_reason = reason
        self._stop_limit_s = self.spec.shutdown_s if limit_s is None else limit_s
        self._end_life(reason)

    def request_pause(self) -> None:
        """End this life as a stop would, but keep the mailbox: the child will be parked."""
        self.pausing = True
        self._end_life(ExitReason.SHUTDOWN)

    def kill(self) -> None:
        """Stop for good and cancel the message in hand now; `terminate` still runs, within its limit."""
        if self.stop_reason is None:
            self.stop_reason = ExitReason.KILLED
        self._stop_asked.set()
        if self._life is not None:
            self._life.kill()
        self._finish_if_parked()

    def _end_life(self, reason: ExitReason) -> None:
        self._stop_asked.set()
        if self._life is not None:
            self.state = ActorState.STOPPING
            self._life.request_stop(reason, self._stop_limit_s)
        self._finish_if_parked()

    def _finish_if_parked(self) -> None:
        if self.life_over.is_set() and self.stop_reason is not None:
            self.finish()

    def finish(self) -> None:
        """Stop for good, between lives: the mailbox closes and the supervisor forgets the child."""
        if self.finished.is_set():
            return
        self.state = ActorState.STOPPED
        self.settled.set()
        self.life_over.set()
        self.mailbox.close()
        self.finished.set()
        self._forget(self)

    async def wait_finished(self) -> None:
        """Wait until the child has stopped for good; cancelling the wait leaves the child alone."""
        for _ in range(_TURNS_TO_BEGIN):
            if self._begun or self.finished.is_set():
                break
            await checkpoint()
        else:
            # asyncio can cancel a task before its first step, and then nothing of it ever runs.
            self.finish()
        await self.finished.wait()

    # One life, as a task

    async def live(self, delay_s: float) -> None:
        """Live once, after `delay_s` seconds, and do what the supervisor decides at the end.

        Shielded: the host's cancellation reaches a child only through the supervisor, in order, not all at once.
        """
        self._begun = True
        with anyio.CancelScope(shield=True):
            try:
                await self._live(delay_s)
            except BaseException:
                # Not an error of the actor: the interpreter is being interrupted. Nobody may wait for this child.
                self.stop_reason = ExitReason.KILLED
                self.finish()
                raise

    async def _live(self, delay_s: float) -> None:
        if delay_s > 0:
            with anyio.move_on_after(delay_s):
                await self._stop_asked.wait()
        if self._stop_asked.is_set():
            self._after_life(Ending(self.stop_reason or ExitReason.SHUTDOWN, was_ready=False), Verdict(Next.PARK))
            return
        self.state = ActorState.STARTING
        life = self._life = Incarnation(self.spec, self.mailbox, self.ref, self._tally, self._on_ready)
        ending = await life.run()
        self.state = ActorState.STOPPING
        if not ending.was_ready and not self.was_ready:
            self.start_error = ending.error
            self._life = None
            self._after_life(ending, Verdict(Next.END))
            return
        verdict = self._decide(self, ending)
        told = ending.reason in (ExitReason.FAILED, ExitReason.KILLED)
        if told:
            self._tell(ending, verdict)
        last = await life.say_last_words(ending)
        self._life = None
        if not told:
            self._tell(last, verdict)
        elif last is not ending:
            _log.warning("terminate of actor %r went wrong after %s: %r", self.spec.name, ending.reason.name, last)
        self._after_life(ending, verdict)

    def _on_ready(self) -> None:
        self.was_ready = True
        self._ready_at = anyio.current_time()
        if self.state is ActorState.STARTING:
            self.state = ActorState.RUNNING
        self.settled.set()

    def count_failure(self, ending: Ending) -> int:
        """Return how many lives in a row, the one that ends now included, were too short to be called steady."""
        lived_s = anyio.current_time() - self._ready_at if ending.was_ready else 0.0
        steady = ending.was_ready and lived_s >= self.spec.backoff.steady_s
        self._failures_in_row = 1 if steady else self._failures_in_row + 1
        return self._failures_in_row

    def _tell(self, ending: Ending, verdict: Verdict) -> None:
        self._report(
            ActorExit(
                name=self.spec.name,
                reason=ending.reason,
                error=ending.error,
                overran=ending.overran,
                requested=self.stop_reason is not None or self.pausing,
                restarts=verdict.next is not Next.END,
                restart_delay_s=verdict.delay_s,
            )
        )

    def _after_life(self, ending: Ending, verdict: Verdict) -> None:
        # Nothing here waits: between the last look at the mailbox and its closing no message can slip in.
        self.settled.set()
        self.life_over.set()
        revives = ending.passivated and not self.mailbox.is_quiet
        if self.stop_reason is not None or (verdict.next is Next.END and not revives):
            self.finish()
            return
        self.state = ActorState.RESTARTING
        if self.pausing or verdict.next is Next.PARK:
            return
        if revives:
            self.begin_life(0.0, is_restart=False)
        else:
            self.begin_life(verdict.delay_s, is_restart=True)

    def statistics(self) -> ActorStatistics:
        """Return one look at the actor."""
        return ActorStatistics(
            name=self.spec.name,
            state=self.state,
            handled=self._tally.handled,
            refused=self._tally.refused,
            crashed=self._tally.crashed,
            restarts=self._tally.restarts,
            tasks=0 if self._life is None else self._life.running_tasks,
            mailbox=self.mailbox.statistics(),
        )


__all__ = ["Child", "Next", "Verdict"]
