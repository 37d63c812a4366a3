"""When the next commit to a repository may start: spacing, hourly budget, backoff (hand-over protocol, 5.5 and 5.8).

Pure functions over recorded times. A stored time that lies in the future was written under another clock and counts as
now: then the next commit is at most one spacing away, and none is too early (finding W24). The answer stands still only
once such times are also brought back to now where they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .limits import HUB_COMMITS_PER_HOUR, MIN_COMMIT_SPACING_S

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class CommitPace:
    """How often this fleet commits to one repository.

    The budget is a token bucket of `burst` tokens that refills at `per_hour - burst` tokens an hour. So any hour,
    however it is cut, holds at most `per_hour` commits, and after a burst they are spread evenly instead of stopping.
    """

    spacing_s: float = MIN_COMMIT_SPACING_S
    per_hour: int = 100
    burst: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.burst < self.per_hour <= HUB_COMMITS_PER_HOUR:
            raise ValueError(
                f"a commit budget needs 1 <= burst < per_hour <= {HUB_COMMITS_PER_HOUR}, "
                f"not burst {self.burst} and per_hour {self.per_hour}"
            )
        if not (math.isfinite(self.spacing_s) and self.spacing_s >= 0):
            raise ValueError(f"spacing_s must be a finite number of seconds, 0 or more, not {self.spacing_s}")

    @property
    def _refill_per_s(self) -> float:
        return (self.per_hour - self.burst) / HOUR_S

    @property
    def horizon_s(self) -> float:
        """How far back commits matter: an hour, or longer where the bucket refills more slowly.

        The bucket counts as full at the start of the horizon. As that is never shorter than an hour, no hour holds
        more than `per_hour` commits; but under load without a pause a burst may come again once in a horizon.
        """
        return max(HOUR_S, self.burst / self._refill_per_s)

    def tokens(self, commits_unix_s: Iterable[float], now_unix_s: float) -> float:
        """How many commits the budget has left now, as a number that may have a fraction or be below zero."""
        level, at = float(self.burst), None
        for commit in sorted(min(time, now_unix_s) for time in commits_unix_s if time >= now_unix_s - self.horizon_s):
            if at is not None:
                level = min(self.burst, level + (commit - at) * self._refill_per_s)
            level, at = level - 1.0, commit
        if at is None:
            return level
        return min(self.burst, level + (now_unix_s - at) * self._refill_per_s)

    def earliest_unix_s(self, commits_unix_s: Iterable[float], now_unix_s: float) -> float:
        """The earliest time for the next commit, `now_unix_s` itself if it may start at once."""
        commits = [min(time, now_unix_s) for time in commits_unix_s]
        by_spacing = max(commits, default=float("-inf")) + self.spacing_s
        missing = 1.0 - self.tokens(commits, now_unix_s)
        by_budget = now_unix_s + missing / self._refill_per_s if missing > 1e-9 else now_unix_s
        return max(now_unix_s, by_spacing, by_budget)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing pauses after failures in a row: 2, 4, 8, ... 256, 300 s by default."""

    first_s: float = 2.0
    max_s: float = 300.0

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row, at least one."""
        return float(min(self.max_s, self.first_s * 2.0 ** min(max(failures, 1) - 1, 64)))


def due_unix_s(*, flush: bool, now_unix_s: float, last_commit_unix_s: float | None, interval_s: float) -> float:
    """When a hand-over is due (section 5.4): a flush, and the first to a repository, at once; others an interval on."""
    if flush or last_commit_unix_s is None:
        return now_unix_s
    return max(now_unix_s, min(last_commit_unix_s, now_unix_s) + interval_s)


__all__ = ["HOUR_S", "Backoff", "CommitPace", "due_unix_s"]
