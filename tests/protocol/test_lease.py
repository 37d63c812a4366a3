"""The right to write (hand-over protocol, section 5.7; findings W22 to W24)."""

from __future__ import annotations

import pytest

from conveyor.protocol.lease import LEASE_S, RENEW_EVERY_S, SAFETY_MARGIN_S, clamp_ahead, is_in_force

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("expires_unix_s", "in_force"),
    [(0.0, False), (NOW - 1.0, False), (NOW, False), (NOW + 0.5, True), (NOW + 120.0, True), (NOW + 10.0**9, True)],
)
def test_a_lease_is_in_force_before_its_end(expires_unix_s: float, in_force: bool) -> None:
    """Section 5.7: at its end a lease keeps nobody away any more."""
    assert is_in_force(expires_unix_s, NOW) is in_force


@pytest.mark.parametrize(
    ("stored_unix_s", "clamped"),
    [(NOW - 5.0, NOW - 5.0), (NOW, NOW), (NOW + 119.0, NOW + 119.0), (NOW + 10.0**9, NOW + 120.0)],
)
def test_a_time_too_far_ahead_is_brought_back(stored_unix_s: float, clamped: float) -> None:
    """W24: an end further ahead than a whole lease was written under another clock; seen once, it ends in 120 s."""
    assert clamp_ahead(stored_unix_s, NOW, LEASE_S) == clamped
    assert not is_in_force(clamp_ahead(stored_unix_s, NOW, LEASE_S), NOW + LEASE_S)


def test_renewals_leave_room_for_failures() -> None:
    """Section 5.7: two renewals of 30 s may fail before the work stops, which is before the 120 s are over."""
    assert (LEASE_S, RENEW_EVERY_S) == (120.0, 30.0)
    assert 3 * RENEW_EVERY_S <= LEASE_S - SAFETY_MARGIN_S
