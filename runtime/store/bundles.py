"""Bundles: handed over, claimed under a lease, and brought to their end (hand-over protocol, sections 4.4 and 5.6)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from ...actors.store_operations import (
    ClaimBundle,
    ReadBundleReceipt,
    RecordBundle,
    RecordObject,
    ReleaseBundle,
    RetryBundle,
    SettleBundle,
)
from ...protocol.errors import LeaseLost, LocalProtocolError
from ...protocol.lease import Lease
from ...protocol.receipts import BundleReceipt, BundleStatus, DeliveryCode
from ...protocol.work import BundleWork, BundleWorkFile
from .contents import drop_unneeded, keep_contents
from .leases import require_lease
from .schema import attempt_bundles, bundle_files, bundles, is_true
from .tallies import Tally, add_tally, change_repository, lock_repository


def record_bundle(connection: Connection, operation: RecordBundle) -> BundleReceipt:
    """Record a bundle, or answer the receipt of a known one."""
    bundle = operation.bundle
    lock_repository(connection, bundle.repository)
    known = _find(connection, operation.handover_id)
    if known is None:
        _insert(connection, operation)
        add_tally(connection, bundle.repository, Tally(accepted=1))
    elif known["status"] == BundleStatus.FAILED and known["error_code"] == DeliveryCode.PRESERVED_BYTES_CHANGED:
        _queue_again(connection, operation)
        add_tally(connection, bundle.repository, Tally(parked=-1))
    receipt = read_bundle_receipt(connection, ReadBundleReceipt(operation.handover_id))
    assert receipt is not None, "it was just recorded"
    return receipt


def _insert(connection: Connection, operation: RecordBundle) -> None:
    bundle, copies = operation.bundle, operation.copies
    connection.execute(
        insert(bundles).values(
            handover_id=operation.handover_id,
            repository=bundle.repository,
            run_id=bundle.run_id,
            prefix=bundle.prefix,
            commit_message=bundle.commit_message,
            endpoint=operation.endpoint,
            status=BundleStatus.PENDING.value,
            is_pending=True,
            handed_over_unix_s=operation.now_unix_s,
            size_bytes=sum(file.size_bytes for file in bundle.files),
            updated_unix_s=operation.now_unix_s,
        )
    )
    keep_contents(connection, {copy.digests.sha256: copy.content for copy in copies.values()})
    rows = [
        {
            "handover_id": operation.handover_id,
            "position": position,
            "name": file.name,
            "role": file.role,
            "local_path": str(file.local_path),
            "sha256": file.sha256,
            "size_bytes": file.size_bytes,
            "git_oid": copies[file.name].digests.git_oid if file.name in copies else None,
            "is_copied": file.name in copies,
            "is_kept": file.name in copies,
            "is_uploaded": False,
        }
        for position, file in enumerate(bundle.files)
    ]
    connection.execute(insert(bundle_files), rows)


def _queue_again(connection: Connection, operation: RecordBundle) -> None:
    """Take a failed bundle up anew, with the copies of this hand-over (finding W16)."""
    copies = operation.copies
    keep_contents(connection, {copy.digests.sha256: copy.content for copy in copies.values()})
    for file in operation.bundle.files:
        is_copied = file.name in copies
        values: dict[str, Any] = {"is_copied": is_copied, "is_kept": is_copied}
        if is_copied:
            values["git_oid"] = copies[file.name].digests.git_oid
        connection.execute(
            update(bundle_files)
            .where(bundle_files.c.handover_id == operation.handover_id, bundle_files.c.name == file.name)
            .values(**values)
        )
    _change(
        connection,
        operation.handover_id,
        status=BundleStatus.PENDING.value,
        is_pending=True,
        error_code=None,
        next_attempt_unix_s=0.0,
        handed_over_unix_s=operation.now_unix_s,
        endpoint=operation.endpoint,
        updated_unix_s=operation.now_unix_s,
    )


def claim_bundle(connection: Connection, operation: ClaimBundle) -> BundleWork | None:
    """Claim the bundle that was handed over first among those due (finding W20)."""
    lease = operation.lease
    require_lease(connection, lease, operation.now_unix_s)
    in_flight = select(attempt_bundles.c.handover_id).where(attempt_bundles.c.repository == lease.repository)
    row = (
        connection.execute(
            select(bundles)
            .where(
                bundles.c.repository == lease.repository,
                is_true(bundles.c.is_pending),
                bundles.c.claim_owner.is_(None),
                bundles.c.next_attempt_unix_s <= operation.now_unix_s,
                bundles.c.handover_id.not_in(in_flight),
            )
            .order_by(bundles.c.handed_over_unix_s, bundles.c.sequence)
            .limit(1)
        )
        .mappings()
        .first()
    )
    if row is None:
        return None
    _change(connection, row["handover_id"], claim_owner=lease.owner, claim_fence=lease.fence)
    files = connection.execute(
        select(bundle_files).where(bundle_files.c.handover_id == row["handover_id"]).order_by(bundle_files.c.position)
    )
    return BundleWork(
        handover_id=row["handover_id"],
        repository=row["repository"],
        run_id=row["run_id"],
        folder=f"{row['prefix']}/{row['run_id']}",
        commit_message=row["commit_message"],
        attempts=row["attempts"],
        files=tuple(
            BundleWorkFile(
                name=file.name,
                role=file.role,
                local_path=file.local_path,
                sha256=file.sha256,
                size_bytes=file.size_bytes,
                git_oid=file.git_oid,
                is_copied=file.is_copied,
                is_uploaded=file.is_uploaded,
            )
            for file in files
        ),
    )


def release_bundle(connection: Connection, operation: ReleaseBundle) -> None:
    """Give a claimed bundle back without counting an attempt."""
    row = _find(connection, operation.handover_id)
    if row is not None and _is_claimed_under(row, operation.lease):
        _change(connection, operation.handover_id, claim_owner=None, claim_fence=None)


def record_object(connection: Connection, operation: RecordObject) -> None:
    """Record that a bundle's object is on the Hub (N-HUB-07)."""
    _require_claim(connection, operation.handover_id, operation.lease, None)
    connection.execute(
        update(bundle_files)
        .where(bundle_files.c.handover_id == operation.handover_id, bundle_files.c.name == operation.name)
        .values(is_uploaded=True, git_oid=operation.git_oid)
    )


def settle_bundle(connection: Connection, operation: SettleBundle) -> None:
    """Record the end of a bundle other than by a landed commit."""
    if operation.status not in (BundleStatus.ALREADY_STAGED, BundleStatus.FAILED):
        raise LocalProtocolError(
            f"a bundle ends here as already_staged or failed, not {operation.status}; a landed commit does the rest"
        )
    _require_claim(connection, operation.handover_id, operation.lease, operation.now_unix_s)
    tally = Tally()
    freed = finish_bundle(
        connection,
        operation.handover_id,
        operation.status,
        operation.error_code,
        operation.revision,
        operation.now_unix_s,
        tally,
    )
    add_tally(connection, operation.lease.repository, tally)
    drop_unneeded(connection, freed)


def finish_bundle(
    connection: Connection,
    handover_id: str,
    status: BundleStatus,
    error_code: DeliveryCode | None,
    revision: str | None,
    now_unix_s: float,
    tally: Tally,
) -> set[str]:
    """Give a pending bundle its final state; answers digests whose bytes may be needed no more."""
    row = _find(connection, handover_id)
    if row is None or not row["is_pending"]:
        return set()
    has_failed = status is BundleStatus.FAILED
    tally.parked += int(has_failed)
    tally.delivered += int(not has_failed)
    _change(
        connection,
        handover_id,
        status=status.value,
        is_pending=False,
        error_code=None if error_code is None else error_code.value,
        revision=revision,
        attempts=row["attempts"] + 1,
        claim_owner=None,
        claim_fence=None,
        updated_unix_s=now_unix_s,
    )
    kept = is_true(bundle_files.c.is_kept)
    freed = set(
        connection.scalars(select(bundle_files.c.sha256).where(bundle_files.c.handover_id == handover_id, kept))
    )
    connection.execute(
        update(bundle_files).where(bundle_files.c.handover_id == handover_id, kept).values(is_kept=False)
    )
    return freed


def retry_bundle(connection: Connection, operation: RetryBundle) -> None:
    """Record a failed attempt of a claimed bundle and give it back."""
    row = _require_claim(connection, operation.handover_id, operation.lease, None)
    _change(
        connection,
        operation.handover_id,
        attempts=row["attempts"] + 1,
        error_code=operation.error_code.value,
        next_attempt_unix_s=operation.next_attempt_unix_s,
        claim_owner=None,
        claim_fence=None,
    )
    values: dict[str, Any] = {"last_error_code": operation.error_code.value}
    if operation.pause_until_unix_s > 0.0:
        values["pause_until_unix_s"] = operation.pause_until_unix_s
    change_repository(connection, row["repository"], **values)


def read_bundle_receipt(connection: Connection, operation: ReadBundleReceipt) -> BundleReceipt | None:
    """A bundle's receipt (section 4.4)."""
    row = _find(connection, operation.handover_id)
    if row is None:
        return None
    copied = connection.scalars(
        select(bundle_files.c.name)
        .where(bundle_files.c.handover_id == operation.handover_id, is_true(bundle_files.c.is_copied))
        .order_by(bundle_files.c.name)
    )
    return BundleReceipt(
        handover_id=operation.handover_id,
        status=BundleStatus(row["status"]),
        error_code=None if row["error_code"] is None else DeliveryCode(row["error_code"]),
        revision=row["revision"],
        attempts=row["attempts"],
        repository=row["repository"],
        prefix=f"{row['prefix']}/{row['run_id']}",
        copied_files=tuple(sorted(copied)),
    )


def _find(connection: Connection, handover_id: str) -> RowMapping | None:
    query = select(bundles).where(bundles.c.handover_id == handover_id).with_for_update()
    return connection.execute(query).mappings().first()


def _change(connection: Connection, handover_id: str, **values: Any) -> None:
    connection.execute(update(bundles).where(bundles.c.handover_id == handover_id).values(**values))


def _is_claimed_under(row: RowMapping, lease: Lease) -> bool:
    return bool(
        row["is_pending"]
        and row["repository"] == lease.repository
        and row["claim_owner"] == lease.owner
        and row["claim_fence"] == lease.fence
    )


def _require_claim(connection: Connection, handover_id: str, lease: Lease, now_unix_s: float | None) -> RowMapping:
    require_lease(connection, lease, now_unix_s)
    row = _find(connection, handover_id)
    if row is None or not _is_claimed_under(row, lease):
        raise LeaseLost(
            f"bundle {handover_id} is not claimed under this lease on {lease.repository} (fence {lease.fence}); "
            "its result belongs to whoever claims it next"
        )
    return row


__all__ = [
    "claim_bundle",
    "finish_bundle",
    "read_bundle_receipt",
    "record_bundle",
    "record_object",
    "release_bundle",
    "retry_bundle",
    "settle_bundle",
]
