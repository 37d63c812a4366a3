"""Waiting, under asyncio or trio, for something that runs in a thread of our own.

A thread that works on a database cannot be interrupted, so whoever waits for it waits to its end. Cancellation takes
effect after that: nothing is left half done behind the back of the one who was told that it ended (N-STO-03).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


def is_under_asyncio() -> bool:
    """Whether the running event loop is asyncio's."""
    return _trio_wake() is None


def _trio_wake() -> Callable[[Callable[[], object]], object] | None:
    if "trio" not in sys.modules:
        return None
    import trio

    try:
        return trio.lowlevel.current_trio_token().run_sync_soon
    except RuntimeError:
        return None


class Completion:
    """A result that a thread delivers to a task. Made in the task; the task waits, whatever happens, to the end."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._wake = _trio_wake() or asyncio.get_running_loop().call_soon_threadsafe
        self._value: object = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[], T]) -> None:
        """In the thread: do the work and deliver what came of it."""
        try:
            self._value = work()
        except BaseException as error:
            self._error = error
        try:
            self._wake(self._event.set)
        except RuntimeError:
            # The loop has ended, and with it the task that would have waited.
            return

    async def wait(self) -> object:
        """Wait for the end, and give the value or raise the error."""
        await wait_to_end(self._event)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._value


async def wait_to_end(event: anyio.Event) -> None:
    """Wait for an event that is sure to come. A cancellation meanwhile is delivered only after it.

    In a forked child it never comes, so there a cancellation is delivered at once.
    """
    here = os.getpid()
    interruption: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not event.is_set():
            try:
                await event.wait()
            except anyio.get_cancelled_exc_class() as cancelled:
                # The loop's own cancellation does not know of shields.
                if os.getpid() != here:
                    raise
                interruption = cancelled
    if interruption is not None:
        raise interruption


async def run_in_short_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread that ends with it."""
    completion = Completion()
    thread = threading.Thread(target=completion.run, args=(work,), name="conveyor store set-up", daemon=True)
    thread.start()
    try:
        return await completion.wait()  # type: ignore[return-value]
    finally:
        thread.join()


__all__ = ["Completion", "is_under_asyncio", "run_in_short_thread", "wait_to_end"]
