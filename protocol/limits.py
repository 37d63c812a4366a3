"""The limits that the hand-over protocol fixes. They are not settings: both sides rely on them."""

from __future__ import annotations

from typing import Final

MIB: Final = 1024 * 1024

RUN_FILE_MAX_BYTES: Final = 32 * MIB
"""One run file (hand-over protocol, section 3, `FILE_TOO_LARGE`)."""

RUN_FILES_TOGETHER_MAX_BYTES: Final = 64 * MIB
"""All files of one run-file hand-over together."""

BUNDLE_COPY_MAX_BYTES: Final = 32 * MIB
"""A bundle file up to this size, itself included, may be copied at hand-over (section 4.4)."""

BUNDLE_COPIES_TOGETHER_MAX_BYTES: Final = 64 * MIB
"""The copies of one bundle together, itself included."""

MIN_COMMIT_SPACING_S: Final = 10.0
"""Between two commits of this fleet to one repository (section 5.8)."""

HUB_COMMITS_PER_HOUR: Final = 128
"""What the Hub itself allows one repository, over all writers (hub API notes, section 11)."""

HUB_INLINE_FILE_MAX_BYTES: Final = 10 * MIB
"""A larger file in the body of a commit is refused (hub API notes, section 11)."""

PREUPLOAD_MAX_FILES: Final = 256
"""Entries of one preupload request (hub API notes, section 4)."""

PREUPLOAD_SAMPLE_BYTES: Final = 512
"""The first bytes of a file that preupload shows the Hub."""

PATHS_INFO_MAX_PATHS: Final = 500
"""Paths of one paths-info request: half of the Hub's limit, as its own client uses."""

__all__ = [
    "BUNDLE_COPIES_TOGETHER_MAX_BYTES",
    "BUNDLE_COPY_MAX_BYTES",
    "HUB_COMMITS_PER_HOUR",
    "HUB_INLINE_FILE_MAX_BYTES",
    "MIB",
    "MIN_COMMIT_SPACING_S",
    "PATHS_INFO_MAX_PATHS",
    "PREUPLOAD_MAX_FILES",
    "PREUPLOAD_SAMPLE_BYTES",
    "RUN_FILES_TOGETHER_MAX_BYTES",
    "RUN_FILE_MAX_BYTES",
]
