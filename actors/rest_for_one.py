"""The rest-for-one restart: pause the later children in reverse order, then begin new lives in start order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from .child import Child


class RestForOne:
    """The children that failed and wait for a common restart. Never more entries than children."""

    def __init__(self, children: Mapping[str, Child[Any]], closing: anyio.Event) -> None:
        self._children = children
        self._closing = closing
        self._failed: dict[Child[Any], float] = {}  # with the seconds that each should wait
        self._running = False

    def add(self, child: Child[Any], delay_s: float) -> bool:
        """Note a failed child; True when nobody runs `restart` now, so that the caller must start it."""
        self._failed[child] = delay_s
        was_running, self._running = self._running, True
        return not was_running

    def discard(self, child: Child[Any]) -> None:
        """Forget a child that has stopped for good."""
        self._failed.pop(child, None)

    async def restart(self) -> None:
        """Restart every child that failed and all children after the first of them; ends when none is left.

        More children may fail meanwhile, also among those just restarted: the work begins again from the first of them.
        Shielded like the children. Once the supervisor is closing it leaves parked children to it.
        """
        with anyio.CancelScope(shield=True):
            while self._failed and not self._closing.is_set():
                await self._restart_from_first()
            self._failed.clear()
            self._running = False

    async def _restart_from_first(self) -> None:
        in_order = list(self._children.values())
        rest = in_order[min(in_order.index(child) for child in self._failed) :]
        for child in reversed(rest):
            if child not in self._failed:
                child.request_pause()
            await child.life_over.wait()
        delay_s = max(self._failed.values(), default=0.0)
        if delay_s > 0:
            with anyio.move_on_after(delay_s):
                await self._closing.wait()
        self._failed.clear()
        for child in rest:
            if self._failed or self._closing.is_set():
                return
            if not child.finished.is_set():
                child.begin_life(0.0, is_restart=True)
                await child.settled.wait()


__all__ = ["RestForOne"]
