"""Bundles from the claim to their receipt (hand-over protocol, section 5.6), in virtual time."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors import delivery_world
from conveyor.protocol.outcome import Outcome, OutcomeKind
from conveyor.protocol.receipts import BundleStatus, DeliveryCode
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall, moved, refused
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from conveyor.runtime.tickets import NotDelivered
from tests.support.delivery import INVENTORY, OTHER, REPOSITORY, gaps_s, open_rig

pytestmark = pytest.mark.anyio

DOWN = Outcome(OutcomeKind.TRANSIENT, "ConnectError")


async def test_a_bundle_is_uploaded_whole_in_one_commit_with_its_title() -> None:
    """Section 5.6: all files in one commit; the receipt carries its id and one attempt."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        request = rig.bundle("b1", {"data.h5": b"data", "notes.txt": b"n"})
        receipt = await (await rig.hand_over_bundle(conveyor, request)).wait_delivered(within_s=5)
        (commit,) = rig.landed()
        assert (receipt.status, receipt.revision, receipt.attempts) == (BundleStatus.UPLOADED, commit.commit_id, 1)
        assert commit.title == "Stage b1 under staged/b1"
        assert sorted(commit.changed) == ["staged/b1/data.h5", "staged/b1/notes.txt", f"staged/b1/{INVENTORY}"]


async def test_copied_bytes_are_used_although_the_build_rewrote_its_files() -> None:
    """N-STO-08, section 4.4: what was copied is frozen at the hand-over, and the source is not looked at again."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.credential = "missing"
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle("b1", {"data.h5": b"data"}))
        rig.files.write("/build/b1/data.h5", b"rewritten")
        rig.files.remove(f"/build/b1/{INVENTORY}")
        rig.hub.credential = "write"
        await ticket.wait_delivered(within_s=10)
        assert rig.hub.content(REPOSITORY, "staged/b1/data.h5") == b"data"


async def test_a_bundle_that_is_there_already_is_not_committed_again() -> None:
    """Section 5.6: equal outputs are `already_staged`, with the commit that last changed the inventory as revision."""
    async with open_rig() as rig, open_rig() as far:
        far.hub = rig.hub
        async with rig.conveyor() as conveyor:
            first = await (await rig.hand_over_bundle(conveyor, rig.bundle())).wait_delivered()
        rig.hub.foreign_commit(REPOSITORY, {"later.txt": b"x"})
        async with far.conveyor() as conveyor:
            second = await (await far.hand_over_bundle(conveyor, far.bundle())).wait_delivered(within_s=10)
            assert (second.status, second.revision) == (BundleStatus.ALREADY_STAGED, first.revision)
            await (await far.hand_over(conveyor, {"a": b"1"})).wait_delivered(within_s=1)
        assert len(rig.landed()) == 2


async def test_a_different_bundle_is_never_overwritten() -> None:
    """Section 5.6: a different inventory, or one that is no JSON (W13), fails the bundle for good."""
    for there in (b'{"files": {"data.h5": {"sha256": "00"}}}', b"no json"):
        async with open_rig() as rig, rig.conveyor() as conveyor:
            rig.hub.foreign_commit(REPOSITORY, {f"staged/b1/{INVENTORY}": there})
            ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
            with pytest.raises(NotDelivered, match="REMOTE_DIFFERS"):
                await ticket.wait_delivered(within_s=10)
            assert rig.hub.content(REPOSITORY, f"staged/b1/{INVENTORY}") == there
            assert rig.landed() == []


async def test_two_different_bundles_for_one_folder_never_share_a_commit() -> None:
    """Section 5.6: the second one finds the first and is different; it must not slip into the same commit."""
    async with open_rig() as rig:
        rig.hub.credential = "missing"
        async with rig.conveyor() as conveyor:
            first = await rig.hand_over_bundle(conveyor, rig.bundle("b1", {"data.h5": b"one"}))
            second = await rig.hand_over_bundle(conveyor, rig.bundle("b1", {"data.h5": b"two"}))
            rig.hub.credential = "write"
            await first.wait_delivered(within_s=20)
            with pytest.raises(NotDelivered, match="REMOTE_DIFFERS"):
                await second.wait_delivered(within_s=60)
        assert rig.hub.content(REPOSITORY, "staged/b1/data.h5") == b"one"


async def test_outputs_that_were_deleted_are_restored() -> None:
    """Finding W14: the inventory alone is no proof; missing outputs are committed again."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        request = rig.bundle()
        inventory = rig.files._files[f"/build/b1/{INVENTORY}"]
        rig.hub.foreign_commit(REPOSITORY, {f"staged/b1/{INVENTORY}": inventory})
        receipt = await (await rig.hand_over_bundle(conveyor, request)).wait_delivered(within_s=10)
        assert receipt.status is BundleStatus.UPLOADED
        assert rig.hub.content(REPOSITORY, "staged/b1/data.h5") == b"data of b1"


async def test_a_bundle_whose_file_is_missing_waits_for_it() -> None:
    """Section 5.6: a missing file keeps the bundle pending with `PRESERVED_FILES_MISSING`; attempts grow."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        request = rig.bundle("b1", {"large.h5": b"large"})
        content = rig.files._files["/build/b1/large.h5"]
        handover_id = await rig.record_bundle(request, by_path=["large.h5"], store=rig.view())
        rig.files.remove("/build/b1/large.h5")
        await anyio.sleep(10)
        receipt = await conveyor.handover_receipt(handover_id)
        assert receipt is not None
        assert (receipt.status, receipt.error_code) == (BundleStatus.PENDING, DeliveryCode.PRESERVED_FILES_MISSING)
        assert 1 <= receipt.attempts <= 3
        rig.files.write("/build/b1/large.h5", content)
        await anyio.sleep(10)
        receipt = await conveyor.handover_receipt(handover_id)
        assert receipt is not None
        assert receipt.status is BundleStatus.UPLOADED


@pytest.mark.parametrize("changed", [b"LARGE", b"larger"])
async def test_a_bundle_whose_bytes_changed_fails_for_good(changed: bytes) -> None:
    """Section 5.6: another size or digest is final `PRESERVED_BYTES_CHANGED`, and nothing of it is committed."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        request = rig.bundle("b1", {"large.h5": b"large"})
        handover_id = await rig.record_bundle(request, by_path=["large.h5"], store=rig.view())
        rig.files.write("/build/b1/large.h5", changed)
        await anyio.sleep(10)
        receipt = await conveyor.handover_receipt(handover_id)
        assert receipt is not None
        assert (receipt.status, receipt.error_code) == (BundleStatus.FAILED, DeliveryCode.PRESERVED_BYTES_CHANGED)
        assert rig.landed() == []


async def test_bytes_that_change_between_hashing_and_upload_are_never_sent_under_the_old_name() -> None:
    """Finding W15: the adapter compares what it read; the bundle fails for good."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        request = rig.bundle("b1", {"large.h5": b"large"})
        rig.files.write_while_hashed("/build/b1/large.h5", b"LARGE")
        handover_id = await rig.record_bundle(request, by_path=["large.h5"], store=rig.view())
        await anyio.sleep(10)
        receipt = await conveyor.handover_receipt(handover_id)
        assert receipt is not None
        assert receipt.error_code is DeliveryCode.PRESERVED_BYTES_CHANGED
        assert rig.landed() == []


async def test_run_files_are_committed_while_a_slow_bundle_of_the_same_repository_uploads() -> None:
    """Finding W19: an upload holds no commit slot; only the bundle's final commit takes it."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=600))
        bundle = await rig.hand_over_bundle(conveyor, rig.bundle())
        for number in range(10):
            await anyio.sleep(15)
            await (await rig.hand_over(conveyor, {"a": b"%d" % number}, flush=True)).wait_delivered(within_s=1)
        assert (await bundle.read_receipt()).status is BundleStatus.PENDING
        await bundle.wait_delivered(within_s=600)
        assert min(gaps_s(rig.landed())) >= 10


async def test_ready_bundles_share_one_commit_and_each_gets_its_own_receipt() -> None:
    """At most one commit per repository and cycle, however many bundles are ready."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        tickets = [await rig.hand_over_bundle(conveyor, rig.bundle(f"b{number}")) for number in range(6)]
        receipts = [await ticket.wait_delivered(within_s=30) for ticket in tickets]
        assert len(rig.landed()) == 2
        assert {receipt.revision for receipt in receipts} == {rig.landed()[-1].commit_id}
        assert rig.landed()[-1].title.startswith("Stage 6 bundles: b0, b1")


async def test_more_bundles_than_are_prepared_at_once_all_arrive() -> None:
    """Claims are bounded; as bundles are settled further ones are claimed, oldest first (W20)."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        tickets = [await rig.hand_over_bundle(conveyor, rig.bundle(f"b{number:02}")) for number in range(40)]
        for ticket in tickets:
            await ticket.wait_delivered(within_s=60)
        assert 3 <= len(rig.landed()) <= 5


async def test_a_conflict_looks_again_before_the_bundle_is_committed() -> None:
    """Finding W12: another bundle of the same name that lands in between is not overwritten."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(
            Fault(HubCall.COMMIT, FaultEffect.FOREIGN_COMMIT, files={f"staged/b1/{INVENTORY}": b'{"files": {}}'})
        )
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        with pytest.raises(NotDelivered, match="REMOTE_DIFFERS"):
            await ticket.wait_delivered(within_s=30)
        assert rig.landed() == []


async def test_conflicts_of_bundles_are_charged_to_nobody() -> None:
    """N-HUB-02 for bundles: a head that moves all the time costs no attempts, and nothing is uploaded again."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, times=12, outcome=moved()))
        receipt = await (await rig.hand_over_bundle(conveyor, rig.bundle())).wait_delivered(within_s=120)
        assert receipt.attempts == 1
        assert len(rig.hub.calls_of(HubCall.UPLOAD)) == 1


async def test_a_lost_answer_of_a_bundle_is_looked_up_and_it_is_uploaded_not_already_staged() -> None:
    """Finding W4: settled as landed with its own commit id, one attempt, one commit (N-HUB-03)."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
        receipt = await (await rig.hand_over_bundle(conveyor, rig.bundle())).wait_delivered(within_s=30)
        (commit,) = rig.landed()
        assert (receipt.status, receipt.revision, receipt.attempts) == (BundleStatus.UPLOADED, commit.commit_id, 1)


async def test_a_bundle_commit_that_stays_unknown_is_settled_later_and_frees_its_bundle() -> None:
    """Section 12: not landed after all: the bundle is committed by the next attempt, without being claimed anew."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_REQUEST))
        rig.hub.fault(Fault(HubCall.RECENT_COMMITS, FaultEffect.REFUSE, times=12, outcome=DOWN))
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(100)
        rig.hub.foreign_commit(REPOSITORY, {"foreign.txt": b"f"})
        await ticket.wait_delivered(within_s=600)
        assert len(rig.landed()) == 1
        assert len(rig.hub.calls_of(HubCall.UPLOAD)) == 1


async def test_a_restart_goes_on_at_the_object_where_it_stopped() -> None:
    """N-HUB-07: of 40 objects 25 are reported done; after the restart at most 15 are sent, and none is hashed again."""
    async with open_rig() as rig:
        names = [f"o{number:02}.h5" for number in range(40)]
        request = rig.bundle("b1", {name: name.encode() for name in names})
        for name in names[25:]:
            rig.hub.fault(Fault(HubCall.UPLOAD, path=f"staged/b1/{name}", before_s=3000))
        await rig.record_bundle(request, by_path=names, store=rig.view())
        async with rig.conveyor(shutdown_s=1):
            await anyio.sleep(10)
        assert sum(call.end == "done" for call in rig.hub.calls_of(HubCall.UPLOAD)) == 25
        hashed = dict(rig.files.readings)
        rig.hub.script.clear()
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=60)).waiting == 0
        assert len(rig.hub.calls_of(HubCall.UPLOAD)) == 40 + 15
        for name in names[:25]:
            # Only the sample for preupload is read of what is on the Hub already.
            assert rig.files.readings[f"/build/b1/{name}"] <= hashed[f"/build/b1/{name}"] + 1


async def test_a_bundle_that_the_hub_refuses_does_not_hold_up_those_beside_it() -> None:
    """N-HUB-05: named or not, only the cause is postponed; the others of its commit arrive."""
    for outcome in (refused(400, "staged/b2/data.h5"), refused(413)):
        async with open_rig() as rig, rig.conveyor() as conveyor:
            rig.hub.fault(
                Fault(HubCall.COMMIT, FaultEffect.REFUSE, path="staged/b2/data.h5", times=None, outcome=outcome)
            )
            await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
            tickets = [await rig.hand_over_bundle(conveyor, rig.bundle(f"b{number}")) for number in range(4)]
            for number in (0, 1, 3):
                await tickets[number].wait_delivered(within_s=120)
            waiting = await tickets[2].read_receipt()
            assert (waiting.status, waiting.error_code) == (BundleStatus.PENDING, DeliveryCode.UPLOAD_FAILED)
            await (await rig.hand_over(conveyor, {"a": b"2"}, flush=True)).wait_delivered(within_s=25)


async def test_a_hub_that_cannot_say_what_it_holds_postpones_the_bundle() -> None:
    """Section 5.6, step 2: pending `REPOSITORY_UNAVAILABLE`, tried again after min(300, 2^attempts) seconds."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.PATHS_INFO, FaultEffect.REFUSE, times=3, outcome=DOWN))
        began = anyio.current_time()
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(1)
        assert (await ticket.read_receipt()).error_code is DeliveryCode.REPOSITORY_UNAVAILABLE
        receipt = await ticket.wait_delivered(within_s=60)
        assert anyio.current_time() - began == pytest.approx(2 + 4 + 8, abs=0.5)
        assert receipt.attempts == 4


async def test_copies_in_memory_are_bounded_over_all_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: copies that wait for their upload are not all read at once, however many bundles are claimed."""
    size_bytes = 100_000
    monkeypatch.setattr(delivery_world, "UPLOADED_COPIES_BYTES", 5 * size_bytes + 10)
    async with open_rig(MemoryHubOptions(upload_bytes_per_s=size_bytes)) as rig, rig.conveyor() as conveyor:
        rig.hub.credential = "missing"
        tickets = []
        for number in range(6):
            files = {f"o{part}.h5": bytes([number, part]) * (size_bytes // 2) for part in range(3)}
            repository = (REPOSITORY, OTHER)[number % 2]
            request = rig.bundle(f"b{number}", files, repository=repository)
            tickets.append(await rig.hand_over_bundle(conveyor, request))
        rig.hub.credential = "write"
        most = 0
        for _ in range(80):
            await anyio.sleep(0.1)
            most = max(most, sum(call.end == "running" for call in rig.hub.calls_of(HubCall.UPLOAD)))
        for ticket in tickets:
            await ticket.wait_delivered(within_s=120)
        assert most == 5


async def test_a_bundle_that_the_hub_refuses_is_named_and_tried_again_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """N-HUB-05: a refusal before the commit is said once, with bundle and status, and does not spin."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.PREUPLOAD, FaultEffect.REFUSE, times=None, outcome=refused(400)))
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(3600)
        (said,) = [record.getMessage() for record in caplog.records if "bundle-refused" in record.getMessage()]
        assert ticket.receipt.handover_id in said
        assert "HTTP 400" in said
        assert 5 <= len(rig.hub.calls_of(HubCall.PREUPLOAD)) <= 25
        rig.hub.script.clear()
        assert (await ticket.wait_delivered(within_s=310)).status is BundleStatus.UPLOADED
