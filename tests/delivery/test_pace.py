"""When commits are made: spacing, budget, backoff, rate limits, conflicts, credentials (sections 5.1, 5.5 and 5.8)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import anyio
import pytest

from conveyor.actors.port_errors import StoreBusy
from conveyor.actors.store_operations import ListOpenRepositories, RecordRunFiles
from conveyor.protocol.outcome import Outcome, OutcomeKind
from conveyor.protocol.receipts import DeliveryCode
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall, moved, needs_person, rate_limited
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from conveyor.runtime.app import Conveyor
from tests.support.delivery import OTHER, REPOSITORY, Operation, gaps_s, on_one_loop, open_rig
from tests.support.stores import run_files, write

pytestmark = pytest.mark.anyio

BROKEN = Outcome(OutcomeKind.TRANSIENT, "HfHubHTTPError", 503)


@on_one_loop("asyncio")
async def test_six_hundred_deliveries_an_hour_never_meet_the_hubs_quota() -> None:
    """N-HUB-01: no more than 128 commits in any hour, no 429, and every final content arrives."""

    async def deliver(conveyor: Conveyor, number: int) -> None:
        await rig.hand_over(conveyor, {f"file-{number % 50}": b"%d" % number}, run_id=f"r{number % 50}", flush=True)

    async with open_rig(MemoryHubOptions(commits_per_hour=128)) as rig, rig.conveyor(probe_interval_s=60) as conveyor:
        for first in range(0, 600, 6):
            async with anyio.create_task_group() as producers:
                for number in range(first, first + 6):
                    producers.start_soon(deliver, conveyor, number)
            await anyio.sleep(36)
        status = await conveyor.drain(within_s=600)
        assert status.waiting == 0
        for number in range(550, 600):
            assert rig.hub.content(REPOSITORY, f"runs/r{number % 50}/file-{number % 50}") == b"%d" % number
        commits = rig.landed()
        assert {call.end for call in rig.hub.calls_of(HubCall.COMMIT)} == {"done"}
        assert min(gaps_s(commits)) >= 10
        for commit in commits:
            assert sum(commit.at_s - 3600 < other.at_s <= commit.at_s for other in commits) <= 100


async def test_two_processes_with_stores_of_their_own_share_a_repository_through_conflicts() -> None:
    """N-HUB-02: 412 on the first attempt of each cycle; both sets arrive exactly once, and no failure is counted."""
    async with open_rig() as rig, open_rig() as far:
        far.hub = rig.hub
        far.clock = rig.clock
        async with rig.conveyor() as one, far.conveyor() as two:
            for number in range(5):
                rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, outcome=moved()))
                await rig.hand_over(one, {f"a{number}": b"a%d" % number}, run_id="one", flush=True)
                await far.hand_over(two, {f"b{number}": b"b%d" % number}, run_id="two", flush=True)
                await anyio.sleep(15)
            assert (await one.drain(within_s=60)).waiting == (await two.drain(within_s=60)).waiting == 0
            for name in "ab":
                for number in range(5):
                    path = f"runs/{'one' if name == 'a' else 'two'}/{name}{number}"
                    assert rig.hub.content(REPOSITORY, path) == b"%s%d" % (name.encode(), number)
                    assert sum(path in commit.changed for commit in rig.landed()) == 1
            for conveyor, run_id, a_rig in ((one, "one", rig), (two, "two", far)):
                receipt = await conveyor.run_files_receipt(REPOSITORY, run_id)
                assert receipt.commit_attempts == receipt.commits
                assert (receipt.last_error_code, (await a_rig.agenda()).failures) == (None, 0)


async def test_a_repository_that_moves_all_the_time_is_tried_again_without_a_failure() -> None:
    """N-HUB-02: five conflicts in one attempt end it; the next follows after a short pause and nothing is charged."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, times=12, outcome=moved()))
        receipt = await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered(within_s=120)
        assert (receipt.commit_attempts, receipt.last_error_code) == (1, None)
        assert (await rig.agenda()).failures == 0


async def test_failures_double_the_pause_from_two_to_three_hundred_seconds() -> None:
    """Section 5.5: 2, 4, 8, ... 256, 300 s; a flush does not shorten it; the receipt shows the attempts."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.HEAD, FaultEffect.REFUSE, times=10, outcome=BROKEN))
        ticket = await rig.hand_over(conveyor, {"a": b"1"})
        await anyio.sleep(5)
        await rig.hand_over(conveyor, {"a": b"2"}, flush=True)
        await ticket.wait_delivered(within_s=3600)
        tries = [call.started_s for call in rig.hub.calls_of(HubCall.HEAD)]
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert pauses == pytest.approx([2, 4, 8, 16, 32, 64, 128, 256, 300, 300], abs=0.01)
        receipt = await ticket.read_receipt()
        assert (receipt.commit_attempts, receipt.commits, receipt.last_error_code) == (11, 1, None)


async def test_failures_of_one_repository_do_not_touch_another() -> None:
    """N-HUB-04: a repository that answers 403 is shown as paused with its answer; the other one is delivered."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, REPOSITORY, times=None, outcome=needs_person(403)))
        bad = await rig.hand_over(conveyor, {"a": b"1"})
        await (await rig.hand_over(conveyor, {"a": b"1"}, repository=OTHER)).wait_delivered(within_s=1)
        await anyio.sleep(1000)
        agenda = await rig.agenda()
        assert agenda.paused_reason is not None
        assert "HTTP 403" in agenda.paused_reason
        assert (await bad.read_receipt()).last_error_code is DeliveryCode.UPLOAD_FAILED
        assert len(rig.hub.calls_of(HubCall.COMMIT, REPOSITORY)) <= 5
        rig.hub.script.clear()
        await bad.wait_delivered(within_s=301)
        assert (await rig.agenda()).paused_reason is None


async def test_a_rate_limit_is_honoured_for_run_files_and_bundles() -> None:
    """Finding W49: 429 with Retry-After holds back every commit of the repository for so long."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, outcome=rate_limited(700)))
        began = anyio.current_time()
        ticket = await rig.hand_over(conveyor, {"a": b"1"})
        await anyio.sleep(1)
        bundle = await rig.hand_over_bundle(conveyor, rig.bundle())
        await ticket.wait_delivered(within_s=2000)
        await bundle.wait_delivered(within_s=2000)
        assert [call.started_s - began for call in rig.hub.calls_of(HubCall.COMMIT)] == pytest.approx(
            [0, 700, 710], abs=1
        )


async def test_a_rate_limit_on_a_bundle_holds_back_run_files_too() -> None:
    """Finding W49: the quota is the repository's, whatever the commit carries."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.REFUSE, outcome=rate_limited(700)))
        began = anyio.current_time()
        await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(1)
        await (await rig.hand_over(conveyor, {"a": b"1"}, flush=True)).wait_delivered(within_s=2000)
        assert min(commit.at_s for commit in rig.landed()) - began >= 700


async def test_without_a_credential_nothing_is_attempted_and_one_that_appears_is_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Finding W21: no attempt, no backoff, one warning; a login takes effect within seconds."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.credential = "missing"
        ticket = await rig.hand_over(conveyor, {"a": b"1"})
        bundle = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(1000)
        assert rig.hub.calls == []
        receipt = await ticket.read_receipt()
        assert (receipt.last_error_code, receipt.commit_attempts) == (DeliveryCode.CREDENTIAL_MISSING, 0)
        waiting = await bundle.read_receipt()
        assert (waiting.error_code, waiting.attempts) == (DeliveryCode.CREDENTIAL_MISSING, 0)
        assert sum("credential-missing" in record.getMessage() for record in caplog.records) == 1
        rig.hub.credential = "write"
        await ticket.wait_delivered(within_s=6)
        await bundle.wait_delivered(within_s=20)


async def test_a_credential_that_vanishes_between_the_look_and_its_use_costs_nothing() -> None:
    """Finding W21: the recorded attempt, never sent, is settled and made once the credential is back."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        for call in (HubCall.HEAD, HubCall.PREUPLOAD, HubCall.COMMIT):
            meeting = len(rig.hub.calls)
            rig.hub.fault(Fault(call, before_s=5))
            ticket = await rig.hand_over(conveyor, {"a": call.value.encode()}, flush=True)
            while not any(row.call is call for row in rig.hub.calls[meeting:]):
                await anyio.sleep(0.5)
            rig.hub.credential = "missing"
            await anyio.sleep(60)
            rig.hub.credential = "write"
            await ticket.wait_delivered(within_s=120)
        assert len(rig.landed()) == 3


async def test_work_that_another_process_puts_into_the_store_is_noticed() -> None:
    """No polling tick, but a cheap probe of the store's change mark, once a second."""
    async with open_rig() as rig, rig.conveyor():
        operation: RecordRunFiles = run_files({"a": b"1"}, repository=REPOSITORY, now=rig.clock.unix_s())
        await anyio.sleep(10)
        await write(rig.view(), operation)
        await anyio.sleep(1.5)
        assert len(rig.landed()) == 1


async def test_a_change_is_not_forgotten_when_the_look_that_follows_fails() -> None:
    """The change mark tells of a change once; a busy store at that moment must not lose it."""
    async with open_rig() as rig:
        view = rig.view()
        async with rig.conveyor(store=view):
            await anyio.sleep(10)
            busy = 3

            async def before(operations: Sequence[Operation]) -> None:
                nonlocal busy
                if busy and any(isinstance(operation, ListOpenRepositories) for operation in operations):
                    busy -= 1
                    raise StoreBusy("others hold the store")

            view.before = before
            await write(rig.view(), run_files({"a": b"1"}, repository=REPOSITORY, now=rig.clock.unix_s()))
            await anyio.sleep(6)
            assert len(rig.landed()) == 1


async def test_an_idle_repository_costs_no_actor_and_no_lease() -> None:
    """Passivation: after `idle_s` without work the actor is gone; the next hand-over starts another."""
    async with open_rig() as rig, rig.conveyor(idle_s=30) as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await anyio.sleep(0.5)
        assert (await rig.agenda()).lease_owner is None
        await anyio.sleep(40)
        assert [actor.name for actor in (await conveyor.status()).actors if "repository" in actor.name] == []
        await (await rig.hand_over(conveyor, {"a": b"2"}, flush=True)).wait_delivered(within_s=1)


async def test_hand_overs_that_race_with_passivation_are_all_delivered() -> None:
    """The registry revives an actor that is told of work while it ends: no hand-over waits for the next one."""
    async with open_rig() as rig, rig.conveyor(idle_s=0.5, probe_interval_s=60) as conveyor:
        for number in range(40):
            # The lease is given back and the actor ends about half a second after each commit.
            await anyio.sleep(10 + number * 0.025)
            await (await rig.hand_over(conveyor, {"a": b"%d" % number}, flush=True)).wait_delivered(within_s=40)
