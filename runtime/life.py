"""The life of one runtime, from its opened adapters to its closed store, in a task of its own.

The host's task may end, be cancelled, or forget to close; none of that tears the actors apart. When the event loop ends
under a runtime that nobody closed, the runtime says so once, gives its leases back and closes the store (N-RUN-02,
N-RUN-11).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import anyio

from ..actors.port_errors import StoreError
from ..actors.stop_gate import SettlementBoard
from ..actors.work_watch import WorkBoard
from .adapters.assembly import Adapters, open_adapters
from .settings import Settings
from .status import Status, read_status
from .store.threads import is_under_asyncio
from .tree import ActorTree

START_CUT_S: Final = 3.0
"""What a host that is cancelled while the runtime starts still waits for the start to be undone."""

CANCELLED_CLOSE_S: Final = 3.0
"""What a cancelled host still waits for leases to be released and the store to be closed (N-RUN-04)."""

LOOK_WITHIN_S: Final = 3.0
"""How long the last look at the store may take, which says what is left."""

LOOP_END_S: Final = 0.75
"""The same, and the same again for the leases, when the event loop ends under an unclosed runtime: it should be gone
within 2 s.
"""

_log = logging.getLogger("conveyor.runtime")
_ACTORS_LOG: Final = logging.getLogger("conveyor.actors")


class ConveyorNotClosed(RuntimeWarning):
    """A Conveyor was forgotten: its event loop ended before it was closed. What it accepted is durable."""


class Life:
    """One life: started once, ended once.

    Args:
        settings: how to run.
        given: adapters that belong to somebody else; None to open the real ones, and to close them at the end.

    Attributes:
        tree: the actors; there once `start` has returned.
        failure: what ended the actors for good, if anything did.
        is_closing: a close has been asked for.
    """

    tree: ActorTree

    def __init__(self, settings: Settings, given: Adapters | None) -> None:
        self._settings = settings
        self._given = given
        self._pid = os.getpid()
        self._board = SettlementBoard()
        self._scope = anyio.CancelScope()
        self._started = anyio.Event()
        self._leave = anyio.Event()
        self._ended = anyio.Event()
        self._root: object = None
        self.failure: BaseException | None = None
        self.is_closing = False

    @property
    def has_ended(self) -> bool:
        """No actor lives any more, and the store is closed."""
        return self._ended.is_set()

    async def start(self) -> None:
        """Start it; returns when the actors are ready.

        Raises:
            StoreError: the store cannot be opened.
        """
        self._root = _start_root_task(self._run)
        try:
            await self._started.wait()
        except BaseException:
            self.is_closing = True
            self._scope.cancel("the host gave up the start")
            await self._wait_ended(START_CUT_S)
            raise
        if self.failure is not None:
            raise self.failure

    async def end(self, *, within_s: float) -> bool:
        """Stop the actors and close the store; False if that takes longer, and then it goes on by itself."""
        self.is_closing = True
        self._leave.set()
        return await self._wait_ended(within_s)

    async def end_at_once(self) -> None:
        """Give the leases back and close the store, without a further commit; for a host that is cancelled."""
        self.is_closing = True
        if not self.has_ended:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CANCELLED_CLOSE_S):
                await self.tree.stop_at_once()
        await self.end(within_s=CANCELLED_CLOSE_S)

    async def final_status(self) -> Status | None:
        """What the store holds, with nobody working on it any more; None if it cannot say in time."""
        try:
            with anyio.fail_after(LOOK_WITHIN_S):
                return await self.read_status("stopped")
        except (StoreError, TimeoutError):
            return None

    async def read_status(self, state: str) -> Status:
        """What the store holds.

        Raises:
            StoreError: it could not be read.
        """
        tree = self.tree
        return await read_status(
            tree.store,
            state=state,
            pace=tree.world.pace,
            now_unix_s=tree.clock.unix_s(),
            actors=() if state == "stopped" else tree.actor_statistics(),
        )

    async def _wait_ended(self, within_s: float) -> bool:
        with anyio.CancelScope(shield=True), anyio.move_on_after(within_s):
            await self._ended.wait()
        return self.has_ended

    @property
    def is_loop_ending(self) -> bool:
        """The event loop is cancelling everything, and nobody asked for a close; asyncio only."""
        return not self.is_closing and isinstance(self._root, asyncio.Task) and self._root.cancelling() > 0

    @property
    def _is_forgotten(self) -> bool:
        """Asked when something cancels the life: whether it is the end of an event loop under an unclosed runtime."""
        if os.getpid() != self._pid or self.is_closing:
            return False
        return self.is_loop_ending or not self.tree.has_failed

    async def _run(self) -> None:
        """The life itself. Nothing but an interrupt of the interpreter leaves it as an exception."""
        quiet = _QuietEnd(self)
        _ACTORS_LOG.addFilter(quiet)
        try:
            with self._scope:
                await self._live()
        except anyio.get_cancelled_exc_class():
            pass  # the event loop ends, and this was its last task but for those that wait for it
        except Exception as error:
            self.failure = error
        finally:
            _ACTORS_LOG.removeFilter(quiet)
            self._started.set()
            self._ended.set()
            self._board.settled_somewhere()  # whoever waits for a delivery here waits in vain

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            adapters = self._given
            if adapters is None:
                adapters = await stack.enter_async_context(open_adapters(self._settings))
            self.tree = ActorTree(adapters, self._settings, WorkBoard(), self._board)
            await stack.enter_async_context(self.tree)
            self._started.set()
            try:
                await self._leave.wait()
            except anyio.get_cancelled_exc_class():
                if self._is_forgotten:
                    await self._end_forgotten()
                raise

    async def _end_forgotten(self) -> None:
        with anyio.CancelScope(shield=True):
            left: int | None = None
            with anyio.move_on_after(LOOP_END_S):
                stored = await self.final_status()
                left = None if stored is None else stored.waiting
            self._warn_forgotten(left)
            with anyio.move_on_after(LOOP_END_S):
                await self.tree.stop_at_once()

    def _warn_forgotten(self, left: int | None) -> None:
        """Say once that this was not closed, and how many of the accepted items are left (N-RUN-02)."""
        number = "some" if left is None else str(left)
        text = (
            f"a Conveyor was not closed: {number} accepted items are left, and kept in {self._settings.store_path}. "
            "Next step: deliver them with `conveyor drain`; close in time with `async with open_conveyor(...)`"
        )
        try:
            warnings.warn(text, ConveyorNotClosed, stacklevel=1)
        except ConveyorNotClosed:
            # Warnings are errors here, and there is nobody left to raise it to.
            _log.error(text)


class _QuietEnd(logging.Filter):
    """Keeps the actors of a forgotten life from being reported one by one when their event loop ends: the one warning
    says it all.
    """

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life
        self._thread_id = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to let a record through."""
        return record.thread != self._thread_id or not self._life.is_loop_ending


def _start_root_task(live: Callable[[], Awaitable[None]]) -> object:
    """Start a task that belongs to the event loop itself; gives what keeps it alive."""
    if is_under_asyncio():
        return asyncio.ensure_future(live())
    import trio

    return trio.lowlevel.spawn_system_task(live, name="conveyor")


__all__ = ["ConveyorNotClosed", "Life"]
