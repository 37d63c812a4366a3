"""The values that hand-overs share, and the rule of each (hand-over protocol, section 3)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from .errors import InvalidValue, shown

RESERVED_PREFIX: Final = "releases"
"""No hand-over writes below this top-level folder: it belongs to the release writer."""

RESERVED_ROOT_FILES: Final = frozenset({"latest_staging.json", "releases.json", "runs.json"})
"""Files at the top level of a repository. A folder of the same name would keep them from ever being committed."""

MAX_SEGMENT_BYTES: Final = 255
"""A longer name cannot exist in a checkout on any common filesystem."""

MAX_PATH_BYTES: Final = 4095
"""A longer path cannot be opened in a checkout on any common system."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REPOSITORY_SIDE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def check_identifier(value: object, *, name: str) -> str:
    """Give back a run id or another identifier.

    Raises:
        InvalidValue: it is not 1 to 128 letters, digits, dots, underscores or hyphens, first a letter or digit.
    """
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise InvalidValue(
            f"{name} must be 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or a digit, "
            f"not {shown(value)}"
        )
    return _plain(value)


def check_repository(value: object, *, name: str = "repository") -> str:
    """Give back the id of a dataset repository, `owner/name`.

    Raises:
        InvalidValue: it is not two sides of 1 to 96 allowed characters with one slash between them.
    """
    if isinstance(value, str):
        sides = value.split("/")
        if len(sides) == 2 and all(_REPOSITORY_SIDE.fullmatch(side) for side in sides):
            return _plain(value)
    raise InvalidValue(
        f"{name} must be OWNER/NAME, each 1 to 96 letters, digits, '.', '_' or '-', starting with a letter or a digit, "
        f"not {shown(value)}"
    )


def check_role(value: object, *, name: str = "role") -> str:
    """Give back the role of a bundle file.

    Raises:
        InvalidValue: it is not 1 to 64 lower-case letters, digits or underscores, first a letter.
    """
    if not isinstance(value, str) or _ROLE.fullmatch(value) is None:
        raise InvalidValue(
            f"{name} must be 1 to 64 lower-case letters, digits or '_', starting with a letter, not {shown(value)}"
        )
    return _plain(value)


def check_prefix(value: object, *, name: str = "prefix") -> str:
    """Give back the folder that a run's files go below.

    Raises:
        InvalidValue: it is empty or above 4095 bytes, a segment is no identifier, it lies below the reserved
            `releases/`, or it makes a folder of a name that is a file at the top level.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty text, not {shown(value)}")
    if len(value) > MAX_PATH_BYTES:
        raise InvalidValue(f"{name} has {len(value)} bytes; the limit is {MAX_PATH_BYTES}")
    segments = value.split("/")
    for segment in segments:
        check_identifier(segment, name=f"each part of {name} {shown(value)}")
    if segments[0] == RESERVED_PREFIX:
        raise InvalidValue(
            f"{name} {shown(value)} lies below '{RESERVED_PREFIX}/', which is reserved; choose another folder"
        )
    if segments[0] in RESERVED_ROOT_FILES:
        raise InvalidValue(
            f"{name} {shown(value)} makes a folder of {segments[0]!r}, which is a file at the top level of every "
            "repository; choose another folder"
        )
    return _plain(value)


def check_relative_path(value: object, *, name: str = "relative_path") -> str:
    """Give back a path below a run's folder.

    Besides the protocol's rule it refuses what no commit can carry (finding W7): one such path would otherwise fail
    every commit of its repository.

    Raises:
        InvalidValue: it is empty, absolute, has a backslash, an empty, `.` or `..` segment, a segment that git (`.git`
            in any case) or the Hub's client (`.cache`) refuses, a segment above 255 bytes, a NUL, text that is not
            valid Unicode, or more than 4095 bytes.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty text, not {shown(value)}")
    if "\\" in value or "\0" in value:
        raise InvalidValue(f"{name} {shown(value)} must not contain a backslash or a NUL character")
    if len(value) > MAX_PATH_BYTES:
        raise InvalidValue(f"{name} {shown(value)} has more than {MAX_PATH_BYTES} bytes, the limit; shorten it")
    for segment in value.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidValue(f"{name} {shown(value)} must be relative, without empty, '.' or '..' parts")
        if segment.lower() == ".git" or segment == ".cache":
            raise InvalidValue(
                f"{name} {shown(value)} has a part {shown(segment)}, which a repository refuses; rename it"
            )
        try:
            encoded = segment.encode()
        except UnicodeEncodeError:
            raise InvalidValue(f"{name} {shown(value)} is not valid Unicode text; rename the file") from None
        if len(encoded) > MAX_SEGMENT_BYTES:
            raise InvalidValue(
                f"{name} {shown(value)} has a part of {len(encoded)} bytes; the limit is {MAX_SEGMENT_BYTES}"
            )
    return _plain(value)


def check_target(path: str) -> str:
    """Give back a whole path in the repository, made of checked parts.

    Raises:
        InvalidValue: it has more than 4095 bytes.
    """
    size_bytes = len(path.encode())
    if size_bytes > MAX_PATH_BYTES:
        raise InvalidValue(
            f"the path {shown(path)} has {size_bytes} bytes in the repository; the limit is {MAX_PATH_BYTES}"
        )
    return path


def check_no_folder(paths: Collection[str]) -> None:
    """Check that no path is the folder of another: no commit can carry both (finding W7).

    Raises:
        InvalidValue: one is.
    """
    known = set(paths)
    for path in paths:
        at = path.find("/")
        while at != -1:
            if path[:at] in known:
                raise InvalidValue(
                    f"{shown(path[:at])} is handed over as a file and as the folder of {shown(path)}; rename one"
                )
            at = path.find("/", at + 1)


def check_file_name(value: object, *, name: str = "name") -> str:
    """Give back a relative path of one segment.

    Raises:
        InvalidValue: it is no relative path, or it has a slash.
    """
    checked = check_relative_path(value, name=name)
    if "/" in checked:
        raise InvalidValue(f"{name} {shown(value)} must be a file name without '/'")
    return checked


def _plain(value: str) -> str:
    """The text itself, without the subclass that some libraries wrap it in and that serializers refuse."""
    return str.__str__(value)


__all__ = [
    "MAX_PATH_BYTES",
    "MAX_SEGMENT_BYTES",
    "RESERVED_PREFIX",
    "RESERVED_ROOT_FILES",
    "check_file_name",
    "check_identifier",
    "check_no_folder",
    "check_prefix",
    "check_relative_path",
    "check_repository",
    "check_role",
    "check_target",
]
