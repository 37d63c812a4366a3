"""What a hand-over and a landed commit do to one repository path (hand-over protocol, section 5.4).

Each path has a rising version. *Settled* means: this version, or a later one, is on the Hub. A path is pending while
its newest version is not settled. So an older version can never overwrite or outlive a newer one (N-HUB-12), and
whoever waits for a version is answered when it or something newer has landed (N-HUB-08).

While a commit that carries the path has no known outcome the path is *in flight*: until it is known, bytes equal to the
last committed ones prove nothing (finding W3), so they stay pending.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PathState:
    """The delivery state of one path."""

    newest_version: int
    newest_sha256: str
    settled_version: int
    """0 until something landed."""
    committed_sha256: str | None
    due_unix_s: float
    is_forced: bool
    """The pending bytes were handed over with a flush, which outlives a commit already under way (finding W6)."""
    interval_s: float

    @property
    def is_pending(self) -> bool:
        """The newest bytes are not known to be on the Hub."""
        return self.settled_version < self.newest_version


@dataclass(frozen=True, slots=True)
class IncomingBytes:
    """One path of a hand-over."""

    sha256: str
    due_unix_s: float
    is_forced: bool
    interval_s: float


def hand_over(state: PathState | None, incoming: IncomingBytes, *, is_in_flight: bool) -> PathState:
    """Take new bytes for a path.

    Args:
        state: what is known of the path, or None for an unknown one.
        incoming: the bytes and when they are due.
        is_in_flight: a commit that carries this path has no known outcome.
    """
    if state is None:
        return PathState(1, incoming.sha256, 0, None, incoming.due_unix_s, incoming.is_forced, incoming.interval_s)
    if state.is_pending and state.newest_sha256 == incoming.sha256:
        # The same bytes again: nothing changes, except that a flush is remembered and hastens them.
        if not incoming.is_forced:
            return state
        return replace(state, due_unix_s=min(state.due_unix_s, incoming.due_unix_s), is_forced=True)
    version = state.newest_version + 1
    if incoming.sha256 == state.committed_sha256 and not is_in_flight:
        return replace(
            state, newest_version=version, newest_sha256=incoming.sha256, settled_version=version, is_forced=False
        )
    due = min(state.due_unix_s, incoming.due_unix_s) if state.is_pending else incoming.due_unix_s
    return replace(
        state,
        newest_version=version,
        newest_sha256=incoming.sha256,
        due_unix_s=due,
        is_forced=incoming.is_forced or (state.is_pending and state.is_forced),
        interval_s=incoming.interval_s,
    )


def may_send(state: PathState, version: int) -> bool:
    """Whether a commit may still be recorded that carries this version.

    Between reading what is pending and recording the commit, a hand-over can settle the path at a newer version, when
    it brings back the committed bytes. Sending the older version then would overwrite the newer one (N-HUB-12).
    """
    return state.settled_version < version <= state.newest_version


def landed(state: PathState, sent_version: int, sent_sha256: str, *, landed_unix_s: float) -> PathState:
    """Take note that a commit with this version of the path landed.

    Bytes handed over meanwhile stay pending and, unless they were forced, are due one interval after this commit
    (finding W5); bytes equal to the landed ones are settled with them. Other bytes are pending *again* even if they
    had been settled: the Hub holds what was sent, whatever was true before.
    """
    settled = state.newest_version if state.newest_sha256 == sent_sha256 else min(sent_version, state.newest_version)
    after = replace(state, committed_sha256=sent_sha256, settled_version=settled)
    if not after.is_pending:
        return replace(after, is_forced=False)
    due = after.due_unix_s if after.is_forced else landed_unix_s + after.interval_s
    return replace(after, due_unix_s=due)


def not_landed(state: PathState) -> PathState:
    """Take note that the commit in flight can never land: what equals the committed bytes is settled after all."""
    if state.newest_sha256 == state.committed_sha256:
        return replace(state, settled_version=state.newest_version, is_forced=False)
    return state


__all__ = ["IncomingBytes", "PathState", "hand_over", "landed", "may_send", "not_landed"]
