"""Every operation of the store and the plain function over a SQLAlchemy `Connection` that carries it out.

The functions know tables and rules, but no database, no loop and no thread: the same code runs under asyncio, in a
thread, inline in simulation, and on any database that SQLAlchemy speaks to. None of them begins or ends a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection

from ...actors import store_operations as asked
from ...protocol.errors import LocalProtocolError
from . import (
    agenda,
    attempts,
    bundles,
    contents,
    due_times,
    hand_overs,
    leases,
    receipts,
    retention,
    settlement,
    troubles,
)

R = TypeVar("R")

WRITES: Final[Mapping[type, Callable[[Connection, Any], Any]]] = {
    asked.RecordRunFiles: hand_overs.record_run_files,
    asked.RecordBundle: bundles.record_bundle,
    asked.FlushEverything: due_times.flush_everything,
    asked.AcquireLease: leases.acquire_lease,
    asked.RenewLease: leases.renew_lease,
    asked.ReleaseLease: leases.release_lease,
    asked.ClampTimes: leases.clamp_times,
    asked.OpenAttempt: attempts.open_attempt,
    asked.SettleLanded: settlement.settle_landed,
    asked.SettleNotLanded: settlement.settle_not_landed,
    asked.SettleUnchanged: settlement.settle_unchanged,
    asked.CountFailure: troubles.count_failure,
    asked.NoteMissingCredential: troubles.note_missing_credential,
    asked.ClaimBundle: bundles.claim_bundle,
    asked.ReleaseBundle: bundles.release_bundle,
    asked.RecordObject: bundles.record_object,
    asked.SettleBundle: bundles.settle_bundle,
    asked.RetryBundle: bundles.retry_bundle,
    asked.PauseRepository: troubles.pause_repository,
    asked.ParkPaths: troubles.park_paths,
    asked.RetryParked: troubles.retry_parked,
    asked.Prune: retention.prune,
}

QUERIES: Final[Mapping[type, Callable[[Connection, Any], Any]]] = {
    asked.ReadAgenda: agenda.read_agenda,
    asked.ListOpenRepositories: agenda.list_open_repositories,
    asked.ReadStatus: agenda.read_status,
    asked.ReadPending: hand_overs.read_pending,
    asked.ReadContents: contents.read_contents,
    asked.ReadSamples: contents.read_samples,
    asked.ReadOpenAttempt: attempts.read_open_attempt,
    asked.ReadRunReceipt: receipts.read_run_receipt,
    asked.ReadBundleReceipt: bundles.read_bundle_receipt,
    asked.AreSettled: receipts.are_settled,
    asked.ReadCommitted: receipts.read_committed,
    asked.ListParked: troubles.list_parked,
    asked.ListLeases: leases.list_leases,
}


def perform(connection: Connection, operation: asked.Write[R]) -> R:
    """Carry out a write inside the caller's transaction.

    Raises:
        LocalProtocolError: it is no write of this store.
        ConveyorError: whatever the operation refuses with.
    """
    function = WRITES.get(type(operation))
    if function is None:
        raise LocalProtocolError(f"{type(operation).__name__} is no write that this store knows")
    return cast(R, function(connection, operation))


def answer(connection: Connection, operation: asked.Query[R]) -> R:
    """Answer a query inside the caller's read transaction.

    Raises:
        LocalProtocolError: it is no query of this store.
    """
    function = QUERIES.get(type(operation))
    if function is None:
        raise LocalProtocolError(f"{type(operation).__name__} is no query that this store knows")
    return cast(R, function(connection, operation))


__all__ = ["QUERIES", "WRITES", "answer", "perform"]
