"""Commits recorded before they are sent (hub API notes, section 12): at most one of a repository is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from ...actors.store_operations import OpenAttempt, PlanOutdated, ReadOpenAttempt
from ...protocol.digests import ContentDigests
from ...protocol.errors import LocalProtocolError
from ...protocol.path_state import may_send
from ...protocol.work import Attempt, AttemptFile, AttemptKind, PendingEntry, UploadMode
from .contents import find_missing, in_chunks, keep_contents
from .leases import require_lease
from .paths import read_paths, state_of
from .schema import attempt_bundles, attempt_entries, attempt_files, attempts, runs
from .tallies import change_repository


def open_attempt(connection: Connection, operation: OpenAttempt) -> None:
    """Record a commit before it is sent."""
    attempt = operation.attempt
    if operation.lease.repository != attempt.repository:
        raise LocalProtocolError(
            f"a commit to {attempt.repository} cannot be made under the lease of {operation.lease.repository}"
        )
    repository = require_lease(connection, operation.lease, operation.now_unix_s)
    if repository["open_delivery_id"] is not None:
        if read_attempt(connection, attempt.repository) == attempt:
            return
        raise LocalProtocolError(
            f"the outcome of commit {repository['open_delivery_id']} to {attempt.repository} is not known yet; "
            "settle it before another is recorded"
        )
    _check_plan(connection, attempt)
    _keep_bytes(connection, operation)
    entry_versions = _entry_versions(connection, attempt)
    name = attempt.repository
    connection.execute(
        insert(attempts).values(
            repository=name,
            delivery_id=attempt.delivery_id,
            kind=attempt.kind.value,
            parent=attempt.parent,
            title=attempt.title,
            body=attempt.body,
            index_sha256=attempt.index_sha256,
            opened_unix_s=operation.now_unix_s,
        )
    )
    _insert_parts(connection, attempt, entry_versions)
    change_repository(connection, name, open_delivery_id=attempt.delivery_id)


def _insert_parts(connection: Connection, attempt: Attempt, entry_versions: Mapping[str, int]) -> None:
    name = attempt.repository
    files = [
        {
            "repository": name,
            "position": position,
            "path": file.path,
            "sha256": file.digests.sha256,
            "git_oid": file.digests.git_oid,
            "size_bytes": file.digests.size_bytes,
            "mode": file.mode.value,
            "version": file.version,
            "run_id": file.run_id,
            "handover_id": file.handover_id,
        }
        for position, file in enumerate(attempt.files)
    ]
    entries = [
        {
            "repository": name,
            "position": position,
            "run_id": entry.run_id,
            "entry_text": entry.text,
            "entry_version": entry_versions.get(entry.run_id, 0),
        }
        for position, entry in enumerate(attempt.entries)
    ]
    carried = [
        {"repository": name, "position": position, "handover_id": handover_id}
        for position, handover_id in enumerate(attempt.handover_ids)
    ]
    for table, rows in ((attempt_files, files), (attempt_entries, entries), (attempt_bundles, carried)):
        if rows:
            connection.execute(insert(table), rows)


def _check_plan(connection: Connection, attempt: Attempt) -> None:
    """An older version must never overwrite a newer one that is settled already (N-HUB-12)."""
    sent = {file.path: file for file in attempt.files if is_run_file(file)}
    known = read_paths(connection, attempt.repository, sent)
    for path, file in sent.items():
        row = known.get(path)
        state = None if row is None else state_of(row)
        if row is None or state is None or file.version > state.newest_version:
            raise LocalProtocolError(f"version {file.version} of {path!r} was never handed over")
        if file.version == state.newest_version and file.digests.sha256 != state.newest_sha256:
            raise LocalProtocolError(f"version {file.version} of {path!r} has other bytes than the commit carries")
        if not may_send(state, file.version) or row["is_parked"]:
            raise PlanOutdated(
                f"version {file.version} of {path!r} is settled or set aside by now (newest {state.newest_version}, "
                f"settled {state.settled_version}); plan the commit again"
            )


def is_run_file(file: AttemptFile) -> bool:
    """Whether a file of a commit has versions: it is neither a bundle's nor the index."""
    return file.handover_id is None and file.version > 0


def _keep_bytes(connection: Connection, operation: OpenAttempt) -> None:
    """Keep what it takes to send the commit again after a crash."""
    attempt = operation.attempt
    inline = {file.digests.sha256 for file in attempt.files if file.mode is UploadMode.REGULAR}
    given = dict(operation.contents)
    if operation.index_content is not None and attempt.index_sha256 is not None:
        given[attempt.index_sha256] = operation.index_content
        inline.add(attempt.index_sha256)
    missing = find_missing(connection, inline)
    keep_contents(connection, {sha256: given[sha256] for sha256 in missing if sha256 in given})
    for file in attempt.files:
        sha256 = file.digests.sha256
        if is_run_file(file) and sha256 in missing and sha256 not in given:
            raise PlanOutdated(
                f"newer bytes of {file.path!r} came since the commit was planned, and those of version {file.version} "
                "are no longer kept; plan the commit again"
            )


def _entry_versions(connection: Connection, attempt: Attempt) -> dict[str, int]:
    """The version of each entry that it carries; 0 for one that was replaced meanwhile."""
    texts = {entry.run_id: entry.text for entry in attempt.entries}
    found: dict[str, int] = {}
    for chunk in in_chunks(texts):
        rows = connection.execute(
            select(runs.c.run_id, runs.c.entry_text, runs.c.entry_version).where(
                runs.c.repository == attempt.repository, runs.c.run_id.in_(chunk)
            )
        )
        found.update((row.run_id, row.entry_version) for row in rows if row.entry_text == texts[row.run_id])
    return found


def read_open_attempt(connection: Connection, operation: ReadOpenAttempt) -> Attempt | None:
    """The repository's commit whose outcome is unknown."""
    return read_attempt(connection, operation.repository)


def read_attempt(connection: Connection, repository: str) -> Attempt | None:
    """The same, by name."""
    row = connection.execute(select(attempts).where(attempts.c.repository == repository)).mappings().first()
    if row is None:
        return None
    files = _parts(connection, attempt_files, repository)
    entries = _parts(connection, attempt_entries, repository)
    carried = _parts(connection, attempt_bundles, repository)
    return Attempt(
        delivery_id=row["delivery_id"],
        repository=repository,
        kind=AttemptKind(row["kind"]),
        parent=row["parent"],
        title=row["title"],
        body=row["body"],
        files=tuple(
            AttemptFile(
                path=file.path,
                digests=ContentDigests(file.sha256, file.git_oid, file.size_bytes),
                mode=UploadMode(file.mode),
                version=file.version,
                run_id=file.run_id,
                handover_id=file.handover_id,
            )
            for file in files
        ),
        entries=tuple(PendingEntry(entry.run_id, entry.entry_text) for entry in entries),
        index_sha256=row["index_sha256"],
        handover_ids=tuple(part.handover_id for part in carried),
    )


def read_entry_versions(connection: Connection, repository: str) -> dict[str, int]:
    """The version of each entry that the open attempt carries."""
    return {part.run_id: part.entry_version for part in _parts(connection, attempt_entries, repository)}


def _parts(connection: Connection, table: Any, repository: str) -> Any:
    query = select(table).where(table.c.repository == repository).order_by(table.c.position)
    return connection.execute(query).all()


def delete_attempt(connection: Connection, repository: str) -> None:
    """Forget the open attempt: its outcome is known and recorded."""
    for table in (attempt_files, attempt_entries, attempt_bundles, attempts):
        connection.execute(delete(table).where(table.c.repository == repository))


__all__ = [
    "delete_attempt",
    "is_run_file",
    "open_attempt",
    "read_attempt",
    "read_entry_versions",
    "read_open_attempt",
]
