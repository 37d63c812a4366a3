"""Restart arithmetic, with time as an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor.actors import RestartBackoff, RestartIntensity
from conveyor.actors.intensity import RestartWindow


def test_a_burst_up_to_the_limit_is_admitted_and_the_next_is_not() -> None:
    """All allowed restarts may come in the same instant; one more is too many."""
    window = RestartWindow(RestartIntensity(max_restarts=3, period_s=10))
    assert [window.admit(5.0) for _ in range(5)] == [True, True, True, False, False]


def test_a_sustained_rate_below_the_limit_goes_on_for_ever() -> None:
    """Restarts spaced at period / max_restarts are admitted without end."""
    window = RestartWindow(RestartIntensity(max_restarts=3, period_s=9))
    assert all(window.admit(3.0 * step) for step in range(10_000))


def test_a_sustained_rate_above_the_limit_escalates() -> None:
    """Restarts a little closer than period / max_restarts are refused at the fourth."""
    window = RestartWindow(RestartIntensity(max_restarts=3, period_s=9))
    assert [window.admit(2.9 * step) for step in range(4)] == [True, True, True, False]


def test_room_returns_exactly_when_the_period_has_passed() -> None:
    """A restart stops counting when it is period_s old, not a moment earlier."""
    window = RestartWindow(RestartIntensity(max_restarts=1, period_s=10))
    assert window.admit(0.0)
    assert not window.admit(9.999)
    assert window.admit(10.0)


def test_no_restart_is_allowed_when_the_limit_is_zero() -> None:
    """max_restarts=0 escalates on the first failure."""
    assert not RestartWindow(RestartIntensity(max_restarts=0, period_s=1)).admit(0.0)


@given(st.lists(st.floats(0, 100), max_size=60), st.integers(0, 5), st.floats(0.5, 20))
def test_no_window_ever_holds_more_than_the_limit(steps: list[float], max_restarts: int, period_s: float) -> None:
    """Whatever the times, any period_s seconds hold at most max_restarts admitted restarts."""
    window = RestartWindow(RestartIntensity(max_restarts, period_s))
    admitted = [now_s for now_s in sorted(steps) if window.admit(now_s)]
    for first in admitted:
        assert sum(first <= now_s and now_s - first < period_s for now_s in admitted) <= max_restarts


def test_delays_grow_to_their_bound() -> None:
    """Each failure in a row waits twice as long, up to longest_s, even after very many."""
    backoff = RestartBackoff(first_s=0.5, factor=2, longest_s=3)
    assert [backoff.delay_s(failures) for failures in (1, 2, 3, 4, 10_000)] == [0.5, 1, 2, 3, 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RestartIntensity(-1, 1),
        lambda: RestartIntensity(1, 0),
        lambda: RestartIntensity(1, float("nan")),
        lambda: RestartBackoff(first_s=-1),
        lambda: RestartBackoff(first_s=2, longest_s=1),
        lambda: RestartBackoff(factor=0.5),
    ],
)
def test_limits_out_of_range_are_refused(make: type) -> None:
    """A limit that makes no sense is a ValueError that says what holds."""
    with pytest.raises(ValueError, match=r"must be|holds"):
        make()
