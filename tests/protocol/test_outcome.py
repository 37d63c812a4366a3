"""Typed outcomes, and comparison with what the Hub shows (hub API notes, sections 5, 12 and 13)."""

from __future__ import annotations

import pytest

from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.errors import ConveyorError
from conveyor.protocol.outcome import HubError, Outcome, OutcomeKind
from conveyor.protocol.work import RemoteFile

CONTENT = digest_bytes(b"content")
OTHER = digest_bytes(b"kontent")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(OutcomeKind.CONFLICT, "HfHubHTTPError", status=412), "HfHubHTTPError (HTTP 412): conflict"),
        (Outcome(OutcomeKind.UNKNOWN, "ReadTimeout"), "ReadTimeout: unknown"),
    ],
)
def test_the_message_of_an_outcome(outcome: Outcome, text: str) -> None:
    """Section 5.9: a type name, a status and a kind; never the Hub's words, which may hold anything."""
    error = HubError(outcome)
    assert str(error) == text
    assert isinstance(error, ConveyorError)
    assert error.outcome is outcome


def test_the_hubs_words_stay_out_of_the_message() -> None:
    """What the Hub said is kept for the status and is not part of the error's text."""
    error = HubError(Outcome(OutcomeKind.REFUSED_ITEM, "BadRequest", status=400, server_text="secret words"))
    assert "secret" not in str(error)
    assert error.outcome.server_text == "secret words"


@pytest.mark.parametrize(
    ("size_bytes", "git_oid", "sha256", "holds"),
    [
        (7, CONTENT.git_oid, None, True),
        (7, OTHER.git_oid, None, False),
        (8, CONTENT.git_oid, None, False),
        (7, "pointer", CONTENT.sha256, True),
        (7, CONTENT.git_oid, OTHER.sha256, False),
        (8, "pointer", CONTENT.sha256, False),
    ],
)
def test_what_the_hub_holds(size_bytes: int, git_oid: str, sha256: str | None, holds: bool) -> None:
    """A regular file is compared by its git blob id, an LFS file by its SHA-256, both by their length (N-HUB-06)."""
    assert RemoteFile("a", size_bytes, git_oid, sha256).holds(CONTENT) is holds
