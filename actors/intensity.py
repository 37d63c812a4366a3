"""How often a failed child may be restarted, and how soon: pure arithmetic over a time that is passed in.

Burst and sustained rate are two readings of one limit (Erlang/OTP supervision principles): `max_restarts` may come at
once, and over long stretches no more than `max_restarts / period_s` per second. Limits of nested supervisors multiply.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartIntensity:
    """At most `max_restarts` restarts within any `period_s` seconds; the next one escalates.

    Raises ValueError when `max_restarts` is negative or `period_s` is not above zero.
    """

    max_restarts: int = 5
    period_s: float = 30.0

    def __post_init__(self) -> None:
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts is {self.max_restarts}; it must be 0 or more (0 allows no restart)")
        if not self.period_s > 0:
            raise ValueError(f"period_s is {self.period_s}; it must be more than 0 seconds")


class RestartWindow:
    """The restarts of the last period. It holds at most `max_restarts` times, whatever happens."""

    def __init__(self, intensity: RestartIntensity) -> None:
        self.intensity = intensity
        self._times: deque[float] = deque()

    def admit(self, now_s: float) -> bool:
        """Count a restart at `now_s` (seconds, any steady scale); False, uncounted, when it is one too many."""
        self._forget(now_s)
        if len(self._times) >= self.intensity.max_restarts:
            return False
        self._times.append(now_s)
        return True

    def restarts_in_period(self, now_s: float) -> int:
        """Return how many restarts of the last `period_s` seconds still count at `now_s`."""
        self._forget(now_s)
        return len(self._times)

    def _forget(self, now_s: float) -> None:
        while self._times and now_s - self._times[0] >= self.intensity.period_s:
            self._times.popleft()


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """How long a failed child waits before it starts again: `first_s`, then `factor` times more, `longest_s` at most.

    A life of at least `steady_s` seconds begins the series again. `RestartBackoff(first_s=0)` restarts at once.
    """

    first_s: float = 0.05
    factor: float = 2.0
    longest_s: float = 5.0
    steady_s: float = 30.0

    def __post_init__(self) -> None:
        if self.first_s < 0 or self.longest_s < self.first_s:
            raise ValueError(
                f"first_s is {self.first_s} and longest_s {self.longest_s}; 0 <= first_s <= longest_s holds"
            )
        if self.factor < 1:
            raise ValueError(f"factor is {self.factor}; it must be 1 or more so that the delay does not shrink")

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after the `failures`-th failure in a row (1 for the first)."""
        # The exponent is capped so that a loop of days cannot overflow a float.
        return min(self.longest_s, self.first_s * self.factor ** min(failures - 1, 64))


__all__ = ["RestartBackoff", "RestartIntensity", "RestartWindow"]
