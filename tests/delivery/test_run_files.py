"""Run files from the hand-over to the Hub (hand-over protocol, sections 5.4 and 5.5), in virtual time."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors.store_operations import ReadStatus
from conveyor.protocol.digests import digest_bytes
from conveyor.runtime.adapters.memory_hub_faults import Fault, HubCall
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from tests.support.delivery import REPOSITORY, gaps_s, on_one_loop, open_rig

pytestmark = pytest.mark.anyio

STATE = "runs/r1/state.json"


async def test_what_arrives_equals_what_was_handed_over_with_the_recorded_hash() -> None:
    """N-HUB-06: the far side holds one consistent version, and its digest is the one the store recorded."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        content = bytes(range(256)) * 300
        ticket = await rig.hand_over(conveyor, {"a.bin": content, "empty.txt": b""})
        receipt = await ticket.wait_delivered(within_s=60)
        assert receipt.files_committed == 2
        assert rig.hub.content(REPOSITORY, "runs/r1/a.bin") == content
        assert rig.hub.content(REPOSITORY, "runs/r1/empty.txt") == b""
        (commit,) = rig.landed()
        assert commit.changed["runs/r1/a.bin"].digests == digest_bytes(content)
        assert (await conveyor.read_back_run_files(REPOSITORY, "r1")).status == "passed"


async def test_the_first_hand_over_is_due_at_once_and_the_next_an_interval_after_the_commit() -> None:
    """Section 5.4: due at `max(t, last commit + interval)`; without a commit from this store, at once."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        began = anyio.current_time()
        await (await rig.hand_over(conveyor, {"state.json": b"1"})).wait_delivered(within_s=1)
        await anyio.sleep(3)
        await (await rig.hand_over(conveyor, {"state.json": b"2"})).wait_delivered(within_s=60)
        assert [commit.at_s - began for commit in rig.landed()] == pytest.approx([0, 30], abs=0.3)


async def test_a_flush_is_due_now_and_waits_only_for_the_spacing() -> None:
    """Section 5.4: a flush hastens everything that its run has pending, and nothing of other runs."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        began = anyio.current_time()
        waiting = await rig.hand_over(conveyor, {"b": b"2"}, interval_s=3600)
        await rig.hand_over(conveyor, {"c": b"3"}, interval_s=3600, flush=True)
        await waiting.wait_delivered(within_s=60)
        assert anyio.current_time() - began == pytest.approx(10, abs=0.3)


async def test_one_commit_carries_every_pending_path_of_every_run_due_or_not() -> None:
    """Section 5.5: one commit per repository and cycle; the title names the runs; counters are those of each run."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"x": b"0"}, run_id="r0")).wait_delivered()
        late = await rig.hand_over(conveyor, {"b": b"2"}, run_id="r2", interval_s=3600)
        await rig.hand_over(conveyor, {"a1": b"1", "a2": b"1"}, run_id="r1", flush=True)
        receipt = await late.wait_delivered(within_s=60)
        commit = rig.landed()[-1]
        assert commit.title == "Stage run files for r1, r2"
        assert sorted(commit.changed) == ["runs/r1/a1", "runs/r1/a2", "runs/r2/b"]
        assert (receipt.files_attempted, receipt.files_committed, receipt.commit_attempts, receipt.commits) == (
            1,
            1,
            1,
            1,
        )
        assert receipt.last_commit == commit.commit_id
        first = await conveyor.run_files_receipt(REPOSITORY, "r1")
        assert (first.files_committed, first.commits, first.pending_files) == (2, 1, 0)


async def test_equal_bytes_are_not_committed_again() -> None:
    """Section 5.4: bytes equal to those last committed do nothing, and whoever waits for them is answered."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"state.json": b"same"})).wait_delivered()
        await (await rig.hand_over(conveyor, {"state.json": b"same"}, flush=True)).wait_delivered(within_s=0.1)
        await anyio.sleep(120)
        assert len(rig.landed()) == 1


async def test_bytes_that_the_hub_already_holds_are_settled_without_a_commit() -> None:
    """Finding W48: no commit is made, counted or spaced for content that another writer has put there."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.foreign_commit(REPOSITORY, {STATE: b"there"})
        receipt = await (await rig.hand_over(conveyor, {"state.json": b"there"})).wait_delivered(within_s=10)
        assert rig.landed() == []
        assert (receipt.pending_files, receipt.commits) == (0, 0)
        await (await rig.hand_over(conveyor, {"state.json": b"newer"})).wait_delivered(within_s=1)


@on_one_loop("trio")
async def test_a_file_rewritten_ten_times_a_second_costs_seven_commits_a_minute() -> None:
    """N-HUB-08: 2 KB every 100 ms for a minute; at most 7 commits, the last content, every awaiter answered."""
    async with open_rig() as rig, rig.conveyor() as conveyor, anyio.create_task_group() as awaiters:
        began = anyio.current_time()
        answered = []

        async def wait(number: int) -> None:
            ticket = await rig.hand_over(conveyor, {"state.json": f"{number:2048}".encode()}, interval_s=10)
            awaiters.start_soon(note, ticket.wait_delivered, number)

        async def note(wait_delivered: object, number: int) -> None:
            await wait_delivered()  # type: ignore[operator]
            answered.append(number)

        for number in range(600):
            await wait(number)
            await anyio.sleep(began + (number + 1) * 0.1 - anyio.current_time())
        with anyio.fail_after(30):
            while len(answered) < 600:
                await anyio.sleep(1)
        assert len(rig.landed()) <= 7
        assert rig.hub.content(REPOSITORY, STATE) == f"{599:2048}".encode()


async def test_coalescing_drops_no_path_and_never_the_newest_content() -> None:
    """N-HUB-10: three checkpoints and five versions of latest.json while a commit is in flight for 30 s."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, before_s=30))
        await rig.hand_over(conveyor, {"first": b"-"})
        await anyio.sleep(1)
        for number in range(1, 4):
            await rig.hand_over(conveyor, {f"ckpt-{number}": b"c%d" % number})
        for number in range(1, 6):
            ticket = await rig.hand_over(conveyor, {"latest.json": b"v%d" % number})
        await ticket.wait_delivered(within_s=120)
        for number in range(1, 4):
            assert rig.hub.content(REPOSITORY, f"runs/r1/ckpt-{number}") == b"c%d" % number
        assert rig.hub.content(REPOSITORY, "runs/r1/latest.json") == b"v5"
        assert len(rig.landed()) == 2


async def test_bytes_handed_over_during_a_commit_are_due_one_interval_after_it() -> None:
    """Finding W5: unforced bytes of a path that is in a commit do not inherit the old due time."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, before_s=5))
        await rig.hand_over(conveyor, {"state.json": b"1"}, interval_s=60)
        await anyio.sleep(2)
        await (await rig.hand_over(conveyor, {"state.json": b"2"}, interval_s=60)).wait_delivered(within_s=120)
        assert gaps_s(rig.landed()) == pytest.approx([60], abs=0.3)


async def test_a_flush_during_a_commit_is_remembered_with_its_path() -> None:
    """Finding W6: the committed bytes, flushed again while others are in a commit, go right after the spacing."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"state.json": b"X"}, interval_s=3600)).wait_delivered()
        await anyio.sleep(20)
        rig.hub.fault(Fault(HubCall.COMMIT, before_s=5))
        await rig.hand_over(conveyor, {"state.json": b"Y"}, interval_s=3600, flush=True)
        await anyio.sleep(2)
        back = await rig.hand_over(conveyor, {"state.json": b"X"}, interval_s=3600, flush=True)
        await back.wait_delivered(within_s=60)
        assert [commit.changed[STATE].content for commit in rig.landed()] == [b"X", b"Y", b"X"]
        assert gaps_s(rig.landed())[-1] == pytest.approx(10, abs=0.3)


async def test_more_than_one_commit_may_carry_goes_over_several_cycles() -> None:
    """Finding W11: operations and bytes of one request are bounded; what waited longest goes first."""
    async with open_rig() as rig, rig.conveyor(commit_max_operations=11) as conveyor:
        ticket = await rig.hand_over(conveyor, {f"f{number:02}": b"%d" % number for number in range(25)}, flush=True)
        await ticket.wait_delivered(within_s=60)
        assert [len(commit.changed) for commit in rig.landed()] == [10, 10, 5]
        assert gaps_s(rig.landed()) == pytest.approx([10, 10], abs=0.3)


async def test_content_in_one_commit_is_bounded_by_bytes_also_where_it_goes_as_an_object() -> None:
    """Finding W11: what a cycle holds in memory is bounded by the setting, whatever mode the Hub chooses."""
    size_bytes = 4 * 1024 * 1024
    async with open_rig() as rig, rig.conveyor(commit_max_bytes=10 * 1024 * 1024) as conveyor:
        ticket = await rig.hand_over(
            conveyor, {f"f{number}.bin": bytes([number]) * size_bytes for number in range(5)}, flush=True
        )
        await ticket.wait_delivered(within_s=60)
        assert [len(commit.changed) for commit in rig.landed()] == [2, 2, 1]


async def test_a_file_that_the_hub_wants_as_an_object_is_uploaded_before_its_commit() -> None:
    """Hub API notes, section 4: the Hub alone decides how a file goes; run files may be LFS files too."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"w.npz": b"weights", "t.txt": b"text"})).wait_delivered(within_s=10)
        (commit,) = rig.landed()
        assert commit.changed["runs/r1/w.npz"].is_lfs
        assert not commit.changed["runs/r1/t.txt"].is_lfs
        assert [call.paths for call in rig.hub.calls_of(HubCall.UPLOAD)] == [("runs/r1/w.npz",)]


async def test_totals_add_up_at_each_moment_of_a_busy_minute() -> None:
    """N-UX-03: accepted = delivered + superseded + parked + waiting, whenever one looks."""
    async with open_rig(MemoryHubOptions(latency_s=0.3)) as rig, rig.conveyor() as conveyor:
        for number in range(40):
            await rig.hand_over(
                conveyor, {"state.json": b"%d" % (number // 2)}, interval_s=5, entry={"run_id": "r1", "n": number // 3}
            )
            await anyio.sleep(0.7)
            await rig.status()
        await conveyor.drain(within_s=120)
        status = await rig.store.query(ReadStatus(rig.clock.unix_s(), 3600.0))
        assert (status.waiting, status.parked) == (0, 0)
