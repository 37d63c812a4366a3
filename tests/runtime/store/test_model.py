"""Random histories of hand-overs, commits, crashes and restarts against a model that keeps everything in a dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import Connection

from conveyor.actors.ports import Failed
from conveyor.actors.store_operations import (
    AcquireLease,
    AreSettled,
    OpenAttempt,
    ParkPaths,
    Prune,
    ReadContents,
    ReadOpenAttempt,
    ReadPending,
    ReadRunReceipt,
    ReadStatus,
    SettleLanded,
    SettleNotLanded,
)
from conveyor.protocol.lease import Lease
from conveyor.protocol.receipts import DeliveryCode
from conveyor.protocol.work import Attempt
from conveyor.runtime.store.creation import fill
from conveyor.runtime.store.operations import answer
from conveyor.runtime.store.sqlite import Role, connect, give_role
from conveyor.runtime.store.transactions import write_all
from tests.support.stores import NOW, REPOSITORY, plan, run_files, sha256

PATHS = st.sampled_from(["a", "b", "c"])
BYTES = st.sampled_from([b"x", b"y", b"z"])
RUNS = st.sampled_from(["r1", "r2"])


@dataclass
class ModelPath:
    """What the world knows of one path."""

    handed_over: list[bytes] = field(default_factory=list)
    """Every version's bytes, in order, as far as anybody could tell them apart from a repeat."""
    on_hub: bytes | None = None

    @property
    def newest(self) -> bytes:
        """The bytes that have to be on the Hub in the end."""
        return self.handed_over[-1]


class History(RuleBasedStateMachine):
    """Drives the operations as the actors would, and sometimes as they should not."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection = connect(None)
        give_role(self.connection, Role.WRITER)
        with self.connection.begin():
            fill(self.connection)
        self.now = NOW
        self.paths: dict[str, ModelPath] = {}
        self.tickets: list[tuple[str, int]] = []
        self.open: Attempt | None = None
        self.plan: Attempt | None = None
        self.commits = 0
        self.lease: Lease = self.write(AcquireLease(REPOSITORY, "me", self.now, 1e9))

    def write(self, operation: Any) -> Any:
        """One transaction."""
        (found,) = write_all(self.connection, [operation])
        if isinstance(found, Failed):
            raise found.error
        return found

    def ask(self, operation: Any) -> Any:
        """One query."""
        with self.connection.begin():
            return answer(self.connection, operation)

    @rule(
        group=st.lists(
            st.tuples(RUNS, st.dictionaries(PATHS, BYTES, min_size=1, max_size=3), st.booleans()),
            min_size=1,
            max_size=4,
        )
    )
    def hand_over(self, group: list[tuple[str, dict[str, bytes], bool]]) -> None:
        """One transaction of one or several hand-overs."""
        operations = [run_files(files, run_id=run, flush=flush, now=self.now) for run, files, flush in group]
        for (_, files, _), recorded in zip(group, write_all(self.connection, operations), strict=True):
            for path, version in recorded.versions:
                known = self.paths.setdefault(path, ModelPath())
                known.handed_over.append(files[path])
                self.tickets.append((path, version))

    @rule()
    def make_plan(self) -> None:
        """Read what is pending; hand-overs may come before it is recorded."""
        pending = self.ask(ReadPending(REPOSITORY))
        self.plan = plan(pending, parent=f"p{self.commits}") if pending.paths else None

    @precondition(lambda self: self.plan is not None and self.open is None)
    @rule()
    def record_attempt(self) -> None:
        """Record it, if the store lets it; a refused plan changes nothing."""
        assert self.plan is not None
        (found,) = write_all(self.connection, [OpenAttempt(self.plan, self.lease, self.now)])
        if not isinstance(found, Failed):
            self.open = self.plan
        self.plan = None

    @precondition(lambda self: self.open is not None)
    @rule(is_told_twice=st.booleans())
    def land(self, is_told_twice: bool) -> None:
        """The commit landed: the Hub holds what was sent."""
        assert self.open is not None
        self.commits += 1
        for file in self.open.files:
            sent = [content for content in (b"x", b"y", b"z") if sha256(content) == file.digests.sha256]
            self.paths[file.path].on_hub = sent[0]
        for _ in range(1 + is_told_twice):
            self.write(SettleLanded(self.open.delivery_id, f"c{self.commits}", self.now))
        self.open = None

    @precondition(lambda self: self.open is not None)
    @rule(code=st.sampled_from([None, DeliveryCode.UPLOAD_FAILED]))
    def fail(self, code: DeliveryCode | None) -> None:
        """The commit can never land."""
        assert self.open is not None
        self.write(SettleNotLanded(self.open.delivery_id, code))
        self.open = None

    @rule()
    def crash(self) -> None:
        """A process dies with its plan; what it had recorded is found by the next."""
        self.plan = None
        self.open = self.ask(ReadOpenAttempt(REPOSITORY))

    @rule(path=PATHS)
    def park(self, path: str) -> None:
        """Set a path aside."""
        pending = {found.path: found.version for found in self.ask(ReadPending(REPOSITORY)).paths}
        versions = ((path, pending.get(path, 1)),)
        self.write(ParkPaths(REPOSITORY, self.lease, versions, DeliveryCode.UPLOAD_FAILED, "x", self.now))

    @rule()
    def prune(self) -> None:
        """Forget everything settled; the Hub's content of forgotten paths is no longer known."""
        self.now += 1
        self.write(Prune(self.now))

    @invariant()
    def nothing_is_lost(self) -> None:
        """What is newest is on the Hub, or pending or parked with its bytes kept."""
        pending = {found.path: found for found in self.ask(ReadPending(REPOSITORY)).paths}
        parked = self.parked()
        for path, known in self.paths.items():
            digest = pending[path].digests.sha256 if path in pending else parked.get(path)
            if digest is None:
                assert known.on_hub == known.newest
            else:
                assert digest == sha256(known.newest)
                assert self.ask(ReadContents((digest,))) == {digest: known.newest}

    @invariant()
    def an_open_commit_can_be_sent_again(self) -> None:
        """Every byte that it carries is kept."""
        if self.open is not None:
            wanted = {file.digests.sha256 for file in self.open.files}
            assert self.ask(ReadContents(tuple(wanted))).keys() == wanted

    @invariant()
    def only_what_is_needed_is_kept(self) -> None:
        """No other content is in the store."""
        needed = {found.digests.sha256 for found in self.ask(ReadPending(REPOSITORY)).paths}
        needed |= set(self.parked().values())
        needed |= {file.digests.sha256 for file in self.open.files} if self.open is not None else set()
        kept = self.ask(ReadContents(tuple(sha256(content) for content in (b"x", b"y", b"z"))))
        assert kept.keys() == needed

    @invariant()
    def totals_add_up(self) -> None:
        """N-UX-03."""
        status = self.ask(ReadStatus(self.now, 3600.0))
        assert status.accepted == status.delivered + status.superseded + status.waiting + status.parked
        assert min(status.delivered, status.superseded, status.waiting, status.parked) >= 0

    @invariant()
    def tickets_are_answered_when_nothing_is_open(self) -> None:
        """Once nothing waits, every ticket is settled; a run's receipt waits for exactly what is pending."""
        waiting = {found.path for found in self.ask(ReadPending(REPOSITORY)).paths} | set(self.parked())
        for path, version in self.tickets:
            if path not in waiting:
                assert self.ask(AreSettled(REPOSITORY, "r1", ((path, version),)))
        if not waiting:
            for run_id in ("r1", "r2"):
                assert self.ask(ReadRunReceipt(REPOSITORY, run_id)).pending_files == 0

    def parked(self) -> dict[str, str]:
        """Digests of the paths that were set aside."""
        rows = self.connection.exec_driver_sql("SELECT path, newest_sha256 FROM run_paths WHERE is_parked = 1").all()
        self.connection.rollback()
        return {row[0]: row[1] for row in rows}

    def teardown(self) -> None:
        """Close the database."""
        self.connection.close()


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
