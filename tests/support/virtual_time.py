"""Event loops whose clock jumps instead of waiting."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVarTuple

from trio.testing import MockClock

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Ts = TypeVarTuple("Ts")

Backend = tuple[str, dict[str, Any]]

START_S = 1000.0
"""Where virtual clocks begin: not at 0, so that a forgotten 0 does not look like now."""


class JumpingSelector(selectors.BaseSelector):
    """A selector that reports what is ready and, when nothing is, moves the clock on instead of waiting.

    With no deadline ahead it waits for real, because then only another thread (`call_soon_threadsafe`) or a socket can
    bring work. A wake-up that has arrived always comes before a jump; one that arrives later may find that time jumped.
    """

    def __init__(self) -> None:
        self._ready = selectors.DefaultSelector()
        self.now_s = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; else jump by `timeout` seconds, or wait when it is None or infinite."""
        events = self._ready.select(0)
        if events or timeout == 0:
            return events
        if timeout is None or math.isinf(timeout):
            return self._ready.select(None)
        self.now_s += timeout
        return []

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a file."""
        return self._ready.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        """Watch a file no more."""
        return self._ready.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change what is watched."""
        return self._ready.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        """Return what is watched."""
        return self._ready.get_map()

    def close(self) -> None:
        """Close the selector underneath."""
        self._ready.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time. Sockets and threads work; they just take no time."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now_s

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time. An infinite one (sleeping forever) is kept out of the way of jumps."""
        if math.isinf(when):
            # asyncio would wait a day at a time, and each would be a jump: a stuck test would spin instead of time out.
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)


def virtual_time_backend(name: str) -> Backend:
    """Return fresh backend options in virtual time; a trio clock serves one run only, so ask anew for each test."""
    if name == "trio":
        return name, {"clock": MockClock(autojump_threshold=0)}
    return name, {"loop_factory": VirtualTimeLoop}


def real_time_backend_options(name: str) -> Backend:
    """Return backend options with the real clock."""
    return name, {}
