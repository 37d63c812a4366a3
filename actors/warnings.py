"""Warnings: each kind once while its situation lasts; fixed texts, type names and codes only (N-SEC-01, W38)."""

from __future__ import annotations

import logging
from typing import Final

_LOG: Final = logging.getLogger("conveyor.delivery")


class WarnOnce:
    """Reports a kind of trouble when it begins, and again only after it has ended."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def warn(self, kind: str, detail: str, text: str) -> None:
        """Report trouble.

        Args:
            kind: a fixed word for the situation.
            detail: a type name, a code or a repository; never a message of the Hub, an address or a credential.
            text: what it means and what happens next.
        """
        if (kind, detail) in self._shown:
            return
        self._shown.add((kind, detail))
        _LOG.warning("%s (%s): %s", kind, detail, text)

    def clear(self, kind: str, detail: str | None = None) -> None:
        """The situation has ended: the next of its kind is reported again."""
        self._shown = {
            known for known in self._shown if known[0] != kind or (detail is not None and known[1] != detail)
        }


__all__ = ["WarnOnce"]
