"""When the next commit may start (hand-over protocol, sections 5.4, 5.5 and 5.8; finding W24)."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conveyor.protocol.schedule import HOUR_S, Backoff, CommitPace, due_unix_s

NOW = 1_800_000_000.0
PACE = CommitPace()


def commit_greedily(pace: CommitPace, waits_s: list[float]) -> list[float]:
    """The times of commits, each made at the earliest time allowed after a pause."""
    now, commits = NOW, list[float]()
    for wait_s in waits_s:
        now = pace.earliest_unix_s(commits, now + wait_s)
        commits.append(now)
    return commits


def test_the_first_commit_may_start_at_once() -> None:
    """Section 5.4: a repository without a commit waits for nothing."""
    assert PACE.earliest_unix_s([], NOW) == NOW
    assert PACE.tokens([], NOW) == 20.0


@pytest.mark.parametrize(("ago_s", "wait_s"), [(0.0, 10.0), (4.0, 6.0), (9.5, 0.5), (10.0, 0.0), (50.0, 0.0)])
def test_commits_are_spaced(ago_s: float, wait_s: float) -> None:
    """Section 5.8: 10 s after the last commit of any kind, and no wait after that."""
    assert PACE.earliest_unix_s([NOW - 3000.0, NOW - ago_s], NOW) == NOW + wait_s


def test_a_burst_then_even_spacing() -> None:
    """The budget: a burst at the spacing, then one commit each refill of the bucket (45 s at 80 an hour)."""
    commits = commit_greedily(PACE, [0.0] * 60)
    gaps_s = [later - earlier for earlier, later in pairwise(commits)]
    assert gaps_s[:24] == [10.0] * 24
    assert gaps_s[30:] == pytest.approx([45.0] * 29, abs=1e-3)


def test_the_bucket_never_holds_more_than_a_burst() -> None:
    """Two quiet hours do not save up more than one burst."""
    commits = [NOW - 7200.0 + 10.0 * number for number in range(25)]
    assert PACE.tokens(commits, NOW) == 20.0
    assert PACE.tokens([NOW - 1000.0], NOW) == 20.0
    assert PACE.tokens([NOW - 9.0], NOW) == pytest.approx(19.2)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    limits=st.integers(2, 128).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most - 1))),
    spacing_s=st.sampled_from([0.0, 1.0, 10.0]),
    waits_s=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 400.0)), min_size=1, max_size=200),
)
def test_no_hour_holds_more_than_its_commits(limits: tuple[int, int], spacing_s: float, waits_s: list[float]) -> None:
    """However an hour is cut, both ends included, it holds at most `per_hour` commits, none closer than the spacing."""
    per_hour, burst = limits
    commits = commit_greedily(CommitPace(spacing_s=spacing_s, per_hour=per_hour, burst=burst), waits_s)
    for number, start in enumerate(commits):
        assert sum(start <= commit <= start + HOUR_S for commit in commits[number:]) <= per_hour
    assert all(later - earlier >= spacing_s for earlier, later in pairwise(commits))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.0, 5000.0), max_size=150), st.integers(0, 3))
def test_older_commits_and_their_order_do_not_matter(ages_s: list[float], seed: int) -> None:
    """Commits beyond the horizon count for nothing, and a listing may have any order."""
    commits = [NOW - age_s for age_s in ages_s]
    answer = PACE.earliest_unix_s(commits, NOW)
    assert answer >= NOW
    assert PACE.earliest_unix_s(sorted(commits, reverse=bool(seed % 2)), NOW) == answer
    assert PACE.earliest_unix_s([*commits, NOW - PACE.horizon_s - 1.0], NOW) == answer
    assert PACE.tokens(commits, NOW) <= PACE.burst


def test_the_horizon_covers_at_least_an_hour() -> None:
    """A commit of exactly an hour ago counts; where the bucket refills slowly, older ones do too."""
    assert PACE.horizon_s == HOUR_S
    assert PACE.tokens([NOW - HOUR_S] * 100, NOW) == pytest.approx(0.0)
    assert CommitPace(per_hour=100, burst=99).horizon_s == pytest.approx(99 * HOUR_S)


@pytest.mark.parametrize("ahead_s", [1.0, 3600.0, 10.0**9])
def test_a_clock_set_back(ahead_s: float) -> None:
    """W24: commits that seem to lie in the future count as now: neither too early nor a block of hours."""
    assert PACE.earliest_unix_s([NOW + ahead_s], NOW) == NOW + 10.0
    assert PACE.tokens([NOW + ahead_s], NOW) == 19.0


@pytest.mark.parametrize(
    "limits",
    [
        {"burst": 0},
        {"burst": 100},
        {"per_hour": 129},
        {"per_hour": 20},
        {"spacing_s": -1.0},
        {"spacing_s": math.nan},
        {"spacing_s": math.inf},
    ],
)
def test_a_pace_that_makes_no_sense(limits: dict[str, float]) -> None:
    """A budget needs 1 <= burst < per_hour <= 128 and a finite spacing; the message says so."""
    with pytest.raises(ValueError, match=r"needs 1 <= burst < per_hour <= 128|spacing_s must be a finite"):
        CommitPace(**limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failures", "pause_s"),
    [
        (0, 2.0),
        (1, 2.0),
        (2, 4.0),
        (3, 8.0),
        (4, 16.0),
        (7, 128.0),
        (8, 256.0),
        (9, 300.0),
        (10, 300.0),
        (10**9, 300.0),
    ],
)
def test_backoff(failures: int, pause_s: float) -> None:
    """Section 5.5: 2, 4, 8, ... 256, 300 s, and never more."""
    assert Backoff().pause_s(failures) == pause_s


@pytest.mark.parametrize(
    ("flush", "last_unix_s", "due"),
    [
        (True, None, NOW),
        (True, NOW - 1.0, NOW),
        (False, None, NOW),
        (False, NOW - 1.0, NOW + 29.0),
        (False, NOW - 30.0, NOW),
        (False, NOW - 500.0, NOW),
        (False, NOW + 7200.0, NOW + 30.0),
    ],
)
def test_when_a_hand_over_is_due(flush: bool, last_unix_s: float | None, due: float) -> None:
    """Section 5.4: a flush and the first at once, others one interval after the last commit; W24: never later."""
    assert due_unix_s(flush=flush, now_unix_s=NOW, last_commit_unix_s=last_unix_s, interval_s=30.0) == due
