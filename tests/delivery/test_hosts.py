"""A host that is cancelled, again and again, at any moment (N-RUN-04, N-RUN-05, N-RUN-08)."""

from __future__ import annotations

import gc
import random

import anyio
import pytest

from conveyor.protocol.receipts import BundleStatus
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall
from conveyor.runtime.adapters.memory_hub_options import MemoryHubOptions
from tests.support.delivery import OTHER, REPOSITORY, Rig, on_one_loop, open_rig, tree_of
from tests.support.virtual_time import virtual_time_backend

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("anyio_backend", "seed"),
    [pytest.param(virtual_time_backend(name), name, id=name) for name in ("asyncio", "trio")],
)
async def test_a_host_cancelled_a_hundred_times_on_each_loop_leaves_the_store_consistent(seed: str) -> None:
    """N-RUN-04: 200 times at random moments; totals add up, each lease is released or expires, all arrives once."""
    chance = random.Random(seed)
    async with open_rig(MemoryHubOptions(latency_s=0.2)) as rig:
        rig.hub.fault(Fault(HubCall.COMMIT, FaultEffect.LOSE_ANSWER, skip=5))
        rig.hub.fault(Fault(HubCall.UPLOAD, times=None, before_s=0.5))
        for life in range(100):
            # Half of the cuts fall into the first second, where the most happens.
            with anyio.move_on_after(chance.choice((1.0, 4.0)) * chance.random()):
                async with rig.conveyor(probe_interval_s=5) as conveyor:
                    files = {"state.json": b"%d" % life, f"f{life % 9}": b"%d" % life}
                    await rig.hand_over(conveyor, files, flush=True)
                    if life % 40 == 0:
                        await rig.hand_over_bundle(conveyor, rig.bundle(f"b{life}"))
                    await anyio.sleep_forever()
            status = await rig.status()
            for row in status.repositories:
                agenda = row.agenda
                assert agenda.lease_owner is None or agenda.lease_expires_unix_s <= rig.clock.unix_s() + 120
        async with rig.conveyor() as last:
            assert (await last.drain(within_s=600)).waiting == 0
        rig.landed()


async def test_a_claim_returns_with_every_cancelled_life() -> None:
    """N-RUN-05: a bundle claimed and cancelled 20 times; the 21st life uploads it at once, as its first attempt."""
    async with open_rig() as rig:
        rig.hub.fault(Fault(HubCall.UPLOAD, times=None, before_s=5))
        handover_id = ""
        for _ in range(20):
            with anyio.move_on_after(2.0):
                async with rig.conveyor() as conveyor:
                    if not handover_id:
                        handover_id = (await rig.hand_over_bundle(conveyor, rig.bundle())).receipt.handover_id
                    await anyio.sleep_forever()
            assert (await rig.agenda()).lease_owner is None
        assert len(rig.hub.calls_of(HubCall.UPLOAD)) == 20
        async with rig.conveyor():
            await anyio.sleep(6)
            receipt = await rig.conveyor_receipt(handover_id)
            assert (receipt.status, receipt.attempts) == (BundleStatus.UPLOADED, 1)


@on_one_loop("asyncio")
async def test_no_task_is_lost_to_the_garbage_collector_under_load() -> None:
    """N-RUN-08: every task is owned; collection at each step of a busy minute loses none."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, times=None, before_s=3))
        for number in range(12):
            await rig.hand_over(conveyor, {"a": b"%d" % number}, flush=True, repository=(REPOSITORY, OTHER)[number % 2])
            await rig.hand_over_bundle(conveyor, rig.bundle(f"b{number}"))
            gc.collect()
            await anyio.sleep(5)
            gc.collect()
        assert (await conveyor.drain(within_s=120)).waiting == 0


async def test_the_end_of_an_actors_task_is_noticed_and_the_actor_restarts() -> None:
    """N-RUN-08: killed from outside in the middle of an upload; the actor is back within a second, nothing is lost."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        rig.hub.fault(Fault(HubCall.UPLOAD, before_s=60))
        ticket = await rig.hand_over_bundle(conveyor, rig.bundle())
        await anyio.sleep(1)
        repositories = tree_of(conveyor)._repositories
        child = repositories._children[f"repository {REPOSITORY}"]
        assert child._life is not None
        child._life.kill()
        await anyio.sleep(1)
        assert repositories.statistics().restarts == 1
        assert (await ticket.wait_delivered(within_s=10)).attempts == 1
        assert tree_of(conveyor)._in_flight.repositories == ()


async def test_leaving_the_block_by_an_error_of_the_host_still_makes_the_final_commit() -> None:
    """N-RUN-04: an exception of the host is not a cancellation: what is pending is committed on the way out."""

    async def host(rig: Rig) -> None:
        async with rig.conveyor() as conveyor:
            await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
            await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600)
            raise KeyError("the host's own")

    async with open_rig() as rig:
        with pytest.raises(KeyError):
            await host(rig)
        assert rig.hub.content(REPOSITORY, "runs/r1/a") == b"2"
