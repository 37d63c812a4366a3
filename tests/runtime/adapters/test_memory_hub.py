"""The Hub in memory: its time, its records and its faults, beyond the promises that every Hub keeps."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors.ports import BytesSource, CommitRequest
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.outcome import HubError, Outcome, OutcomeKind
from conveyor.runtime.adapters.memory_hub import MemoryHub
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall, rate_limited
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from tests.support.hub_arenas import commit_request

pytestmark = pytest.mark.anyio

REPOSITORY = "acme/data"


def hub_with(**options: float) -> MemoryHub:
    """A Hub with one repository."""
    return MemoryHub(MemoryHubOptions(**options), repositories=[REPOSITORY])  # type: ignore[arg-type]


async def request_on_head(hub: MemoryHub, content: bytes = b"a", path: str = "a.txt") -> CommitRequest:
    """A commit on the present head."""
    return commit_request(REPOSITORY, await hub.head(REPOSITORY), {path: content})


async def outcome_of_commit(hub: MemoryHub, request: CommitRequest) -> Outcome:
    """What a commit that has to fail came to."""
    with pytest.raises(HubError) as caught:
        await hub.commit(request)
    return caught.value.outcome


async def test_commits_are_recorded_with_their_time() -> None:
    """Each landed commit keeps when it took effect: half a latency after the call."""
    hub = hub_with(latency_s=2.0)
    request = await request_on_head(hub)
    started_s = anyio.current_time()
    commit = await hub.commit(request)
    assert anyio.current_time() == started_s + 2.0
    landed = hub.landed(REPOSITORY)
    assert [(row.commit_id, row.at_s, row.parent) for row in landed] == [(commit, started_s + 1.0, request.parent)]
    assert hub.content(REPOSITORY, "a.txt") == b"a"
    assert hub.landed() == landed
    assert [row.end for row in hub.calls_of(HubCall.COMMIT)] == ["done"]


async def test_uploads_are_recorded_at_their_start() -> None:
    """Every upload start is there with its time, also of one that was cancelled."""
    hub = hub_with(upload_bytes_per_s=10.0)
    source = BytesSource(digest_bytes(b"x" * 100), b"x" * 100)
    told: list[int] = []
    with anyio.move_on_after(5.0):
        await hub.upload_object(REPOSITORY, "x.bin", source, told.append)
    assert 0 < sum(told) < 100
    await hub.upload_object(REPOSITORY, "x.bin", source, told.append)
    first, second = hub.calls_of(HubCall.UPLOAD, REPOSITORY)
    assert (first.end, second.end) == ("cancelled", "done")
    assert second.started_s == first.started_s + 5.0
    assert second.ended_s is not None
    assert second.ended_s - second.started_s == pytest.approx(10.0)


@pytest.mark.parametrize(("leave_after_s", "lands"), [(0.5, False), (1.5, True)])
async def test_cancelled_commit(leave_after_s: float, lands: bool) -> None:
    """Cancelled before its effect a commit does not land; cancelled after it, it stands."""
    hub = hub_with(latency_s=2.0)
    request = await request_on_head(hub)
    with anyio.move_on_after(leave_after_s):
        await hub.commit(request)
    assert bool(hub.landed()) is lands
    assert hub.calls_of(HubCall.COMMIT)[0].end == "cancelled"


async def test_one_commit_at_a_time() -> None:
    """While one commit is worked on, another of the repository gets 409."""
    hub = hub_with(commit_s=10.0)
    request = await request_on_head(hub)
    async with anyio.create_task_group() as group:
        group.start_soon(hub.commit, request)
        await anyio.sleep(5.0)
        outcome = await outcome_of_commit(hub, commit_request(REPOSITORY, request.parent, {"b.txt": b"b"}))
    assert (outcome.kind, outcome.same_parent) == (OutcomeKind.CONFLICT, True)
    assert len(hub.landed()) == 1


async def test_commit_that_lands_late_and_one_that_cannot() -> None:
    """A late commit lands at its time, unless the head has moved by then."""
    hub = hub_with()
    hub.fault(Fault(HubCall.COMMIT, FaultEffect.LAND_LATE, late_s=30.0))
    request = await request_on_head(hub)
    started_s = anyio.current_time()
    assert (await outcome_of_commit(hub, request)).kind is OutcomeKind.UNKNOWN
    await anyio.sleep(29.0)
    assert hub.landed() == []
    await anyio.sleep(2.0)
    assert [row.at_s for row in hub.landed()] == [started_s + 30.0]
    hub.fault(Fault(HubCall.COMMIT, FaultEffect.LAND_LATE, late_s=30.0))
    assert (await outcome_of_commit(hub, await request_on_head(hub, b"b"))).kind is OutcomeKind.UNKNOWN
    hub.foreign_commit(REPOSITORY, {"c.txt": b"c"})
    await anyio.sleep(60.0)
    assert len(hub.landed()) == 1
    assert hub.content(REPOSITORY, "a.txt") == b"a"


async def test_foreign_commit_comes_in_between() -> None:
    """Another writer's commit lands first and makes a conflict."""
    hub = hub_with()
    hub.fault(Fault(HubCall.COMMIT, FaultEffect.FOREIGN_COMMIT, files={"theirs.txt": b"theirs"}))
    request = await request_on_head(hub)
    assert (await outcome_of_commit(hub, request)).kind is OutcomeKind.CONFLICT
    assert hub.content(REPOSITORY, "theirs.txt") == b"theirs"
    assert hub.landed() == []


async def test_quota_by_the_hour() -> None:
    """The commits of an hour are counted; a refusal says when there is room again."""
    hub = hub_with(commits_per_hour=2)
    for number in range(2):
        await hub.commit(await request_on_head(hub, b"%d" % number))
        await anyio.sleep(100.0)
    outcome = await outcome_of_commit(hub, await request_on_head(hub, b"more"))
    assert (outcome.status, outcome.retry_after_s) == (429, 3400.0)
    await anyio.sleep(3400.0)
    await hub.commit(await request_on_head(hub, b"more"))


async def test_which_calls_a_fault_meets() -> None:
    """A fault meets the calls of its kind, repository and path, after those it skips, so many times."""
    hub = MemoryHub(repositories=[REPOSITORY, "acme/other"])
    outcome = rate_limited(5.0)
    hub.fault(
        Fault(HubCall.HEAD, FaultEffect.REFUSE, REPOSITORY, skip=1, times=2, outcome=outcome),
        Fault(HubCall.DOWNLOAD, FaultEffect.LOSE_ANSWER, path="b.txt", times=None),
    )
    found = []
    for _ in range(5):
        assert await hub.head("acme/other")
        try:
            await hub.head(REPOSITORY)
            found.append("done")
        except HubError as error:
            found.append(str(error.outcome.status))
    assert found == ["done", "429", "429", "done", "done"]
    assert await hub.download(REPOSITORY, "main", "a.txt", max_bytes=1) is None
    for _ in range(3):
        with pytest.raises(HubError):
            await hub.download(REPOSITORY, "main", "b.txt", max_bytes=1)
    hub.script.clear()
    assert await hub.download(REPOSITORY, "main", "b.txt", max_bytes=1) is None


async def test_delays() -> None:
    """A fault may only take time, before the effect and after it."""
    hub = hub_with()
    hub.fault(Fault(HubCall.COMMIT, before_s=7.0, after_s=5.0))
    request = await request_on_head(hub)
    started_s = anyio.current_time()
    await hub.commit(request)
    assert anyio.current_time() == started_s + 12.0
    assert hub.landed()[0].at_s == started_s + 7.0


async def test_stalled_upload_leaves_a_thread_for_a_while() -> None:
    """A stalled upload is given up at the limit, and its thread lingers as long as the fault says."""
    hub = hub_with(stall_s=120.0)
    hub.fault(Fault(HubCall.UPLOAD, FaultEffect.STALL, late_s=60.0))
    started_s = anyio.current_time()
    with pytest.raises(HubError):
        await hub.upload_object(REPOSITORY, "x.bin", BytesSource(digest_bytes(b"x"), b"x"), lambda _: None)
    assert anyio.current_time() == started_s + 120.0
    assert hub.unfinished_threads(REPOSITORY) == 1
    assert hub.unfinished_threads("acme/other") == 0
    await anyio.sleep(61.0)
    assert hub.unfinished_threads(REPOSITORY) == 0


async def test_files_are_read_where_it_is_told() -> None:
    """A simulation may keep its local files in memory, too."""
    from conveyor.actors.ports import FileSource

    files = {"/virtual/x.bin": b"content"}
    hub = MemoryHub(repositories=[REPOSITORY], read_file=files.__getitem__)
    source = FileSource(digest_bytes(b"content"), "/virtual/x.bin")
    await hub.upload_object(REPOSITORY, "x.bin", source, lambda _: None)
    head = await hub.head(REPOSITORY)
    await hub.commit(commit_request(REPOSITORY, head, {}, {"x.bin": b"content"}))
    assert hub.content(REPOSITORY, "x.bin") == b"content"


async def test_refused_path() -> None:
    """A path that is refused for good is named by each commit that carries it."""
    hub = hub_with()
    hub.refused_paths.add("bad.txt")
    outcome = await outcome_of_commit(hub, await request_on_head(hub, path="bad.txt"))
    assert (outcome.kind, outcome.paths) == (OutcomeKind.REFUSED_ITEM, ("bad.txt",))


async def test_repositories_come_and_go() -> None:
    """A repository may be made and removed at any time."""
    hub = MemoryHub()
    with pytest.raises(HubError):
        await hub.head(REPOSITORY)
    hub.create_repository(REPOSITORY)
    head = await hub.head(REPOSITORY)
    hub.create_repository(REPOSITORY)
    assert await hub.head(REPOSITORY) == head
    hub.delete_repository(REPOSITORY)
    with pytest.raises(HubError):
        await hub.head(REPOSITORY)


async def test_same_history_has_the_same_ids() -> None:
    """A history that is played again has the same commit ids, so that simulations can be compared."""
    ids = []
    for _ in range(2):
        hub = hub_with()
        ids.append([await hub.commit(await request_on_head(hub, b"%d" % number)) for number in range(3)])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3
