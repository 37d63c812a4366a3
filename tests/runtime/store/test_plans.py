"""No operation walks settled rows: what each statement of the store does is read from SQLite's own plan of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event

from conveyor.actors import store_operations as asked
from conveyor.protocol.receipts import BundleStatus, DeliveryCode
from conveyor.runtime.store.creation import fill
from conveyor.runtime.store.operations import QUERIES, WRITES, answer
from conveyor.runtime.store.planner import teach_planner
from conveyor.runtime.store.sqlite import connect
from conveyor.runtime.store.transactions import write_all
from tests.support.stores import NOW, REPOSITORY, bundle, bundle_plan, plan, run_files

LARGE = ("run_paths", "run_hand_overs", "runs", "hub_commits", "bundles", "bundle_files", "contents")
"""Tables that grow with history."""

CODE = DeliveryCode.UPLOAD_FAILED


@pytest.fixture
def connection() -> Iterator[Connection]:
    """A store in memory as it is opened."""
    with connect(None) as connection:
        with connection.begin():
            fill(connection)
            teach_planner(connection)
        yield connection


def perform_everything(connection: Connection) -> set[type]:
    """Call every operation at least once, in an order that makes sense; answers which were called."""
    called: set[type] = set()

    def write(operation: Any) -> Any:
        called.add(type(operation))
        return write_all(connection, [operation])[0]

    def ask(operation: Any) -> Any:
        called.add(type(operation))
        with connection.begin():
            return answer(connection, operation)

    handed_over, failed = bundle("b1"), bundle("b2")
    name = handed_over.handover_id
    write(run_files({"a": b"1", "b": b"2"}, entry="{}"))
    write(run_files({"a": b"3"}, run_id="r2", flush=True))
    lease = write(asked.AcquireLease(REPOSITORY, "me", NOW, 120.0))
    write(asked.RenewLease(lease, NOW, 120.0))
    attempt = plan(ask(asked.ReadPending(REPOSITORY)), index=b"index")
    write(asked.OpenAttempt(attempt, lease, NOW, index_content=b"index"))
    write(run_files({"a": b"3", "b": b"4"}, entry="[]", run_id="r2"))
    write(asked.SettleLanded(attempt.delivery_id, "c1", NOW))
    attempt = plan(ask(asked.ReadPending(REPOSITORY)))
    write(asked.OpenAttempt(attempt, lease, NOW))
    write(asked.SettleNotLanded(attempt.delivery_id, CODE))
    write(asked.ParkPaths(REPOSITORY, lease, (("b", 2),), CODE, "x", NOW))
    write(asked.RetryParked(REPOSITORY, NOW))
    write(asked.SettleUnchanged(REPOSITORY, lease, attempt.files, "c1", NOW))
    write(asked.FlushEverything(NOW))
    write(asked.CountFailure(REPOSITORY, {"r1": 1}, CODE, NOW))
    for one in (handed_over, failed):
        write(one)
    write(asked.ClaimBundle(lease, NOW))
    write(asked.RecordObject(name, lease, "data.h5", "0" * 40))
    write(asked.ReleaseBundle(name, lease))
    write(asked.ClaimBundle(lease, NOW))
    write(asked.RetryBundle(name, lease, CODE, NOW + 1))
    write(asked.ClaimBundle(lease, NOW))
    changed = DeliveryCode.PRESERVED_BYTES_CHANGED
    write(asked.SettleBundle(failed.handover_id, lease, BundleStatus.FAILED, changed, None, NOW))
    write(failed)
    attempt = bundle_plan(handed_over)
    write(asked.OpenAttempt(attempt, lease, NOW))
    write(asked.SettleLanded(attempt.delivery_id, "c2", NOW))
    write(asked.NoteMissingCredential(REPOSITORY))
    write(asked.PauseRepository(REPOSITORY, "x", NOW))
    write(asked.ClampTimes(REPOSITORY, NOW, 300.0))
    ask(asked.ReadAgenda(REPOSITORY, NOW, 3600.0))
    ask(asked.ListOpenRepositories())
    ask(asked.ReadStatus(NOW, 3600.0))
    ask(asked.ReadContents(("0" * 64,)))
    ask(asked.ReadSamples(("0" * 64,), 512))
    ask(asked.ReadOpenAttempt(REPOSITORY))
    ask(asked.ReadRunReceipt(REPOSITORY, "r1"))
    ask(asked.ReadBundleReceipt(name))
    ask(asked.AreSettled(REPOSITORY, "r1", (("a", 1), ("z", 1)), entry_version=1))
    ask(asked.ReadCommitted(REPOSITORY, "r1"))
    ask(asked.ListParked())
    ask(asked.ListParked(REPOSITORY))
    ask(asked.ListLeases())
    write(asked.ReleaseLease(lease))
    write(asked.Prune(NOW + 1))
    return called


def test_every_statement_finds_its_rows_by_an_index(connection: Connection) -> None:
    """Of a table that grows with history none is scanned, and none is searched by its repository alone."""
    plans: dict[str, list[str]] = {}

    @event.listens_for(connection.engine, "before_cursor_execute")
    def explain(_: Any, cursor: Any, statement: str, parameters: Any, context: Any, executemany: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")) and statement not in plans:
            values = parameters[0] if executemany else parameters
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            plans[statement] = [row[3] for row in rows]

    called = perform_everything(connection)
    assert called == WRITES.keys() | QUERIES.keys()
    allowed = re.compile(
        r"SCAN \w+ USING (COVERING )?INDEX (\w+_(pending|parked)|hub_commits_by_time|sqlite_autoindex_c\w+)"
    )
    walks = [
        (step, " ".join(statement.split()))
        for statement, steps in plans.items()
        for step in steps
        if (re.match(rf"SCAN ({'|'.join(LARGE)})\b", step) and allowed.match(step) is None)
        or re.match(rf"SEARCH ({'|'.join(LARGE)}) USING PRIMARY KEY \(repository=\?\)$", step)
    ]
    assert walks == []
    assert len(plans) > 50
