"""What a repository does next, and when: a pure decision over its agenda."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..protocol.schedule import CommitPace
from ..protocol.work import RepositoryAgenda


class Step(Enum):
    """One thing that a RepositoryActor can do."""

    SETTLE = "settle"
    """Find out what became of a commit whose outcome is unknown; before anything else."""
    CLAIM = "claim"
    """Claim a bundle and begin to prepare it."""
    RUN_FILES = "run_files"
    """Commit the pending run files."""
    BUNDLES = "bundles"
    """Commit the bundles that are ready."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What comes next and when."""

    step: Step
    at_unix_s: float
    """Not after now: at once."""


def next_step(
    agenda: RepositoryAgenda,
    *,
    now_unix_s: float,
    pace: CommitPace,
    may_claim: bool,
    ready_since_unix_s: float | None,
    quiet_until_unix_s: float = 0.0,
) -> NextStep | None:
    """Decide what a repository does next.

    Run files and bundles take turns at the commit slot: what has waited longest for it goes first, so neither starves
    the other. Claiming needs no slot.

    Args:
        agenda: the repository's state.
        now_unix_s: the wall clock.
        pace: spacing and budget of its commits.
        may_claim: whether another bundle may be prepared now.
        ready_since_unix_s: since when a prepared bundle waits for the slot; None without one.
        quiet_until_unix_s: nothing is tried before.

    Returns:
        The next step, or None when there is nothing to do.
    """
    held_until = max(now_unix_s, quiet_until_unix_s)
    if agenda.has_open_attempt:
        return NextStep(Step.SETTLE, held_until)
    held_until = max(held_until, agenda.pause_until_unix_s)
    slot_at = max(held_until, pace.earliest_unix_s(agenda.commits_unix_s, now_unix_s))
    candidates: list[tuple[float, float, NextStep]] = []
    if may_claim and agenda.bundles_due_unix_s is not None:
        at = max(held_until, agenda.bundles_due_unix_s)
        candidates.append((at, float("-inf"), NextStep(Step.CLAIM, at)))
    if agenda.run_files_due_unix_s is not None:
        at = max(slot_at, agenda.run_files_due_unix_s, agenda.not_before_unix_s)
        candidates.append((at, agenda.run_files_due_unix_s, NextStep(Step.RUN_FILES, at)))
    if ready_since_unix_s is not None:
        candidates.append((slot_at, ready_since_unix_s, NextStep(Step.BUNDLES, slot_at)))
    return min(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


def has_times_ahead(agenda: RepositoryAgenda, now_unix_s: float, backoff_max_s: float) -> bool:
    """Whether stored times lie further ahead than they can have been set by a clock like ours (finding W24)."""
    return any(time > now_unix_s for time in agenda.commits_unix_s) or any(
        time > now_unix_s + backoff_max_s + 1.0 for time in (agenda.not_before_unix_s, agenda.bundles_due_unix_s or 0.0)
    )


def has_any_time_ahead(agenda: RepositoryAgenda, now_unix_s: float, lease_s: float) -> bool:
    """Whether any stored time lies ahead at all, rightly or not; of a lease, by more than a lease."""
    work = (agenda.run_files_due_unix_s, agenda.bundles_due_unix_s)
    times = (*work, agenda.not_before_unix_s, agenda.pause_until_unix_s, agenda.lease_expires_unix_s - lease_s)
    return any(time is not None and time > now_unix_s for time in (*times, *agenda.commits_unix_s))


__all__ = ["NextStep", "Step", "has_any_time_ahead", "has_times_ahead", "next_step"]
