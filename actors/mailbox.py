"""The bounded queue in front of an actor, and the message as it lies there."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from .errors import ActorStopped
from .statistics import MailboxStatistics

M = TypeVar("M")


class Pending(Generic[M]):
    """A message on its way: what was sent and, for an ask, the answer that is owed.

    Batch behaviours get these. `answer` and `refuse` are plain functions, each message takes one of them once; for a
    plain `tell` they only mark the message as done.
    """

    __slots__ = (
        "_answered",
        "_deferred",
        "_error",
        "_event",
        "_on_abandoned",
        "_value",
        "accepted_at",
        "begun",
        "is_placed",
        "message",
    )

    def __init__(self, message: M, *, is_ask: bool = False) -> None:
        self.message = message
        self.begun = False
        self.is_placed = False
        self.accepted_at = 0.0
        self._event = anyio.Event() if is_ask else None
        self._answered = False
        self._deferred = False
        self._on_abandoned: Callable[[], None] | None = None
        self._value: object = None
        self._error: Exception | None = None

    @property
    def is_ask(self) -> bool:
        """Whether somebody waits for an answer (or did, before giving up)."""
        return self._event is not None

    @property
    def is_answered(self) -> bool:
        """Whether `answer` or `refuse` was called."""
        return self._answered

    @property
    def is_refused(self) -> bool:
        """Whether `refuse` was called."""
        return self._error is not None

    @property
    def is_deferred(self) -> bool:
        """Whether `defer` was called."""
        return self._deferred

    def defer(self, *, on_abandoned: Callable[[], None] | None = None) -> None:
        """Promise the answer for later: a task that the actor owns gives it after `handle_batch` has returned.

        Bound: `max_tasks` of the child spec; owing more is a defect that crashes the actor. If the life ends first, the
        asker gets ActorCrashed. `on_abandoned` is called, once, if the asker gives up while
        the answer is owed (cancelled, or its time is over), so that work nobody waits for can end.
        """
        self._deferred = True
        self._on_abandoned = on_abandoned

    def abandon(self) -> None:
        """The asker has given up; called by the kernel."""
        callback, self._on_abandoned = self._on_abandoned, None
        if callback is not None and not self._answered:
            callback()

    def answer(self, value: object = None) -> None:
        """Give the asker `value`. Raises RuntimeError when the message was answered before."""
        self._mark_answered()
        self._value = value

    def refuse(self, error: Exception) -> None:
        """Give the asker `error`, raised from its `ask`. Raises RuntimeError when the message was answered before."""
        self._mark_answered()
        self._error = error

    def _mark_answered(self) -> None:
        if self._answered:
            raise RuntimeError("this message was answered before: call answer() or refuse() once for each message")
        self._answered = True
        self._on_abandoned = None
        if self._event is not None:
            self._event.set()

    async def wait_answered(self) -> None:
        """Wait until the message is answered; cancellation leaves it as it is. Only for asks."""
        if self._event is None:
            raise RuntimeError("a tell has no answer to wait for")
        await self._event.wait()

    def outcome(self) -> Any:
        """Return the answer or raise the error that was given; only after `is_answered`."""
        if self._error is not None:
            raise self._error
        return self._value


class Mailbox(Generic[M]):
    """The first-in, first-out queue of one actor. It outlives the lives of its actor.

    Bound: `capacity` messages. Who waits: senders, for room, served in the order they came; the actor, for a message.
    Cancellation: a sender that is cancelled while it waits has sent nothing, and the room that was meant for it goes to
    the next; `put` never ends by cancellation once the message lies in the queue. One task takes; any may put.
    Nothing here may be called from another thread.
    """

    def __init__(self, *, capacity: int, owner: str = "actor") -> None:
        if capacity < 1:
            raise ValueError(f"the mailbox of {owner!r} has capacity {capacity}; it must be 1 or more")
        self.capacity = capacity
        self.owner = owner
        self._queue: deque[Pending[M]] = deque()
        self._waiting: OrderedDict[anyio.Event, Pending[M]] = OrderedDict()
        self._holds = 0
        self._accepted = 0
        self._undelivered = 0
        self._closed = False
        self._taker: anyio.Event | None = None
        self._when_closed: anyio.Event | None = None

    async def put(self, pending: Pending[M]) -> None:
        """Lay a message at the end, waiting for room. Raises ActorStopped when the mailbox closes first."""
        # Cancellable always, but with room at hand it does not let others run: a full turn of the event loop for each
        # message would cost more than all the rest. A sender runs on for `capacity` messages at most.
        await checkpoint_if_cancelled()
        if self._closed:
            raise ActorStopped(self.owner)
        if len(self._queue) < self.capacity and not self._waiting:
            self._append(pending)
            return
        turn = anyio.Event()
        self._waiting[turn] = pending
        try:
            await turn.wait()
        except BaseException:
            if turn in self._waiting:
                del self._waiting[turn]
            elif not self._closed:
                # The place was kept for this sender and cannot be used: without this it would be lost for good.
                self._queue.remove(pending)
                self._grant_room()
                self.poke()
            raise
        if self._closed:
            raise ActorStopped(self.owner)
        self._confirm(pending)

    def put_nowait(self, pending: Pending[M]) -> None:
        """Lay a message at the end now. Raises anyio.WouldBlock without room, ActorStopped when closed."""
        if self._closed:
            raise ActorStopped(self.owner)
        if self._waiting or len(self._queue) >= self.capacity:
            raise anyio.WouldBlock
        self._append(pending)

    def _append(self, pending: Pending[M]) -> None:
        pending.accepted_at = anyio.current_time()
        self._queue.append(pending)
        self._confirm(pending)

    def _confirm(self, pending: Pending[M]) -> None:
        pending.is_placed = True
        self._accepted += 1
        if self._taker is not None:
            self._taker.set()

    def _grant_room(self) -> None:
        # A place is kept at the end of the queue until its sender runs again and confirms it: so the order of senders
        # holds whatever order the event loop wakes them in, and a sender that is cancelled has surely sent nothing.
        while self._waiting and len(self._queue) < self.capacity:
            turn, pending = self._waiting.popitem(last=False)
            pending.accepted_at = anyio.current_time()
            self._queue.append(pending)
            turn.set()

    def take(self) -> Pending[M] | None:
        """Remove and return the message at the head, marked as begun; None when empty."""
        if not self.has_messages:
            return None
        pending = self._queue.popleft()
        pending.begun = True
        if self._waiting:
            self._grant_room()
        return pending

    def take_up_to(self, max_batch: int) -> list[Pending[M]]:
        """Remove and return at most `max_batch` messages from the head, marked as begun."""
        batch: list[Pending[M]] = []
        while self._queue and self._queue[0].is_placed and len(batch) < max_batch:
            pending = self._queue.popleft()
            pending.begun = True
            batch.append(pending)
        if self._waiting:
            self._grant_room()
        return batch

    def withdraw(self, pending: Pending[M]) -> bool:
        """Take a message back that was not begun; False when it does not lie here any more."""
        if pending.begun or pending not in self._queue:
            return False
        self._queue.remove(pending)
        self._grant_room()
        self.poke()
        return True

    @property
    def has_messages(self) -> bool:
        """Whether a message lies here to be taken."""
        return bool(self._queue) and self._queue[0].is_placed

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits here and nobody is about to send: has a place, awaits room, or announced a message."""
        return not (self._queue or self._waiting or self._holds)

    def hold(self) -> None:
        """Announce a message: the mailbox is not quiet until `release` is called as often."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`."""
        self._holds -= 1
        if not self._holds:
            self.poke()

    @property
    def is_closed(self) -> bool:
        """Whether the actor has stopped for good."""
        return self._closed

    async def wait_arrival(self) -> None:
        """Wait until a message lies here or `poke` is called; cancellation leaves everything as it is."""
        if self.has_messages:
            await checkpoint()
            return
        self._taker = anyio.Event()
        try:
            await self._taker.wait()
        finally:
            self._taker = None

    def poke(self) -> None:
        """Wake the taker, if it waits, without a message: it looks at what else it was asked to do."""
        if self._taker is not None:
            self._taker.set()

    def close(self) -> None:
        """Take no more messages: waiting senders and waiting asks get ActorStopped, what lay here is counted."""
        if self._closed:
            return
        self._closed = True
        while self._queue:
            pending = self._queue.popleft()
            if pending.is_placed:  # a place that is only kept has a sender that will see for itself
                self._undelivered += 1
                pending.refuse(ActorStopped(self.owner))
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            turn.set()
        if self._when_closed is not None:
            self._when_closed.set()

    async def wait_closed(self) -> None:
        """Wait until `close` was called; cancellation leaves everything as it is."""
        if self._closed:
            await checkpoint()
            return
        if self._when_closed is None:
            self._when_closed = anyio.Event()
        await self._when_closed.wait()

    def statistics(self) -> MailboxStatistics:
        """Return one look at the mailbox; call it inside the event loop that the actor runs in."""
        oldest_wait_s = anyio.current_time() - self._queue[0].accepted_at if self._queue else 0.0
        return MailboxStatistics(
            depth=len(self._queue),
            capacity=self.capacity,
            accepted=self._accepted,
            oldest_wait_s=oldest_wait_s,
            waiting_senders=len(self._waiting),
            undelivered=self._undelivered,
        )


__all__ = ["Mailbox", "Pending"]
