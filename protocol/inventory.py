"""Whether a bundle is in its repository already, judged by the inventory there (hand-over protocol, section 5.6)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .requests import BundleFile


def names_same_outputs(document: bytes, outputs: Iterable[BundleFile]) -> bool:
    """Whether a repository's inventory lists exactly these outputs with these digests.

    Its `files` object must have exactly the names of the outputs, each an object whose `sha256` is the declared one;
    other keys are ignored. A document that is no such inventory is different, never *unknown* (finding W13).

    Args:
        document: the bytes of the inventory in the repository.
        outputs: the files of the bundle that are no sidecars.
    """
    try:
        listed = json.loads(document)["files"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    expected = {file.name: file.sha256 for file in outputs}
    return (
        isinstance(listed, dict)
        and listed.keys() == expected.keys()
        and all(isinstance(entry, dict) and entry.get("sha256") == expected[name] for name, entry in listed.items())
    )


__all__ = ["names_same_outputs"]
