"""Cancel an operation at each place where it can be cancelled, one run for each place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio


class _CancelAtYield:
    """Runs a coroutine and cancels `scope` just before it gives up control for the `index`-th time (from 0)."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], scope: anyio.CancelScope, index: int) -> None:
        self._coroutine = coroutine
        self._scope = scope
        self._index = index

    def __await__(self) -> Generator[Any, Any, None]:
        seen = 0
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            try:
                trap = step()
            except StopIteration:
                return
            if seen == self._index:
                self._scope.cancel()
            seen += 1
            try:
                value = yield trap
            except BaseException as error:
                thrown = error
                step = lambda: self._coroutine.throw(thrown)  # noqa: B023, E731
            else:
                step = lambda: self._coroutine.send(value)  # noqa: B023, E731


async def cancelled_at(index: int, operation: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Run `operation`, cancelling it at its `index`-th wait; True when it was cancelled, False when it came through."""
    with anyio.CancelScope() as scope:
        await _CancelAtYield(operation(), scope, index)
        return False
    return True


async def at_each_wait(attempt: Callable[[int], Awaitable[bool]], *, limit: int = 500) -> int:
    """Call `attempt(0)`, `attempt(1)`, ... until one returns False (it was not cancelled); returns how many were."""
    for index in range(limit):
        if not await attempt(index):
            return index
    raise AssertionError(f"the operation still had places to cancel after {limit}")
