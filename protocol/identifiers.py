"""The values that hand-overs share, and the rule of each (hand-over protocol, section 3)."""

from __future__ import annotations

import re
from typing import Final

from .errors import InvalidValue

RESERVED_PREFIX: Final = "releases"
"""No hand-over writes below this top-level folder: it belongs to the release writer."""

MAX_SEGMENT_BYTES: Final = 255
"""A longer name cannot exist in a checkout on any common filesystem."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REPOSITORY_SIDE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_ROLE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_UNCOMMITTABLE_SEGMENTS: Final = frozenset({".git", ".cache"})


def check_identifier(value: object, *, name: str) -> str:
    """Give back a run id or another identifier.

    Raises:
        InvalidValue: it is not 1 to 128 letters, digits, dots, underscores or hyphens, first a letter or digit.
    """
    if not isinstance(value, str) or _IDENTIFIER.fullmatch(value) is None:
        raise InvalidValue(
            f"{name} must be 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or a digit, not {value!r}"
        )
    return value


def check_repository(value: object, *, name: str = "repository") -> str:
    """Give back the id of a dataset repository, `owner/name`.

    Raises:
        InvalidValue: it is not two sides of 1 to 96 allowed characters with one slash between them.
    """
    if isinstance(value, str):
        sides = value.split("/")
        if len(sides) == 2 and all(_REPOSITORY_SIDE.fullmatch(side) for side in sides):
            return value
    raise InvalidValue(
        f"{name} must be OWNER/NAME, each 1 to 96 letters, digits, '.', '_' or '-', starting with a letter or a digit, "
        f"not {value!r}"
    )


def check_role(value: object, *, name: str = "role") -> str:
    """Give back the role of a bundle file.

    Raises:
        InvalidValue: it is not 1 to 64 lower-case letters, digits or underscores, first a letter.
    """
    if not isinstance(value, str) or _ROLE.fullmatch(value) is None:
        raise InvalidValue(
            f"{name} must be 1 to 64 lower-case letters, digits or '_', starting with a letter, not {value!r}"
        )
    return value


def check_prefix(value: object, *, name: str = "prefix") -> str:
    """Give back the folder that a run's files go below.

    Raises:
        InvalidValue: it is empty, a segment is no identifier, or it lies below the reserved `releases/`.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty text, not {value!r}")
    segments = value.split("/")
    for segment in segments:
        check_identifier(segment, name=f"each part of {name} {value!r}")
    if segments[0] == RESERVED_PREFIX:
        raise InvalidValue(
            f"{name} {value!r} lies below '{RESERVED_PREFIX}/', which is reserved; choose another folder"
        )
    return value


def check_relative_path(value: object, *, name: str = "relative_path") -> str:
    """Give back a path below a run's folder.

    Besides the protocol's rule it refuses what no commit can carry (finding W7): one such path would otherwise fail
    every commit of its repository.

    Raises:
        InvalidValue: it is empty, absolute, has a backslash, an empty, `.` or `..` segment, a segment that git or the
            Hub's client refuses, a segment above 255 bytes, a NUL, or text that is not valid Unicode.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty text, not {value!r}")
    if "\\" in value or "\0" in value:
        raise InvalidValue(f"{name} {value!r} must not contain a backslash or a NUL character")
    for segment in value.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidValue(f"{name} {value!r} must be relative, without empty, '.' or '..' parts")
        if segment.lower() in _UNCOMMITTABLE_SEGMENTS:
            raise InvalidValue(f"{name} {value!r} has a part {segment!r}, which a repository refuses; rename it")
        try:
            encoded = segment.encode()
        except UnicodeEncodeError:
            raise InvalidValue(f"{name} {value!r} is not valid Unicode text; rename the file") from None
        if len(encoded) > MAX_SEGMENT_BYTES:
            raise InvalidValue(f"{name} {value!r} has a part of {len(encoded)} bytes; the limit is {MAX_SEGMENT_BYTES}")
    return value


def check_file_name(value: object, *, name: str = "name") -> str:
    """Give back a relative path of one segment.

    Raises:
        InvalidValue: it is no relative path, or it has a slash.
    """
    checked = check_relative_path(value, name=name)
    if "/" in checked:
        raise InvalidValue(f"{name} {value!r} must be a file name without '/'")
    return checked


__all__ = [
    "MAX_SEGMENT_BYTES",
    "RESERVED_PREFIX",
    "check_file_name",
    "check_identifier",
    "check_prefix",
    "check_relative_path",
    "check_repository",
    "check_role",
]
