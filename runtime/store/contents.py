"""Kept bytes, by their digest.

A content is kept exactly while something needs it: it is the newest of a path that is pending or set aside, a file or
the index of an open attempt, or a copy of a bundle that is not settled. Equal bytes are kept once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select
from sqlalchemy.sql.elements import ColumnElement

from ...actors.store_operations import ReadContents, ReadSamples
from .schema import attempt_files, attempts, bundle_files, contents, is_true, run_paths

_KNOWN: Final = contents.alias("known")
_FREED: Final = "conveyor.freed"
_AT_ONCE: Final = 400
"""Values in one list of a statement; databases bound their number."""


def in_chunks(values: Iterable[str]) -> Iterator[Sequence[str]]:
    """Distinct values, sorted, in lists short enough for one statement."""
    ordered = sorted(set(values))
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


def keep_contents(connection: Connection, kept: Mapping[str, bytes]) -> None:
    """Keep bytes under their SHA-256, where they are not kept already."""
    if kept:
        connection.execute(
            _KEEP,
            [
                {"new_sha256": sha256, "new_size_bytes": len(content), "new_content": content}
                for sha256, content in kept.items()
            ],
        )


def find_missing(connection: Connection, sha256s: Iterable[str]) -> set[str]:
    """Which of these contents are not kept."""
    missing = set(sha256s)
    for chunk in in_chunks(missing):
        missing.difference_update(connection.scalars(select(contents.c.sha256).where(contents.c.sha256.in_(chunk))))
    return missing


def is_unneeded() -> ColumnElement[bool]:
    """The condition, for a row of `contents`, that nothing needs it."""
    needs = (
        select(run_paths.c.path).where(run_paths.c.newest_sha256 == contents.c.sha256, is_true(run_paths.c.is_kept)),
        select(attempt_files.c.position).where(attempt_files.c.sha256 == contents.c.sha256),
        select(attempts.c.repository).where(attempts.c.index_sha256 == contents.c.sha256),
        select(bundle_files.c.name).where(bundle_files.c.sha256 == contents.c.sha256, is_true(bundle_files.c.is_kept)),
    )
    return ~or_(*(need.correlate(contents).exists() for need in needs))


_KEEP: Final = insert(contents).from_select(
    ["sha256", "size_bytes", "content"],
    select(
        bindparam("new_sha256", type_=contents.c.sha256.type),
        bindparam("new_size_bytes", type_=contents.c.size_bytes.type),
        bindparam("new_content", type_=contents.c.content.type),
    ).where(~select(_KNOWN.c.sha256).where(_KNOWN.c.sha256 == bindparam("new_sha256")).exists()),
)


def drop_unneeded(connection: Connection, sha256s: Iterable[str]) -> None:
    """Forget those of these contents that nothing needs once the transaction is about to end."""
    freed: set[str] = connection.info.setdefault(_FREED, set())
    freed.update(sha256s)


def finish_contents(connection: Connection) -> None:
    """The last act of every transaction: forget what its operations freed, if nothing needs it now."""
    freed: set[str] = connection.info.pop(_FREED, set())
    for chunk in in_chunks(freed):
        connection.execute(delete(contents).where(contents.c.sha256.in_(chunk), is_unneeded()))


def discard_freed(connection: Connection) -> None:
    """A transaction was taken back: it freed nothing."""
    connection.info.pop(_FREED, None)


def read_contents(connection: Connection, operation: ReadContents) -> Mapping[str, bytes]:
    """The bytes of kept contents."""
    found: dict[str, bytes] = {}
    for chunk in in_chunks(operation.sha256s):
        rows = connection.execute(select(contents.c.sha256, contents.c.content).where(contents.c.sha256.in_(chunk)))
        found.update((row.sha256, row.content) for row in rows)
    return found


def read_samples(connection: Connection, operation: ReadSamples) -> Mapping[str, bytes]:
    """The first bytes of kept contents."""
    found: dict[str, bytes] = {}
    for chunk in in_chunks(operation.sha256s):
        sample = func.substr(contents.c.content, 1, operation.sample_bytes, type_=contents.c.content.type)
        rows = connection.execute(select(contents.c.sha256, sample.label("sample")).where(contents.c.sha256.in_(chunk)))
        # Of an empty content some databases give no value instead of no bytes.
        found.update((row.sha256, row.sample or b"") for row in rows)
    return found


__all__ = [
    "discard_freed",
    "drop_unneeded",
    "finish_contents",
    "find_missing",
    "in_chunks",
    "is_unneeded",
    "keep_contents",
    "read_contents",
    "read_samples",
]
