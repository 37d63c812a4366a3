"""A run's entry for `runs.json`: pending until its very text is on the Hub (hand-over protocol, section 5.4).

It has versions like a path, and obeys the same rules, with two differences: a text equal to the committed one does
nothing while nothing is pending, and any text handed over while one is pending stays pending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...protocol.path_state import IncomingBytes, PathState, hand_over, landed


def entry_state(run: Mapping[Any, Any]) -> PathState | None:
    """The pure state of a run's entry, None before the first."""
    if run["entry_text"] is None:
        return None
    return PathState(
        newest_version=run["entry_version"],
        newest_sha256=run["entry_text"],
        settled_version=run["entry_settled_version"],
        committed_sha256=None,
        due_unix_s=run["entry_due_unix_s"],
        is_forced=run["entry_is_forced"],
        interval_s=run["entry_interval_s"],
    )


def entry_columns(state: PathState) -> dict[str, Any]:
    """The columns that follow from a state."""
    return {
        "entry_text": state.newest_sha256,
        "entry_version": state.newest_version,
        "entry_settled_version": state.settled_version,
        "entry_is_pending": state.is_pending,
        "entry_due_unix_s": state.due_unix_s,
        "entry_is_forced": state.is_forced,
        "entry_interval_s": state.interval_s,
    }


def take_entry(state: PathState | None, text: str, incoming: IncomingBytes) -> PathState:
    """Take an entry's text as handed over; `incoming` says when it is due."""
    if state is not None and not state.is_pending and state.newest_sha256 == text:
        return state
    after = hand_over(state, replace(incoming, sha256=text), is_in_flight=True)
    if state is not None and state.is_pending:
        after = replace(after, due_unix_s=min(state.due_unix_s, incoming.due_unix_s))
    return after


def entry_landed(state: PathState, sent_version: int, sent_text: str, *, landed_unix_s: float) -> PathState:
    """Take note that a text landed; it settles the entry only if it is still the newest one."""
    known_version = max(sent_version, state.settled_version)
    return landed(state, known_version, sent_text, landed_unix_s=landed_unix_s)


__all__ = ["entry_columns", "entry_landed", "entry_state", "take_entry"]
