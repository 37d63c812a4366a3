"""What can go wrong at the Hub in memory: faults that are scripted, each for certain calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ...protocol.outcome import Outcome, OutcomeKind


class HubCall(StrEnum):
    """The methods of the port that reach the Hub."""

    HEAD = "head"
    RECENT_COMMITS = "recent_commits"
    PREUPLOAD = "preupload"
    UPLOAD = "upload"
    COMMIT = "commit"
    PATHS_INFO = "paths_info"
    LAST_COMMIT = "last_commit"
    DOWNLOAD = "download"


class FaultEffect(StrEnum):
    """What happens to the call that meets a fault."""

    NONE = "none"
    """Nothing but the delays."""
    REFUSE = "refuse"
    """It is answered with the fault's outcome; nothing is done."""
    LOSE_REQUEST = "lose_request"
    """Nothing is done, and no answer comes."""
    LOSE_ANSWER = "lose_answer"
    """It is done, and no answer comes."""
    LAND_LATE = "land_late"
    """A commit: no answer comes, and it lands `late_s` later, if the head is still its parent then."""
    FOREIGN_COMMIT = "foreign_commit"
    """Another writer's commit lands first."""
    STALL = "stall"
    """Nothing moves any more, until the adapter's limit or the caller's ends it. An upload leaves a stuck thread behind
    for `late_s`."""
    CORRUPT = "corrupt"
    """A download: the bytes that arrive are not those that the Hub names."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One scripted fault. It meets the calls that fit, the first `skip` of them left out, `times` times."""

    call: HubCall
    effect: FaultEffect = FaultEffect.NONE
    repository: str | None = None
    """None for any."""
    path: str | None = None
    """A path that the call must be about; None for any."""
    skip: int = 0
    times: int | None = 1
    """None for always."""
    before_s: float = 0.0
    """Delay before the call takes effect."""
    after_s: float = 0.0
    """Delay after it took effect, before its answer."""
    late_s: float = 0.0
    outcome: Outcome | None = None
    """For REFUSE."""
    files: Mapping[str, bytes] = field(default_factory=lambda: {"foreign.txt": b"foreign\n"})
    """For FOREIGN_COMMIT."""


def rate_limited(retry_after_s: float) -> Outcome:
    """429: nothing landed, come back later."""
    return Outcome(OutcomeKind.TRANSIENT, "HfHubHTTPError", 429, retry_after_s=retry_after_s)


def busy() -> Outcome:
    """409: another commit is under way, the head has not moved yet."""
    return Outcome(OutcomeKind.CONFLICT, "HfHubHTTPError", 409, same_parent=True)


def moved() -> Outcome:
    """412: the head is not the parent."""
    return Outcome(OutcomeKind.CONFLICT, "HfHubHTTPError", 412)


def refused(status: int, *paths: str) -> Outcome:
    """400, 413 or 422: these paths will never be taken."""
    return Outcome(
        OutcomeKind.REFUSED_ITEM, "BadRequestError" if status == 400 else "HfHubHTTPError", status, paths=paths
    )


def not_found(what: str = "Repository") -> Outcome:
    """404 for a repository or a revision."""
    return Outcome(OutcomeKind.REFUSED_REPOSITORY, f"{what}NotFoundError", 404)


def needs_person(status: int = 401) -> Outcome:
    """401 or 403."""
    return Outcome(OutcomeKind.NEEDS_PERSON, "HfHubHTTPError", status)


def unanswered(call: HubCall, error_type: str = "ReadTimeout") -> Outcome:
    """No answer came: unknown for a commit, a mere failure for everything else."""
    return Outcome(OutcomeKind.UNKNOWN if call is HubCall.COMMIT else OutcomeKind.TRANSIENT, error_type)


class FaultScript:
    """The faults in force, and how often each was met."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._seen: list[tuple[Fault, list[int]]] = []
        self.add(*faults)

    def add(self, *faults: Fault) -> None:
        """Put further faults in force; of several that fit a call, each takes effect."""
        self._seen += [(fault, [0]) for fault in faults]

    def clear(self) -> None:
        """Take all faults back."""
        self._seen.clear()

    def met_by(self, call: HubCall, repository: str, paths: Sequence[str]) -> list[Fault]:
        """The faults that this call meets; counts them."""
        met = []
        for fault, seen in self._seen:
            fits = fault.call is call and fault.repository in (None, repository)
            if not fits or (fault.path is not None and fault.path not in paths):
                continue
            seen[0] += 1
            number = seen[0] - fault.skip
            if number >= 1 and (fault.times is None or number <= fault.times):
                met.append(fault)
        return met


__all__ = [
    "Fault",
    "FaultEffect",
    "FaultScript",
    "HubCall",
    "busy",
    "moved",
    "needs_person",
    "not_found",
    "rate_limited",
    "refused",
    "unanswered",
]
