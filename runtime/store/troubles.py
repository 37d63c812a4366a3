"""Failures, missing credentials, pauses, and paths that were set aside."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update

from ...actors.store_operations import (
    CountFailure,
    ListParked,
    NoteMissingCredential,
    ParkedPath,
    ParkPaths,
    PauseRepository,
    RetryParked,
)
from ...protocol.receipts import DeliveryCode
from .leases import require_lease
from .paths import read_in_flight, read_paths, reopen_hand_overs, settle_hand_overs, update_paths
from .schema import bundles, is_true, run_hand_overs, run_paths, runs
from .tallies import Tally, add_tally, change_repository, lock_repository


def count_failure(connection: Connection, operation: CountFailure) -> None:
    """Record a failed run-file attempt."""
    repository = lock_repository(connection, operation.repository)
    for run_id, number_of_files in operation.runs.items():
        connection.execute(
            update(runs)
            .where(runs.c.repository == operation.repository, runs.c.run_id == run_id)
            .values(
                files_attempted=runs.c.files_attempted + number_of_files,
                commit_attempts=runs.c.commit_attempts + 1,
                last_error_code=operation.error_code.value,
            )
        )
    values: dict[str, Any] = {
        "failures": repository["failures"] + 1,
        "not_before_unix_s": operation.not_before_unix_s,
        "last_error_code": operation.error_code.value,
    }
    if operation.pause_until_unix_s > 0.0:
        values["pause_until_unix_s"] = operation.pause_until_unix_s
    change_repository(connection, operation.repository, **values)


def note_missing_credential(connection: Connection, operation: NoteMissingCredential) -> None:
    """Show in the receipts of everything pending that a credential is missing; no attempt, no backoff (finding W21)."""
    name, code = operation.repository, DeliveryCode.CREDENTIAL_MISSING.value
    lock_repository(connection, name)
    waiting = select(run_hand_overs.c.run_id).where(
        run_hand_overs.c.repository == name, is_true(run_hand_overs.c.is_pending)
    )
    connection.execute(
        update(runs)
        .where(runs.c.repository == name, is_true(runs.c.entry_is_pending) | runs.c.run_id.in_(waiting))
        .values(last_error_code=code)
    )
    connection.execute(
        update(bundles).where(bundles.c.repository == name, is_true(bundles.c.is_pending)).values(error_code=code)
    )
    change_repository(connection, name, last_error_code=code)


def pause_repository(connection: Connection, operation: PauseRepository) -> None:
    """Pause a repository, or resume it."""
    lock_repository(connection, operation.repository)
    change_repository(
        connection,
        operation.repository,
        paused_reason=operation.reason,
        paused_unix_s=None if operation.reason is None else operation.now_unix_s,
    )


def park_paths(connection: Connection, operation: ParkPaths) -> int:
    """Set paths aside that the Hub will never take as they are (finding W7)."""
    name = operation.repository
    require_lease(connection, operation.lease, operation.now_unix_s)
    wanted = dict(operation.versions)
    in_flight = read_in_flight(connection, name, wanted)
    aside: dict[str, int] = {}
    run_ids: set[str] = set()
    for path, row in read_paths(connection, name, wanted).items():
        if row["is_pending"] and row["newest_version"] == wanted[path] and path not in in_flight:
            aside[path] = wanted[path]
            run_ids.add(row["run_id"])
    columns = {
        "is_pending": False,
        "is_parked": True,
        "is_kept": True,
        "parked_code": operation.error_code.value,
        "parked_reason": operation.reason,
        "updated_unix_s": operation.now_unix_s,
    }
    update_paths(connection, name, dict.fromkeys(aside, columns))
    settle_hand_overs(connection, name, aside)
    for run_id in sorted(run_ids):
        connection.execute(
            update(runs)
            .where(runs.c.repository == name, runs.c.run_id == run_id)
            .values(last_error_code=operation.error_code.value)
        )
    add_tally(connection, name, Tally(parked=len(aside)))
    return len(aside)


def retry_parked(connection: Connection, operation: RetryParked) -> int:
    """Make the parked paths of a repository pending and due again."""
    name = operation.repository
    lock_repository(connection, name)
    rows = connection.execute(
        select(run_paths.c.path, run_paths.c.settled_version).where(
            run_paths.c.repository == name, is_true(run_paths.c.is_parked)
        )
    ).all()
    columns = {
        "is_pending": True,
        "is_parked": False,
        "parked_code": None,
        "parked_reason": None,
        "due_unix_s": operation.now_unix_s,
        "pending_since_unix_s": operation.now_unix_s,
        "updated_unix_s": operation.now_unix_s,
    }
    update_paths(connection, name, {row.path: columns for row in rows})
    reopen_hand_overs(connection, name, {row.path: row.settled_version for row in rows})
    add_tally(connection, name, Tally(parked=-len(rows)))
    return len(rows)


def list_parked(connection: Connection, operation: ListParked) -> tuple[ParkedPath, ...]:
    """Paths that were set aside."""
    query = select(run_paths).where(is_true(run_paths.c.is_parked))
    if operation.repository is not None:
        query = query.where(run_paths.c.repository == operation.repository)
    query = query.order_by(run_paths.c.repository, run_paths.c.path).limit(operation.limit_rows)
    return tuple(
        ParkedPath(
            repository=row.repository,
            path=row.path,
            run_id=row.run_id,
            version=row.newest_version,
            error_code=DeliveryCode(row.parked_code),
            reason=row.parked_reason,
        )
        for row in connection.execute(query)
    )


__all__ = [
    "count_failure",
    "list_parked",
    "note_missing_credential",
    "park_paths",
    "pause_repository",
    "retry_parked",
]
