"""When the next commit to a repository may start: spacing, hourly budget, and backoff (hand-over protocol, 5.5 and 5.8).

Pure functions over recorded times. A stored time that lies in the future was written under another clock and counts as
now, so that a clock that jumped neither blocks a repository for ever nor lets it commit too early (finding W24).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .limits import HUB_COMMITS_PER_HOUR, MIN_COMMIT_SPACING_S

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class CommitPace:
    """How often this fleet commits to one repository.

    The budget is a token bucket of `burst` tokens that refills at `per_hour - burst` tokens an hour. So any hour, however
    it is cut, holds at most `per_hour` commits, and after a burst commits are spread evenly instead of stopping.
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

    @property
    def _refill_per_s(self) -> float:
        return (self.per_hour - self.burst) / HOUR_S

    @property
    def horizon_s(self) -> float:
        """How far back commits matter: after this the bucket is full again, whatever came before."""
        return max(HOUR_S, self.burst / self._refill_per_s)

    def tokens(self, commits_unix_s: Iterable[float], now_unix_s: float) -> float:
        """How many commits the budget has left now, as a number that may have a fraction or be below zero."""
        level, at = float(self.burst), None
        for commit in sorted(min(time, now_unix_s) for time in commits_unix_s if time > now_unix_s - self.horizon_s):
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
    """When a hand-over is due (section 5.4): a flush, and the first to a repository, at once; others one interval on."""
    if flush or last_commit_unix_s is None:
        return now_unix_s
    return max(now_unix_s, min(last_commit_unix_s, now_unix_s) + interval_s)


__all__ = ["HOUR_S", "Backoff", "CommitPace", "due_unix_s"]
