"""The rest-for-one restart: pause the later children in reverse order, then begin new lives in start order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from .child import Child


class RestForOne:
    """The children that wait for a common restart: failed, or paused for the sake of one. Never more than there are."""

    def __init__(self, children: Mapping[str, Child[Any]], closing: anyio.Event) -> None:
        self._children = children
        self._closing = closing
        self._waiting: dict[Child[Any], float] = {}  # with the seconds that each should wait
        self._running = False

    def add(self, child: Child[Any], delay_s: float) -> bool:
        """Note a failed child; True when nobody runs `restart` now, so that the caller must start it."""
        self._waiting[child] = delay_s
        was_running, self._running = self._running, True
        return not was_running

    def discard(self, child: Child[Any]) -> None:
        """Forget a child that has stopped for good."""
        self._waiting.pop(child, None)

    async def restart(self) -> None:
        """Restart every child that failed and all children after the first of them; ends when none waits.

        More children may fail meanwhile, also among those just restarted: the work begins again from the first of them.
        Shielded like the children. Once the supervisor is closing it leaves parked children to it.
        """
        with anyio.CancelScope(shield=True):
            while self._waiting and not self._closing.is_set():
                rest = self._from_first()
                await self._pause(rest)
                await self._wait_delay()
                await self._begin(rest)
            self._waiting.clear()
            self._running = False

    def _from_first(self) -> list[Child[Any]]:
        """Return the first child that waits and all after it, in start order."""
        in_order = list(self._children.values())
        return in_order[min(in_order.index(child) for child in self._waiting) :]

    async def _pause(self, rest: Sequence[Child[Any]]) -> None:
        for child in reversed(rest):
            if child not in self._waiting and not child.finished.is_set():
                self._waiting[child] = 0.0
                child.request_pause()
            await child.life_over.wait()

    async def _wait_delay(self) -> None:
        delay_s = max(self._waiting.values(), default=0.0)
        if delay_s > 0:
            with anyio.move_on_after(delay_s):
                await self._closing.wait()

    async def _begin(self, rest: Sequence[Child[Any]]) -> None:
        for child in rest:
            if child not in self._waiting:  # it has stopped for good
                continue
            if self._closing.is_set() or self._from_first()[0] is not child:  # another one before it has failed
                return
            del self._waiting[child]
            child.begin_life(0.0, is_restart=True)
            await child.settled.wait()


__all__ = ["RestForOne"]
