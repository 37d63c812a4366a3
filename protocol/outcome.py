"""What an exchange with the Hub came to: one typed value at the edge, whatever the library raised.

The kinds and their treatment follow the hub API notes, sections 5 and 12. *Unknown* is a kind of its own: it is neither
success nor failure, and is looked up before anything is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from .errors import ConveyorError


class OutcomeKind(StrEnum):
    """How an exchange that did not simply succeed is to be treated."""

    CONFLICT = "conflict"
    """The head has moved, or another commit is under way: read again, rebuild, try again. No failure (N-HUB-02)."""
    TRANSIENT = "transient"
    """Nothing landed; the same request may succeed later."""
    REFUSED_ITEM = "refused_item"
    """The Hub will never take this content or path; the rest of the batch may be good."""
    REFUSED_REPOSITORY = "refused_repository"
    """The repository does not take commits at all (missing, disabled)."""
    NEEDS_PERSON = "needs_person"
    """Somebody has to log in, renew a credential or grant a right."""
    UNKNOWN = "unknown"
    """The request may or may not have taken effect: look before repeating."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One exchange that did not simply succeed."""

    kind: OutcomeKind
    error_type: str
    """The type name of what went wrong, for warnings and receipts; never a message."""
    status: int | None = None
    """The HTTP status, where there was an answer."""
    same_parent: bool = False
    """For a conflict: the head need not have moved (409), so the same parent is tried again after a pause."""
    retry_after_s: float | None = None
    """How long the Hub asked to wait, from now."""
    paths: tuple[str, ...] = ()
    """The repository paths that the Hub named as the cause, if it did."""
    server_text: str = ""
    """The Hub's own words, shortened and without credentials or addresses; for status only."""
    request_id: str | None = None
    """The Hub's id of the request, for its support."""


class HubError(ConveyorError):
    """An exchange with the Hub did not simply succeed.

    Attributes:
        outcome: what it came to.
    """

    code: ClassVar[str] = "HUB_ERROR"

    def __init__(self, outcome: Outcome) -> None:
        status = f" (HTTP {outcome.status})" if outcome.status is not None else ""
        super().__init__(f"{outcome.error_type}{status}: {outcome.kind.value}")
        self.outcome = outcome


__all__ = ["HubError", "Outcome", "OutcomeKind"]
