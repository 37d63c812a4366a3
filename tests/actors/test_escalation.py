"""Too many restarts: the supervisor gives up cleanly and says so."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskGroup

from conveyor.actors import (
    ActorExit,
    ActorRef,
    ActorStopped,
    RestartBackoff,
    RestartIntensity,
    RestartIntensityExceeded,
    Supervisor,
    open_supervisor,
)
from tests.support.scripted import Boom, Crash, Note, Scripted, forever, scripted

pytestmark = pytest.mark.anyio

TWO_A_MINUTE = RestartIntensity(max_restarts=2, period_s=60)


async def crash_in_block(supervisor: Supervisor, *names: str) -> None:
    """Open the supervisor, crash these children one after the other, and wait in the block."""
    async with supervisor:
        for name in names:
            await supervisor.ref(name).tell(Crash())
        await supervisor.ref(names[-1]).tell(Note("never"))
        await anyio.sleep_forever()


async def test_too_many_restarts_stop_everything_and_raise_bare() -> None:
    """The block is cancelled, the others stop in reverse, and the error comes out plain with its cause (N-RUN-07)."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    specs = [scripted(name, journal) for name in "abc"]
    supervisor = open_supervisor(specs, intensity=TWO_A_MINUTE, on_exit=exits.append, name="top")
    with pytest.raises(RestartIntensityExceeded, match="after 2 restarts in 60 s") as caught:
        await crash_in_block(supervisor, "b", "b", "b")
    assert isinstance(caught.value.__cause__, Boom)
    assert (caught.value.supervisor, caught.value.actor) == ("top", "b")
    assert [ended.restarts for ended in exits if ended.name == "b"] == [True, True, False]
    assert journal[-3:] == ["b failed", "c shutdown", "a shutdown"]
    assert "b never" not in journal


async def test_failures_below_the_intensity_go_on() -> None:
    """A child that fails every 31 s under two a minute is restarted for ever."""
    async with open_supervisor([scripted("a", [])], intensity=TWO_A_MINUTE) as supervisor:
        for _ in range(100):
            await supervisor.ref("a").tell(Crash())
            await anyio.sleep(31)
        assert await supervisor.ref("a").ask(Note("x"), within_s=1) == 1


async def test_the_failures_of_all_children_count_together() -> None:
    """The intensity is the supervisor's, not the child's."""
    with pytest.raises(RestartIntensityExceeded):
        await crash_in_block(open_supervisor([scripted(name, []) for name in "abc"], intensity=TWO_A_MINUTE), *"abc")


async def test_a_crash_loop_does_not_spin() -> None:
    """With the default delays and intensity, a child that always fails is given up within two seconds."""
    exits: list[ActorExit] = []
    began = anyio.current_time()
    setups = 0

    async def fails_later(_: Scripted) -> None:
        nonlocal setups
        setups += 1
        if setups > 1:
            raise Boom("always")

    spec = scripted("a", [], setup=fails_later, backoff=RestartBackoff())
    with pytest.raises(RestartIntensityExceeded):
        await crash_in_block(open_supervisor([spec], on_exit=exits.append), "a")
    assert [ended.restart_delay_s for ended in exits] == [0.05, 0.1, 0.2, 0.4, 0.8, 0]
    assert anyio.current_time() - began == pytest.approx(1.55)


async def test_escalation_while_opening_raises_from_the_opening() -> None:
    """A child that crashes too often while a later one starts cancels that start and raises the escalation."""

    async def crash_first(actor: Scripted) -> None:
        await supervisor.ref("a").tell(Crash())
        await anyio.sleep_forever()

    supervisor = open_supervisor(
        [scripted("a", []), scripted("b", [], setup=crash_first)], intensity=RestartIntensity(0, 1)
    )
    with pytest.raises(RestartIntensityExceeded):
        async with supervisor:
            pytest.fail("the block must not begin")


async def test_an_error_of_the_block_is_kept_beside_the_escalation() -> None:
    """When the block fails because of the escalation, its error is the context, so nothing is hidden."""

    async def block() -> None:
        async with open_supervisor([scripted("a", [])], intensity=RestartIntensity(0, 1)) as supervisor:
            ref = supervisor.ref("a")
            await ref.tell(Crash())
            with anyio.CancelScope(shield=True):
                await ref.wait_stopped()
            ref.tell_nowait(Note("x"))

    with pytest.raises(RestartIntensityExceeded) as caught:
        await block()
    assert isinstance(caught.value.__context__, ActorStopped)


async def test_messages_to_a_given_up_actor_are_answered() -> None:
    """What waits in the mailbox of the child that was given up gets ActorStopped, while the others still stop."""
    stopped_after_s: list[float] = []

    async def ask(ref: ActorRef[Note]) -> None:
        began = anyio.current_time()
        with pytest.raises(ActorStopped):
            await ref.ask(Note("x"), within_s=1000)
        stopped_after_s.append(anyio.current_time() - began)

    async def block(tasks: TaskGroup) -> None:
        specs = [scripted("other", [], terminate=forever, shutdown_s=9), scripted("a", [])]
        async with open_supervisor(specs, intensity=RestartIntensity(0, 1)) as supervisor:
            ref = supervisor.ref("a")
            ref.tell_nowait(Crash())
            tasks.start_soon(ask, ref)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        began = anyio.current_time()
        with pytest.raises(RestartIntensityExceeded):
            await block(tasks)
        assert anyio.current_time() - began == pytest.approx(9)
        assert stopped_after_s == [pytest.approx(0)]
