"""The shutdown: its phases, what each moment of a stop leads to, and the report (section 6; N-RUN-01, N-HUB-09)."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from conveyor.actors.port_errors import StoreBusy
from conveyor.actors.shutdown import ShutdownPhase
from conveyor.actors.store_operations import AcquireLease, ClaimBundle, ListOpenRepositories, ReleaseLease
from conveyor.protocol.outcome import Outcome, OutcomeKind
from conveyor.protocol.receipts import BundleStatus, RunFilesStatus
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall
from tests.support.delivery import OTHER, REPOSITORY, Operation, Rig, open_rig, tree_of
from tests.support.stores import take_lease, write

pytestmark = pytest.mark.anyio

DOWN = Outcome(OutcomeKind.TRANSIENT, "ConnectError")


async def test_the_phases_come_in_their_order_and_a_quiet_runtime_is_clean() -> None:
    """Section 6: each step is observable, in the exact order; nothing left is clean."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        report = await conveyor.aclose()
        assert [row.phase for row in report.phases] == list(ShutdownPhase)
        assert report.is_clean
        assert await conveyor.aclose() is report


async def test_the_final_commit_ignores_due_times_spacing_and_backoff() -> None:
    """Section 6, step 4: everything pending of every run, at once, also after failures."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600, entry={"run_id": "r1"})
        await rig.hand_over(conveyor, {"b": b"1"}, run_id="r2", interval_s=3600)
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, OTHER, times=5, outcome=DOWN))
        await rig.hand_over(conveyor, {"c": b"1"}, repository=OTHER)
        await anyio.sleep(35)
        assert (await rig.agenda(OTHER)).not_before_unix_s > rig.clock.unix_s() + 5
        began = anyio.current_time()
        report = await conveyor.aclose()
        assert anyio.current_time() - began < 0.1
        assert report.is_clean
        assert len(report.commits) == 2
        assert sorted(rig.landed()[-1].changed) == ["runs.json", "runs/r1/a", "runs/r2/b"]


async def test_final_commits_run_at_the_same_time_and_a_slow_one_holds_up_none() -> None:
    """Finding W34: concurrently over the repositories, each until the deadline."""
    names = [f"acme/r{number}" for number in range(12)]
    async with open_rig(repositories=names) as rig, rig.conveyor(shutdown_s=10) as conveyor:
        rig.hub.credential = "missing"
        for name in names:
            await rig.hand_over(conveyor, {"a": b"1"}, repository=name)
        rig.hub.credential = "write"
        rig.hub.fault(Fault(HubCall.COMMIT, times=None, before_s=3))
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.STALL, names[5], times=None))
        began = anyio.current_time()
        report = await conveyor.aclose()
        assert anyio.current_time() - began <= 13
        assert len(report.commits) == 11
        assert [(left.repository, left.has_unknown_commit) for left in report.left_over] == [(names[5], True)]


async def test_nothing_new_is_taken_once_the_stop_has_begun() -> None:
    """Section 6, step 1 (W33): the gate closes first; a later hand-over is answered, and nothing is promised."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        tree_of(conveyor).gate.begin()
        rig.files.write("/build/x", b"x")
        request = rig.bundle()
        assert (await conveyor.stage_dataset_bundle(request)).receipt.status is BundleStatus.UNAVAILABLE
        assert (await rig.status()).accepted == 0


async def test_a_hand_over_under_way_is_finished_and_delivered() -> None:
    """Section 6, step 1: what was begun before the stop is answered, and goes with the final commit."""
    async with open_rig() as rig, rig.conveyor() as conveyor, anyio.create_task_group() as tasks:
        rig.files.write("/build/r1/a", b"1")
        rig.files.hold_file("/build/r1/a")
        tickets = []

        async def hand_over() -> None:
            tickets.append(await rig.hand_over(conveyor, {"a": b"1"}))

        tasks.start_soon(hand_over)
        await anyio.sleep(0.1)
        tasks.start_soon(conveyor.aclose)
        await anyio.sleep(1)
        rig.files.mend_file("/build/r1/a")
        await anyio.sleep(1)
        assert tickets[0].receipt.status is RunFilesStatus.RECORDED
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"1"


async def test_a_hand_over_that_hangs_does_not_take_the_time_of_the_final_commits() -> None:
    """Section 6: a file that does not come back is one hand-over's trouble; the final commits are made in time."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=12) as conveyor, anyio.create_task_group() as tasks:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600)
        request = rig.bundle()
        rig.files.hold_file("/build/b1/data.h5")
        tasks.start_soon(conveyor.stage_dataset_bundle, request)
        await anyio.sleep(0.1)
        report = await conveyor.aclose()
        assert len(report.commits) == 1
        assert [row.phase for row in report.phases if row.overran] == [ShutdownPhase.CLOSE_INTAKE]


async def _stop_at(rig: Rig, kind: type, *, after: bool) -> None:
    """A runtime that is told to stop at the moment of an operation; its bundle has to stay untouched."""
    view = rig.view()
    conveyor = rig.conveyor(store=view, shutdown_s=5)
    async with conveyor:
        original = view.transact

        async def transact(operations: Sequence[Operation]) -> list[object]:
            meets = any(isinstance(operation, kind) for operation in operations)
            if meets and not after:
                tree_of(conveyor).gate.begin()
            answers = await original(operations)  # type: ignore[arg-type]
            if meets and after:
                tree_of(conveyor).gate.begin()
            return answers

        view.transact = transact  # type: ignore[method-assign]
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(3)
        report = await conveyor.aclose()
    receipt = await rig.conveyor_receipt(ticket.receipt.handover_id)
    assert (receipt.status, receipt.attempts, receipt.error_code) == (BundleStatus.PENDING, 0, None)
    assert rig.hub.calls_of(HubCall.UPLOAD) == []
    assert [(left.repository, left.bundles) for left in report.left_over] == [(REPOSITORY, 1)]
    assert report.unfinished_uploads == report.leases_left == ()
    assert (await rig.agenda()).lease_owner is None
    async with rig.conveyor() as later:
        assert (await later.drain(within_s=1)).waiting == 0


@pytest.mark.parametrize("after", [False, True], ids=["before the lease", "after the lease"])
async def test_a_stop_around_the_lease_starts_no_upload(after: bool) -> None:
    """Section 6, (b) and (c): nothing is claimed, the lease is given back, the next process takes it at once."""
    async with open_rig() as rig:
        await _stop_at(rig, AcquireLease, after=after)


@pytest.mark.parametrize("after", [False, True], ids=["during the claim", "after the claim"])
async def test_a_bundle_claimed_as_the_stop_begins_is_given_back(after: bool) -> None:
    """Section 6, (d): lease cleared; status, attempts and next-attempt time unchanged."""
    async with open_rig() as rig:
        await _stop_at(rig, ClaimBundle, after=after)


async def test_an_upload_in_flight_gets_until_the_deadline_and_is_committed() -> None:
    """Section 6, step 5: uploads that passed the last check run on; run files go meanwhile."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=15) as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=20))
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(1)
        await rig.hand_over(conveyor, {"a": b"1"}, interval_s=3600)
        await anyio.sleep(9)
        report = await conveyor.aclose()
        assert report.is_clean
        assert [sorted(commit.changed)[0] for commit in rig.landed()] == ["runs/r1/a", "staged/b1/data.h5"]
        receipt = await rig.conveyor_receipt(ticket.receipt.handover_id)
        assert receipt.status is BundleStatus.UPLOADED
        took = {row.phase: row.took_s for row in report.phases}
        assert took[ShutdownPhase.UPLOADS_IN_FLIGHT] == pytest.approx(10, abs=0.5)


async def test_an_upload_still_running_at_the_deadline_is_given_back_uncounted() -> None:
    """Section 6: abandoned, named in the report, attempts unchanged; the next process repeats it at once."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=5) as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=1000))
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(1)
        began = anyio.current_time()
        report = await conveyor.aclose()
        assert anyio.current_time() - began < 6
        assert report.unfinished_uploads == (REPOSITORY,)
        assert [row.phase for row in report.phases if row.overran] == [ShutdownPhase.UPLOADS_IN_FLIGHT]
        receipt = await rig.conveyor_receipt(ticket.receipt.handover_id)
        assert (receipt.status, receipt.attempts) == (BundleStatus.PENDING, 0)
        rig.hub.script.clear()
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=1)).waiting == 0


async def test_a_second_final_commit_serves_what_the_first_could_not() -> None:
    """Section 6, step 6: it retries what failed in step 4, after the uploads in flight (W36: for each repository)."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=15) as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=8))
        await rig.hand_over_bundle(conveyor, rig.bundle())
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600)
        rig.hub.fault(Fault(HubCall.HEAD, FaultEffect.REFUSE, outcome=DOWN))
        report = await conveyor.aclose()
        assert report.is_clean
        assert len(report.commits) == 1
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"2"


async def test_an_upload_until_the_deadline_keeps_no_other_repository_from_its_second_commit() -> None:
    """Finding W36: what failed in step 4 is tried again for each repository that no upload holds."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=10) as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=1000))
        await rig.hand_over_bundle(conveyor, rig.bundle())
        await (await rig.hand_over(conveyor, {"a": b"1"}, repository=OTHER)).wait_delivered()
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600, repository=OTHER)
        rig.hub.fault(Fault(HubCall.HEAD, FaultEffect.REFUSE, OTHER, outcome=DOWN))
        report = await conveyor.aclose()
        assert report.unfinished_uploads == (REPOSITORY,)
        assert rig.hub.content(OTHER, "runs/r1/a") == b"2"


async def test_a_lease_of_another_process_is_waited_for_until_the_deadline() -> None:
    """Finding W41: a repository that another host holds does not miss its commit at shutdown."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=15) as conveyor, anyio.create_task_group() as tasks:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await anyio.sleep(1)
        lease = await take_lease(rig.view(), owner="other", now=rig.clock.unix_s(), repository=REPOSITORY)
        await rig.hand_over(conveyor, {"a": b"2"}, flush=True)

        async def release_later() -> None:
            await anyio.sleep(12)
            await write(rig.view(), ReleaseLease(lease))

        tasks.start_soon(release_later)
        report = await conveyor.aclose()
        assert report.is_clean
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"2"


async def test_a_lease_that_is_never_given_back_leaves_its_files_over() -> None:
    """Section 6: only a repository held by somebody who is not done by the deadline goes without its commit."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=5) as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await anyio.sleep(1)
        await take_lease(rig.view(), owner="other", now=rig.clock.unix_s(), repository=REPOSITORY)
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600)
        report = await conveyor.aclose()
        assert [(left.repository, left.files, left.size_bytes) for left in report.left_over] == [(REPOSITORY, 1, 1)]


async def test_a_commit_that_hangs_does_not_hold_the_deadline() -> None:
    """Finding W10, N-RUN-01: the process is done in time; the outcome is unknown, and looked up later."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=10) as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.STALL, times=None))
        await rig.hand_over(conveyor, {"a": b"1"})
        await anyio.sleep(1)
        began = anyio.current_time()
        report = await conveyor.aclose()
        assert anyio.current_time() - began <= 12.5
        assert [left.has_unknown_commit for left in report.left_over] == [True]
        rig.hub.script.clear()
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=130)).waiting == 0
        assert len(rig.landed()) == 1


async def test_a_stuck_upload_thread_holds_neither_the_deadline_nor_gives_up_its_lease() -> None:
    """N-RUN-01: the deadline holds; the lease stays under the thread and is named in the report."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=6) as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, FaultEffect.STALL, late_s=10_000))
        await rig.hand_over_bundle(conveyor, rig.bundle())
        await rig.hand_over(conveyor, {"a": b"1"}, repository=OTHER, interval_s=3600)
        await anyio.sleep(1)
        began = anyio.current_time()
        report = await conveyor.aclose()
        assert anyio.current_time() - began <= 8.5
        assert (report.leases_left, report.unfinished_uploads) == ((REPOSITORY,), (REPOSITORY,))
        assert (await rig.agenda()).lease_owner is not None
        assert (await rig.agenda(OTHER)).lease_owner is None


async def test_a_busy_actor_with_a_full_mailbox_still_makes_its_final_commit() -> None:
    """A commit is under way and the mailbox is full of news: the final commit gets in, and nothing is lost."""
    async with open_rig() as rig, rig.conveyor(shutdown_s=15) as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, before_s=8))
        await rig.hand_over(conveyor, {"a": b"0"})
        await anyio.sleep(1)
        for number in range(200):
            await rig.hand_over(conveyor, {f"f{number}": b"1"}, interval_s=3600)
        report = await conveyor.aclose()
        assert report.is_clean
        assert sum(len(commit.changed) for commit in rig.landed()) == 201


async def test_final_commits_go_on_over_several_requests_where_one_is_not_enough() -> None:
    """Finding W11 at shutdown: bounded requests, one after the other, without spacing."""
    async with open_rig() as rig, rig.conveyor(commit_max_operations=11) as conveyor:
        rig.hub.credential = "missing"
        await rig.hand_over(conveyor, {f"f{number:02}": b"1" for number in range(35)})
        rig.hub.credential = "write"
        report = await conveyor.aclose()
        assert report.is_clean
        assert len(report.commits) == len(rig.landed()) == 4


async def test_an_index_that_cannot_be_read_ends_the_final_commit_without_a_hot_loop() -> None:
    """Finding W1 at shutdown: files go, the entry is left over and named."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.credential = "missing"
        rig.hub.foreign_commit(REPOSITORY, {"runs.json": b"broken"})
        await rig.hand_over(conveyor, {"a": b"1"}, entry={"run_id": "r1"})
        rig.hub.credential = "write"
        report = await conveyor.aclose()
        assert [(left.files, left.entries) for left in report.left_over] == [(0, 1)]
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"1"


async def test_an_unknown_commit_is_settled_by_the_final_commit_before_another_is_made() -> None:
    """Section 12 at shutdown: looked up first; then what came since is committed."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
        rig.hub.fault(Fault(HubCall.RECENT_COMMITS, FaultEffect.REFUSE, times=3, outcome=DOWN))
        await rig.hand_over(conveyor, {"a": b"1"})
        await anyio.sleep(1)
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600)
        report = await conveyor.aclose()
        assert report.is_clean
        assert [commit.changed["runs/r1/a"].content for commit in rig.landed()] == [b"1", b"2"]


async def test_a_hub_that_is_down_leaves_everything_to_a_later_process() -> None:
    """N-HUB-09: the exit reports what is left; ten minutes later a drain delivers it, without the producer."""
    async with open_rig() as rig:
        async with rig.conveyor(shutdown_s=5) as conveyor:
            for call in (HubCall.HEAD, HubCall.PREUPLOAD, HubCall.PATHS_INFO, HubCall.UPLOAD, HubCall.COMMIT):
                rig.hub.fault(Fault(call, FaultEffect.REFUSE, times=None, outcome=DOWN))
            await rig.hand_over(conveyor, {"a": b"1", "b": b"22"}, entry={"run_id": "r1"})
            await rig.hand_over_bundle(conveyor, rig.bundle())
            await anyio.sleep(60)
            report = await conveyor.aclose()
            assert [(left.files, left.entries, left.bundles) for left in report.left_over] == [(2, 1, 1)]
        await anyio.sleep(600)
        rig.hub.script.clear()
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=60)).waiting == 0
        assert rig.hub.content(REPOSITORY, "runs/r1/b") == b"22"
        assert rig.hub.content(REPOSITORY, "staged/b1/data.h5") == b"data of b1"


async def test_a_store_that_cannot_list_its_work_does_not_skip_the_other_phases() -> None:
    """Section 6: releasing is never skipped, whatever the store says to the final commits."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view) as conveyor:
            await rig.hand_over(conveyor, {"a": b"1"})
            await anyio.sleep(1)

            async def before(operations: Sequence[Operation]) -> None:
                if any(isinstance(operation, ListOpenRepositories) for operation in operations):
                    raise StoreBusy("others hold the store")

            view.before = before
            report = await conveyor.aclose()
            assert [row.phase for row in report.phases] == list(ShutdownPhase)


async def test_draining_copies_of_a_store_again_and_again_makes_one_commit() -> None:
    """N-HUB-15: the identity of a delivery is its store, target and version; repeating it is a no-op on the remote."""
    async with open_rig() as rig:
        rig.hub.credential = "missing"
        async with rig.conveyor(shutdown_s=1) as conveyor:
            await rig.hand_over(conveyor, {"a": b"1", "b.bin": b"2"}, entry={"run_id": "r1"})
            await rig.hand_over_bundle(conveyor, rig.bundle())
        rig.hub.credential = "write"
        copies = [await rig.copy() for _ in range(3)]
        for copy in copies:
            async with copy.conveyor() as later:
                assert (await later.drain(within_s=60)).waiting == 0
            await anyio.sleep(100)
            assert len(rig.landed()) == 2
        async with copies[0].conveyor() as again:
            assert (await again.drain(within_s=60)).waiting == 0
        assert [sorted(commit.changed)[0] for commit in rig.landed()] == ["runs.json", "staged/b1/data.h5"]
        for copy in copies:
            await copy.store.aclose()
