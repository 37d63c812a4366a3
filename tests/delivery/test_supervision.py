"""Crashes, a store in trouble, many hands at one mailbox: nothing is lost, nothing escalates (N-RUN-08, N-STO-05)."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from conveyor.actors import ChildSpec, open_supervisor
from conveyor.actors.errors import AskTimeout
from conveyor.actors.ledger import LEDGER_CAPACITY, Ledger, LedgerRef
from conveyor.actors.port_errors import StoreBusy, StoreFull
from conveyor.actors.store_operations import (
    ClaimBundle,
    OpenAttempt,
    PlanOutdated,
    ReadAgenda,
    ReadPending,
    RecordBundle,
    RecordObject,
    RecordRunFiles,
    ReleaseLease,
    RenewLease,
    SettleLanded,
    SettleUnchanged,
)
from conveyor.protocol.errors import LeaseLost
from conveyor.protocol.lease import Lease
from conveyor.protocol.receipts import BundleStatus, RunFilesStatus
from conveyor.protocol.requests import RunFile, StageRunFiles
from conveyor.runtime.adapters.memory_hub_faults import Fault, HubCall
from tests.support.delivery import OTHER, REPOSITORY, Operation, StoreView, open_rig, tree_of
from tests.support.scripted import Boom
from tests.support.stores import run_files, take_lease

pytestmark = pytest.mark.anyio


def failing(view: StoreView, kind: type, error: Exception, times: int) -> None:
    """Have operations of a kind fail so many times."""
    left = times

    async def before(operations: Sequence[Operation]) -> None:
        nonlocal left
        if left and any(isinstance(operation, kind) for operation in operations):
            left -= 1
            raise error

    view.before = before


@pytest.mark.parametrize("kind", [ReadAgenda, ReadPending, OpenAttempt, SettleLanded, ClaimBundle, RecordObject])
async def test_an_actor_that_crashes_goes_on_from_durable_state(kind: type) -> None:
    """N-RUN-08: whatever step an unexpected error comes at, the actor restarts; all arrives once, nothing leaks."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            failing(view, kind, Boom("unexpected"), 2)
            files = await rig.hand_over(conveyor, {"a": b"1", "b": b"2"}, entry={"run_id": "r1"})
            bundle = await rig.hand_over_bundle(conveyor, rig.bundle())
            assert (await files.wait_delivered(within_s=60)).commits == 1
            assert (await bundle.wait_delivered(within_s=60)).status is BundleStatus.UPLOADED
            assert len(rig.landed()) == 2
            assert tree_of(conveyor)._in_flight.repositories == ()
            report = await conveyor.aclose()
            assert report.is_clean


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (ReadAgenda, StoreBusy("busy")),
        (ReadPending, StoreBusy("busy")),
        (OpenAttempt, StoreFull("full")),
        (SettleLanded, StoreFull("full")),
        (ClaimBundle, StoreFull("full")),
        (RecordObject, StoreFull("full")),
        (ReleaseLease, StoreBusy("busy")),
    ],
)
async def test_a_store_in_trouble_is_waited_out(kind: type, error: Exception) -> None:
    """N-STO-05: full or busy for half a minute: no restart, no escalation, nothing lost, nothing sent twice."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            failing(view, kind, error, 6)
            rig.hub.fault(Fault(HubCall.HEAD, times=None, after_s=0.1))
            files = await rig.hand_over(conveyor, {"a": b"1"}, entry={"run_id": "r1"})
            bundle = await rig.hand_over_bundle(conveyor, rig.bundle())
            await files.wait_delivered(within_s=200)
            await bundle.wait_delivered(within_s=200)
            assert sum(actor.restarts for actor in (await conveyor.status()).actors) == 0
            assert len(rig.landed()) == 2
            await rig.hand_over(conveyor, {"a": b"2"}, flush=True)
            await anyio.sleep(60)
            assert (await rig.agenda()).lease_owner is None
            assert (await conveyor.aclose()).is_clean


async def test_a_hand_over_without_room_is_answered_and_takes_no_renewal_with_it() -> None:
    """N-STO-05: on a full disk a large hand-over is refused, while small writes of the same group are carried out."""
    async with open_rig() as rig:
        view = rig.view()

        async def before(operations: Sequence[Operation]) -> None:
            if any(isinstance(operation, RecordRunFiles) for operation in operations):
                raise StoreFull("no room on the disk")

        view.before = before
        lease = await take_lease(rig.view(), now=rig.clock.unix_s(), repository=REPOSITORY)
        spec = ChildSpec("ledger", lambda: Ledger(view), mailbox_capacity=LEDGER_CAPACITY)
        async with open_supervisor([spec]) as supervisor:
            ledger = LedgerRef(supervisor.ref("ledger"))
            outcomes: dict[str, object] = {}

            async def write(name: str, operation: object) -> None:
                try:
                    outcomes[name] = await ledger.write(operation)  # type: ignore[arg-type]
                except StoreFull as error:
                    outcomes[name] = error

            async with anyio.create_task_group() as tasks:
                for number in range(5):
                    tasks.start_soon(write, f"files {number}", run_files({"a": b"1"}, repository=REPOSITORY))
                tasks.start_soon(write, "renewal", RenewLease(lease, rig.clock.unix_s(), 120.0))
            assert isinstance(outcomes["renewal"], Lease)
            assert sum(isinstance(outcome, StoreFull) for outcome in outcomes.values()) == 5


async def test_a_full_store_answers_unavailable_and_takes_hand_overs_again_when_there_is_room() -> None:
    """N-STO-05, N-UX-04: nothing is promised and nothing raised; no restart is needed once space returns."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            await rig.hand_over(conveyor, {"a": b"1"})
            failing(view, RecordRunFiles, StoreFull("full"), 1_000_000)
            rig.files.write("/build/x", b"x")
            request = StageRunFiles(REPOSITORY, "r2", (RunFile("x", "/build/x"),))
            for _ in range(2):
                assert (await conveyor.stage_run_files(request)).receipt.status is RunFilesStatus.UNAVAILABLE
            view.before = None
            assert (await conveyor.stage_run_files(request)).receipt.status is RunFilesStatus.RECORDED
            await conveyor.drain(within_s=60)
            assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"1"


async def test_each_write_of_a_group_is_answered_and_a_refused_one_disturbs_no_other() -> None:
    """DESIGN, store: many writes share one transaction, and each gets its own answer, in order."""
    async with open_rig() as rig:
        view = rig.view()
        lost = Lease(REPOSITORY, "somebody", 7, 0.0)
        spec = ChildSpec("ledger", lambda: Ledger(view), mailbox_capacity=LEDGER_CAPACITY)
        async with open_supervisor([spec]) as supervisor:
            ledger = LedgerRef(supervisor.ref("ledger"))
            versions: list[int] = []
            told: list[int] = []
            refused = 0

            async def hand_over(number: int) -> None:
                operation = run_files({"a": b"%d" % number}, repository=REPOSITORY)
                recorded = await ledger.write(operation, then=lambda: told.append(number))
                versions.append(recorded.versions[0][1])

            async def renew() -> None:
                nonlocal refused
                try:
                    await ledger.write(RenewLease(lost, rig.clock.unix_s(), 120.0), then=lambda: told.append(-1))
                except LeaseLost:
                    refused += 1

            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(hand_over, number)
                    if number % 50 == 0:
                        tasks.start_soon(renew)
            assert sorted(versions) == list(range(1, 201))
            assert refused == 4
            assert sorted(told) == list(range(200))
            assert len(view.transactions) <= 4


async def test_a_write_whose_caller_left_is_carried_out_and_told() -> None:
    """A cancelled caller leaves, its write does not: whoever has to hear of it is told by the Ledger."""
    async with open_rig() as rig:
        view = rig.view()
        spec = ChildSpec("ledger", lambda: Ledger(view), mailbox_capacity=LEDGER_CAPACITY)
        async with open_supervisor([spec]) as supervisor:
            ledger = LedgerRef(supervisor.ref("ledger"))

            async def before(operations: Sequence[Operation]) -> None:
                await anyio.sleep(5)

            view.before = before
            told: list[str] = []
            with pytest.raises(AskTimeout):
                await ledger.write(
                    run_files({"a": b"1"}, repository=REPOSITORY), within_s=1, then=lambda: told.append("durable")
                )
            await anyio.sleep(10)
            assert told == ["durable"]


async def test_a_hand_over_whose_producer_left_is_delivered_once_it_is_durable() -> None:
    """N-STO-08: recorded although nobody waits: it is delivered without another hand-over to wake its repository."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            slow = True

            async def before(operations: Sequence[Operation]) -> None:
                nonlocal slow
                if slow and any(isinstance(operation, RecordRunFiles | RecordBundle) for operation in operations):
                    await anyio.sleep(8)
                    slow = False

            view.before = before
            rig.files.write("/build/x", b"x")
            ticket = await conveyor.stage_run_files(StageRunFiles(REPOSITORY, "r1", (RunFile("x", "/build/x"),)))
            assert ticket.receipt.status is RunFilesStatus.UNAVAILABLE
            await anyio.sleep(15)
            assert rig.hub.content(REPOSITORY, "runs/r1/x") == b"x"


async def test_those_who_wait_are_woken_although_the_settling_actor_was_stopped() -> None:
    """N-HUB-08: an awaiter is answered by what is durable, even if the actor that settled it ended meanwhile."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view, shutdown_s=2) as conveyor, anyio.create_task_group() as tasks:

            async def before(operations: Sequence[Operation]) -> None:
                if any(isinstance(operation, SettleLanded) for operation in operations):
                    await anyio.sleep(4.5)

            view.before = before
            ticket = await rig.hand_over(conveyor, {"a": b"1"})
            receipts = []

            async def wait() -> None:
                receipts.append(await ticket.wait_delivered())

            tasks.start_soon(wait)
            await anyio.sleep(1)
            await conveyor.aclose()
            await anyio.sleep(5)
            assert [receipt.commits for receipt in receipts] == [1]


async def test_a_busy_repository_does_not_hold_up_the_start_of_others() -> None:
    """A full mailbox of one actor is that actor's own: work that others put into the store starts all the same."""
    async with open_rig() as rig, rig.conveyor():
        other = rig.view()
        rig.hub.fault(Fault(HubCall.COMMIT, repository=REPOSITORY, before_s=300))
        for number in range(100):
            await other.transact([run_files({"a": b"%d" % number}, repository=REPOSITORY, now=rig.clock.unix_s())])
            await anyio.sleep(1.01)
        await other.transact([run_files({"a": b"1"}, repository=OTHER, now=rig.clock.unix_s())])
        await anyio.sleep(3)
        assert len(rig.hub.landed(OTHER)) == 1


async def test_a_plan_that_is_outdated_when_it_is_recorded_is_made_again() -> None:
    """N-HUB-12: between reading and recording, committed bytes came back: the older version is not sent."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            failing(view, OpenAttempt, PlanOutdated("newer"), 1)
            # The store answers such a refusal for the one operation; as an error of the whole it is the same to see.
            original = view.before

            async def before(operations: Sequence[Operation]) -> None:
                try:
                    assert original is not None
                    await original(operations)
                except PlanOutdated:
                    await rig.store.transact(
                        [run_files({}, repository=REPOSITORY, now=rig.clock.unix_s())],
                    )

            view.before = before
            await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered(within_s=10)
            assert len(rig.landed()) == 1


async def test_memory_of_the_intake_is_bounded_and_all_hand_overs_are_taken() -> None:
    """`intake_memory_bytes`: so many bytes are held at once; the others wait in order, none is refused."""
    size_bytes = 8 * 1024 * 1024
    async with open_rig() as rig:
        view = rig.view()
        bound_bytes = 64 * 1024 * 1024
        async with (
            rig.conveyor(store=view, intake_memory_bytes=bound_bytes) as conveyor,
            anyio.create_task_group() as tasks,
        ):
            waiting_bytes: list[int] = []

            async def before(operations: Sequence[Operation]) -> None:
                sizes = [
                    sum(file.digests.size_bytes for file in operation.files)
                    for operation in operations
                    if isinstance(operation, RecordRunFiles)
                ]
                if sizes:
                    waiting_bytes.append(sum(sizes))
                    await anyio.sleep(0.1)

            view.before = before

            async def hand_over(number: int) -> None:
                await rig.hand_over(conveyor, {"f.txt": bytes([number]) * size_bytes}, run_id=f"r{number}")

            for number in range(24):
                tasks.start_soon(hand_over, number)
        assert sum(waiting_bytes) == 24 * size_bytes
        assert max(waiting_bytes) <= bound_bytes


async def test_nothing_is_settled_as_unchanged_under_a_lost_lease() -> None:
    """N-RUN-12: the result of a look at the Hub belongs to whoever holds the lease."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            rig.hub.foreign_commit(REPOSITORY, {"runs/r1/a": b"1"})
            stolen = False

            async def before(operations: Sequence[Operation]) -> None:
                nonlocal stolen
                if not stolen and any(isinstance(operation, SettleUnchanged) for operation in operations):
                    stolen = True
                    agenda = await rig.agenda()
                    lease = Lease(REPOSITORY, agenda.lease_owner or "", 1, agenda.lease_expires_unix_s)
                    await rig.store.transact([ReleaseLease(lease)])
                    await take_lease(rig.store, owner="thief", now=rig.clock.unix_s(), repository=REPOSITORY)

            view.before = before
            ticket = await rig.hand_over(conveyor, {"a": b"1"})
            await anyio.sleep(60)
            assert (await ticket.read_receipt()).pending_files == 1
            await ticket.wait_delivered(within_s=70)
