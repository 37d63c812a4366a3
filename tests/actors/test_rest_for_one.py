"""The rest-for-one strategy: later children depend on earlier ones, so they are restarted with them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from conveyor.actors import (
    ActorExit,
    ExitReason,
    RestartBackoff,
    RestartIntensity,
    RestartIntensityExceeded,
    RestartPolicy,
    Strategy,
    Supervisor,
    open_supervisor,
)
from tests.support.scripted import Act, Boom, Crash, Note, Scripted, forever, scripted

pytestmark = pytest.mark.anyio


def open_rest(specs: list[Any], **options: Any) -> Supervisor:
    """Open a rest-for-one supervisor."""
    return open_supervisor(specs, strategy=Strategy.REST_FOR_ONE, **options)


async def test_the_rest_restarts_with_the_one_that_failed() -> None:
    """Later children stop in reverse order, then the failed one and they start in order; earlier ones are untouched."""
    journal: list[str] = []
    async with open_rest([scripted(name, journal) for name in "abcd"]) as supervisor:
        del journal[:]
        await supervisor.ref("b").tell(Crash())
        await anyio.sleep(10)
        assert journal == ["b failed", "d shutdown", "c shutdown", "b setup", "c setup", "d setup"]
        assert [child.restarts for child in supervisor.statistics().children] == [0, 1, 1, 1]
        assert supervisor.statistics().restarts_in_period == 1


async def test_the_rest_keeps_its_mailboxes() -> None:
    """Messages that wait for a child that is restarted for another's sake are handled in its next life."""
    journal: list[str] = []

    async def slow(_: Scripted) -> None:
        await anyio.sleep(2)

    async with open_rest([scripted(name, journal) for name in "ab"]) as supervisor:
        ref = supervisor.ref("b")
        await ref.tell(Act(slow))
        await anyio.sleep(1)
        await ref.tell(Note("kept"))
        await supervisor.ref("a").tell(Crash())
        assert await ref.ask(Note("after"), within_s=60) == 2
    assert journal == [
        *("a setup", "b setup", "a failed", "b shutdown", "a setup", "b setup"),
        *("b kept", "b after", "b shutdown", "a shutdown"),
    ]


async def test_temporary_children_among_the_rest_stop_for_good() -> None:
    """A TEMPORARY child is not started again for another's sake."""
    journal: list[str] = []
    specs = [scripted("a", journal), scripted("b", journal, restart=RestartPolicy.TEMPORARY), scripted("c", journal)]
    async with open_rest(specs) as supervisor:
        await supervisor.ref("a").tell(Crash())
        await anyio.sleep(10)
        assert [child.name for child in supervisor.statistics().children] == ["a", "c"]


async def test_an_end_without_restart_leaves_the_rest_alone() -> None:
    """A TRANSIENT child that ends normally takes nobody with it."""
    journal: list[str] = []

    async def stop(actor: Scripted) -> None:
        actor.context.stop()

    specs = [scripted("a", journal, restart=RestartPolicy.TRANSIENT), scripted("b", journal)]
    async with open_rest(specs) as supervisor:
        await supervisor.ref("a").tell(Act(stop))
        await anyio.sleep(10)
        assert journal == ["a setup", "b setup", "a normal"]


async def test_an_earlier_child_that_fails_meanwhile_widens_the_restart() -> None:
    """When a child before the failed one fails during the restart, everything from it on starts again, once more."""
    journal: list[str] = []

    async def slow(_: Scripted) -> None:
        await anyio.sleep(3)

    specs = [scripted("a", journal), scripted("b", journal), scripted("c", journal, terminate=slow)]
    async with open_rest(specs) as supervisor:
        del journal[:]
        await supervisor.ref("b").tell(Crash())
        await anyio.sleep(1)
        await supervisor.ref("a").tell(Crash())
        await anyio.sleep(60)
        assert {name: await supervisor.ref(name).ask(Note("alive"), within_s=1) for name in "abc"} == dict.fromkeys(
            "abc", 1
        )
        assert len([line for line in journal if line == "a setup"]) == 1
        assert journal.index("a setup") < journal.index("c setup")


async def test_a_restart_that_fails_begins_again() -> None:
    """When a later child cannot be set up again at first, the restart is tried again from it, within the intensity."""
    journal: list[str] = []
    setups = 0

    async def fails_twice(_: Scripted) -> None:
        nonlocal setups
        setups += 1
        if setups in (2, 3):
            raise Boom("not yet")

    specs = [scripted("a", journal), scripted("b", journal, setup=fails_twice), scripted("c", journal)]
    async with open_rest(specs) as supervisor:
        del journal[:]
        await supervisor.ref("a").tell(Crash())
        await anyio.sleep(60)
        assert await supervisor.ref("c").ask(Note("alive"), within_s=1) == 1
        assert supervisor.statistics().restarts == 3
    assert journal[:7] == ["a failed", "c shutdown", "b shutdown", "a setup", "b setup", "b setup", "b setup"]
    assert journal[7] == "c setup"


async def test_too_many_failures_escalate() -> None:
    """The intensity holds for rest-for-one too: the supervisor stops everything and raises, bare (N-RUN-07)."""
    journal: list[str] = []
    intensity = RestartIntensity(max_restarts=2, period_s=60)

    async def block() -> None:
        async with open_rest([scripted("a", journal), scripted("b", journal)], intensity=intensity) as supervisor:
            for _ in range(3):
                await supervisor.ref("a").tell(Crash())
                await anyio.sleep(1)
            await anyio.sleep_forever()

    with pytest.raises(RestartIntensityExceeded) as caught:
        await block()
    assert isinstance(caught.value.__cause__, Boom)
    assert journal.count("a failed") == 3
    assert journal[-2:] == ["a failed", "b shutdown"]


@pytest.mark.parametrize("after_s", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
async def test_stopping_in_the_middle_of_a_restart_ends_everything(after_s: float) -> None:
    """Whatever the common restart is doing, leaving the block stops every child and returns."""
    journal: list[str] = []
    exits: list[ActorExit] = []

    async def one_second(_: Scripted) -> None:
        await anyio.sleep(1)

    backoff = RestartBackoff(first_s=1)
    specs = [
        scripted(name, journal, setup=one_second, terminate=one_second, backoff=backoff) for name in ("a", "b", "c")
    ]
    async with open_rest(specs, on_exit=exits.append) as supervisor:
        await supervisor.ref("a").tell(Crash())
        await anyio.sleep(after_s)
    assert journal.count("a setup") == sum(line in ("a failed", "a shutdown") for line in journal)
    assert supervisor.statistics().children == ()
    assert exits[0].reason is ExitReason.FAILED
    before = list(journal)
    await anyio.sleep(100)
    assert journal == before


async def test_a_child_that_does_not_stop_in_time_is_killed_and_restarted() -> None:
    """A later child that overruns its limit during the common restart is cancelled, then lives again."""
    journal: list[str] = []
    async with open_rest([scripted("a", journal), scripted("b", journal, shutdown_s=2)]) as supervisor:
        await supervisor.ref("b").tell(Act(forever))
        await anyio.sleep(1)
        await supervisor.ref("a").tell(Crash())
        assert await supervisor.ref("b").ask(Note("alive"), within_s=60) == 1
        assert journal[2:6] == ["a failed", "b killed", "a setup", "b setup"]
