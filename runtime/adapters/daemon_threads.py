"""Blocking calls in daemon threads of our own, which can be abandoned.

anyio's worker threads are waited for, and its pool is joined when the event loop ends: one call that never returns
would hold up the shutdown. A thread from here never blocks the interpreter's exit, and its waiter may leave at any time
(hub API notes, section 9, "What can be cancelled").
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

R = TypeVar("R")

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


class ThreadCall(Generic[R]):
    """One call in a thread of its own; it starts at once, with a copy of the caller's context variables.

    Args:
        function: what to call.
        name: the thread's name.
    """

    def __init__(self, function: Callable[[], R], *, name: str) -> None:
        self._function = function
        self._results: list[R] = []
        self._error: BaseException | None = None
        self._finished = anyio.Event()
        self._wake = waker_of_this_loop()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

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
            self._wake(self._finished.set)


async def run_in_daemon_thread(function: Callable[[], R], *, name: str) -> R:
    """Call a blocking function in a thread of its own and wait for what it gives; cancelling abandons the thread."""
    call = ThreadCall(function, name=name)
    await call.wait_finished()
    return call.result()


__all__ = ["ThreadCall", "Wake", "run_in_daemon_thread", "waker_of_this_loop"]
