"""Which files of a bundle are copied at hand-over (hand-over protocol, section 4.4, *Copying*)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor.protocol.bundle_copy import files_to_copy
from conveyor.protocol.limits import BUNDLE_COPIES_TOGETHER_MAX_BYTES, BUNDLE_COPY_MAX_BYTES, MIB
from conveyor.protocol.requests import BundleFile


def file(name: str, size_bytes: int) -> BundleFile:
    """A bundle file of which only name and size matter."""
    return BundleFile(name, "dataset", "/f", "0" * 64, size_bytes)


@pytest.mark.parametrize(
    ("sizes", "copied"),
    [
        ({}, []),
        ({"a": 0}, ["a"]),
        ({"a": 32 * MIB}, ["a"]),
        ({"a": 32 * MIB + 1}, []),
        ({"a": 32 * MIB, "b": 32 * MIB}, ["a", "b"]),
        ({"z": 1, "a": 32 * MIB, "b": 32 * MIB}, ["z", "a"]),
        ({"a": 32 * MIB, "b": 32 * MIB - 1, "z": 1}, ["z", "b", "a"]),
        ({"b": 5, "a": 5, "c": 4}, ["c", "a", "b"]),
        ({"huge": 33 * MIB, "small": 1}, ["small"]),
        ({"a": 20 * MIB, "b": 21 * MIB, "c": 24 * MIB, "d": 40 * MIB}, ["a", "b"]),
        ({"a": 20 * MIB, "b": 20 * MIB, "c": 24 * MIB}, ["a", "b", "c"]),
    ],
)
def test_choice(sizes: dict[str, int], copied: list[str]) -> None:
    """Smallest first, names break ties, both limits included, stop at the first that does not fit."""
    assert [chosen.name for chosen in files_to_copy(file(name, size) for name, size in sizes.items())] == copied


@pytest.mark.slow
@given(st.lists(st.integers(0, 40 * MIB), max_size=12))
def test_the_choice_is_a_prefix_within_both_limits_and_as_long_as_possible(sizes: list[int]) -> None:
    """What is copied starts the sorted list, keeps both limits, and the next file would break one."""
    files = [file(f"f{number:02}", size) for number, size in enumerate(sizes)]
    chosen = files_to_copy(files)
    ordered = sorted(files, key=lambda one: (one.size_bytes, one.name))
    assert list(chosen) == ordered[: len(chosen)]
    together = sum(one.size_bytes for one in chosen)
    assert together <= BUNDLE_COPIES_TOGETHER_MAX_BYTES
    assert all(one.size_bytes <= BUNDLE_COPY_MAX_BYTES for one in chosen)
    if len(chosen) < len(ordered):
        following = ordered[len(chosen)].size_bytes
        assert following > BUNDLE_COPY_MAX_BYTES or together + following > BUNDLE_COPIES_TOGETHER_MAX_BYTES
