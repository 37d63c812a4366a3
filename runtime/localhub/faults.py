"""The fault script: rules that say which requests meet which misfortune. Seeded, so that a run can be replayed.

A script is JSON or TOML: ``{"seed": 7, "rules": [{"name": ..., "match": {...}, "action": {...}, "times": 1}]}``.
``docs/local-hub.md`` shows every field with an example.
"""

import random
import threading
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from .problems import FaultScriptInvalid
from .targets import KINDS

_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Ordinal = Annotated[int, msgspec.Meta(ge=1)]
_StatusCode = Annotated[int, msgspec.Meta(ge=400, le=599)]


class _Strict(msgspec.Struct, forbid_unknown_fields=True, tag_field="do", frozen=True, omit_defaults=True):
    pass


class Status(_Strict, tag="status", frozen=True):
    """Answer with this status instead of doing what was asked."""

    status: _StatusCode
    body: str | dict[str, Any] | None = None
    headers: dict[str, str] = {}
    error_code: str | None = None
    error_message: str | None = None
    retry_after_s: _Count | None = None


class LandThenStatus(_Strict, tag="land_then_status", frozen=True):
    """Do what was asked, then answer with this status."""

    status: _StatusCode
    body: str | dict[str, Any] | None = None
    headers: dict[str, str] = {}
    error_code: str | None = None
    error_message: str | None = None
    retry_after_s: _Count | None = None


class RateLimit(_Strict, tag="rate_limit", frozen=True):
    """Answer 429: of the API quota (``RateLimit`` headers with ``r=0``) or of the repository's commits (words)."""

    scope: Literal["api", "commits"] = "api"
    reset_s: _Count = 60
    retry_after_s: _Count | None = None


class Delay(_Strict, tag="delay", frozen=True):
    """Wait before handling, after handling, or (commits) while holding the repository's one commit slot."""

    before_s: _Seconds = 0.0
    after_s: _Seconds = 0.0
    hold_s: _Seconds = 0.0


class DropBefore(_Strict, tag="drop_before", frozen=True):
    """Close the connection without doing anything; ``reset`` sends a TCP reset."""

    reset: bool = False


class LandThenDrop(_Strict, tag="land_then_drop", frozen=True):
    """Do what was asked, then close the connection without an answer."""

    reset: bool = False


class Truncate(_Strict, tag="truncate", frozen=True):
    """Announce the whole answer and close after this many body bytes (default: half of what is sent first)."""

    after_bytes: _Count | None = None


class StallRequest(_Strict, tag="stall_request", frozen=True):
    """Stop reading the request's body after this many bytes, until released."""

    after_bytes: _Count = 0


class StallAnswer(_Strict, tag="stall_answer", frozen=True):
    """Do what was asked, then stop sending after this many body bytes (0: before the status line), until released."""

    after_bytes: _Count = 0


class HoldSlot(_Strict, tag="hold_slot", frozen=True):
    """A commit, fully received, holds its repository's slot until released; it then lands though the client left."""


class Corrupt(_Strict, tag="corrupt", frozen=True):
    """Flip all bits of one body byte of the answer; its length stays."""

    at_byte: _Count = 0


class ForeignCommit(_Strict, tag="foreign_commit", frozen=True):
    """Another writer commits first: these files (text by path; default: one generated), these deletions."""

    files: dict[str, str] | None = None
    delete: tuple[str, ...] = ()
    title: str = "Commit of another writer"


class Lag(_Strict, tag="lag", frozen=True):
    """This read by branch or tag name is answered as it was so many commits ago."""

    commits: _Ordinal = 1


class ExpireGrant(_Strict, tag="expire_grant", frozen=True):
    """Storage URLs in this answer (LFS batch, resolve) are valid for this long only."""

    after_s: _Seconds = 0.0


class RevokeToken(_Strict, tag="revoke_token", frozen=True):
    """The token of this request is refused with 401, from this request on."""


Action = (
    Status
    | LandThenStatus
    | RateLimit
    | Delay
    | DropBefore
    | LandThenDrop
    | Truncate
    | StallRequest
    | StallAnswer
    | HoldSlot
    | Corrupt
    | ForeignCommit
    | Lag
    | ExpireGrant
    | RevokeToken
)


class Match(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """Which requests: all fields given must fit. ``repo``, ``revision`` and ``path`` are globs.

    ``path`` fits when any path of the request does (for LFS requests: any object id).
    Of the requests that fit, ``after`` skips the first ones, ``nth`` picks by number (from 1), ``every`` each k-th,
    ``probability`` by the seeded dice.
    """

    method: str | None = None
    kind: str | tuple[str, ...] | None = None
    repo: str | None = None
    revision: str | None = None
    path: str | None = None
    after: _Count = 0
    nth: _Ordinal | tuple[_Ordinal, ...] | None = None
    every: _Ordinal | None = None
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None

    def kinds(self) -> tuple[str, ...] | None:
        """The endpoint kinds named, None for all but control calls."""
        return (self.kind,) if isinstance(self.kind, str) else self.kind


class Rule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """One rule: it fires at most ``times`` times (None: no limit)."""

    name: str
    action: Action | tuple[Action, ...]
    match: Match = msgspec.field(default_factory=Match)
    times: _Count | None = None

    def actions(self) -> tuple[Action, ...]:
        """The actions in order."""
        return self.action if isinstance(self.action, tuple) else (self.action,)


class FaultScript(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A seed and rules."""

    rules: tuple[Rule, ...] = ()
    seed: int = 0
    replace: bool = False


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What rules can see of a request. ``paths`` is None while the body has not been read."""

    method: str
    kind: str
    repo: str | None
    revision: str | None
    paths: tuple[str, ...] | None


@dataclass(slots=True)
class _Counters:
    rule: Rule
    dice: random.Random
    seen: int = 0
    fired: int = 0


def parse_fault_script(content: bytes, *, source: str, toml: bool = False) -> FaultScript:
    """Read a script.

    Raises:
        FaultScriptInvalid: not JSON or TOML, an unknown field, or a value out of range.
    """
    try:
        tree = tomllib.loads(content.decode()) if toml else msgspec.json.decode(content)
        if isinstance(tree, list):
            tree = {"rules": tree}
        script = msgspec.convert(tree, FaultScript)
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FaultScriptInvalid(
            f"{source}: {error}. See docs/local-hub.md for the fields of a fault script."
        ) from error
    for rule in script.rules:
        for kind in rule.match.kinds() or ():
            if kind not in KINDS or kind == "control":
                raise FaultScriptInvalid(
                    f"{source}: rule {rule.name} names the endpoint kind {kind}, which does not exist. Use one of: "
                    f"{', '.join(sorted(set(KINDS) - {'control'}))}."
                )
    return script


def load_fault_script(path: Path) -> FaultScript:
    """Read a script file; the ending ``.toml`` decides the format.

    Raises:
        FaultScriptInvalid: it cannot be read or understood.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FaultScriptInvalid(f"{path} cannot be read: {error.strerror}. Name an existing fault script.") from error
    return parse_fault_script(content, source=str(path), toml=path.suffix == ".toml")


class Faults:
    """The rules in force and how often each was met. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seed = 0
        self._rules: dict[str, _Counters] = {}

    def install(self, script: FaultScript) -> None:
        """Add the script's rules (a rule of the same name starts afresh); with ``replace`` drop the others first."""
        with self._lock:
            if script.replace:
                self._rules.clear()
            self._seed = script.seed
            for rule in script.rules:
                # A text seed is hashed by random itself, alike in every process and version.
                self._rules[rule.name] = _Counters(rule, random.Random(f"{script.seed}/{rule.name}"))

    def clear(self) -> None:
        """Drop all rules."""
        with self._lock:
            self._rules.clear()

    def state(self) -> dict[str, Any]:
        """Seed and rules with ``seen`` (requests that fitted) and ``fired``."""
        with self._lock:
            return {
                "seed": self._seed,
                "rules": [
                    {**msgspec.to_builtins(item.rule), "seen": item.seen, "fired": item.fired}
                    for item in self._rules.values()
                ],
            }

    def wants_paths(self, kind: str) -> bool:
        """Whether a rule needs the paths inside the body of this kind of request."""
        with self._lock:
            return any(
                item.rule.match.path is not None and _fits_kind(item.rule.match, kind) for item in self._rules.values()
            )

    def select(self, facts: RequestFacts) -> list[Rule]:
        """The rules that fire for this request, in script order; counts them."""
        fired = []
        with self._lock:
            for item in self._rules.values():
                if _fits(item.rule.match, facts):
                    item.seen += 1
                    if _due(item) and (item.rule.times is None or item.fired < item.rule.times):
                        item.fired += 1
                        fired.append(item.rule)
        return fired


def _fits_kind(match: Match, kind: str) -> bool:
    kinds = match.kinds()
    return kind != "control" and (kinds is None or kind in kinds)


def _fits(match: Match, facts: RequestFacts) -> bool:
    return (
        _fits_kind(match, facts.kind)
        and (match.method is None or match.method.upper() == facts.method)
        and (match.repo is None or (facts.repo is not None and fnmatchcase(facts.repo, match.repo)))
        and (match.revision is None or (facts.revision is not None and fnmatchcase(facts.revision, match.revision)))
        and (match.path is None or _any_fits(facts.paths or (), match.path))
    )


def _any_fits(paths: Sequence[str], pattern: str) -> bool:
    return any(fnmatchcase(path, pattern) for path in paths)


def _due(item: _Counters) -> bool:
    match = item.rule.match
    number = item.seen - match.after
    if number < 1:
        return False
    if match.nth is not None:
        wanted = match.nth if isinstance(match.nth, tuple) else (match.nth,)
        if number not in wanted:
            return False
    if match.every is not None and number % match.every:
        return False
    # The dice are thrown for each request that got here, so that one seed gives one sequence.
    return match.probability is None or item.dice.random() < match.probability
