"""The merge of run entries into `runs.json` (hand-over protocol, section 5.5), exact to the byte.

A document that cannot be understood is *unknown*, not empty: it is never written over, and the entries stay pending
(findings W1 and W2). Only the Hub's own word that there is no such file starts an empty index.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from .errors import ConveyorError, LocalProtocolError
from .work import PendingEntry

RUN_INDEX_PATH: Final = "runs.json"
"""Where the index is: the top level of the repository."""

SCHEMA_VERSION: Final = 1

_SORT_KEYS: Final = ("updated_at", "started_at", "run_id")


class RunIndexUnreadable(ConveyorError):
    """The repository's `runs.json` is not understood, so it is left as it is; the entries stay pending."""

    code: ClassVar[str] = "RUN_INDEX_UNREADABLE"


def merge_run_index(document: bytes | None, entries: Iterable[PendingEntry], *, now_unix_s: float) -> bytes:
    """Merge the entries of runs into the index.

    Of the old document only the objects with a `run_id` are kept, in their order, less the runs that an entry replaces.
    The entries follow as they are, by run id; then all are sorted, newest first. Numbers that JSON cannot express
    (`NaN`, `Infinity`, `1e400`) become null.

    Args:
        document: the bytes of `runs.json` at the head that the commit will be pinned to; None if the Hub says that
            there is none.
        entries: the pending entries, at most one of each run.
        now_unix_s: the start of the attempt, which becomes the document's `updated_at` in whole seconds.

    Returns:
        the new document, without a newline at its end.

    Raises:
        RunIndexUnreadable: the document is not UTF-8, not JSON, no object, has no list `runs` or two of them, or is
            nested too deep.
        LocalProtocolError: an entry is not the JSON object of its run, or there are two of one run.
    """
    fresh = {}
    for entry in entries:
        if entry.run_id in fresh:
            raise LocalProtocolError(f"two entries of run {entry.run_id!r} to merge; a run has one")
        fresh[entry.run_id] = _parse_entry(entry)
    kept = [] if document is None else _read_runs(document)
    runs = [run for run in kept if not (isinstance(run["run_id"], str) and run["run_id"] in fresh)]
    runs.extend(fresh[run_id] for run_id in sorted(fresh))
    try:
        runs.sort(key=_sort_text, reverse=True)
        merged = {"schema_version": SCHEMA_VERSION, "updated_at": _timestamp(now_unix_s), "runs": runs}
        return json.dumps(merged, indent=1, ensure_ascii=True, allow_nan=False).encode("ascii")
    except RecursionError:
        # Entries have a bounded depth, so it is the old document that has not.
        raise _unreadable("is nested too deep") from None


def _read_runs(document: bytes) -> list[dict[str, Any]]:
    try:
        text = document.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _unreadable("is not UTF-8 text") from None
    pairs: list[tuple[str, Any]] = []

    def keep_pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        # Called for each object after those inside it: the last one called for is the whole document.
        nonlocal pairs
        pairs = found
        return dict(found)

    try:
        parsed = json.loads(
            text, object_pairs_hook=keep_pairs, parse_float=_finite_or_none, parse_constant=_no_constant
        )
    except RecursionError:
        raise _unreadable("is nested too deep") from None
    except ValueError as error:
        # Not JSON, or a whole number with more digits than Python reads. The message of a parser shows no content.
        raise _unreadable(f"is not JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise _unreadable("is no JSON object")
    if sum(key == "runs" for key, _ in pairs) > 1:
        raise _unreadable("has more than one 'runs'")
    runs = parsed.get("runs")
    if not isinstance(runs, list):
        raise _unreadable("has no list 'runs'")
    return [run for run in runs if isinstance(run, dict) and run.get("run_id")]


def _parse_entry(entry: PendingEntry) -> dict[str, Any]:
    try:
        parsed = json.loads(entry.text, parse_float=_finite_or_none, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or parsed.get("run_id") != entry.run_id:
        raise LocalProtocolError(f"the index entry of run {entry.run_id!r} is not a JSON object with that 'run_id'")
    return parsed


def _finite_or_none(token: str) -> float | None:
    number = float(token)
    return number if math.isfinite(number) else None


def _no_constant(_token: str) -> None:
    """What `NaN`, `Infinity` and `-Infinity` become."""


def _sort_text(run: dict[str, Any]) -> str:
    """The text of the first value that Python calls true, as the protocol has it."""
    return next((str(run[key]) for key in _SORT_KEYS if run.get(key)), "")


def _timestamp(unix_s: float) -> str:
    return datetime.fromtimestamp(math.floor(unix_s), UTC).isoformat()


def _unreadable(what: str) -> RunIndexUnreadable:
    return RunIndexUnreadable(
        f"{RUN_INDEX_PATH} at the top level of the repository {what}; it is left as it is. "
        "Repair it, or delete it to start a new index: the entries wait meanwhile"
    )


__all__ = ["RUN_INDEX_PATH", "RunIndexUnreadable", "SCHEMA_VERSION", "merge_run_index"]
