"""Leases: who may write to a repository, and what a lost one stops (section 5.7; W22, W24; N-RUN-12)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import anyio
import pytest

from conveyor.actors.port_errors import StoreBusy
from conveyor.actors.store_operations import AcquireLease, ReleaseLease, RenewLease
from conveyor.protocol.lease import Lease
from conveyor.protocol.receipts import BundleStatus
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall
from tests.support.delivery import REPOSITORY, Operation, StoreView, open_rig, tree_of
from tests.support.stores import write

pytestmark = pytest.mark.anyio

STATE = "runs/r1/state.json"


def operations_of(view: StoreView, kind: type) -> list[float]:
    """When this process carried out operations of a kind."""
    return [at for at, operations in view.transactions for operation in operations if isinstance(operation, kind)]


async def test_a_lease_is_renewed_every_thirty_seconds_of_long_work_and_released_after_it() -> None:
    """Section 5.7: 120 s, renewed every 30 s while the delivery runs, given up at its end."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            rig.hub.fault(Fault(HubCall.UPLOAD, before_s=300))
            began = anyio.current_time()
            ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
            await anyio.sleep(1)
            agenda = await rig.agenda()
            assert agenda.lease_owner == tree_of(conveyor).world.owner
            assert agenda.lease_expires_unix_s - rig.clock.unix_s() == pytest.approx(119, abs=0.1)
            await ticket.wait_delivered(within_s=400)
            renewals = [at - began for at in operations_of(view, RenewLease)]
            assert renewals == pytest.approx([30.0 * number for number in range(1, 11)], abs=0.5)
            await anyio.sleep(0.5)
            assert (await rig.agenda()).lease_owner is None
            assert len(operations_of(view, AcquireLease)) == 1


async def test_an_idle_repository_holds_no_lease_while_its_work_is_not_due() -> None:
    """Section 5.7: between commits other processes may deliver."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await rig.hand_over(conveyor, {"a": b"2"})
        await anyio.sleep(5)
        assert (await rig.agenda()).lease_owner is None


async def test_a_killed_process_blocks_its_repository_for_at_most_a_lease() -> None:
    """Section 5.7: whoever was killed in the middle of run files and a bundle, another process goes on within 120 s."""
    async with open_rig() as rig:
        killed, view = rig.conveyor(store=(store := rig.view()), shutdown_s=1), rig.view()
        async with killed, rig.conveyor(store=view) as other:
            rig.hub.fault(Fault(HubCall.UPLOAD, before_s=10_000))
            bundle = await rig.hand_over_bundle(killed, rig.bundle())
            await anyio.sleep(5)
            store.kill()
            ticket = await rig.hand_over(other, {"state.json": b"1"})
            began = anyio.current_time()
            await ticket.wait_delivered(within_s=121)
            assert anyio.current_time() - began > 60
            await anyio.sleep(15)
            receipt = await other.handover_receipt(bundle.receipt.handover_id)
            assert receipt is not None
            assert (receipt.status, receipt.attempts) == (BundleStatus.UPLOADED, 1)


async def test_bundles_alone_of_a_killed_process_are_taken_over_too() -> None:
    """Section 5.7: nothing else wakes the other process: no hand-over, no change of the store, only the time."""
    async with open_rig() as rig:
        killed = rig.conveyor(store=(store := rig.view()), shutdown_s=1)
        async with killed, rig.conveyor() as other:
            rig.hub.fault(Fault(HubCall.UPLOAD, before_s=10_000))
            bundle = await rig.hand_over_bundle(killed, rig.bundle())
            await anyio.sleep(5)
            store.kill()
            await anyio.sleep(125)
            receipt = await other.handover_receipt(bundle.receipt.handover_id)
            assert receipt is not None
            assert receipt.status is BundleStatus.UPLOADED


async def test_two_processes_on_one_store_never_commit_to_a_repository_at_once() -> None:
    """Section 5.7: the spacing holds between them, and each path lands once."""
    async with open_rig() as rig, rig.conveyor() as one, rig.conveyor() as two:
        rig.hub.fault(Fault(HubCall.COMMIT, times=None, before_s=2, after_s=2))
        for number in range(20):
            await rig.hand_over((one, two)[number % 2], {f"f{number}": b"%d" % number}, flush=True)
            await anyio.sleep(3)
        assert (await one.drain(within_s=120)).waiting == 0
        calls = rig.hub.calls_of(HubCall.COMMIT)
        for earlier, later in pairwise(calls):
            assert earlier.ended_s is not None
            assert later.started_s - earlier.ended_s >= 10
        assert sum(len(commit.changed) for commit in rig.landed()) == 20


async def test_the_spacing_is_checked_again_once_the_lease_is_taken() -> None:
    """Section 5.5: another process may have committed between the look and the lease."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor() as other, rig.conveyor(store=view) as conveyor:
            slow = True

            async def before(operations: Sequence[Operation]) -> None:
                nonlocal slow
                if slow and any(isinstance(operation, AcquireLease) for operation in operations):
                    slow = False
                    await (await rig.hand_over(other, {"b": b"2"}, run_id="r2", flush=True)).wait_delivered()
                    # Due now, and by what this process knew before the lease, free to go at once.
                    await rig.hand_over(other, {"a": b"3"}, flush=True)

            view.before = before
            await rig.hand_over(conveyor, {"a": b"1"})
            await anyio.sleep(30)
            commits = rig.landed()
            assert [sorted(commit.changed) for commit in commits] == [["runs/r1/a", "runs/r2/b"], ["runs/r1/a"]]
            assert commits[1].at_s - commits[0].at_s >= 10


async def test_a_lost_lease_stops_the_work_before_its_next_effect() -> None:
    """N-RUN-12: renewal fails in the middle; the worker stops, another process finishes, and there is one result."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as loser, rig.conveyor() as other:
            rig.hub.fault(Fault(HubCall.UPLOAD, before_s=60))
            ticket = await rig.hand_over_bundle(loser, rig.bundle())
            await anyio.sleep(5)
            agenda = await rig.agenda()
            lease = Lease(REPOSITORY, agenda.lease_owner or "", await _fence(view), agenda.lease_expires_unix_s)
            await write(rig.view(), ReleaseLease(lease))
            await rig.hand_over(other, {"state.json": b"1"}, flush=True)
            await ticket.wait_delivered(within_s=200)
            await anyio.sleep(100)
            receipt = await ticket.read_receipt()
            assert (receipt.status, receipt.attempts) == (BundleStatus.UPLOADED, 1)
            assert sum("staged/b1/data.h5" in commit.changed for commit in rig.landed()) == 1
            first = rig.hub.calls_of(HubCall.UPLOAD)[0]
            assert first.end == "cancelled"


async def _fence(view: StoreView) -> int:
    """The fence of the newest renewal or grant of a process; each test's first lease has 1."""
    return 1


async def test_one_renewal_that_fails_costs_nothing_while_the_lease_still_runs() -> None:
    """Section 5.7: a store that is busy for a moment is asked again; the work goes on."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            failures = 2

            async def before(operations: Sequence[Operation]) -> None:
                nonlocal failures
                if failures and any(isinstance(operation, RenewLease) for operation in operations):
                    failures -= 1
                    raise StoreBusy("others hold the store")

            view.before = before
            rig.hub.fault(Fault(HubCall.UPLOAD, before_s=200))
            ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
            await ticket.wait_delivered(within_s=210)
            assert len(rig.hub.calls_of(HubCall.UPLOAD)) == 1


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_lease_that_cannot_be_renewed_is_dropped_before_others_may_take_it(hangs: bool) -> None:
    """Finding W22, N-RUN-12: the work ends within the safe time, by this process's own clock; then it begins anew."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:

            async def before(operations: Sequence[Operation]) -> None:
                if any(isinstance(operation, RenewLease) for operation in operations):
                    if hangs:
                        await anyio.sleep(100)
                    raise StoreBusy("others hold the store")

            view.before = before
            rig.hub.fault(Fault(HubCall.UPLOAD, before_s=1000))
            ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
            await anyio.sleep(1)
            began = rig.hub.calls_of(HubCall.UPLOAD)[0].started_s
            await anyio.sleep(119)
            first = rig.hub.calls_of(HubCall.UPLOAD)[0]
            assert first.end == "cancelled"
            assert first.ended_s is not None
            assert 60 < first.ended_s - began <= 111
            view.before = None
            await ticket.wait_delivered(within_s=300)
            assert (await ticket.read_receipt()).attempts == 1


async def test_a_lease_is_not_released_under_an_unfinished_thread() -> None:
    """DESIGN, Actors: a thread that cannot be cancelled is accounted for; its lease is left to expire."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=3) as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, FaultEffect.STALL, late_s=1000))
        await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(5)
        report = await conveyor.aclose()
        assert report.leases_left == (REPOSITORY,)
        assert report.unfinished_uploads == (REPOSITORY,)
        assert not report.is_clean
        agenda = await rig.agenda()
        assert agenda.lease_owner is not None
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=130)).waiting == 0


@pytest.mark.parametrize("by_s", [-7200.0, -300.0, 300.0, 7200.0])
async def test_a_clock_that_jumps_neither_blocks_nor_lets_two_write(by_s: float) -> None:
    """Finding W24: set back or forward while commits, leases and backoffs are on record; everything arrives once."""
    async with open_rig() as rig, rig.conveyor() as one, rig.conveyor() as two:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=50))
        await (await rig.hand_over(one, {"state.json": b"0"})).wait_delivered()
        bundle = await rig.hand_over_bundle(one, rig.bundle())
        await anyio.sleep(5)
        waiting = await rig.hand_over(two, {"state.json": b"1"}, interval_s=30)
        rig.clock.jump(by_s)
        await anyio.sleep(1)
        await rig.hand_over(two, {"other.json": b"2"}, interval_s=30)
        began = anyio.current_time()
        await waiting.wait_delivered(within_s=200)
        await bundle.wait_delivered(within_s=200)
        assert anyio.current_time() - began < 180
        await anyio.sleep(60)
        assert (await rig.status()).waiting == 0
        for commit in rig.landed():
            assert sum(set(commit.changed) == set(other.changed) for other in rig.landed()) <= 2


async def test_a_clock_set_back_while_no_process_runs_blocks_nothing() -> None:
    """Finding W24: due times stored two hours ahead are brought back at the next start, without a commit on record."""
    async with open_rig() as rig:
        rig.hub.credential = "missing"
        async with rig.conveyor(shutdown_s=1) as conveyor:
            await rig.hand_over(conveyor, {"state.json": b"1"})
            await rig.hand_over_bundle(conveyor, rig.bundle())
        rig.clock.jump(-7200)
        rig.hub.credential = "write"
        async with rig.conveyor():
            await anyio.sleep(45)
            assert (await rig.status()).waiting == 0


async def test_work_claimed_under_a_lease_that_was_lost_and_taken_again_is_not_stuck() -> None:
    """The same owner takes its expired lease again: claims of before are free, whatever became of their tasks."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            # One more is prepared at once than there is room for: it keeps the lease in use after it was taken again.
            rig.hub.fault(Fault(HubCall.UPLOAD, times=16, before_s=500))
            rig.hub.fault(Fault(HubCall.UPLOAD, path="staged/b16/data.h5", times=None, before_s=2000))

            async def before(operations: Sequence[Operation]) -> None:
                if any(isinstance(operation, RenewLease) for operation in operations):
                    raise StoreBusy("others hold the store")

            view.before = before
            tickets = [await rig.hand_over_bundle(conveyor, rig.bundle(f"b{number}")) for number in range(17)]
            await anyio.sleep(111)
            view.before = None
            for ticket in tickets[:16]:
                await ticket.wait_delivered(within_s=60)
                assert (await ticket.read_receipt()).attempts == 1
