"""The refusals of the Hub, as one exception that carries status, words and headers (hub API notes section 9)."""

from collections.abc import Mapping


class HubRefusal(Exception):
    """A request is refused: becomes an answer with ``status`` and the Hub's error headers.

    ``error_code`` is the ``X-Error-Code`` by which clients choose an exception class. Nothing landed.
    """

    def __init__(
        self, status: int, message: str, *, error_code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.error_code = error_code
        self.headers = dict(headers or {})


class HubRootUnusable(Exception):
    """The directory cannot be served: taken by another server, from a newer version, or damaged in the middle."""


class HubHostRefused(Exception):
    """The address to listen on is not loopback and nobody allowed that explicitly."""


class FaultScriptInvalid(Exception):
    """A fault script cannot be read; the message names the file, the field and what is allowed."""


def bad_request(message: str) -> HubRefusal:
    """400: malformed; repeating the request cannot help."""
    return HubRefusal(400, message)


def too_large(message: str) -> HubRefusal:
    """413: more content or parameters than one request may carry."""
    return HubRefusal(413, message)


def repo_not_found() -> HubRefusal:
    """404 with ``RepoNotFound``: no such repository, or not for this token."""
    return HubRefusal(404, "Repository not found", error_code="RepoNotFound")


def revision_not_found(revision: str) -> HubRefusal:
    """404 with ``RevisionNotFound``."""
    return HubRefusal(404, f"Invalid rev id: {revision}", error_code="RevisionNotFound")


def entry_not_found(message: str = "Entry not found", *, commit: str | None = None) -> HubRefusal:
    """404 with ``EntryNotFound``; ``commit`` is what the revision stood for."""
    headers = {"X-Repo-Commit": commit} if commit else {}
    return HubRefusal(404, message, error_code="EntryNotFound", headers=headers)


def unauthorised(message: str = "Invalid username or password.") -> HubRefusal:
    """401: no token, or one that is not valid."""
    return HubRefusal(401, message)


def forbidden(message: str) -> HubRefusal:
    """403: the token is known and may not do this."""
    return HubRefusal(403, message)
