"""Each answer of the Hub, and each failure to get one, becomes the right outcome."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conveyor.protocol.outcome import HubError, OutcomeKind
from conveyor.runtime.adapters.hub_errors import (
    Answer,
    Exchange,
    outcome_of_answer,
    outcome_of_failure,
    outcome_of_unreadable,
)
from conveyor.runtime.adapters.hub_library_errors import outcome_of_library_error
from conveyor.runtime.adapters.hub_text import MAX_CHARACTERS, clean, named_paths, server_words
from conveyor.runtime.adapters.hub_waits import rate_limit_wait_s, retry_after_s

K = OutcomeKind
DISABLED = {"x-error-message": "Access to this resource is disabled."}


@pytest.mark.parametrize(
    ("status", "headers", "exchange", "kind"),
    [
        (400, {}, Exchange.COMMIT, K.REFUSED_ITEM),
        (400, {}, Exchange.PREUPLOAD, K.REFUSED_ITEM),
        (400, {}, Exchange.UPLOAD, K.REFUSED_ITEM),
        (400, {}, Exchange.READ, K.REFUSED_REPOSITORY),
        (401, {}, Exchange.COMMIT, K.NEEDS_PERSON),
        (401, {"x-error-code": "RepoNotFound"}, Exchange.READ, K.NEEDS_PERSON),
        (402, {}, Exchange.COMMIT, K.NEEDS_PERSON),
        (403, {}, Exchange.COMMIT, K.NEEDS_PERSON),
        (403, {"x-error-code": "GatedRepo"}, Exchange.READ, K.NEEDS_PERSON),
        (403, DISABLED, Exchange.COMMIT, K.REFUSED_REPOSITORY),
        (404, {"x-error-code": "RepoNotFound"}, Exchange.COMMIT, K.REFUSED_REPOSITORY),
        (404, {"x-error-code": "RevisionNotFound"}, Exchange.READ, K.REFUSED_REPOSITORY),
        (404, {"x-error-code": "EntryNotFound"}, Exchange.COMMIT, K.REFUSED_ITEM),
        (404, {"x-error-code": "EntryNotFound"}, Exchange.READ, K.TRANSIENT),
        (404, {}, Exchange.COMMIT, K.TRANSIENT),
        (408, {}, Exchange.COMMIT, K.UNKNOWN),
        (408, {}, Exchange.READ, K.TRANSIENT),
        (409, {}, Exchange.COMMIT, K.CONFLICT),
        (409, {}, Exchange.READ, K.TRANSIENT),
        (410, {}, Exchange.COMMIT, K.REFUSED_REPOSITORY),
        (412, {}, Exchange.COMMIT, K.CONFLICT),
        (413, {}, Exchange.COMMIT, K.REFUSED_ITEM),
        (422, {}, Exchange.COMMIT, K.REFUSED_ITEM),
        (429, {}, Exchange.COMMIT, K.TRANSIENT),
        (429, {}, Exchange.READ, K.TRANSIENT),
        (451, {}, Exchange.COMMIT, K.REFUSED_REPOSITORY),
        (307, {}, Exchange.READ, K.REFUSED_REPOSITORY),
        *[(status, {}, Exchange.COMMIT, K.UNKNOWN) for status in (500, 501, 502, 503, 504, 520)],
        *[(status, {}, exchange, K.TRANSIENT) for status in (500, 503, 504) for exchange in list(Exchange)[:3]],
    ],
)
def test_kind_of_an_answer(status: int, headers: dict[str, str], exchange: Exchange, kind: OutcomeKind) -> None:
    """The treatment follows status, the Hub's own code, and what was asked (hub API notes, sections 5 and 12)."""
    outcome = outcome_of_answer(Answer(status, headers), exchange)
    assert (outcome.kind, outcome.status) == (kind, status)
    assert outcome.same_parent is (status == 409 and exchange is Exchange.COMMIT)


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (Answer(404, {"x-error-code": "RepoNotFound"}), "RepositoryNotFoundError"),
        (Answer(404, {"x-error-code": "RevisionNotFound"}), "RevisionNotFoundError"),
        (Answer(404, {"x-error-code": "EntryNotFound"}), "RemoteEntryNotFoundError"),
        (Answer(403, {"x-error-code": "GatedRepo"}), "GatedRepoError"),
        (Answer(403, DISABLED), "DisabledRepoError"),
        (Answer(400, {}), "BadRequestError"),
        (Answer(401, {}, is_https=True), "RepositoryNotFoundError"),
        (Answer(401, {}, is_https=False), "HfHubHTTPError"),
        (
            Answer(401, {"x-error-message": "Invalid credentials in Authorization header"}, is_https=True),
            "HfHubHTTPError",
        ),
        (Answer(500, {}), "HfHubHTTPError"),
        (Answer(308, {}), "RepositoryMoved"),
    ],
)
def test_error_type_is_the_librarys_class(answer: Answer, error_type: str) -> None:
    """`error_type` names the class that huggingface_hub would raise (hub API notes, section 9)."""
    assert outcome_of_answer(answer, Exchange.READ).error_type == error_type


@pytest.mark.parametrize("name", ["ConnectError", "ConnectTimeout", "PoolTimeout"])
def test_not_sent(name: str) -> None:
    """What failed before a connection stood was certainly not sent."""
    assert outcome_of_failure(name, Exchange.COMMIT).kind is K.TRANSIENT


@pytest.mark.parametrize(
    "name", ["ReadTimeout", "WriteTimeout", "ReadError", "WriteError", "RemoteProtocolError", "CloseError", "Surprise"]
)
def test_perhaps_landed(name: str) -> None:
    """Everything else leaves a commit unknown, and only a commit."""
    assert outcome_of_failure(name, Exchange.COMMIT).kind is K.UNKNOWN
    assert outcome_of_failure(name, Exchange.UPLOAD).kind is K.TRANSIENT
    assert outcome_of_failure(name, Exchange.READ).kind is K.TRANSIENT


def test_unreadable_success() -> None:
    """A success whose body cannot be read leaves a commit unknown."""
    assert outcome_of_unreadable(Answer(200, {}), Exchange.COMMIT).kind is K.UNKNOWN
    assert outcome_of_unreadable(Answer(200, {}), Exchange.READ).kind is K.TRANSIENT


COMMIT_WORDS = "You have exceeded the rate limit for repository commits (128 per hour)."


@pytest.mark.parametrize(
    ("headers", "text", "is_commit", "expected_s"),
    [
        ({"ratelimit": '"api";r=0;t=55'}, "", False, 55.0),
        ({"ratelimit": '"api";r=12;t=55'}, "", False, 300.0),
        ({"ratelimit": '"api";r=12;t=55'}, "", True, 3600.0),
        ({"ratelimit": '"api";r=12;t=55', "retry-after": "7"}, COMMIT_WORDS, True, 7.0),
        ({"ratelimit": '"resolvers";r=4;t=9, "api";r=0;t=20'}, "", False, 20.0),
        ({"ratelimit": '"api";r=0;t=20', "retry-after": "90"}, "", False, 90.0),
        ({"retry-after": "0"}, "", False, 1.0),
        ({}, COMMIT_WORDS, True, 3600.0),
        ({}, COMMIT_WORDS + " You can retry this action in about 1 hour.", True, 3600.0),
        ({}, COMMIT_WORDS + " Retry in 25 minutes", True, 1500.0),
        ({}, "Please wait for 30 seconds", False, 30.0),
        ({}, "try again after an hour", False, 3600.0),
        ({}, "", True, 300.0),
        ({}, "", False, 300.0),
        ({"retry-after": "99999999"}, "", False, 86400.0),
        ({"retry-after": "soon", "ratelimit": "nonsense"}, "", False, 300.0),
    ],
)
def test_wait_after_a_rate_limit(headers: dict[str, str], text: str, is_commit: bool, expected_s: float) -> None:
    """The longest of what the Hub says counts; silence means until the window has ended (finding W49)."""
    assert rate_limit_wait_s(headers, text, is_commit=is_commit) == expected_s


def test_retry_after_as_a_date() -> None:
    """A date is taken against the answer's own clock."""
    headers = {"date": "Tue, 01 Dec 2026 15:00:00 GMT", "retry-after": "Tue, 01 Dec 2026 15:02:30 GMT"}
    assert retry_after_s(headers) == 150.0
    assert retry_after_s({"retry-after": headers["retry-after"]}) is None
    assert retry_after_s({**headers, "retry-after": "Tue, 01 Dec 2026 14:00:00 GMT"}) == 0.0
    assert retry_after_s({**headers, "retry-after": "99 Foo"}) is None


def test_retry_after_of_a_server_error_is_kept() -> None:
    """A 503 may say how long, too."""
    assert outcome_of_answer(Answer(503, {"retry-after": "5"}), Exchange.COMMIT).retry_after_s == 5.0
    assert outcome_of_answer(Answer(400, {"retry-after": "5"}), Exchange.COMMIT).retry_after_s is None


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"x-error-message": "From the header"}, b"", "From the header"),
        ({}, b'{"error": "Text"}', "Text"),
        ({}, b'{"error": ["One", "Two"]}', "One Two"),
        ({"x-error-message": "Same"}, b'{"error": "Same"}', "Same"),
        ({}, b'{"errors": [{"message": "One"}, {"message": "Two"}, 3]}', "One Two"),
        ({}, b'{"message": "Odd"}', "Odd"),
        ({}, b"plain words", "plain words"),
        ({"content-type": "text/html"}, b"<html>gateway</html>", ""),
        ({}, b"[1, 2]", ""),
        ({}, b"", ""),
    ],
)
def test_words_of_the_server(headers: dict[str, str], body: bytes, expected: str) -> None:
    """The Hub's words are found wherever it puts them (hub API notes, section 2)."""
    assert server_words(headers, body) == expected


def test_text_is_cleaned() -> None:
    """No token, address or signature survives, and the text stays short (N-SEC-01)."""
    text = (
        "bad hf_abcdefgh12345 at https://storage.example/x?X-Amz-Signature=beef Bearer abc.def "
        "eyJhbGciOi.eyJzdWIi.sig X-Amz-Credential=KEY&Signature=abc token=zzz\nsecond\x00line my-odd-secret"
    )
    cleaned = clean(text, ["my-odd-secret"])
    for secret in ("hf_abc", "storage.example", "beef", "abc.def", "eyJ", "KEY", "zzz", "my-odd-secret", "\n", "\x00"):
        assert secret not in cleaned
    assert cleaned.startswith("bad [credential] at [address]")
    assert cleaned.endswith("second line [credential]")
    assert len(clean("word " * 100)) == MAX_CHARACTERS


def test_named_paths() -> None:
    """A path counts as named only as a whole."""
    paths = ["a/b.txt", "b.txt", "a/b.txt.gz", "c d.txt"]
    assert named_paths('Invalid path "a/b.txt".', paths) == ("a/b.txt",)
    assert named_paths("a/b.txt.gz is too large, c d.txt too", paths) == ("a/b.txt.gz", "c d.txt")
    assert named_paths("nothing", paths) == ()


def test_error_text_has_no_words_of_the_server() -> None:
    """The exception's own text holds a type name, a status and a kind, and nothing that the Hub sent."""
    error = HubError(outcome_of_answer(Answer(400, {"x-error-message": "secret words"}), Exchange.COMMIT))
    assert str(error) == "BadRequestError (HTTP 400): refused_item"


def library_response(status: int, url: str, headers: dict[str, str] | None = None, content: bytes = b"") -> Any:
    """What httpx and httpx2 responses have in common."""
    return SimpleNamespace(status_code=status, headers=headers or {}, content=content, request=SimpleNamespace(url=url))


class LibraryError(OSError):
    """As HfHubHTTPError: an OSError with a response."""

    def __init__(self, response: Any) -> None:
        super().__init__("text with https://secret.example and hf_secrettoken")
        self.response = response


def wrapped(cause: BaseException) -> RuntimeError:
    """As huggingface_hub wraps the failure of one LFS file."""
    error = RuntimeError("Error while uploading 'x.bin' to the Hub.")
    error.__cause__ = cause
    return error


BATCH = "https://huggingface.co/datasets/acme/d.git/info/lfs/objects/batch"
STORAGE = "https://storage.example/bucket/x?X-Amz-Signature=s"


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (LibraryError(library_response(401, BATCH)), K.NEEDS_PERSON, 401),
        (wrapped(LibraryError(library_response(403, BATCH))), K.NEEDS_PERSON, 403),
        (wrapped(LibraryError(library_response(403, STORAGE))), K.TRANSIENT, 403),
        (wrapped(LibraryError(library_response(400, STORAGE))), K.TRANSIENT, 400),
        (wrapped(LibraryError(library_response(503, STORAGE))), K.TRANSIENT, 503),
        (LibraryError(library_response(422, BATCH)), K.REFUSED_ITEM, 422),
        (LibraryError(library_response(404, BATCH, {"X-Error-Code": "RepoNotFound"})), K.REFUSED_REPOSITORY, 404),
        (ConnectionError("CAS error: status code 403 Forbidden"), K.NEEDS_PERSON, 403),
        (ConnectionError("Request error: HTTP status client error (404 Not Found)"), K.TRANSIENT, 404),
        (ConnectionError("server error 503"), K.TRANSIENT, 503),
        (ConnectionError("no route"), K.TRANSIENT, None),
        (ValueError("LFS batch API returned errors:\nEncountered error"), K.REFUSED_ITEM, None),
        (ValueError("Malformed response from server"), K.TRANSIENT, None),
        (wrapped(TimeoutError("x")), K.TRANSIENT, None),
        (FileNotFoundError(2, "gone"), K.TRANSIENT, None),
        (RuntimeError("?"), K.TRANSIENT, None),
    ],
)
def test_errors_of_the_library(error: BaseException, kind: OutcomeKind, status: int | None) -> None:
    """All three shapes of an upload's error are read, and none is ever unknown (hub API notes, section 16, 6)."""
    outcome = outcome_of_library_error(error, "x.bin")
    assert (outcome.kind, outcome.status) == (kind, status)
    assert outcome.paths == (("x.bin",) if kind is K.REFUSED_ITEM else ())
    assert "secret" not in f"{outcome}"


def test_innermost_cause_is_named() -> None:
    """The type that is reported is that of the cause, not of the wrapping."""
    assert outcome_of_library_error(wrapped(TimeoutError("x")), "x.bin").error_type == "TimeoutError"
