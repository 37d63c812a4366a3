"""The right to write: leases with an owner and a counter that only grows (hand-over protocol, 5.7; findings W22-W24).

Wall-clock times are evidence of who may be alive, never the fence: every recorded effect compares owner and fence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEASE_S: Final = 120.0
RENEW_EVERY_S: Final = 30.0
SAFETY_MARGIN_S: Final = 10.0
"""Work stops this long before others may take a lease that could not be renewed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted lease on one repository."""

    repository: str
    owner: str
    """A random token of the runtime that holds it."""
    fence: int
    """Grows with each grant; an effect that carries an older one is refused."""
    expires_unix_s: float


@dataclass(frozen=True, slots=True)
class LeaseHeld:
    """The answer of a lease that somebody else holds."""

    owner: str
    expires_unix_s: float
    """When it may be asked for again, already clamped against clocks that jumped."""


def clamp_ahead(stored_unix_s: float, now_unix_s: float, at_most_s: float) -> float:
    """Bound how far ahead a stored time may lie, so that a clock once set forward blocks nobody for ever (W24)."""
    return min(stored_unix_s, now_unix_s + at_most_s)


def is_in_force(expires_unix_s: float, now_unix_s: float, lease_s: float = LEASE_S) -> bool:
    """Whether a lease with this end still keeps others away.

    An end further ahead than a whole lease was written under another clock and is clamped when it is next seen.
    """
    return now_unix_s < clamp_ahead(expires_unix_s, now_unix_s, lease_s)


__all__ = ["LEASE_S", "RENEW_EVERY_S", "SAFETY_MARGIN_S", "Lease", "LeaseHeld", "clamp_ahead", "is_in_force"]
