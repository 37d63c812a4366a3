"""Errors of the rules: one class for each side that can be at fault.

Every error has a `code`, a fixed word that programs may test, and a message for a person that names the thing, the
rule and the next step. No message ever holds a credential.
"""

from __future__ import annotations

from typing import ClassVar


class ConveyorError(Exception):
    """The root of every error that Conveyor raises on purpose."""

    code: ClassVar[str] = "CONVEYOR_ERROR"


class InvalidValue(ConveyorError):
    """A value breaks a rule of the hand-over protocol (section 3). Nothing was changed."""

    code: ClassVar[str] = "INVALID_VALUE"


class LocalProtocolError(ConveyorError):
    """Our side asked for an illegal step; nothing was changed. It is a defect of the caller."""

    code: ClassVar[str] = "LOCAL_PROTOCOL_ERROR"


class RemoteProtocolError(ConveyorError):
    """The other side sent something that its protocol does not allow."""

    code: ClassVar[str] = "REMOTE_PROTOCOL_ERROR"


class LeaseLost(ConveyorError):
    """The lease that the work needs is held by somebody else or has run out (N-RUN-12).

    The work stops before its next effect and may not record a result.
    """

    code: ClassVar[str] = "LEASE_LOST"


_SHOWN_CHARACTERS = 200


def shown(value: object) -> str:
    """A value as messages show it: its `repr`, shortened, whatever the value is.

    Refused values are the caller's and may be anything: megabytes of text, a number too long to print, an object whose
    `repr` fails.
    """
    if isinstance(value, (str, bytes)):
        text = repr(value[: _SHOWN_CHARACTERS + 1])
    else:
        try:
            text = repr(value)
        except Exception:
            text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


__all__ = ["ConveyorError", "InvalidValue", "LeaseLost", "LocalProtocolError", "RemoteProtocolError", "shown"]
