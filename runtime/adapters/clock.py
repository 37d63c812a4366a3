"""Wall-clock time: the one place that reads it, and a clock for tests and simulations."""

from __future__ import annotations

import time

import anyio


class SystemClock:
    """The Clock port on this machine's wall clock. Nothing else in Conveyor reads it."""

    def unix_s(self) -> float:
        """Seconds since the epoch, as the machine has them now; they may jump either way."""
        return time.time()


class VirtualClock:
    """The Clock port on the event loop's time, so that it moves with a loop in virtual time.

    Args:
        offset_s: seconds since the epoch at which the loop's time was 0.
    """

    def __init__(self, *, offset_s: float = 1_800_000_000.0) -> None:
        self._offset_s = offset_s

    def unix_s(self) -> float:
        """Seconds since the epoch; only within an event loop."""
        return anyio.current_time() + self._offset_s

    def jump(self, by_s: float) -> None:
        """Set the clock forward, or back with a negative number, as an administrator or a time server does."""
        self._offset_s += by_s


__all__ = ["SystemClock", "VirtualClock"]
