"""Cancellation at every wait: nothing is lost, nothing is left over (N-RUN-05)."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from conveyor.actors import ActorCrashed, ExitReason, Supervisor, open_supervisor
from tests.support.cancel_points import at_each_wait, cancelled_at
from tests.support.scripted import Act, Crash, Note, Scripted, forever, scripted

pytestmark = pytest.mark.anyio


async def few_waits(actor: Scripted) -> str:
    """Wait a few times, then take a note."""
    for _ in range(3):
        await checkpoint()
    actor.write("acted")
    return "answer"


async def five_seconds(_: Scripted) -> None:
    """Take five seconds."""
    await anyio.sleep(5)


async def test_a_cancelled_ask_is_not_begun_or_goes_on() -> None:
    """Cancelled at each wait, an ask was either taken back untouched or is carried out once; the actor is unharmed."""

    async def attempt(index: int) -> bool:
        journal: list[str] = []
        async with open_supervisor([scripted("a", journal, mailbox_capacity=1)]) as supervisor:
            ref = supervisor.ref("a")
            cancelled = await cancelled_at(index, lambda: ref.ask(Act(few_waits), within_s=60))
            assert await ref.ask(Note("next"), within_s=60) == 1
            assert journal.count("a acted") <= 1
            assert cancelled or journal.count("a acted") == 1
            statistics = ref.statistics()
            assert (statistics.depth, statistics.mailbox.waiting_senders, statistics.crashed) == (0, 0, 0)
        return cancelled

    assert await at_each_wait(attempt) >= 1


async def test_a_cancelled_tell_has_sent_nothing() -> None:
    """Cancelled at each wait, a tell that found a full mailbox has sent nothing; else its message is handled once."""

    async def attempt(index: int) -> bool:
        journal: list[str] = []
        async with open_supervisor([scripted("a", journal, mailbox_capacity=1)]) as supervisor:
            ref = supervisor.ref("a")
            await ref.tell(Act(five_seconds))
            await anyio.sleep(1)
            await ref.tell(Note("fills the mailbox"))
            cancelled = await cancelled_at(index, lambda: ref.tell(Note("told")))
            await ref.ask(Note("next"), within_s=60)
            assert journal.count("a told") == (0 if cancelled else 1)
        return cancelled

    assert await at_each_wait(attempt) >= 1


async def test_cancelling_the_host_at_any_wait_of_a_whole_life() -> None:
    """Cancelled at each wait of open, work, crash, restart and close: every set-up life is terminated, in order."""

    async def attempt(index: int) -> bool:
        journal: list[str] = []
        supervisors: list[Supervisor] = []

        async def whole_life() -> None:
            async with open_supervisor([scripted(name, journal) for name in "ab"]) as supervisor:
                supervisors.append(supervisor)
                assert await supervisor.ref("a").ask(Act(few_waits), within_s=60) == "answer"
                with pytest.raises(ActorCrashed):
                    await supervisor.ref("a").ask(Crash(), within_s=60)
                assert await supervisor.ref("a").ask(Note("x"), within_s=60) == 1
                await supervisor.stop_child("b")

        cancelled = await cancelled_at(index, whole_life)
        for name in "ab":
            lives = [line for line in journal if line.startswith(name) and line.split()[1] not in ("acted", "x")]
            assert [line.split()[1] == "setup" for line in lives] == [True, False] * (len(lives) // 2)
        assert all(supervisor.statistics().children == () for supervisor in supervisors)
        return cancelled

    assert await at_each_wait(attempt) >= 5


async def test_cancelling_a_handler_leaves_its_claim() -> None:
    """A claim held in handle comes back whatever ends it: after twenty cancelled holders the next starts (N-RUN-05)."""
    limiter = anyio.CapacityLimiter(1)

    async def hold(actor: Scripted) -> None:
        async with limiter:
            await anyio.sleep_forever()

    for reason in (ExitReason.KILLED, ExitReason.SHUTDOWN) * 10:
        async with open_supervisor([scripted("a", [], shutdown_s=1)]) as supervisor:
            await supervisor.ref("a").tell(Act(hold))
            await anyio.sleep(1)
            assert limiter.borrowed_tokens == 1
            await supervisor.stop_child("a", reason)
            assert limiter.borrowed_tokens == 0
    began = anyio.current_time()
    async with limiter:
        assert anyio.current_time() == pytest.approx(began, abs=0.001)


async def test_a_supervisor_lives_inside_the_hosts_task_group() -> None:
    """In a host's task group, the host's failure cancels and cleans up the actors, and comes out as its own."""
    journal: list[str] = []

    async def actors() -> None:
        async with open_supervisor([scripted(name, journal) for name in "ab"]) as supervisor:
            await supervisor.ref("a").tell(Act(forever))
            await anyio.sleep_forever()

    async def fails() -> None:
        await anyio.sleep(5)
        raise KeyError("the host's own")

    async def host() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(actors)
            tasks.start_soon(fails)

    with pytest.raises(ExceptionGroup) as caught:  # the host's own group
        await host()
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    assert journal == ["a setup", "b setup", "b killed", "a killed"]


async def test_supervisors_nest_in_one_host() -> None:
    """Two supervisors in one task stop inner first; each leaves its own errors bare."""
    journal: list[str] = []
    async with open_supervisor([scripted("outer", journal)]), open_supervisor([scripted("inner", journal)]):
        pass
    assert journal == ["outer setup", "inner setup", "inner shutdown", "outer shutdown"]
