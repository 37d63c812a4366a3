"""Which files of a bundle are copied at hand-over (hand-over protocol, section 4.4, *Copying*)."""

from __future__ import annotations

from collections.abc import Iterable

from .limits import BUNDLE_COPIES_TOGETHER_MAX_BYTES, BUNDLE_COPY_MAX_BYTES
from .requests import BundleFile


def files_to_copy(files: Iterable[BundleFile]) -> tuple[BundleFile, ...]:
    """Choose by declared size: smallest first, names break ties, until one is too large or does not fit any more.

    Both limits belong to what is allowed: a file of exactly 32 MiB is copied, and copies may reach 64 MiB together.
    """
    chosen: list[BundleFile] = []
    together_bytes = 0
    for file in sorted(files, key=lambda file: (file.size_bytes, file.name)):
        together_bytes += file.size_bytes
        if file.size_bytes > BUNDLE_COPY_MAX_BYTES or together_bytes > BUNDLE_COPIES_TOGETHER_MAX_BYTES:
            break
        chosen.append(file)
    return tuple(chosen)


__all__ = ["files_to_copy"]
