"""Which end of a child is followed by a restart: policy by reason, as in Erlang/OTP's supervisor suite."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors import (
    ActorExit,
    ActorStopped,
    ExitReason,
    RestartIntensity,
    RestartPolicy,
    Supervisor,
    UnknownActor,
    open_supervisor,
)
from tests.support.scripted import Act, Crash, Note, Scripted, scripted

pytestmark = pytest.mark.anyio

PERMANENT, TRANSIENT, TEMPORARY = RestartPolicy.PERMANENT, RestartPolicy.TRANSIENT, RestartPolicy.TEMPORARY
NORMAL, SHUTDOWN, FAILED = ExitReason.NORMAL, ExitReason.SHUTDOWN, ExitReason.FAILED

MATRIX = [
    (PERMANENT, NORMAL, True),
    (PERMANENT, SHUTDOWN, True),
    (PERMANENT, FAILED, True),
    (TRANSIENT, NORMAL, False),
    (TRANSIENT, SHUTDOWN, False),
    (TRANSIENT, FAILED, True),
    (TEMPORARY, NORMAL, False),
    (TEMPORARY, SHUTDOWN, False),
    (TEMPORARY, FAILED, False),
]


async def end_with(supervisor: Supervisor, name: str, reason: ExitReason) -> None:
    """Make the child end by itself with `reason`."""

    async def stop(actor: Scripted) -> None:
        actor.context.stop(reason)

    await supervisor.ref(name).tell(Crash() if reason is FAILED else Act(stop))
    await anyio.sleep(1)


@pytest.mark.parametrize(("policy", "reason", "restarts"), MATRIX, ids=lambda value: getattr(value, "name", str(value)))
async def test_restart(policy: RestartPolicy, reason: ExitReason, restarts: bool) -> None:
    """A child that ends by itself is restarted exactly when its policy says so, and its end is told once."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    async with open_supervisor([scripted("a", journal, restart=policy)], on_exit=exits.append) as supervisor:
        ref = supervisor.ref("a")
        await end_with(supervisor, "a", reason)
        if restarts:
            assert await ref.ask(Note("alive"), within_s=1) == 1
            assert ref.statistics().restarts == 1
        else:
            with pytest.raises(ActorStopped):
                await ref.tell(Note("gone"))
            with pytest.raises(UnknownActor):
                supervisor.ref("a")
        assert [(ended.reason, ended.restarts, ended.requested) for ended in exits] == [(reason, restarts, False)]
        assert exits[0].is_unexpected == (reason is FAILED)
    assert journal[:2] == ["a setup", f"a {reason.value}"]
    assert journal[2:] == (["a setup", "a alive", "a shutdown"] if restarts else [])


@pytest.mark.parametrize("policy", list(RestartPolicy), ids=lambda policy: policy.name)
@pytest.mark.parametrize("reason", [NORMAL, SHUTDOWN, ExitReason.KILLED], ids=lambda reason: reason.name)
async def test_a_requested_stop_is_final(policy: RestartPolicy, reason: ExitReason) -> None:
    """stop_child is never followed by a restart, whatever the policy, and stopping again is harmless."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    async with open_supervisor([scripted("a", journal, restart=policy)], on_exit=exits.append) as supervisor:
        await supervisor.stop_child("a", reason)
        await supervisor.stop_child("a", reason)
        await anyio.sleep(100)
        assert [(ended.reason, ended.restarts, ended.requested) for ended in exits] == [(reason, False, True)]
        assert not exits[0].is_unexpected
    assert journal == ["a setup", f"a {reason.value}"]


async def test_each_life_has_its_own_behaviour() -> None:
    """State of a failed life is gone after the restart; the address and the mailbox stay."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal)]) as supervisor:
        ref = supervisor.ref("a")
        assert [await ref.ask(Note("x"), within_s=1) for _ in range(3)] == [1, 2, 3]
        await ref.tell(Crash())
        assert await ref.ask(Note("x"), within_s=1) == 1


async def test_others_are_left_alone_one_for_one() -> None:
    """One-for-one restarts only the child that failed."""
    journal: list[str] = []
    async with open_supervisor([scripted(name, journal) for name in "abc"]) as supervisor:
        await end_with(supervisor, "b", FAILED)
        assert journal == ["a setup", "b setup", "c setup", "b failed", "b setup"]


async def test_delays_between_restarts_grow_and_a_steady_life_resets_them() -> None:
    """A crash loop waits longer each time; a life of steady_s seconds begins the series again."""
    from conveyor.actors import RestartBackoff

    journal: list[str] = []
    exits: list[ActorExit] = []
    backoff = RestartBackoff(first_s=1, factor=2, longest_s=3, steady_s=60)
    spec = scripted("a", journal, backoff=backoff)
    began = anyio.current_time()
    async with open_supervisor([spec], on_exit=exits.append, intensity=RestartIntensity(100, 1)) as supervisor:
        ref = supervisor.ref("a")
        for _ in range(4):
            await ref.tell(Crash())
        await ref.ask(Note("x"), within_s=100)
        assert anyio.current_time() - began == pytest.approx(1 + 2 + 3 + 3)
        await anyio.sleep(61)
        await ref.tell(Crash())
        await ref.ask(Note("x"), within_s=100)
    assert [ended.restart_delay_s for ended in exits] == [1, 2, 3, 3, 1, 0]
