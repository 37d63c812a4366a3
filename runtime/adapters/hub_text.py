"""The Hub's own words, made fit to be shown and stored: short, and without credentials or addresses (N-SEC-01)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

MAX_CHARACTERS: Final = 200
_LOOKED_AT_CHARACTERS: Final = 2000
"""What lies further back could not come among the first 200 in any case worth having."""

_REMOVED: Final = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s\"'<>]*", re.IGNORECASE), "[address]"),
    (re.compile(r"\b(bearer|basic)\s+\S+", re.IGNORECASE), "[credential]"),
    (re.compile(r"\b(hf|api)_[A-Za-z0-9_-]{4,}"), "[credential]"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)*"), "[credential]"),
    (
        re.compile(r"\b(X-Amz-[A-Za-z-]+|Signature|sig|token|Key-Pair-Id|Policy)=[^\s&\"']+", re.IGNORECASE),
        "[signature]",
    ),
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def server_words(headers: Mapping[str, str], body: bytes) -> str:
    """What the Hub said: `X-Error-Message`, `error` or `errors[].message` of a JSON body, else a plain text body."""
    found: list[str] = []
    header = headers.get("x-error-message", "").strip()
    if header:
        found.append(header)
    content = _json(body)
    if isinstance(content, dict):
        error = content.get("error")
        parts = error if isinstance(error, list) else [error]
        found += [part.strip() for part in parts if isinstance(part, str)]
        errors = content.get("errors")
        if isinstance(errors, list):
            messages = (row.get("message") for row in errors if isinstance(row, dict))
            found += [message.strip() for message in messages if isinstance(message, str)]
        if not found and isinstance(content.get("message"), str):
            found.append(content["message"].strip())
    elif content is None and body and "html" not in headers.get("content-type", "").lower():
        found.append(body.decode("utf-8", "replace").strip())
    return " ".join(dict.fromkeys(part for part in found if part))


def clean(text: str, secrets: Iterable[str] = ()) -> str:
    """The text on one line, without addresses, credentials and signatures, in at most 200 characters."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[credential]")
    text = text[:_LOOKED_AT_CHARACTERS]
    for pattern, stand_in in _REMOVED:
        text = pattern.sub(stand_in, text)
    text = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def named_paths(text: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Which of these repository paths the text names, as whole words, in their order."""
    found = (path for path in paths if path in text)
    return tuple(path for path in found if re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w/-]|\.\w)", text))


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


__all__ = ["MAX_CHARACTERS", "clean", "named_paths", "server_words"]
