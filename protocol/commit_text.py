"""Titles and bodies of commits, and the delivery id that makes an unknown outcome decidable.

Titles follow the hand-over protocol, sections 5.5 and 5.6. The delivery id stands in a trailer line of the body, where
a listing of the branch shows it (hub API notes, section 12).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

MAX_TITLE_CHARACTERS: Final = 200
"""A title that names every run of a sweep would have no bound (finding W11)."""

DELIVERY_TRAILER: Final = "Conveyor-Delivery"
_TRAILER_LINE = re.compile(rf"^{DELIVERY_TRAILER}: ([0-9a-f]{{32}})[ \t\r]*$", re.MULTILINE)


def delivery_id(store_id: str, repository: str, items: Iterable[tuple[str, int, str]]) -> str:
    """The identity of one delivery: store, target, and each path with its version and content (N-HUB-15).

    The same content planned again against another head, or from a copy of the store, has the same identity.

    Args:
        store_id: the random identity that the store was born with.
        repository: `OWNER/NAME`.
        items: path in the repository, version (0 for a bundle's file), SHA-256; in any order.

    Returns:
        32 lower-case hexadecimal digits.
    """
    digest = hashlib.sha256()
    for part in (store_id, repository):
        digest.update(part.encode() + b"\0")
    for path, version, sha256 in sorted(items):
        digest.update(f"{version}:{sha256}:".encode() + path.encode() + b"\0")
    return digest.hexdigest()[:32]


def run_files_title(run_ids: Iterable[str]) -> str:
    """The title of a run-file commit: the distinct run ids, sorted; shortened with a count where they are many."""
    return _enumerate("Stage run files for ", sorted(set(run_ids)))


def bundle_title(run_id: str, folder: str, commit_message: str | None) -> str:
    """The title of a commit that carries one bundle: the first line of the build's message, or the default one."""
    if commit_message is None:
        return f"Stage {run_id} under {folder}"
    return commit_message.strip().splitlines()[0].rstrip()


def message_lines(commit_message: str | None) -> tuple[str, ...]:
    """The lines of the build's message after the first: a title is one line, so they go into the body.

    A line that could be taken for our trailer is indented, so that only the delivery itself can name its id.
    """
    if commit_message is None:
        return ()
    rest = "\n".join(commit_message.strip().splitlines()[1:]).strip("\n")
    return tuple(f" {line}" if _TRAILER_LINE.match(line) else line for line in rest.splitlines())


def bundles_title(run_ids: Sequence[str]) -> str:
    """The title of a commit that carries several bundles."""
    return _enumerate(f"Stage {len(run_ids)} bundles: ", sorted(run_ids))


def commit_body(delivery: str, lines: Iterable[str] = ()) -> str:
    """The body of a commit: lines for people, then the trailer for programs."""
    paragraphs = "\n".join(lines)
    trailer = f"{DELIVERY_TRAILER}: {delivery}"
    return f"{paragraphs}\n\n{trailer}" if paragraphs else trailer


def find_delivery_id(body: str) -> str | None:
    """The delivery id in a commit's body, or None if it is another program's commit."""
    found = _TRAILER_LINE.findall(body)
    return found[-1] if found else None


def _enumerate(start: str, names: Sequence[str]) -> str:
    whole = start + ", ".join(names)
    if len(whole) <= MAX_TITLE_CHARACTERS:
        return whole
    title, shown = start, 0
    for name in names:
        rest = f" and {len(names) - shown - 1} more"
        piece = name if shown == 0 else f", {name}"
        if len(title) + len(piece) + len(rest) > MAX_TITLE_CHARACTERS and shown:
            break
        title, shown = title + piece, shown + 1
    return title if shown == len(names) else f"{title} and {len(names) - shown} more"


__all__ = [
    "DELIVERY_TRAILER",
    "MAX_TITLE_CHARACTERS",
    "bundle_title",
    "bundles_title",
    "commit_body",
    "delivery_id",
    "find_delivery_id",
    "message_lines",
    "run_files_title",
]
