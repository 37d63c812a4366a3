"""What an exchange with the Hub came to: each answer and each failure becomes one `Outcome`.

Sources: hub API notes, sections 5, 9, 11 and 12; hand-over protocol, section 8. Libraries are known here by the names
of their classes only, so that huggingface_hub 1.x with httpx and 2.x with httpx2 are read alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ...protocol.outcome import HubError, Outcome, OutcomeKind
from .hub_text import clean, named_paths, server_words
from .hub_waits import rate_limit_wait_s, retry_after_s


class Exchange(StrEnum):
    """What a request was for; the same status means different things."""

    READ = "read"
    PREUPLOAD = "preupload"
    UPLOAD = "upload"
    COMMIT = "commit"

    @property
    def carries_files(self) -> bool:
        """Whether a refusal is about the files sent rather than about the repository."""
        return self is not Exchange.READ


@dataclass(frozen=True, slots=True)
class Answer:
    """What is needed of an HTTP answer to judge it."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""
    is_https: bool = True

    @property
    def error_code(self) -> str:
        """The Hub's own word for what is wrong (`X-Error-Code`)."""
        return self.headers.get("x-error-code", "")

    @property
    def request_id(self) -> str | None:
        """The Hub's id of the request, or that of the network in front of it."""
        return next((self.headers[name] for name in _REQUEST_ID_HEADERS if self.headers.get(name)), None)


_REQUEST_ID_HEADERS: Final = ("x-request-id", "x-amzn-trace-id", "x-amz-cf-id")
_DISABLED: Final = "access to this resource is disabled"
_INVALID_CREDENTIALS: Final = "invalid credentials in authorization header"
_TYPE_BY_CODE: Final = {
    "RepoNotFound": "RepositoryNotFoundError",
    "RevisionNotFound": "RevisionNotFoundError",
    "EntryNotFound": "RemoteEntryNotFoundError",
    "GatedRepo": "GatedRepoError",
}
_NOT_SENT: Final = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"})


def outcome_of_answer(
    answer: Answer, exchange: Exchange, *, paths: Sequence[str] = (), secrets: Iterable[str] = ()
) -> Outcome:
    """What an answer that is no plain success came to.

    Args:
        answer: the answer.
        exchange: what the request was for.
        paths: the repository paths that the request was about; those that the Hub names are put into the outcome.
        secrets: texts that must not show up.
    """
    words = server_words(answer.headers, answer.body)
    kind = _kind(answer, exchange, words)
    wait_s: float | None = None
    if answer.status == 429:
        wait_s = rate_limit_wait_s(answer.headers, words, is_commit=exchange is Exchange.COMMIT)
    elif kind in (OutcomeKind.TRANSIENT, OutcomeKind.UNKNOWN, OutcomeKind.CONFLICT):
        wait_s = retry_after_s(answer.headers)
    return Outcome(
        kind=kind,
        error_type=_error_type(answer, words),
        status=answer.status,
        same_parent=exchange is Exchange.COMMIT and answer.status == 409,
        retry_after_s=wait_s,
        paths=named_paths(words, paths) if kind is OutcomeKind.REFUSED_ITEM else (),
        server_text=clean(words, secrets),
        request_id=answer.request_id,
    )


def outcome_of_failure(error_type: str, exchange: Exchange) -> Outcome:
    """What it came to that no answer, or only part of one, arrived.

    Args:
        error_type: the name of the exception's class.
        exchange: what the request was for. Only a commit can take effect unseen.
    """
    is_unknown = exchange is Exchange.COMMIT and error_type not in _NOT_SENT
    return Outcome(OutcomeKind.UNKNOWN if is_unknown else OutcomeKind.TRANSIENT, error_type)


def outcome_of_unreadable(answer: Answer, exchange: Exchange) -> Outcome:
    """What a success with a body that cannot be read came to: a commit may have landed."""
    kind = OutcomeKind.UNKNOWN if exchange is Exchange.COMMIT else OutcomeKind.TRANSIENT
    return Outcome(kind, "MalformedAnswer", answer.status, request_id=answer.request_id)


def _kind(answer: Answer, exchange: Exchange, words: str) -> OutcomeKind:
    """The treatment. The Hub's own code decides before the status does."""
    status, is_commit = answer.status, exchange is Exchange.COMMIT
    if answer.error_code in ("RepoNotFound", "RevisionNotFound") and status == 404:
        return OutcomeKind.REFUSED_REPOSITORY
    if _DISABLED in words.lower():
        return OutcomeKind.REFUSED_REPOSITORY
    if status in (401, 402, 403):
        return OutcomeKind.NEEDS_PERSON
    if status == 404:
        # Without the Hub's own word a 404 may be anybody's, a proxy's for example, and proves nothing.
        is_item = answer.error_code == "EntryNotFound" and exchange.carries_files
        return OutcomeKind.REFUSED_ITEM if is_item else OutcomeKind.TRANSIENT
    if status in (409, 412):
        return OutcomeKind.CONFLICT if is_commit else OutcomeKind.TRANSIENT
    if status == 429:
        return OutcomeKind.TRANSIENT
    if status == 408 or status >= 500 or status < 300:
        return OutcomeKind.UNKNOWN if is_commit else OutcomeKind.TRANSIENT
    if status < 400 or status in (410, 451):
        return OutcomeKind.REFUSED_REPOSITORY  # moved, gone, or blocked
    return OutcomeKind.REFUSED_ITEM if exchange.carries_files else OutcomeKind.REFUSED_REPOSITORY


def _error_type(answer: Answer, words: str) -> str:
    """The class that huggingface_hub raises for this answer, by name (hub API notes, section 9)."""
    if answer.error_code in _TYPE_BY_CODE:
        return _TYPE_BY_CODE[answer.error_code]
    if _DISABLED in words.lower():
        return "DisabledRepoError"
    if answer.status == 401 and answer.is_https and words.lower().rstrip(".") != _INVALID_CREDENTIALS:
        return "RepositoryNotFoundError"
    if answer.status == 400:
        return "BadRequestError"
    return "RepositoryMoved" if 300 <= answer.status < 400 else "HfHubHTTPError"


__all__ = ["Answer", "Exchange", "HubError", "outcome_of_answer", "outcome_of_failure", "outcome_of_unreadable"]
