"""The identity of a hand-over (hand-over protocol, section 4.8), to the byte."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from conveyor.protocol.handover_id import bundle_id, handover_id
from conveyor.protocol.requests import BundleFile, StageDatasetBundle, check_bundle

EXAMPLE = StageDatasetBundle(
    "acme/private",
    "uk-run-1",
    (
        BundleFile(
            "dataset.h5",
            "dataset",
            "/data/uk-run-1/dataset.h5",
            "5cc590aa15e97595e13963c72aea8d3fbe65fbf5dd5f8fc690ee479f73d45548",
            14,
        ),
        BundleFile(
            "staged_manifest.json",
            "staged_manifest",
            "/data/uk-run-1/staged_manifest.json",
            "aae5a71db7cd42382ef749f87ca847684d9d4a517cc8235f53ea31bd492c3577",
            12,
        ),
    ),
    commit_message="Étape 1",
)


def test_the_bundle_of_the_protocol() -> None:
    """Example 1 of section 4.8."""
    assert bundle_id(check_bundle(EXAMPLE)) == "fc8126289229d606d1691ea003df51ed"


def test_nulls_stay_in_the_message() -> None:
    """Example 1 without a commit message: the key stays, with null."""
    assert bundle_id(check_bundle(replace(EXAMPLE, commit_message=None))) == "f8caa5aa7d401b7fb355d5bf8bc40fc8"


def test_the_promotion_of_the_protocol() -> None:
    """Example 2 of section 4.8; the order of keys does not matter."""
    message = {
        "command": "promote_build",
        "request_id": "req-1",
        "repository": "acme/private",
        "release": "uk-2024",
        "build": "b-001",
    }
    assert handover_id("release_change", message) == "3858b4eb4b7899d0877c9ed7bf8916ee"


def test_characters_beyond_the_first_plane_are_surrogate_pairs() -> None:
    """Section 4.8, step 3: `\\uXXXX` for every non-ASCII character, in pairs above U+FFFF."""
    canonical = b'{"kind":"k","request":{"a":"\\ud83d\\ude00\\u00e9"}}'
    assert handover_id("k", {"a": "😀é"}) == hashlib.sha256(canonical).hexdigest()[:32]


def test_each_field_of_a_bundle_matters() -> None:
    """Section 4.8: the same files in another folder, or in another order, are another hand-over."""
    first, second = EXAMPLE.files
    variants = [
        EXAMPLE,
        replace(EXAMPLE, repository="acme/other"),
        replace(EXAMPLE, run_id="uk-run-2"),
        replace(EXAMPLE, prefix="other"),
        replace(EXAMPLE, commit_message="Etape 1"),
        replace(EXAMPLE, files=(second, first)),
        replace(EXAMPLE, files=(replace(first, local_path="/elsewhere/dataset.h5"), second)),
        replace(EXAMPLE, files=(replace(first, name="other.h5"), second)),
        replace(EXAMPLE, files=(replace(first, role="other"), second)),
        replace(EXAMPLE, files=(replace(first, sha256="0" * 64), second)),
        replace(EXAMPLE, files=(replace(first, size_bytes=15), second)),
    ]
    assert len({bundle_id(check_bundle(variant)) for variant in variants}) == len(variants)
