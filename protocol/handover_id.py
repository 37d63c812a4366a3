"""The identity of a hand-over, which both sides compute alike (hand-over protocol, section 4.8)."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from .requests import CheckedBundle

DATASET_BUNDLE: Final = "dataset_bundle"


def handover_id(kind: str, request: dict[str, Any]) -> str:
    """Compute the identity of a message.

    Args:
        kind: `dataset_bundle`, or `release_change` for the three release changes.
        request: the message without `protocol_version`; keys with null and `command` stay.

    Returns:
        32 lower-case hexadecimal digits.
    """
    text = json.dumps({"kind": kind, "request": request}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def bundle_id(bundle: CheckedBundle) -> str:
    """The identity of a bundle, from its checked fields only, so that unknown keys never enter (finding W18)."""
    return handover_id(
        DATASET_BUNDLE,
        {
            "command": "stage_dataset_bundle",
            "commit_message": bundle.commit_message,
            "files": [
                {
                    "bytes": file.size_bytes,
                    "local_path": str(file.local_path),
                    "name": file.name,
                    "role": file.role,
                    "sha256": file.sha256,
                }
                for file in bundle.files
            ],
            "prefix": bundle.prefix,
            "repository": bundle.repository,
            "run_id": bundle.run_id,
        },
    )


__all__ = ["DATASET_BUNDLE", "bundle_id", "handover_id"]
