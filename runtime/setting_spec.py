"""How one setting is declared, named and read. The settings themselves are declared in `settings.py`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from ..protocol.errors import ConveyorError

SPEC_KEY: Final = "setting"
"""Where a dataclass field keeps its `SettingSpec`: `field.metadata[SPEC_KEY]`."""

MULTIPLES: Final[Mapping[str, int]] = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
BYTES_TEXT: Final = re.compile(r"([0-9]+)\s*(|B|KiB|MiB|GiB|TiB)")


class SettingsError(ConveyorError):
    """A setting cannot be used. Nothing was started and nothing was changed.

    The message names the setting, where its value came from, the rule with its limit, and the next step.
    """

    code: ClassVar[str] = "INVALID_SETTING"


class Kind(StrEnum):
    """What a setting's value is."""

    SECONDS = "number"
    COUNT = "whole number"
    BYTES = "number of bytes"
    TEXT = "text"
    CHOICE = "word"
    PATH = "path"
    URL = "address"


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """The one declaration of a setting, from which its three other names follow."""

    name: str
    """The name in `Settings`; the same word is the key in a settings file."""
    kind: Kind
    unit: str
    """The unit of the number, or an empty text."""
    help: str
    """What the value decides, in one line."""
    minimum: float | None = None
    """The smallest value allowed, itself included."""
    maximum: float | None = None
    """The largest value allowed, itself included."""
    choices: tuple[str, ...] = ()
    """The words allowed, if only some are."""
    pattern: str = ""
    """A regular expression for the whole text, if there is a rule."""
    also_environment: tuple[str, ...] = ()
    """Environment variables of other programs that count too, after this project's own."""
    default_text: str = ""
    """The default for a person, where it depends on the machine."""

    @property
    def environment(self) -> str:
        """The environment variable, for example `CONVEYOR_COMMIT_INTERVAL_S`."""
        return f"CONVEYOR_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The option of the command line, for example `--commit-interval-s`."""
        return "--" + self.name.replace("_", "-")

    @property
    def rule(self) -> str:
        """What a value must be, limits included, as the end of a sentence that begins with "it must be"."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is Kind.URL:
            return "http://HOST or https://HOST, with a port and a path if needed, without user, password, ? and #"
        if self.kind is Kind.PATH:
            return "a path"
        if self.pattern:
            return f"a text that matches {self.pattern}"
        limits = f"from {self.shown(self.minimum)} to {self.shown(self.maximum)}"
        if self.kind is Kind.BYTES:
            return f"a number of {self.unit} {limits}"
        return f"a {self.kind} {limits} {self.unit}".rstrip()

    def shown(self, value: object) -> str:
        """A value as a person writes it: numbers without a needless `.0`, bytes with their multiple."""
        if self.kind is Kind.BYTES and isinstance(value, int) and value:
            suffix = max((unit for unit, size in MULTIPLES.items() if value % size == 0), key=MULTIPLES.__getitem__)
            return f"{value // MULTIPLES[suffix]}{suffix}"
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value)

    def read(self, value: object, source: str) -> Any:
        """Give `value` the setting's type and check its rule; texts are understood as well as typed values.

        Raises:
            SettingsError: the value breaks the rule; the message names `source`.
        """
        try:
            return READERS[self.kind](self, value)
        except ValueError:
            shown = "" if self.kind is Kind.URL else f" is {shorten(value)}, but it"
            raise SettingsError(
                f"setting {self.name} (from {source}){shown} must be {self.rule}. "
                f"Correct it there, or leave it out for the default."
            ) from None


def shorten(value: object) -> str:
    """A value for an error message, in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def within(spec: SettingSpec, number: float) -> None:
    """Raise `ValueError` unless `number` is inside the setting's limits."""
    if spec.minimum is not None and number < spec.minimum:
        raise ValueError
    if spec.maximum is not None and number > spec.maximum:
        raise ValueError


def read_seconds(spec: SettingSpec, value: object) -> float:
    """A finite number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError from error
    if not math.isfinite(number):
        raise ValueError
    within(spec, number)
    return number


def read_count(spec: SettingSpec, value: object) -> int:
    """A whole number; a text holds decimal digits only."""
    if isinstance(value, str):
        if not re.fullmatch(r"[0-9]{1,19}", value):
            raise ValueError
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    within(spec, value)
    return value


def read_bytes(spec: SettingSpec, value: object) -> int:
    """A number of bytes; a text may end in B, KiB, MiB, GiB or TiB."""
    if isinstance(value, str):
        match = BYTES_TEXT.fullmatch(value)
        if match is None or len(match[1]) > 19:
            raise ValueError
        value = int(match[1]) * MULTIPLES[match[2]]
    return read_count(spec, value)


def read_text(spec: SettingSpec, value: object) -> str:
    """A text that matches the setting's choices or pattern."""
    if not isinstance(value, str):
        raise ValueError
    if spec.choices and value not in spec.choices:
        raise ValueError
    if spec.pattern and not re.fullmatch(spec.pattern, value):
        raise ValueError
    return value


def read_path(spec: SettingSpec, value: object) -> Path:
    """An absolute path: `~` becomes the home directory, a relative path starts at the working directory."""
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError from error


def read_url(spec: SettingSpec, value: object) -> str:
    """An http address without a trailing slash; it never holds a user or a password."""
    if not isinstance(value, str) or any(not "!" <= character <= "~" for character in value):
        raise ValueError
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ValueError
    if parts.query or parts.fragment or "?" in value or "#" in value:
        raise ValueError
    _ = parts.port  # raises ValueError unless it is a number from 0 to 65535
    return value.rstrip("/")


READERS: Final[Mapping[Kind, Callable[[SettingSpec, object], object]]] = {
    Kind.SECONDS: read_seconds,
    Kind.COUNT: read_count,
    Kind.BYTES: read_bytes,
    Kind.TEXT: read_text,
    Kind.CHOICE: read_text,
    Kind.PATH: read_path,
    Kind.URL: read_url,
}


def declare(spec: SettingSpec, default: object | None = None, factory: Callable[[], object] | None = None) -> Any:
    """A dataclass field that carries `spec`, with a fixed default or one that depends on the machine."""
    if factory is not None:
        return field(default_factory=factory, metadata={SPEC_KEY: spec})
    return field(default=default, metadata={SPEC_KEY: spec})


def seconds(name: str, default: float, minimum: float, maximum: float, help: str) -> Any:  # noqa: A002
    """Declare a time in seconds."""
    return declare(SettingSpec(name, Kind.SECONDS, "s", help, minimum, maximum), default)


def count(name: str, default: int, minimum: int, maximum: int, help: str, unit: str = "") -> Any:  # noqa: A002
    """Declare a whole number."""
    return declare(SettingSpec(name, Kind.COUNT, unit, help, minimum, maximum), default)


def byte_count(name: str, default: int, minimum: int, maximum: int, help: str, unit: str = "bytes") -> Any:  # noqa: A002
    """Declare a number of bytes."""
    return declare(SettingSpec(name, Kind.BYTES, unit, help, minimum, maximum), default)


def choice(name: str, choices: tuple[str, ...], help: str) -> Any:  # noqa: A002
    """Declare a word out of `choices`; the first one is the default."""
    return declare(SettingSpec(name, Kind.CHOICE, "", help, choices=choices), choices[0])


__all__ = ["SPEC_KEY", "Kind", "SettingSpec", "SettingsError", "byte_count", "choice", "count", "declare", "seconds"]
