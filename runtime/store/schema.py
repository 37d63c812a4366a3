"""The tables of the store, for SQLAlchemy Core.

Times are wall-clock, seconds since the epoch, as the caller gave them; sizes are bytes; digests are lower-case
hexadecimal. What a table may look like is decided here and in the migrations, and a test holds the two to each other.

Rows that are settled may number millions. Whatever is asked often (what is due, what is pending, what a run waits for)
is answered from partial indexes that hold open work only.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    text,
    true,
)

HEAD_VERSION: Final = "0001"
"""The newest migration; a test compares it with the scripts."""

KNOWN_VERSIONS: Final = frozenset({HEAD_VERSION})
"""Every version that can be brought to the newest one; anything else is newer, and left alone."""

VERSION_TABLE: Final = "alembic_version"

metadata: Final = MetaData()

_COMPACT: Final[dict[str, Any]] = {"sqlite_with_rowid": False}


def is_true(column: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition of the partial indexes, written alike in index and query, as some planners need it."""
    return column == true()


def is_false(column: ColumnElement[bool]) -> ColumnElement[bool]:
    """The opposite condition."""
    return column == false()


def _only_where(condition: ColumnElement[bool]) -> dict[str, Any]:
    """A partial index, for the dialects that have them."""
    return {"sqlite_where": condition, "postgresql_where": condition}


def _running(name: str) -> Column[int]:
    """A number that starts at 0."""
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _time(name: str) -> Column[float]:
    """A time, or a span, that is 0 while there is none."""
    return Column(name, Float, nullable=False, server_default=text("0"))


meta = Table(
    "meta",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)
"""One row, `store_id`: the random identity that the store was born with."""

repositories = Table(
    "repositories",
    metadata,
    Column("repository", String, primary_key=True),
    # lease
    Column("lease_owner", String),
    _running("lease_fence"),
    _time("lease_since_unix_s"),
    _time("lease_expires_unix_s"),
    _time("lease_s"),
    Column("lease_host", String),
    Column("lease_pid", Integer),
    # pace
    Column("last_commit_unix_s", Float),
    _time("not_before_unix_s"),
    _time("pause_until_unix_s"),
    _running("failures"),
    Column("last_error_code", String),
    Column("paused_reason", Text),
    Column("paused_unix_s", Float),
    Column("open_delivery_id", String),
    # totals, moved in the transactions that they count
    _running("commits"),
    _running("accepted"),
    _running("delivered"),
    _running("superseded"),
    _running("parked"),
    _running("pruned_version"),
    **_COMPACT,
)
"""One row for each repository ever heard of. `pruned_version` keeps versions rising when a forgotten path returns."""

Index("repositories_leased", repositories.c.repository, **_only_where(repositories.c.lease_owner.is_not(None)))
Index("repositories_unknown", repositories.c.repository, **_only_where(repositories.c.open_delivery_id.is_not(None)))

hub_commits = Table(
    "hub_commits",
    metadata,
    Column("repository", String, primary_key=True),
    Column("commit_id", String, primary_key=True),
    Column("unix_s", Float, nullable=False),
    Column("delivery_id", String, nullable=False),
    **_COMPACT,
)
"""Landed commits, for the hourly budget; forgotten after their time."""

Index("hub_commits_by_time", hub_commits.c.repository, hub_commits.c.unix_s)

run_paths = Table(
    "run_paths",
    metadata,
    Column("repository", String, primary_key=True),
    Column("path", String, primary_key=True),
    Column("run_id", String, nullable=False),
    Column("newest_version", Integer, nullable=False),
    Column("newest_sha256", String(64), nullable=False),
    Column("newest_git_oid", String(40), nullable=False),
    Column("newest_size_bytes", Integer, nullable=False),
    Column("settled_version", Integer, nullable=False),
    Column("committed_sha256", String(64)),
    Column("due_unix_s", Float, nullable=False),
    Column("is_forced", Boolean, nullable=False),
    Column("interval_s", Float, nullable=False),
    Column("is_pending", Boolean, nullable=False),
    Column("is_parked", Boolean, nullable=False),
    Column("is_kept", Boolean, nullable=False),
    Column("pending_since_unix_s", Float, nullable=False),
    Column("parked_code", String),
    Column("parked_reason", Text),
    Column("updated_unix_s", Float, nullable=False),
    **_COMPACT,
)
"""The state of each repository path. Three columns are derived and stand here for their indexes: `is_pending` (the
newest version is neither settled nor set aside), `is_parked` (the newest version was set aside), `is_kept` (either: its
bytes are still needed)."""

Index(
    "run_paths_pending",
    run_paths.c.repository,
    run_paths.c.path,
    run_paths.c.due_unix_s,
    **_only_where(is_true(run_paths.c.is_pending)),
)
Index("run_paths_kept", run_paths.c.newest_sha256, **_only_where(is_true(run_paths.c.is_kept)))
Index("run_paths_parked", run_paths.c.repository, run_paths.c.path, **_only_where(is_true(run_paths.c.is_parked)))
Index("run_paths_settled", run_paths.c.updated_unix_s, **_only_where(is_false(run_paths.c.is_kept)))

run_hand_overs = Table(
    "run_hand_overs",
    metadata,
    Column("repository", String, primary_key=True),
    Column("run_id", String, primary_key=True),
    Column("path", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("is_pending", Boolean, nullable=False),
    **_COMPACT,
)
"""Which run handed over which path, and the newest version it did so (finding W27: several runs may share a path)."""

Index(
    "run_hand_overs_pending",
    run_hand_overs.c.repository,
    run_hand_overs.c.run_id,
    **_only_where(is_true(run_hand_overs.c.is_pending)),
)
Index("run_hand_overs_by_path", run_hand_overs.c.repository, run_hand_overs.c.path)

runs = Table(
    "runs",
    metadata,
    Column("repository", String, primary_key=True),
    Column("run_id", String, primary_key=True),
    Column("endpoint", String, nullable=False),
    _running("files_attempted"),
    _running("files_committed"),
    _running("commit_attempts"),
    _running("commits"),
    Column("last_error_code", String),
    Column("last_commit", String),
    Column("entry_text", Text),
    _running("entry_version"),
    _running("entry_settled_version"),
    Column("entry_is_pending", Boolean, nullable=False),
    _time("entry_due_unix_s"),
    Column("entry_is_forced", Boolean, nullable=False),
    _time("entry_interval_s"),
    _time("entry_since_unix_s"),
    Column("updated_unix_s", Float, nullable=False),
    **_COMPACT,
)
"""Each run's counters and its entry for `runs.json`."""

Index("runs_entry_pending", runs.c.repository, runs.c.run_id, **_only_where(is_true(runs.c.entry_is_pending)))
Index("runs_settled", runs.c.updated_unix_s, **_only_where(is_false(runs.c.entry_is_pending)))

attempts = Table(
    "attempts",
    metadata,
    Column("repository", String, primary_key=True),
    Column("delivery_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("parent", String, nullable=False),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("index_sha256", String(64)),
    Column("opened_unix_s", Float, nullable=False),
    **_COMPACT,
)
"""Commits that were recorded and whose outcome is not: at most one for each repository."""

attempt_files = Table(
    "attempt_files",
    metadata,
    Column("repository", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("path", String, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("git_oid", String(40), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("mode", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("run_id", String),
    Column("handover_id", String),
    **_COMPACT,
)
Index("attempt_files_by_path", attempt_files.c.repository, attempt_files.c.path)
Index("attempt_files_by_content", attempt_files.c.sha256)

attempt_entries = Table(
    "attempt_entries",
    metadata,
    Column("repository", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("run_id", String, nullable=False),
    Column("entry_text", Text, nullable=False),
    Column("entry_version", Integer, nullable=False),
    **_COMPACT,
)

attempt_bundles = Table(
    "attempt_bundles",
    metadata,
    Column("repository", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("handover_id", String, nullable=False),
    **_COMPACT,
)
Index("attempt_bundles_by_bundle", attempt_bundles.c.handover_id)

bundles = Table(
    "bundles",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("handover_id", String, nullable=False, unique=True),
    Column("repository", String, nullable=False),
    Column("run_id", String, nullable=False),
    Column("prefix", String, nullable=False),
    Column("commit_message", Text),
    Column("endpoint", String, nullable=False),
    Column("status", String, nullable=False),
    Column("is_pending", Boolean, nullable=False),
    Column("error_code", String),
    Column("revision", String),
    _running("attempts"),
    _time("next_attempt_unix_s"),
    Column("handed_over_unix_s", Float, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("claim_owner", String),
    Column("claim_fence", Integer),
    Column("updated_unix_s", Float, nullable=False),
)
Index(
    "bundles_pending", bundles.c.repository, bundles.c.handed_over_unix_s, **_only_where(is_true(bundles.c.is_pending))
)
Index("bundles_settled", bundles.c.updated_unix_s, **_only_where(is_false(bundles.c.is_pending)))

bundle_files = Table(
    "bundle_files",
    metadata,
    Column("handover_id", String, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("role", String, nullable=False),
    Column("local_path", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("git_oid", String(40)),
    Column("is_copied", Boolean, nullable=False),
    Column("is_kept", Boolean, nullable=False),
    Column("is_uploaded", Boolean, nullable=False),
    **_COMPACT,
)
"""`is_kept`: it was copied and its bundle is not settled, so its bytes are still needed."""

Index("bundle_files_kept", bundle_files.c.sha256, **_only_where(is_true(bundle_files.c.is_kept)))

contents = Table(
    "contents",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("size_bytes", Integer, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
"""Bytes by their digest, kept exactly while something needs them."""

__all__ = [
    "HEAD_VERSION",
    "KNOWN_VERSIONS",
    "VERSION_TABLE",
    "attempt_bundles",
    "attempt_entries",
    "attempt_files",
    "attempts",
    "bundle_files",
    "bundles",
    "contents",
    "hub_commits",
    "is_false",
    "is_true",
    "meta",
    "metadata",
    "repositories",
    "run_hand_overs",
    "run_paths",
    "runs",
]
