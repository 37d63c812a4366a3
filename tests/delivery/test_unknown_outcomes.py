"""Commits whose answer was lost are looked up, never guessed (hub API notes, section 12; N-HUB-03, N-HUB-12)."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from conveyor.protocol.outcome import Outcome, OutcomeKind
from conveyor.protocol.work import HubCommit
from conveyor.runtime.adapters.memory_hub import MemoryHub
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall, refused
from tests.support.delivery import REPOSITORY, on_one_loop, open_rig

pytestmark = pytest.mark.anyio

STATE = "runs/r1/state.json"
DOWN = Outcome(OutcomeKind.TRANSIENT, "ConnectError")


async def test_a_commit_whose_answer_was_lost_is_found_and_not_made_again() -> None:
    """N-HUB-03: one commit for that batch, its own id in the receipt, one attempt counted (W4), spacing kept."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
        receipt = await (await rig.hand_over(conveyor, {"state.json": b"1"})).wait_delivered(within_s=10)
        (commit,) = rig.landed()
        assert (receipt.last_commit, receipt.commits, receipt.commit_attempts) == (commit.commit_id, 1, 1)
        assert len(rig.hub.calls_of(HubCall.COMMIT)) == 1
        assert len((await rig.agenda()).commits_unix_s) == 1


async def test_a_request_that_was_lost_is_sent_again_on_the_same_parent() -> None:
    """Section 12: while the head is still the parent it may land yet, so only the same request is repeated."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_REQUEST, times=2))
        parent = await rig.hub.head(REPOSITORY)
        receipt = await (await rig.hand_over(conveyor, {"state.json": b"1"})).wait_delivered(within_s=60)
        (commit,) = rig.landed()
        assert commit.parent == parent
        assert (receipt.commits, receipt.commit_attempts) == (1, 1)


async def test_a_lost_request_overtaken_by_another_writer_is_planned_again() -> None:
    """Section 12: head moved past the parent and none is mine: it can never land; plan anew on the new head."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LAND_LATE, late_s=30))
        ticket = await rig.hand_over(conveyor, {"state.json": b"1"})
        await anyio.sleep(0.1)
        rig.hub.foreign_commit(REPOSITORY, {"foreign.txt": b"f"})
        await ticket.wait_delivered(within_s=60)
        await anyio.sleep(60)
        (commit,) = rig.landed()
        assert rig.hub.content(REPOSITORY, "foreign.txt") == b"f"
        assert commit.changed[STATE].content == b"1"


@pytest.mark.parametrize("late_s", [0.5, 3.0, 20.0, 100.0])
async def test_a_request_that_the_server_still_works_on_lands_once(late_s: float) -> None:
    """Section 12: of all requests with one parent at most one lands, whoever wins: the late one or its repetition."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LAND_LATE, late_s=late_s))
        ticket = await rig.hand_over(conveyor, {"state.json": b"1"})
        await ticket.wait_delivered(within_s=300)
        await rig.hand_over(conveyor, {"state.json": b"2"}, flush=True)
        await anyio.sleep(200)
        assert [commit.changed[STATE].content for commit in rig.landed()] == [b"1", b"2"]


async def test_earlier_bytes_handed_over_while_the_outcome_is_unknown_prove_nothing() -> None:
    """Finding W3: the Hub holds Y, whose answer was lost; X handed over again has to be committed after Y."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"state.json": b"X"})).wait_delivered()
        await anyio.sleep(20)
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
        rig.hub.fault(Fault(HubCall.RECENT_COMMITS, FaultEffect.REFUSE, times=3, outcome=DOWN))
        await rig.hand_over(conveyor, {"state.json": b"Y"}, flush=True)
        await anyio.sleep(1)
        ticket = await rig.hand_over(conveyor, {"state.json": b"X"}, flush=True)
        await ticket.wait_delivered(within_s=120)
        assert rig.hub.content(REPOSITORY, STATE) == b"X"
        assert [commit.changed[STATE].content for commit in rig.landed()] == [b"X", b"Y", b"X"]


async def test_an_unknown_outcome_is_settled_after_a_restart() -> None:
    """N-HUB-03: the attempt was recorded before its first byte left; a later process looks before it sends anything."""
    async with open_rig() as rig:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER, after_s=1000))
        async with rig.conveyor(shutdown_s=5) as conveyor:
            await rig.hand_over(conveyor, {"state.json": b"1"})
            await anyio.sleep(1)
            report = await conveyor.aclose()
            assert [left.has_unknown_commit for left in report.left_over] == [True]
        await anyio.sleep(130)
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=60)).waiting == 0
            assert (await later.run_files_receipt(REPOSITORY, "r1")).commits == 1
        assert len(rig.landed()) == 1


@pytest.mark.parametrize("late_s", [20.0, 200.0])
async def test_a_delayed_first_version_never_outlives_the_second_across_a_restart(late_s: float) -> None:
    """N-HUB-12: version 1 is delayed 20 s, version 2 is handed over, the process restarts: the remote ends at 2."""
    async with open_rig() as rig:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LAND_LATE, late_s=late_s))
        async with rig.conveyor(shutdown_s=2) as conveyor:
            await rig.hand_over(conveyor, {"state.json": b"1"})
            await anyio.sleep(0.5)
            await rig.hand_over(conveyor, {"state.json": b"2"}, flush=True)
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=400)).waiting == 0
        await anyio.sleep(300)
        assert rig.hub.content(REPOSITORY, STATE) == b"2"
        assert [commit.changed[STATE].content for commit in rig.landed()] in ([b"1", b"2"], [b"2"])


async def test_an_outcome_that_stays_unknown_keeps_the_attempt_and_is_settled_later() -> None:
    """Section 12: bounded by time, then reported; unknown is not failed, and nothing else is sent meanwhile."""
    async with open_rig() as rig, rig.conveyor(probe_interval_s=60) as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
        rig.hub.fault(Fault(HubCall.RECENT_COMMITS, FaultEffect.REFUSE, times=None, outcome=DOWN))
        ticket = await rig.hand_over(conveyor, {"state.json": b"1"})
        await anyio.sleep(2000)
        agenda = await rig.agenda()
        assert (agenda.has_open_attempt, agenda.failures) == (True, 0)
        assert len(rig.hub.calls_of(HubCall.COMMIT)) == 1
        assert len(rig.hub.calls_of(HubCall.RECENT_COMMITS)) < 200
        rig.hub.script.clear()
        receipt = await ticket.wait_delivered(within_s=310)
        assert (receipt.commits, receipt.commit_attempts) == (1, 1)
        assert len(rig.landed()) == 1


async def test_a_request_refused_for_its_content_after_a_lost_answer_does_not_block_for_ever() -> None:
    """Section 12 with N-HUB-05: refused at every repetition and never in the history: it did not land; go on."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_REQUEST))
        rig.hub.refused_paths.add(STATE)
        await rig.hand_over(conveyor, {"state.json": b"1"})
        good = await rig.hand_over(conveyor, {"good": b"1"}, flush=True)
        await good.wait_delivered(within_s=300)
        assert (await rig.status()).parked == 1


class LaggingHub:
    """The Hub whose reads of the history are late by some seconds, as the real one's can be."""

    def __init__(self, hub: MemoryHub, lag_s: float, *, head_lags: bool) -> None:
        self._hub = hub
        self._lag_s = lag_s
        self._head_lags = head_lags

    def __getattr__(self, name: str) -> object:
        return getattr(self._hub, name)

    def _visible(self, repository: str) -> list[HubCommit]:
        until = anyio.current_time() - self._lag_s
        commits = self._hub._repositories[repository].commits
        return [commit.to_hub_commit() for commit in reversed(commits) if commit.at_s <= until or commit is commits[0]]

    async def head(self, repository: str) -> str:
        """The head as it is, or as it was."""
        head = await self._hub.head(repository)
        return self._visible(repository)[0].commit_id if self._head_lags else head

    async def recent_commits(self, repository: str, *, back_to: str | None = None) -> Sequence[HubCommit]:
        """The listing as it was."""
        await self._hub.recent_commits(repository, back_to=back_to)
        visible = self._visible(repository)
        ids = [commit.commit_id for commit in visible]
        return visible[: ids.index(back_to) + 1] if back_to in ids else visible


@pytest.mark.parametrize("head_lags", [True, False], ids=["head too", "listing only"])
@pytest.mark.parametrize("lag_s", [3.0, 25.0])
async def test_reads_that_lag_are_no_proof(lag_s: float, head_lags: bool) -> None:
    """Section 12: "not there" is no proof, not even of the parent. The server arbitrates; each commit counts once."""
    async with open_rig() as rig:
        hub = LaggingHub(rig.hub, lag_s, head_lags=head_lags)
        async with rig.conveyor(hub=hub) as conveyor:  # type: ignore[arg-type]
            for number in range(4):
                if number % 2:
                    # Its parent is the commit of ten seconds before, which the listing does not show yet.
                    rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
                ticket = await rig.hand_over(conveyor, {"state.json": b"%d" % number}, flush=True)
                await ticket.wait_delivered(within_s=600)
            receipt = await conveyor.run_files_receipt(REPOSITORY, "r1")
        assert [commit.changed[STATE].content for commit in rig.landed()] == [b"0", b"1", b"2", b"3"]
        assert (receipt.commits, receipt.commit_attempts) == (4, 4)


async def test_a_history_that_was_squashed_is_compared_by_content() -> None:
    """Section 12: the parent is gone for good: the content at the head decides, and nothing lands again."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER))
        rig.hub.fault(Fault(HubCall.RECENT_COMMITS, FaultEffect.REFUSE, outcome=DOWN))
        ticket = await rig.hand_over(conveyor, {"state.json": b"1"})
        await anyio.sleep(0.1)
        repository = rig.hub._repositories[REPOSITORY]
        squashed = repository.commits[-1]
        repository.commits[:] = []
        repository.land(
            "Super-squash", "", squashed.tree, at_s=squashed.at_s, unix_s=squashed.unix_s, is_foreign=True, parent=None
        )
        await ticket.wait_delivered(within_s=200)
        assert rig.landed() == []


async def test_a_refusal_is_not_looked_up() -> None:
    """Section 12: 4xx of the first request are refusals: nothing landed, and no look is needed."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, outcome=refused(422)))
        await (await rig.hand_over(conveyor, {"a": b"1", "b": b"2"})).wait_delivered(within_s=60)
        assert rig.hub.calls_of(HubCall.RECENT_COMMITS) == []


@on_one_loop("trio")
async def test_no_mixture_of_lost_answers_ever_lands_a_version_twice() -> None:
    """N-HUB-03: every commit meets another fault, for half an hour; each version that landed landed once."""
    effects = [
        FaultEffect.LOSE_ANSWER,
        FaultEffect.LOSE_REQUEST,
        FaultEffect.LAND_LATE,
        FaultEffect.FOREIGN_COMMIT,
        FaultEffect.STALL,
        FaultEffect.NONE,
    ]
    async with open_rig() as rig, rig.conveyor(probe_interval_s=60) as conveyor:
        for number in range(60):
            effect = effects[(number * 7 + number // 6) % len(effects)]
            rig.hub.fault(Fault(HubCall.COMMIT, effect, skip=number, late_s=float(number % 23)))
            await rig.hand_over(conveyor, {"state.json": b"%d" % number, f"f{number}": b"%d" % number}, flush=True)
            await anyio.sleep(25)
        assert (await conveyor.drain(within_s=2000)).waiting == 0
        commits = rig.landed()
        assert rig.hub.content(REPOSITORY, STATE) == b"59"
        for number in range(60):
            assert sum(f"runs/r1/f{number}" in commit.changed for commit in commits) == 1


@pytest.mark.parametrize("waited_s", [0.5, 100.0], ids=["at once", "in a long pause"])
async def test_leaving_does_not_wait_for_a_hub_that_answers_503_to_every_commit(waited_s: float) -> None:
    """Section 6 with section 12: the outcome stays unknown; the attempt is left recorded and looked up later."""
    async with open_rig() as rig:
        down = Outcome(OutcomeKind.UNKNOWN, "HfHubHTTPError", 503)
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, times=None, outcome=down))
        async with rig.conveyor(shutdown_s=60) as conveyor:
            await rig.hand_over(conveyor, {"a": b"1"})
            await anyio.sleep(waited_s)
            began = anyio.current_time()
            sent = len(rig.hub.calls_of(HubCall.COMMIT))
            report = await conveyor.aclose()
            assert anyio.current_time() - began <= 8
            assert len(rig.hub.calls_of(HubCall.COMMIT)) > sent
            assert [left.has_unknown_commit for left in report.left_over] == [True]
        rig.hub.script.clear()
        async with rig.conveyor() as later:
            assert (await later.drain(within_s=60)).waiting == 0
        assert len(rig.landed()) == 1
