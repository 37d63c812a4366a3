"""What a build hands over, and every rule on it that needs no file (hand-over protocol, sections 4.1 and 4.4)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from .digests import check_sha256
from .errors import ConveyorError, InvalidValue, shown
from .identifiers import (
    check_file_name,
    check_identifier,
    check_no_folder,
    check_prefix,
    check_relative_path,
    check_repository,
    check_role,
    check_target,
)

LATEST_POINTER_PATH: Final = "latest_staging.json"
"""Where a run's pointer goes: the top level of the repository."""

DEFAULT_COMMIT_INTERVAL_S: Final = 30.0
"""The published client's default (section 4.1)."""

INVENTORY_ROLE: Final = "staged_manifest"
SIDECAR_ROLES: Final = frozenset({INVENTORY_ROLE, "build_manifest", "checksums"})

MAX_FILE_BYTES: Final = 2**63 - 1
"""No file can be larger, on any system."""

MAX_ENTRY_DEPTH: Final = 100
"""How deep an entry of `runs.json` may nest. Deeper ones could not be written, and would hold up every run (W2)."""

_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""A JSON string, to be passed over, or one bracket."""


@runtime_checkable
class PathLike(Protocol):
    """Whatever names a file as text, as paths of the standard library do."""

    def __fspath__(self) -> str:
        """The name."""
        ...


class RefusalCode(StrEnum):
    """Why a hand-over is refused whole (hand-over protocol, section 3)."""

    UNSUPPORTED_PROTOCOL_VERSION = "UNSUPPORTED_PROTOCOL_VERSION"
    INVALID_REQUEST = "INVALID_REQUEST"
    LOCAL_FILE_MISSING = "LOCAL_FILE_MISSING"
    FILE_TOO_LARGE = "FILE_TOO_LARGE"
    FILE_SIZE_DIFFERS = "FILE_SIZE_DIFFERS"
    FILE_DIGEST_DIFFERS = "FILE_DIGEST_DIFFERS"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"


class HandOverRefused(ConveyorError):
    """A hand-over breaks a rule; nothing of it was queued.

    Attributes:
        refusal_code: which rule, as receipts carry it.
    """

    code: ClassVar[str] = "HAND_OVER_REFUSED"

    def __init__(self, refusal_code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.refusal_code = refusal_code


@dataclass(frozen=True, slots=True)
class RunFile:
    """One file of a running build."""

    relative_path: str
    """Where it goes below `<prefix>/<run_id>/`."""
    local_path: str | PathLike
    """Absolute path of the file now; it may be rewritten as soon as the hand-over is answered."""


@dataclass(frozen=True, slots=True)
class StageRunFiles:
    """Hand over files of a running build (section 4.1)."""

    repository: str
    run_id: str
    files: tuple[RunFile, ...] = ()
    prefix: str = "runs"
    latest_pointer: str | PathLike | None = None
    """Local path whose bytes become `latest_staging.json` at the top level."""
    run_index_entry: Mapping[str, Any] | None = None
    """The run's summary for `runs.json`; its `run_id` is the message's."""
    flush: bool = False
    """Due at the next cycle, with everything the run has pending, instead of after the interval."""
    commit_interval_s: float | None = None
    """How long after the repository's last commit it is due, in seconds; None for the runtime's own interval."""


@dataclass(frozen=True, slots=True)
class BundleFile:
    """One file of a finished build."""

    name: str
    role: str
    local_path: str | PathLike
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StageDatasetBundle:
    """Hand over the files of a finished build (section 4.4)."""

    repository: str
    run_id: str
    files: tuple[BundleFile, ...]
    prefix: str = "staged"
    commit_message: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedRunFiles:
    """A run-file hand-over whose values keep every rule; the files were not looked at yet."""

    repository: str
    run_id: str
    sources: tuple[tuple[str, str], ...]
    """Target in the repository and local path, in the order to read them; the pointer last."""
    index_entry_text: str | None
    """The entry as JSON text in the build's key order; two entries are equal when these are."""
    flush: bool
    commit_interval_s: float


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A bundle hand-over whose values keep every rule; the files were not looked at yet."""

    repository: str
    run_id: str
    prefix: str
    """As handed over, without the run id."""
    files: tuple[BundleFile, ...]
    commit_message: str | None

    @property
    def folder(self) -> str:
        """The bundle's folder in the repository, `<prefix>/<run_id>`."""
        return f"{self.prefix}/{self.run_id}"

    @property
    def inventory(self) -> BundleFile:
        """The one file of role `staged_manifest`."""
        return next(file for file in self.files if file.role == INVENTORY_ROLE)

    @property
    def outputs(self) -> tuple[BundleFile, ...]:
        """Every file that is no sidecar."""
        return tuple(file for file in self.files if file.role not in SIDECAR_ROLES)


def check_run_files(request: StageRunFiles, *, interval_s: float = DEFAULT_COMMIT_INTERVAL_S) -> CheckedRunFiles:
    """Check a run-file hand-over, in the order that the protocol names.

    Args:
        request: the hand-over.
        interval_s: the interval of a request that names none.

    Raises:
        HandOverRefused: `INVALID_REQUEST`, with the field, the rule and the value.
    """
    try:
        repository = check_repository(request.repository)
        run_id = check_identifier(request.run_id, name="run_id")
        prefix = check_prefix(request.prefix)
        flush = _check_flag(request.flush, name="flush")
        if request.commit_interval_s is not None:
            interval_s = _check_interval(request.commit_interval_s)
        sources = []
        for file in _check_sequence(request.files, RunFile, name="files"):
            target = check_target(f"{prefix}/{run_id}/{check_relative_path(file.relative_path)}")
            sources.append((target, check_local_path(file.local_path)))
        if request.latest_pointer is not None:
            sources.append((LATEST_POINTER_PATH, check_local_path(request.latest_pointer, name="latest_pointer")))
        seen: set[str] = set()
        for target, _ in sources:
            if target in seen:
                raise InvalidValue(f"two files have the same target {shown(target)}; hand over each path once")
            seen.add(target)
        check_no_folder(seen)
        entry_text = None if request.run_index_entry is None else _entry_text(request.run_index_entry, run_id)
    except InvalidValue as error:
        raise HandOverRefused(RefusalCode.INVALID_REQUEST, str(error)) from None
    return CheckedRunFiles(repository, run_id, tuple(sources), entry_text, flush, interval_s)


def check_bundle(request: StageDatasetBundle) -> CheckedBundle:
    """Check a bundle hand-over.

    Raises:
        HandOverRefused: `INVALID_REQUEST`, with the field, the rule and the value.
    """
    try:
        repository = check_repository(request.repository)
        run_id = check_identifier(request.run_id, name="run_id")
        prefix = check_prefix(request.prefix)
        message = None if request.commit_message is None else _check_message(request.commit_message)
        files = tuple(_check_bundle_file(file) for file in _check_sequence(request.files, BundleFile, name="files"))
        for file in files:
            check_target(f"{prefix}/{run_id}/{file.name}")
        _check_roles(files)
    except InvalidValue as error:
        raise HandOverRefused(RefusalCode.INVALID_REQUEST, str(error)) from None
    return CheckedBundle(repository, run_id, prefix, files, message)


def check_local_path(value: object, *, name: str = "local_path") -> str:
    """Give back an absolute local path as text.

    Raises:
        InvalidValue: it is empty, relative, or no path, or no file can have such a name.
    """
    text: object = value.__fspath__() if isinstance(value, PathLike) else value
    if not isinstance(text, str) or not text.startswith("/") or "\0" in text:
        raise InvalidValue(f"{name} must be an absolute path, not {shown(text)}")
    try:
        # Names that are not UTF-8 come as surrogate escapes; any other lone surrogate is no name at all.
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise InvalidValue(f"{name} {shown(text)} is not valid Unicode text; rename the file") from None
    return str.__str__(text)


def _check_bundle_file(file: BundleFile) -> BundleFile:
    name = check_file_name(file.name)
    role = check_role(file.role, name=f"role of {shown(name)}")
    local_path = check_local_path(file.local_path, name=f"local_path of {shown(name)}")
    sha256 = check_sha256(file.sha256, name=f"sha256 of {shown(name)}")
    size_bytes: object = file.size_bytes
    if not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or not 0 <= size_bytes <= MAX_FILE_BYTES:
        raise InvalidValue(
            f"the size of {shown(name)} must be a whole number of bytes, 0 to {MAX_FILE_BYTES}, not {shown(size_bytes)}"
        )
    return BundleFile(name, role, local_path, sha256, int(size_bytes))


def _check_roles(files: tuple[BundleFile, ...]) -> None:
    twice = sorted(name for name, times in Counter(file.name for file in files).items() if times > 1)
    if twice:
        raise InvalidValue(f"each file of a bundle needs a name of its own; used twice: {', '.join(map(shown, twice))}")
    roles = [file.role for file in files]
    if roles.count(INVENTORY_ROLE) != 1:
        raise InvalidValue(
            f"a bundle has exactly one file of role '{INVENTORY_ROLE}', not {roles.count(INVENTORY_ROLE)}"
        )
    for role in ("build_manifest", "checksums"):
        if roles.count(role) > 1:
            raise InvalidValue(f"a bundle has at most one file of role '{role}', not {roles.count(role)}")
    if all(role in SIDECAR_ROLES for role in roles):
        raise InvalidValue(
            f"a bundle needs at least one output, a file of a role other than {', '.join(sorted(SIDECAR_ROLES))}"
        )


def _check_sequence(value: object, kind: type, *, name: str) -> list[Any]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, kind) for item in value):
        raise InvalidValue(f"{name} must be a sequence of {kind.__name__}")
    return list(value)


def _check_flag(value: object, *, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"{name} must be true or false, not {shown(value)}")
    return value


def _check_message(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue("commit_message must be a text that is not blank, or be left out")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"commit_message {shown(value)} is not valid Unicode text; no commit can carry it") from None
    return str.__str__(value)


def _check_interval(value: object) -> float:
    seconds = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidValue(f"commit_interval_seconds must be a finite number of seconds, 0 or more, not {shown(value)}")
    return seconds


def _entry_text(entry: object, run_id: str) -> str:
    if not isinstance(entry, Mapping):
        raise InvalidValue(f"run_index_entry must be an object, not {shown(entry)}")
    if entry.get("run_id") != run_id:
        raise InvalidValue(f"run_index_entry must have the run_id of the hand-over, {run_id!r}")
    try:
        # Infinity and NaN stay as they are here: what is written to the repository has null in their place.
        text = json.dumps(dict(entry), ensure_ascii=True, allow_nan=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"run_index_entry must be made of JSON values only: {shown(str(error))}") from None
    if _depth(text) > MAX_ENTRY_DEPTH:
        raise InvalidValue(f"run_index_entry nests {_depth(text)} levels deep; the limit is {MAX_ENTRY_DEPTH}")
    return text


def _depth(text: str) -> int:
    """How deep a JSON text nests, without recursion."""
    deepest = depth = 0
    for piece in _STRUCTURE.findall(text):
        if piece in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif piece in ("]", "}"):
            depth -= 1
    return deepest


__all__ = [
    "DEFAULT_COMMIT_INTERVAL_S",
    "INVENTORY_ROLE",
    "LATEST_POINTER_PATH",
    "MAX_ENTRY_DEPTH",
    "MAX_FILE_BYTES",
    "SIDECAR_ROLES",
    "BundleFile",
    "CheckedBundle",
    "CheckedRunFiles",
    "HandOverRefused",
    "PathLike",
    "RefusalCode",
    "RunFile",
    "StageDatasetBundle",
    "StageRunFiles",
    "check_bundle",
    "check_local_path",
    "check_run_files",
]
