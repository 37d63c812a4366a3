"""The supervisor: it starts its children in order, restarts them by rule, and stops them in reverse order."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from .behaviour import ExitReason
from .child import Child, Next, Verdict
from .child_spec import ActorExit, AnyChildSpec, ChildSpec, RestartPolicy
from .errors import (
    ActorStopped,
    ActorTaskLost,
    DuplicateActor,
    RestartIntensityExceeded,
    SupervisorStopped,
    UnknownActor,
)
from .incarnation import Ending
from .intensity import RestartIntensity, RestartWindow
from .ref import ActorRef
from .rest_for_one import RestForOne
from .statistics import SupervisorStatistics

M = TypeVar("M")

_log = logging.getLogger("conveyor.actors")


class Strategy(enum.Enum):
    """Which children are restarted when one of them is (Erlang/OTP's words)."""

    ONE_FOR_ONE = "one for one"
    """Only that child."""
    REST_FOR_ONE = "rest for one"
    """That child and those started after it: the later ones are stopped in reverse order first. TEMPORARY ones among
    them stop for good."""


class Supervisor:
    """The owner of a set of actors; made by `open_supervisor` and alive inside its `async with` block.

    Children run shielded: when the host cancels the block, the supervisor cancels and cleans up the children one by one
    in reverse start order, each within its limits, and the cancellation then goes on its way. The bound on children is
    the caller's: the specs given, `start_child` calls, and a registry's `max_live`.
    """

    def __init__(
        self,
        specs: Sequence[AnyChildSpec],
        *,
        strategy: Strategy,
        intensity: RestartIntensity,
        name: str,
        on_exit: Callable[[ActorExit], None] | None,
    ) -> None:
        self.name = name
        self._specs = tuple(specs)
        self._strategy = strategy
        self._window = RestartWindow(intensity)
        self._on_exit = on_exit
        self._children: dict[str, Child[Any]] = {}  # in start order
        self._restarts = 0
        self._failure: RestartIntensityExceeded | None = None
        self._tasks: TaskGroup | None = None
        self._body: anyio.CancelScope | None = None
        self._closing: anyio.Event | None = None
        self._together: RestForOne | None = None

    # The block

    async def __aenter__(self) -> Supervisor:
        if self._tasks is not None:
            raise RuntimeError(f"supervisor {self.name!r} was opened before: open a new one with open_supervisor()")
        self._closing = anyio.Event()
        self._together = RestForOne(self._children, self._closing)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._body = anyio.CancelScope()
        self._body.__enter__()
        try:
            for spec in self._specs:
                await self.start_child(spec)
        except BaseException as error:
            # A True from here would mean that an escalation cancelled the start, and then it raised that instead.
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        assert self._tasks is not None
        assert self._body is not None
        assert self._closing is not None
        absorbed = bool(self._body.__exit__(exc_type, exc, traceback))
        lost = self._tasks.cancel_scope.cancel_called  # never by us: see ActorTaskLost
        self._closing.set()
        try:
            with anyio.CancelScope(shield=True):
                await self._stop_all(kill=not absorbed and _is_cancellation(exc))
        finally:
            # Children are left here only when the stop itself was cut short, by a second native cancellation.
            for child in tuple(self._children.values()):
                child.kill()
            await self._leave_task_group(self._tasks)
        if self._failure is not None:
            if absorbed or exc is None or _is_cancellation(exc):
                raise self._failure from self._failure.__cause__
            raise self._failure
        if lost and not absorbed and _is_cancellation(exc):
            raise ActorTaskLost(self.name) from None
        return absorbed

    async def _leave_task_group(self, tasks: TaskGroup) -> None:
        try:
            await tasks.__aexit__(None, None, None)
        except BaseExceptionGroup as group:
            # Children keep their errors to themselves, so this is an interrupt (KeyboardInterrupt, SystemExit): hosts
            # expect it bare (N-RUN-07).
            leaf: BaseException = group
            while isinstance(leaf, BaseExceptionGroup):
                leaf = leaf.exceptions[0]
            raise leaf from None

    async def _stop_all(self, *, kill: bool) -> None:
        while self._children:
            child = self._children[next(reversed(self._children))]
            if kill:
                child.kill()
            else:
                child.request_stop(ExitReason.SHUTDOWN)
            await child.wait_finished()

    # Children

    def ref(self, name: str) -> ActorRef[Any]:
        """Return the address of the child of that name. Raises UnknownActor when there is none now."""
        child = self._children.get(name)
        if child is None:
            raise UnknownActor(self.name, name)
        return child.ref

    async def start_child(
        self, spec: ChildSpec[M], *, when_stopped: Callable[[], None] | None = None, hold: bool = False
    ) -> ActorRef[M]:
        """Start a child after those there are; returns its address when its `setup` has returned.

        A failed start raises the error of `setup` (or of the behaviour's constructor), and nothing is left behind.
        Cancelled, the start is undone: the child is cancelled, cleaned up within its limits, and waited for.
        `when_stopped` is called once when the child has stopped for good; it must not wait or raise. With `hold` the
        address comes held (`ActorRef.hold`), so that even a child that passivates in `setup` awaits its first message.
        Raises DuplicateActor when the name is taken, SupervisorStopped when the supervisor is stopping, ActorStopped
        when the child was stopped by somebody else before it was ready.
        """
        if self._tasks is None or self._closing is None or self._closing.is_set():
            raise SupervisorStopped(self.name)
        if spec.name in self._children:
            raise DuplicateActor(self.name, spec.name)

        def forget(gone: Child[Any]) -> None:
            if self._children.get(gone.spec.name) is gone:
                del self._children[gone.spec.name]
            if self._together is not None:
                self._together.discard(gone)
            if when_stopped is not None:
                when_stopped()

        child = Child(spec, decide=self._decide, begin_life=self._begin_life, report=self._report, forget=forget)
        self._children[spec.name] = child
        if hold:
            child.mailbox.hold()
        child.begin_life(0.0, is_restart=False)
        try:
            await child.settled.wait()
        except BaseException:
            child.kill()
            with anyio.CancelScope(shield=True):
                await child.wait_finished()
            raise
        if child.start_error is not None:
            child.start_error.add_note(f"while starting actor {spec.name!r} under supervisor {self.name!r}")
            raise child.start_error
        if not child.was_ready:
            raise ActorStopped(spec.name)
        return child.ref

    async def stop_child(
        self, name: str, reason: ExitReason = ExitReason.SHUTDOWN, *, within_s: float | None = None
    ) -> None:
        """Stop a child for good and wait until it is gone; a child that is gone already is fine.

        With KILLED the message in hand is cancelled at once; otherwise it gets `within_s` seconds (default: the
        spec's `shutdown_s`) and so does `terminate`. Cancelled, only the waiting ends: the child goes on stopping.
        """
        child = self._children.get(name)
        if child is None:
            await checkpoint()
            return
        if reason is ExitReason.KILLED:
            child.kill()
        else:
            child.request_stop(reason, within_s)
        await child.wait_finished()

    def statistics(self) -> SupervisorStatistics:
        """Return one look at the supervisor; call it inside the event loop that it runs in."""
        return SupervisorStatistics(
            name=self.name,
            children=tuple(child.statistics() for child in self._children.values()),
            restarts=self._restarts,
            restarts_in_period=self._window.restarts_in_period(anyio.current_time()),
            max_restarts=self._window.intensity.max_restarts,
            period_s=self._window.intensity.period_s,
        )

    # What children call

    def _begin_life(self, child: Child[Any], delay_s: float) -> None:
        assert self._tasks is not None
        # Each life is a task of its own: whatever cancelled the last one cannot reach into the next.
        self._tasks.start_soon(child.live, delay_s, name=f"actor {child.spec.name}")

    def _report(self, ended: ActorExit) -> None:
        if ended.is_unexpected:
            # Cut off while it was asked to stop, it is news for the observer only: whoever stopped it set the limit.
            is_cut_off = ended.requested and ended.reason is ExitReason.KILLED
            _log.log(
                logging.DEBUG if is_cut_off else logging.WARNING,
                "actor %r ended unexpectedly: %s, %r",
                ended.name,
                ended.reason.name,
                ended.error,
            )
        if self._on_exit is not None:
            try:
                self._on_exit(ended)
            except Exception:
                _log.exception("the on_exit observer of supervisor %r failed", self.name)

    def _decide(self, child: Child[Any], ending: Ending) -> Verdict:
        if child.stop_reason is not None or self._failure is not None:
            return Verdict(Next.END)
        if child.pausing:
            ends = child.spec.restart is RestartPolicy.TEMPORARY
            return Verdict(Next.END if ends else Next.PARK)
        if not child.spec.restart.restarts_after(ending.reason):
            return Verdict(Next.END)
        if self._strategy is Strategy.REST_FOR_ONE and self._closing is not None and self._closing.is_set():
            # The later children are stopping in their order already; restarting them would work against it.
            return Verdict(Next.END)
        if not self._window.admit(anyio.current_time()):
            self._escalate(child, ending)
            return Verdict(Next.END)
        self._restarts += 1
        delay_s = child.spec.backoff.delay_s(child.count_failure(ending))
        if self._strategy is Strategy.ONE_FOR_ONE:
            return Verdict(Next.RESTART, delay_s)
        assert self._together is not None
        if self._together.add(child, delay_s):
            assert self._tasks is not None
            self._tasks.start_soon(self._together.restart, name=f"restarts of {self.name}")
        return Verdict(Next.PARK, delay_s)

    def _escalate(self, child: Child[Any], ending: Ending) -> None:
        limit = self._window.intensity
        self._failure = RestartIntensityExceeded(
            self.name, child.spec.name, max_restarts=limit.max_restarts, period_s=limit.period_s
        )
        self._failure.__cause__ = ending.error
        if self._body is not None:
            self._body.cancel()


def open_supervisor(
    specs: Sequence[AnyChildSpec] = (),
    *,
    strategy: Strategy = Strategy.ONE_FOR_ONE,
    intensity: RestartIntensity | None = None,
    name: str = "supervisor",
    on_exit: Callable[[ActorExit], None] | None = None,
) -> Supervisor:
    """Open a supervisor: `async with open_supervisor(specs) as supervisor:`.

    Entering starts the children in the order given and returns when all are ready; a failed start stops those already
    started, in reverse order, and raises the error of the failed `setup`. Leaving stops all in reverse order, one by
    one. Too many restarts cancel the block, stop the children, and raise RestartIntensityExceeded from the block.

    `intensity` defaults to 5 restarts in 30 s. `on_exit` is called for each life that ends, in the event loop, at once
    when the end is unexpected (N-RUN-08); it must not wait. Errors leave the block bare, never in a group (N-RUN-07).
    """
    return Supervisor(specs, strategy=strategy, intensity=intensity or RestartIntensity(), name=name, on_exit=on_exit)


def _is_cancellation(exc: BaseException | None) -> bool:
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(exc, BaseExceptionGroup):
        return exc.split(cancelled)[1] is None
    return isinstance(exc, cancelled)


__all__ = ["Strategy", "Supervisor", "open_supervisor"]
