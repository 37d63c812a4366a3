"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _only_where(sqlite: str, postgresql: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(sqlite), "postgresql_where": sa.text(postgresql)}


def upgrade() -> None:
    """Make every table and index."""
    op.create_table(
        "attempt_bundles",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("handover_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("repository", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("attempt_bundles_by_bundle", "attempt_bundles", ["handover_id"])
    op.create_table(
        "attempt_entries",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("entry_text", sa.Text(), nullable=False),
        sa.Column("entry_version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("repository", "position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempt_files",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("git_oid", sa.String(length=40), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("handover_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("repository", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("attempt_files_by_content", "attempt_files", ["sha256"])
    op.create_index("attempt_files_by_path", "attempt_files", ["repository", "path"])
    op.create_table(
        "attempts",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("delivery_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("index_sha256", sa.String(length=64), nullable=True),
        sa.Column("opened_unix_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("repository"),
        sa.UniqueConstraint("delivery_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bundle_files",
        sa.Column("handover_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("local_path", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("git_oid", sa.String(length=40), nullable=True),
        sa.Column("is_copied", sa.Boolean(), nullable=False),
        sa.Column("is_kept", sa.Boolean(), nullable=False),
        sa.Column("is_uploaded", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("handover_id", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index("bundle_files_kept", "bundle_files", ["sha256"], **_only_where("is_kept = 1", "is_kept"))
    op.create_table(
        "bundles",
        sa.Column("sequence", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("handover_id", sa.String(), nullable=False),
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("commit_message", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("is_pending", sa.Boolean(), nullable=False),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.Column("revision", sa.String(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("handed_over_unix_s", sa.Float(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("claim_owner", sa.String(), nullable=True),
        sa.Column("claim_fence", sa.Integer(), nullable=True),
        sa.Column("updated_unix_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("handover_id"),
    )
    op.create_index(
        "bundles_pending",
        "bundles",
        ["repository", "handed_over_unix_s"],
        **_only_where("is_pending = 1", "is_pending"),
    )
    op.create_index("bundles_settled", "bundles", ["updated_unix_s"], **_only_where("is_pending = 0", "NOT is_pending"))
    op.create_table(
        "contents",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "hub_commits",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("commit_id", sa.String(), nullable=False),
        sa.Column("unix_s", sa.Float(), nullable=False),
        sa.Column("delivery_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("repository", "commit_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("hub_commits_by_time", "hub_commits", ["repository", "unix_s"])
    op.create_table(
        "meta",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "repositories",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_fence", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_since_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_host", sa.String(), nullable=True),
        sa.Column("lease_pid", sa.Integer(), nullable=True),
        sa.Column("last_commit_unix_s", sa.Float(), nullable=True),
        sa.Column("not_before_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("pause_until_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error_code", sa.String(), nullable=True),
        sa.Column("paused_reason", sa.Text(), nullable=True),
        sa.Column("paused_unix_s", sa.Float(), nullable=True),
        sa.Column("open_delivery_id", sa.String(), nullable=True),
        sa.Column("commits", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("accepted", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("delivered", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("superseded", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("parked", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("pruned_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("repository"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "repositories_leased",
        "repositories",
        ["repository"],
        **_only_where("lease_owner IS NOT NULL", "lease_owner IS NOT NULL"),
    )
    op.create_index(
        "repositories_unknown",
        "repositories",
        ["repository"],
        **_only_where("open_delivery_id IS NOT NULL", "open_delivery_id IS NOT NULL"),
    )
    op.create_table(
        "run_hand_overs",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("is_pending", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("repository", "run_id", "path"),
        sqlite_with_rowid=False,
    )
    op.create_index("run_hand_overs_by_path", "run_hand_overs", ["repository", "path"])
    op.create_index(
        "run_hand_overs_pending",
        "run_hand_overs",
        ["repository", "run_id"],
        **_only_where("is_pending = 1", "is_pending"),
    )
    op.create_table(
        "run_paths",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("newest_version", sa.Integer(), nullable=False),
        sa.Column("newest_sha256", sa.String(length=64), nullable=False),
        sa.Column("newest_git_oid", sa.String(length=40), nullable=False),
        sa.Column("newest_size_bytes", sa.Integer(), nullable=False),
        sa.Column("settled_version", sa.Integer(), nullable=False),
        sa.Column("committed_sha256", sa.String(length=64), nullable=True),
        sa.Column("due_unix_s", sa.Float(), nullable=False),
        sa.Column("is_forced", sa.Boolean(), nullable=False),
        sa.Column("interval_s", sa.Float(), nullable=False),
        sa.Column("is_pending", sa.Boolean(), nullable=False),
        sa.Column("is_parked", sa.Boolean(), nullable=False),
        sa.Column("is_kept", sa.Boolean(), nullable=False),
        sa.Column("pending_since_unix_s", sa.Float(), nullable=False),
        sa.Column("parked_code", sa.String(), nullable=True),
        sa.Column("parked_reason", sa.Text(), nullable=True),
        sa.Column("updated_unix_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("repository", "path"),
        sqlite_with_rowid=False,
    )
    op.create_index("run_paths_kept", "run_paths", ["newest_sha256"], **_only_where("is_kept = 1", "is_kept"))
    op.create_index(
        "run_paths_parked", "run_paths", ["repository", "path"], **_only_where("is_parked = 1", "is_parked")
    )
    op.create_index(
        "run_paths_pending",
        "run_paths",
        ["repository", "path", "due_unix_s"],
        **_only_where("is_pending = 1", "is_pending"),
    )
    op.create_index("run_paths_settled", "run_paths", ["updated_unix_s"], **_only_where("is_kept = 0", "NOT is_kept"))
    op.create_table(
        "runs",
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("files_attempted", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("files_committed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("commit_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("commits", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error_code", sa.String(), nullable=True),
        sa.Column("last_commit", sa.String(), nullable=True),
        sa.Column("entry_text", sa.Text(), nullable=True),
        sa.Column("entry_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("entry_settled_version", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("entry_is_pending", sa.Boolean(), nullable=False),
        sa.Column("entry_due_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("entry_is_forced", sa.Boolean(), nullable=False),
        sa.Column("entry_interval_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("entry_since_unix_s", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("updated_unix_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("repository", "run_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "runs_entry_pending",
        "runs",
        ["repository", "run_id"],
        **_only_where("entry_is_pending = 1", "entry_is_pending"),
    )
    op.create_index(
        "runs_settled", "runs", ["updated_unix_s"], **_only_where("entry_is_pending = 0", "NOT entry_is_pending")
    )


def downgrade() -> None:
    """There is nothing older."""
    raise NotImplementedError("version 0001 is the first; there is nothing to go back to")
