"""The figures of a sweep: latencies, and what the local Hub's own log says of commits, spacing and requests."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .verify import Verification


class RepositoryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the Hub's log says of one repository."""

    repository: str
    commits: int
    shortest_gap_s: float | None
    """The shortest time between two commits, the final one at shutdown aside; None with fewer than two."""
    landed_twice: int
    """Paths whose final bytes were committed more than once."""


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    type: str = "sweep"
    verified: bool
    jobs: int
    hand_overs: int
    unavailable: int
    refused: tuple[str, ...]
    p50_s: float
    p95_s: float
    max_s: float
    repositories: tuple[RepositoryFigures, ...]
    requests: int | None
    """Requests that the local Hub answered; None for a Hub elsewhere."""
    handed_bytes: int
    files_read_back: int
    bytes_read_back: int
    missing: tuple[str, ...]
    different: tuple[str, ...]
    left_over: int
    produce_s: float
    deliver_s: float
    """From the first hand-over to the end of the shutdown."""
    verify_s: float
    directory: str


def figures_of_log(hub_root: Path, spacing_s: float, final_commits: Sequence[str]) -> tuple[RepositoryFigures, ...]:
    """Read the local Hub's commit log.

    Args:
        hub_root: the directory of the local Hub.
        spacing_s: what the spacing should be; only for orientation of the reader, nothing is left out by it.
        final_commits: ids of the final commits of a shutdown, which may come sooner.
    """
    commits: dict[str, list[tuple[float, str]]] = {}
    landings: dict[str, dict[str, list[str]]] = {}
    for line in (hub_root / "commits.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record.get("kind") != "commit" or record.get("origin") != "client":
            continue
        commits.setdefault(record["repo"], []).append((record["time_unix_ms"] / 1000, record["id"]))
        for change in record["changes"]:
            if change.get("sha256"):
                landings.setdefault(record["repo"], {}).setdefault(change["path"], []).append(change["sha256"])
    final = set(final_commits)
    return tuple(
        RepositoryFigures(
            repository=repository,
            commits=len(made),
            shortest_gap_s=min(
                (later[0] - earlier[0] for earlier, later in itertools.pairwise(made) if later[1] not in final),
                default=None,
            ),
            landed_twice=sum(sent.count(sent[-1]) > 1 for sent in landings.get(repository, {}).values()),
        )
        for repository, made in sorted(commits.items())
    )


def count_requests(hub_root: Path) -> int:
    """How many requests the local Hub answered."""
    with (hub_root / "requests.jsonl").open() as lines:
        return sum(1 for _ in lines)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie; 0 without values."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def is_verified(verification: Verification, figures: Sequence[RepositoryFigures], spacing_s: float) -> bool:
    """Whether all bytes are there, each landed once, and no two commits came closer than the spacing."""
    return verification.is_good and all(
        not row.landed_twice and (row.shortest_gap_s is None or row.shortest_gap_s >= spacing_s - 0.001)
        for row in figures
    )


__all__ = ["RepositoryFigures", "SweepReport", "count_requests", "figures_of_log", "is_verified", "percentile"]
