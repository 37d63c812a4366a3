"""Blocking calls in daemon threads of our own, which can be abandoned.

anyio's worker threads are waited for, and its pool is joined when the event loop ends: one call that never returns
would hold up the shutdown. A thread from here never blocks the interpreter's exit, and its waiter may leave at any time
(hub API notes, section 9, "What can be cancelled").
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

import anyio

R = TypeVar("R")

IDLE_S: Final = 5.0
"""How long a thread of a stock waits for another call."""

Wake = Callable[[Callable[[], object]], None]
"""Has a function called in the thread of an event loop; does nothing if that loop has ended."""


def waker_of_this_loop() -> Wake:
    """A function, safe in any thread, that reaches the running event loop, asyncio's or trio's.

    Raises:
        RuntimeError: no event loop is running in this thread.
    """
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            pass
        else:

            def wake_trio(function: Callable[[], object]) -> None:
                try:
                    token.run_sync_soon(function)
                except trio.RunFinishedError:
                    return

            return wake_trio
    loop = asyncio.get_running_loop()

    def wake_asyncio(function: Callable[[], object]) -> None:
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the loop is closed, and nobody waits any more

    return wake_asyncio


class ThreadStock:
    """Daemon threads that are used again, for calls that come by the hundred and take no time.

    Starting a thread makes the event loop wait until it runs. Bound: as many threads as there are calls at a time; each
    waits `IDLE_S` seconds for another call, then ends.
    """

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[tuple[Callable[[], object], str] | None]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self, run: Callable[[], object], name: str) -> None:
        """Have something called in an idle thread, or in a new one."""
        with self._lock:
            work = self._idle.pop() if self._idle else None
        if work is None:
            work = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(work,), name=name, daemon=True).start()
        work.put((run, name))

    def close(self) -> None:
        """Let the idle threads end now, and the others when their call ends."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for work in idle:
            work.put(None)

    def _serve(self, work: queue.SimpleQueue[tuple[Callable[[], object], str] | None]) -> None:
        given = work.get()
        while given is not None:
            run, threading.current_thread().name = given
            run()
            del run
            with self._lock:
                if self._is_closed:
                    return
                self._idle.append(work)
            try:
                given = work.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if work in self._idle:
                        self._idle.remove(work)
                        return
                given = work.get()  # it was taken in the moment that the wait ended


class ThreadCall(Generic[R]):
    """One call in a thread; it starts at once, with a copy of the caller's context variables.

    Args:
        function: what to call.
        name: the thread's name.
        stock: where the thread comes from; one of its own without.
    """

    def __init__(self, function: Callable[[], R], *, name: str, stock: ThreadStock | None = None) -> None:
        self._function = function
        self._results: list[R] = []
        self._error: BaseException | None = None
        self._finished = anyio.Event()
        self._wake = waker_of_this_loop()
        self._has_ended = threading.Event()
        run = partial(contextvars.copy_context().run, self._run)
        if stock is None:
            threading.Thread(target=run, name=name, daemon=True).start()
        else:
            stock.start(run, name)

    @property
    def is_alive(self) -> bool:
        """Whether the thread still works on it."""
        return not self._has_ended.is_set()

    def join(self, within_s: float) -> bool:
        """Wait in this thread, without an event loop, until the function has ended; answers whether it has."""
        return self._has_ended.wait(within_s)

    @property
    def is_finished(self) -> bool:
        """Whether the result has reached the event loop."""
        return self._finished.is_set()

    async def wait_finished(self) -> None:
        """Wait for the end, without taking the result. Cancellation leaves the thread running."""
        await self._finished.wait()

    def result(self) -> R:
        """What the function returned, or its exception, raised here. Only once it is finished."""
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended.set()
            self._wake(self._finished.set)


async def run_in_daemon_thread(function: Callable[[], R], *, name: str) -> R:
    """Call a blocking function in a thread of its own and wait for what it gives; cancelling abandons the thread."""
    call = ThreadCall(function, name=name)
    await call.wait_finished()
    return call.result()


__all__ = ["ThreadCall", "ThreadStock", "Wake", "run_in_daemon_thread", "waker_of_this_loop"]
