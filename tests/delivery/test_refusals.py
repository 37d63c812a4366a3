"""What can never be committed holds up nothing else, and nothing spins on it (W1, W2, W7, W8; N-HUB-05)."""

from __future__ import annotations

import json

import anyio
import pytest

from conveyor.actors.store_operations import ListParked, RetryParked
from conveyor.protocol.receipts import DeliveryCode
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall, refused
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from tests.support.delivery import REPOSITORY, open_rig
from tests.support.stores import write

pytestmark = pytest.mark.anyio

INDEX = "runs.json"


async def test_a_path_that_the_repository_ignores_is_set_aside_and_named() -> None:
    """Finding W8: it is neither recorded as committed nor tried for ever; later files are not held up."""
    async with open_rig(MemoryHubOptions(ignore_patterns=("*.log",))) as rig, rig.conveyor() as conveyor:
        await rig.hand_over(conveyor, {"a.txt": b"1", "b.log": b"2"})
        await anyio.sleep(600)
        (parked,) = await rig.store.query(ListParked(REPOSITORY))
        assert parked.path == "runs/r1/b.log"
        assert ".gitignore" in parked.reason
        assert len(rig.hub.calls_of(HubCall.PREUPLOAD)) == 1
        receipt = await conveyor.run_files_receipt(REPOSITORY, "r1")
        assert (receipt.files_committed, receipt.pending_files) == (1, 0)
        await (await rig.hand_over(conveyor, {"a.txt": b"3"}, flush=True)).wait_delivered(within_s=1)
        assert (await rig.status()).parked == 1


async def test_one_refused_file_of_a_hundred_is_parked_and_the_others_arrive() -> None:
    """N-HUB-05: the Hub names the file; 99 arrive at once, one is parked with its reason."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.refused_paths.add("runs/r1/f42")
        await rig.hand_over(conveyor, {f"f{number}": b"%d" % number for number in range(100)})
        await anyio.sleep(30)
        (parked,) = await rig.store.query(ListParked(REPOSITORY))
        assert parked.path == "runs/r1/f42"
        assert "400" in parked.reason
        assert [len(commit.changed) for commit in rig.landed()] == [99]


async def test_a_refused_file_that_the_hub_does_not_name_is_found_in_few_commits() -> None:
    """N-HUB-05: without a name fewer files go at a time until it is found; the number of commits is bounded."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        bad = "runs/r1/f042"
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, path=bad, times=None, outcome=refused(413)))
        await rig.hand_over(conveyor, {f"f{number:03}": b"%d" % number for number in range(100)})
        await anyio.sleep(600)
        assert [parked.path for parked in await rig.store.query(ListParked(REPOSITORY))] == [bad]
        assert sum(len(commit.changed) for commit in rig.landed()) == 99
        assert len(rig.hub.calls_of(HubCall.COMMIT)) <= 24
        await rig.hand_over(conveyor, {f"g{number:03}": b"%d" % number for number in range(100)}, flush=True)
        await anyio.sleep(120)
        assert sum(len(commit.changed) for commit in rig.landed()) == 199


async def test_a_parked_file_is_tried_again_when_asked_or_handed_over_again() -> None:
    """Finding W7: handing it over again brings it back, as does a retry."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.refused_paths.update({"runs/r1/a", "runs/r1/b"})
        await rig.hand_over(conveyor, {"a": b"1", "b": b"1"})
        await anyio.sleep(30)
        assert (await rig.status()).parked == 2
        rig.hub.refused_paths.clear()
        await (await rig.hand_over(conveyor, {"a": b"1"}, flush=True)).wait_delivered(within_s=15)
        await write(rig.view(), RetryParked(REPOSITORY, rig.clock.unix_s()))
        await anyio.sleep(30)
        assert rig.hub.content(REPOSITORY, "runs/r1/b") == b"1"
        assert (await rig.status()).parked == 0


async def test_entries_are_merged_into_the_index_at_the_pinned_head() -> None:
    """Section 5.5: `runs.json` keeps the other runs, replaces this one's, and is committed with the files."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        old = {"schema_version": 1, "runs": [{"run_id": "r0", "n": 0}, {"run_id": "r1", "n": 0}]}
        rig.hub.foreign_commit(REPOSITORY, {INDEX: json.dumps(old).encode()})
        ticket = await rig.hand_over(conveyor, {"a": b"1"}, entry={"run_id": "r1", "n": 1})
        receipt = await ticket.wait_delivered(within_s=10)
        assert (receipt.pending_files, receipt.files_committed, receipt.commits) == (0, 1, 1)
        content = rig.hub.content(REPOSITORY, INDEX)
        assert content is not None
        assert json.loads(content)["runs"] == [{"run_id": "r1", "n": 1}, {"run_id": "r0", "n": 0}]
        assert sorted(rig.landed()[0].changed) == ["runs.json", "runs/r1/a"]


async def test_a_conflict_merges_the_index_again_at_the_new_head() -> None:
    """Section 5.5: another writer's run, landed in between, is kept."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        other = {"schema_version": 1, "runs": [{"run_id": "x"}]}
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.FOREIGN_COMMIT, files={INDEX: json.dumps(other).encode()}))
        ticket = await rig.hand_over(conveyor, {}, entry={"run_id": "r1"})
        await ticket.wait_delivered(within_s=10)
        content = rig.hub.content(REPOSITORY, INDEX)
        assert content is not None
        assert {run["run_id"] for run in json.loads(content)["runs"]} == {"r1", "x"}


@pytest.mark.parametrize(
    "document", [b"not json", b"[]", b'{"runs": 1}', b'{"runs": ' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
async def test_an_unreadable_index_is_left_alone_while_files_go(
    document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Findings W1 and W2: never written over; its entries wait with an error; files are neither held up nor slowed."""
    async with open_rig() as rig, rig.conveyor(probe_interval_s=60) as conveyor:
        rig.hub.foreign_commit(REPOSITORY, {INDEX: document})
        ticket = await rig.hand_over(conveyor, {"a": b"0"}, entry={"run_id": "r1"})
        for number in range(1, 10):
            await anyio.sleep(20)
            files = await rig.hand_over(conveyor, {"a": b"%d" % number}, run_id="r2", flush=True)
            await files.wait_delivered(within_s=11)
        await anyio.sleep(3600)
        assert rig.hub.content(REPOSITORY, INDEX) == document
        assert len(rig.hub.calls_of(HubCall.DOWNLOAD)) < 35
        receipt = await ticket.read_receipt()
        assert (receipt.pending_files, receipt.last_error_code) == (1, DeliveryCode.UPLOAD_FAILED)
        assert sum("run-index-held" in record.getMessage() for record in caplog.records) == 1
        rig.hub.foreign_commit(REPOSITORY, {INDEX: b'{"runs": []}'})
        await ticket.wait_delivered(within_s=301)
        assert rig.hub.content(REPOSITORY, INDEX) != document


async def test_an_index_that_the_hub_refuses_holds_up_no_file() -> None:
    """N-HUB-05: the index is the cause, so no file is blamed; files go without it, entries wait."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.refused_paths.add(INDEX)
        ticket = await rig.hand_over(conveyor, {"a": b"1", "b": b"1"}, entry={"run_id": "r1"})
        for number in range(2, 9):
            await anyio.sleep(20)
            files = await rig.hand_over(conveyor, {"c": b"%d" % number}, run_id="r2", flush=True)
            await files.wait_delivered(within_s=25)
        assert (await rig.status()).parked == 0
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"1"
        rig.hub.refused_paths.clear()
        await ticket.wait_delivered(within_s=400)


async def test_an_index_that_the_repository_ignores_is_held() -> None:
    """Finding W8, for the index: it would be dropped without a word and its entries count as committed."""
    async with open_rig(MemoryHubOptions(ignore_patterns=("runs.json",))) as rig, rig.conveyor() as conveyor:
        ticket = await rig.hand_over(conveyor, {"a": b"1"}, entry={"run_id": "r1"})
        await anyio.sleep(1000)
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"1"
        assert (await ticket.read_receipt()).pending_files == 1
        assert len(rig.hub.calls_of(HubCall.DOWNLOAD)) < 15


async def _one_bad_of_many(call: HubCall, bad: str, suffix: str, *paths: str) -> None:
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(call, FaultEffect.REFUSE, path=bad, times=None, outcome=refused(400, *paths)))
        await rig.hand_over(conveyor, {f"f{number:02}{suffix}": b"%d" % number for number in range(21)})
        await anyio.sleep(30)
        (parked,) = await rig.store.query(ListParked(REPOSITORY))
        assert parked.path == bad
        assert "HTTP 400" in parked.reason
        assert [len(commit.changed) for commit in rig.landed()] == [20]
        assert len(rig.hub.calls_of(HubCall.PREUPLOAD)) <= 12
        await (await rig.hand_over(conveyor, {"later": b"1"}, flush=True)).wait_delivered(within_s=25)


@pytest.mark.parametrize("named", [(), ("runs/r1/f07",)], ids=["not named", "named"])
async def test_a_path_refused_before_the_commit_is_parked_and_the_others_arrive(named: tuple[str, ...]) -> None:
    """N-HUB-05: a path refused at the question how it goes; the other 20 arrive in one commit, without a backoff."""
    await _one_bad_of_many(HubCall.PREUPLOAD, "runs/r1/f07", "", *named)


async def test_an_object_refused_at_its_upload_is_parked_and_the_others_arrive() -> None:
    """N-HUB-05: an object that the Hub does not take; the other 20 arrive in one commit."""
    await _one_bad_of_many(HubCall.UPLOAD, "runs/r1/f07.bin", ".bin")


async def test_a_hub_that_refuses_every_question_is_asked_a_bounded_number_of_times() -> None:
    """N-HUB-05: all are parked in the end, with at most two questions for each, and nothing spins."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.PREUPLOAD, FaultEffect.REFUSE, times=None, outcome=refused(400)))
        await rig.hand_over(conveyor, {f"f{number:03}": b"%d" % number for number in range(100)})
        await anyio.sleep(600)
        assert (await rig.status()).parked == 100
        assert len(rig.hub.calls_of(HubCall.PREUPLOAD)) <= 250


async def test_an_index_refused_before_the_commit_holds_up_no_file() -> None:
    """N-HUB-05: the question for the index is refused, so entries wait and files go."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.PREUPLOAD, FaultEffect.REFUSE, path=INDEX, times=None, outcome=refused(400)))
        ticket = await rig.hand_over(conveyor, {"a": b"1"}, entry={"run_id": "r1"})
        await anyio.sleep(5)
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"1"
        assert (await rig.status()).parked == 0
        rig.hub.script.clear()
        await ticket.wait_delivered(within_s=400)
