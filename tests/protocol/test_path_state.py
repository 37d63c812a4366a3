"""What hand-overs and commits do to one path (hand-over protocol, section 5.4; findings W3, W5, W6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from conveyor.protocol.path_state import IncomingBytes, PathState, hand_over, landed, may_send, not_landed

X, Y, Z = "x" * 64, "y" * 64, "z" * 64


def incoming(
    sha256: str, due_unix_s: float = 500.0, *, is_forced: bool = False, interval_s: float = 30.0
) -> IncomingBytes:
    """Bytes that are handed over."""
    return IncomingBytes(sha256, due_unix_s, is_forced, interval_s)


COMMITTED_X = PathState(1, X, 1, X, 100.0, False, 30.0)
PENDING_X = PathState(1, X, 0, None, 100.0, False, 30.0)
PENDING_Y = PathState(2, Y, 1, X, 100.0, False, 30.0)
"""X is on the Hub, Y waits."""


class TestTable:
    """Section 5.4, row by row."""

    def test_unknown_path(self) -> None:
        """Unknown path: store, pending, due."""
        assert hand_over(None, incoming(X), is_in_flight=False) == PathState(1, X, 0, None, 500.0, False, 30.0)
        assert hand_over(None, incoming(X, is_forced=True), is_in_flight=False).is_forced

    @pytest.mark.parametrize("is_forced", [False, True])
    def test_committed_bytes_with_nothing_pending(self, is_forced: bool) -> None:
        """Equal to the committed digest, nothing pending: not pending, also with a flush."""
        after = hand_over(COMMITTED_X, incoming(X, is_forced=is_forced), is_in_flight=False)
        assert not after.is_pending
        assert (after.newest_version, after.newest_sha256, after.is_forced) == (2, X, False)

    def test_committed_bytes_with_other_bytes_pending(self) -> None:
        """Equal to the committed digest, other bytes pending, no commit under way: not pending any more."""
        after = hand_over(PENDING_Y, incoming(X), is_in_flight=False)
        assert not after.is_pending
        assert (after.newest_version, after.newest_sha256, after.committed_sha256) == (3, X, X)

    @pytest.mark.parametrize("due_unix_s", [1.0, 500.0])
    @pytest.mark.parametrize("is_in_flight", [False, True])
    def test_pending_bytes_again(self, due_unix_s: float, is_in_flight: bool) -> None:
        """Pending with the same digest: nothing, the due time stays even if the new one is earlier."""
        assert hand_over(PENDING_Y, incoming(Y, due_unix_s), is_in_flight=is_in_flight) is PENDING_Y

    def test_pending_bytes_again_with_a_flush(self) -> None:
        """Pending with the same digest: a flush applies all the same."""
        after = hand_over(PENDING_Y, incoming(Y, 50.0, is_forced=True), is_in_flight=False)
        assert after == replace(PENDING_Y, due_unix_s=50.0, is_forced=True)
        assert hand_over(PENDING_Y, incoming(Y, is_forced=True), is_in_flight=False).due_unix_s == 100.0

    @pytest.mark.parametrize(("due_unix_s", "expected"), [(50.0, 50.0), (500.0, 100.0)])
    def test_other_bytes_pending(self, due_unix_s: float, expected: float) -> None:
        """Pending with other bytes: replace them; due at the earlier of both."""
        after = hand_over(PENDING_Y, incoming(Z, due_unix_s), is_in_flight=False)
        assert after == PathState(3, Z, 1, X, expected, False, 30.0)

    def test_a_flush_outlives_bytes_that_replace_the_flushed_ones(self) -> None:
        """Pending with a flush, replaced by unforced bytes: they still go at once."""
        flushed = hand_over(PENDING_Y, incoming(Y, 50.0, is_forced=True), is_in_flight=False)
        after = hand_over(flushed, incoming(Z), is_in_flight=False)
        assert (after.due_unix_s, after.is_forced) == (50.0, True)

    def test_new_bytes_with_nothing_pending(self) -> None:
        """Not pending, new digest: store, pending, due."""
        after = hand_over(COMMITTED_X, incoming(Y, 500.0, interval_s=7.0), is_in_flight=False)
        assert after == PathState(2, Y, 1, X, 500.0, False, 7.0)
        assert after.is_pending


class TestCommits:
    """Section 5.4, *After a commit landed*, and commits whose outcome is not known."""

    def test_the_newest_bytes_landed(self) -> None:
        """The newest digest is the one that was sent: settled, and a flush is done."""
        after = landed(replace(PENDING_Y, is_forced=True), 2, Y, landed_unix_s=200.0)
        assert not after.is_pending
        assert (after.committed_sha256, after.settled_version, after.is_forced) == (Y, 2, False)

    def test_newer_bytes_came_meanwhile(self) -> None:
        """Newer bytes stay pending, one interval from the commit (W5), and the sent version is settled (N-HUB-08)."""
        during = hand_over(PENDING_Y, incoming(Z, 110.0, interval_s=40.0), is_in_flight=True)
        after = landed(during, 2, Y, landed_unix_s=200.0)
        assert after == PathState(3, Z, 2, Y, 240.0, False, 40.0)

    def test_the_committed_bytes_came_back_meanwhile(self) -> None:
        """X is on the Hub, Y is being committed, X is handed over: X is committed after Y."""
        during = hand_over(PENDING_Y, incoming(X), is_in_flight=True)
        assert during.is_pending
        after = landed(during, 2, Y, landed_unix_s=200.0)
        assert after.is_pending
        assert (after.newest_sha256, after.committed_sha256, after.due_unix_s) == (X, Y, 230.0)

    def test_the_sent_bytes_came_again_meanwhile(self) -> None:
        """Y is being committed; Z and then Y again are handed over: Y is settled with its newest version."""
        during = hand_over(PENDING_Y, incoming(Z), is_in_flight=True)
        during = hand_over(during, incoming(Y), is_in_flight=True)
        after = landed(during, 2, Y, landed_unix_s=200.0)
        assert not after.is_pending
        assert after.settled_version == after.newest_version == 4

    def test_nothing_is_compared_while_the_outcome_is_unknown(self) -> None:
        """W3: the Hub may hold Y although X is believed; X stays pending until it is known, either way."""
        during = hand_over(PENDING_Y, incoming(X), is_in_flight=True)
        assert during.is_pending
        assert landed(during, 2, Y, landed_unix_s=200.0).is_pending
        assert not not_landed(during).is_pending

    def test_a_commit_that_never_landed_changes_nothing_else(self) -> None:
        """Other bytes stay pending as they were."""
        assert not_landed(PENDING_Y) is PENDING_Y
        during = hand_over(PENDING_Y, incoming(Z, 110.0), is_in_flight=True)
        assert not_landed(during) is during

    def test_a_commit_that_never_landed_over_nothing_committed(self) -> None:
        """Bytes of a path of which nothing was ever committed are not settled by a commit that failed."""
        assert not_landed(PENDING_X).is_pending

    def test_a_flush_during_a_commit_is_remembered(self) -> None:
        """W6: the committed bytes are flushed while other bytes are in a commit: they go at once, not in an hour."""
        waiting = replace(PENDING_Y, due_unix_s=3700.0, interval_s=3600.0)
        during = hand_over(waiting, incoming(X, 110.0, is_forced=True, interval_s=3600.0), is_in_flight=True)
        after = landed(during, 2, Y, landed_unix_s=200.0)
        assert after.is_pending
        assert after.due_unix_s == 110.0

    def test_an_older_version_is_not_sent_over_a_settled_newer_one(self) -> None:
        """N-HUB-12: between planning and recording a commit, the committed bytes come back: the plan is stale."""
        planned_version = PENDING_Y.newest_version
        assert may_send(PENDING_Y, planned_version)
        meanwhile = hand_over(PENDING_Y, incoming(X), is_in_flight=False)
        assert not may_send(meanwhile, planned_version)
        assert may_send(hand_over(PENDING_Y, incoming(Z), is_in_flight=False), planned_version)
        assert not may_send(PENDING_Y, 3)

    def test_an_older_version_that_landed_over_a_settled_newer_one_makes_that_pending_again(self) -> None:
        """Should it have happened all the same, the Hub holds the older bytes: the newest are not lost."""
        meanwhile = hand_over(PENDING_Y, incoming(X), is_in_flight=False)
        after = landed(meanwhile, 2, Y, landed_unix_s=200.0)
        assert after.is_pending
        assert (after.newest_sha256, after.committed_sha256, after.settled_version) == (X, Y, 2)


class OnePath(RuleBasedStateMachine):
    """Any history of one path, beside a model of what the Hub really holds."""

    def __init__(self) -> None:
        super().__init__()
        self.state: PathState | None = None
        self.versions: dict[int, str] = {}
        """What each version is."""
        self.on_hub: str | None = None
        self.planned: tuple[int, str] | None = None
        self.sent: tuple[int, str] | None = None
        self.highest_settled = 0

    @rule(sha256=st.sampled_from([X, Y, X, Y, Z]), is_forced=st.booleans())
    def hand_over(self, sha256: str, is_forced: bool) -> None:
        """A build hands over bytes, at any moment."""
        before = self.state
        self.state = hand_over(before, incoming(sha256, is_forced=is_forced), is_in_flight=self.sent is not None)
        assert self.state.newest_sha256 == sha256
        assert self.state.newest_version - (before.newest_version if before else 0) in (0, 1)
        self.versions[self.state.newest_version] = sha256

    @precondition(lambda self: self.state is not None and self.state.is_pending and self.sent is None)
    @rule()
    def plan(self) -> None:
        """What is pending is read for a commit."""
        assert self.state is not None
        self.planned = self.state.newest_version, self.state.newest_sha256

    @precondition(lambda self: self.planned is not None)
    @rule(lands=st.booleans())
    def send(self, lands: bool) -> None:
        """The commit is recorded, if it still may be, and sent; its answer is lost."""
        assert self.state is not None
        assert self.planned is not None
        version, sha256 = self.planned
        self.planned = None
        if may_send(self.state, version):
            self.sent = version, sha256
            if lands:
                self.on_hub = sha256

    @precondition(lambda self: self.sent is not None)
    @rule()
    def find_out(self) -> None:
        """A look at the Hub tells whether it landed; equal bytes there are as good as landed."""
        assert self.state is not None
        assert self.sent is not None
        version, sha256 = self.sent
        self.sent = None
        if self.on_hub == sha256:
            self.state = landed(self.state, version, sha256, landed_unix_s=1000.0)
        else:
            self.state = not_landed(self.state)

    @invariant()
    def what_is_settled_is_on_the_hub(self) -> None:
        """The Hub holds the settled version or a newer one; with nothing pending it holds the newest bytes."""
        if self.state is None:
            return
        if not self.state.is_pending:
            assert self.on_hub == self.state.newest_sha256
        if self.state.settled_version:
            newer = {sha for version, sha in self.versions.items() if version >= self.state.settled_version}
            assert self.on_hub in newer
        assert self.state.settled_version >= self.highest_settled
        self.highest_settled = self.state.settled_version

    def teardown(self) -> None:
        """Whatever happened, one more commit of what is pending brings the newest bytes to the Hub."""
        if self.state is None:
            return
        if self.sent is not None:
            self.find_out()
        if self.state.is_pending:
            self.plan()
            self.send(True)
            self.find_out()
        assert not self.state.is_pending
        assert self.on_hub == self.versions[max(self.versions)]


TestAnyHistory = pytest.mark.slow(OnePath.TestCase)
TestAnyHistory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
