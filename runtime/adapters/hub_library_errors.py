"""Errors of huggingface_hub's uploads, which come in three shapes (hub API notes, section 16, trap 6).

`HfHubHTTPError`; a `RuntimeError` with it as its cause (LFS); a built-in `ConnectionError` with the status in its text
(Xet). They are told apart by what they carry, not by class, so that releases on httpx and on httpx2 are read alike. No
failure of an upload is ever unknown: objects are named by their content, and sending one twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from ...protocol.outcome import Outcome, OutcomeKind
from .hub_errors import Answer, Exchange, outcome_of_answer, outcome_of_failure
from .hub_text import clean

_STATUS_IN_TEXT = re.compile(r"\b(?:status|HTTP|client error|server error)\D{0,24}\b([45]\d\d)\b", re.IGNORECASE)
_DEEPEST: Final = 8


def outcome_of_library_error(error: BaseException, path: str, *, secrets: Iterable[str] = ()) -> Outcome:
    """What an upload that raised came to.

    Args:
        error: what the library raised.
        path: the object's path in the repository.
        secrets: texts that must not show up.
    """
    chain = list(_chain(error))
    for link in chain:
        response = getattr(link, "response", None)
        if isinstance(getattr(response, "status_code", None), int):
            return _outcome_of_response(response, path, secrets)
    innermost = chain[-1]
    for link in chain:
        if isinstance(link, ConnectionError) and (found := _STATUS_IN_TEXT.search(str(link))):
            outcome = outcome_of_answer(Answer(int(found.group(1)), {}), Exchange.UPLOAD)
            return replace(outcome, error_type=type(link).__name__)
    if isinstance(error, ValueError) and not isinstance(error, OSError) and "malformed" not in str(error).lower():
        # A path or an object that the library or the LFS endpoint refuses for itself.
        return Outcome(
            OutcomeKind.REFUSED_ITEM, type(error).__name__, paths=(path,), server_text=clean(str(error), secrets)
        )
    return outcome_of_failure(type(innermost).__name__, Exchange.UPLOAD)


def _outcome_of_response(response: Any, path: str, secrets: Iterable[str]) -> Outcome:
    address = str(getattr(getattr(response, "request", None), "url", ""))
    headers = {str(name).lower(): str(value) for name, value in _items(response.headers)}
    answer = Answer(response.status_code, headers, _body(response), address.startswith("https://"))
    outcome = outcome_of_answer(answer, Exchange.UPLOAD, paths=(path,), secrets=secrets)
    if not _is_the_hubs_own(address):
        # The storage's word, not the Hub's: a pre-signed address that ran out is answered 403, and the next try gets
        # a new one.
        return replace(outcome, kind=OutcomeKind.TRANSIENT, paths=(), server_text="")
    if outcome.kind is OutcomeKind.REFUSED_ITEM:
        return replace(outcome, paths=(path,))
    return outcome


def _is_the_hubs_own(address: str) -> bool:
    path = urlsplit(address).path
    return path.startswith("/api/") or "/info/lfs/" in path or not path


def _items(headers: Any) -> Iterable[tuple[Any, Any]]:
    return headers.items() if isinstance(headers, Mapping) or hasattr(headers, "items") else ()


def _body(response: Any) -> bytes:
    try:
        content = response.content
    except Exception:
        # A streamed answer that was not read; its status and headers are enough.
        return b""
    return content if isinstance(content, bytes) else b""


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_DEEPEST):
        if link is None:
            return
        yield link
        link = link.__cause__


__all__ = ["outcome_of_library_error"]
