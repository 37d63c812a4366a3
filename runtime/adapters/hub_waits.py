"""How long the Hub asks to wait: from `RateLimit`, `Retry-After` or its words (hub API notes, sections 2 and 11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

API_WINDOW_S: Final = 300.0
"""The API's quota is counted in fixed windows of five minutes."""
COMMIT_WINDOW_S: Final = 3600.0
"""A repository's commits are counted by the hour."""
LONGEST_WAIT_S: Final = 24 * 3600.0
"""No answer holds a repository for longer, whatever it says."""

_RATE_LIMIT_ITEM = re.compile(r'"[^"]*"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)', re.IGNORECASE)
_DELAY_SECONDS = re.compile(r"\d+(\.\d+)?")
_WORDS = re.compile(
    r"\b(?:in|about|after|for|within|another)\s+(?:about\s+|another\s+)?(\d+(?:\.\d+)?|an?)\s*(second|sec|minute|min|hour)s?\b",
    re.IGNORECASE,
)
_UNIT_S: Final = {"sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "hour": 3600.0}
_COMMIT_QUOTA = re.compile(r"repository commits|commits? per hour|commit rate|number of commits", re.IGNORECASE)


def rate_limit_wait_s(headers: Mapping[str, str], text: str, *, is_commit: bool) -> float:
    """How long to wait after a 429, in seconds from now; never less than one.

    The longest of what was said counts. Nothing said: until the window must have ended. `RateLimit` counts only if
    nothing is left of the API's quota, because a commit quota runs out with requests left.
    """
    items = [(int(left), float(reset)) for left, reset in _RATE_LIMIT_ITEM.findall(headers.get("ratelimit", ""))]
    told = [reset for left, reset in items if left == 0]
    told += [wait for wait in (retry_after_s(headers), _wait_in_words_s(text)) if wait is not None]
    if told:
        return min(max(1.0, *told), LONGEST_WAIT_S)
    is_commit_quota = is_commit and bool(_COMMIT_QUOTA.search(text) or any(left > 0 for left, _ in items))
    return COMMIT_WINDOW_S if is_commit_quota else API_WINDOW_S


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds from now; a date counts from the answer's own `Date`, so no clock of ours matters."""
    value = headers.get("retry-after", "").strip()
    if _DELAY_SECONDS.fullmatch(value):
        return min(float(value), LONGEST_WAIT_S)
    until, now = _http_date(value), _http_date(headers.get("date", ""))
    if until is None or now is None:
        return None
    return min(max(0.0, (until - now).total_seconds()), LONGEST_WAIT_S)


def _wait_in_words_s(text: str) -> float | None:
    found = _WORDS.findall(text)
    return max(
        (_UNIT_S[unit.lower()] * (1.0 if count[:1] in "aA" else float(count)) for count, unit in found), default=None
    )


def _http_date(value: str) -> datetime | None:
    if not value:
        return None
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


__all__ = ["API_WINDOW_S", "COMMIT_WINDOW_S", "LONGEST_WAIT_S", "rate_limit_wait_s", "retry_after_s"]
