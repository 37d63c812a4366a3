"""Request quotas per token in fixed windows, and commits per repository in any hour (hub API notes section 11)."""

import threading
from collections.abc import Callable

from .options import HubServeOptions
from .problems import HubRefusal
from .repository import Repository

WINDOW_S = 300
HOUR_MS = 3_600_000


def rate_limit_headers(rate_class: str, remaining: int, reset_s: int, limit: int) -> dict[str, str]:
    """``RateLimit`` and ``RateLimit-Policy`` as the Hub writes them."""
    return {
        "RateLimit": f'"{rate_class}";r={remaining};t={reset_s}',
        "RateLimit-Policy": f'"fixed window";"{rate_class}";q={limit};w={WINDOW_S}',
    }


def commit_quota_words(limit: int) -> str:
    """What the Hub says when a repository's hour of commits is used up."""
    return (
        f"You have exceeded the rate limit for repository commits ({limit} per hour). "
        "You can retry this action in about 1 hour."
    )


class Quotas:
    """Counts requests; thread-safe. Times come from the Hub's own clock."""

    def __init__(self, options: HubServeOptions, now_unix_ms: Callable[[], int]) -> None:
        self._limits = {"api": options.api_quota, "resolvers": options.resolve_quota}
        self._commits_per_hour = options.commits_per_hour
        self._retry_after = options.commit_quota_retry_after
        self._now_unix_ms = now_unix_ms
        self._lock = threading.Lock()
        self._used: dict[tuple[str, str], tuple[int, int]] = {}

    def count(self, rate_class: str, key: str) -> dict[str, str]:
        """Count one request and give the headers its answer carries.

        Raises:
            HubRefusal: 429; the window's requests are used up.
        """
        limit = self._limits[rate_class]
        if limit <= 0:
            return {}
        now_s = self._now_unix_ms() // 1000
        window, reset_s = now_s // WINDOW_S, WINDOW_S - now_s % WINDOW_S
        with self._lock:
            known_window, used = self._used.get((rate_class, key), (window, 0))
            used = used + 1 if known_window == window else 1
            self._used[(rate_class, key)] = (window, used)
        headers = rate_limit_headers(rate_class, max(0, limit - used), reset_s, limit)
        if used > limit:
            raise HubRefusal(
                429,
                f"We had to rate limit you: {limit} requests per {WINDOW_S} seconds. Retry in {reset_s} seconds.",
                headers=headers,
            )
        return headers

    def require_commit_left(self, repository: Repository) -> None:
        """Check the repository's hour.

        Raises:
            HubRefusal: 429 with the Hub's words, ``Retry-After`` only where the options say so.
        """
        if self._commits_per_hour <= 0:
            return
        now = self._now_unix_ms()
        recent = sorted(
            record.time_unix_ms
            for record in list(repository.commits.values())
            if record.origin != "system" and record.time_unix_ms > now - HOUR_MS
        )
        if len(recent) >= self._commits_per_hour:
            wait_ms = recent[-self._commits_per_hour] + HOUR_MS - now
            headers = {"Retry-After": str(-(-wait_ms // 1000))} if self._retry_after else {}
            raise HubRefusal(429, commit_quota_words(self._commits_per_hour), headers=headers)
