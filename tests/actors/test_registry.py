"""The registry: one live actor for a key, started on first use, forgotten when it stops."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from conveyor.actors import (
    ActorRef,
    ActorStopped,
    ChildSpec,
    Registry,
    RestartPolicy,
    Supervisor,
    SupervisorStopped,
    open_supervisor,
)
from tests.support.cancel_points import at_each_wait, cancelled_at
from tests.support.scripted import Act, Boom, Crash, Hook, Note, Scripted, scripted

pytestmark = pytest.mark.anyio


async def passivate(actor: Scripted) -> None:
    """Ask to end when idle."""
    actor.context.passivate()


async def note_and_passivate(actor: Scripted) -> None:
    """Take a note and ask to end when idle."""
    actor.write("handled")
    actor.context.passivate()


class House:
    """A supervisor and a registry over it."""

    def __init__(self, supervisor: Supervisor, *, max_live: int, setup: Hook | None, terminate: Hook | None) -> None:
        self.supervisor = supervisor
        self.journal: list[str] = []
        self._setup = setup
        self._terminate = terminate
        self.registry: Registry[str, Any] = Registry(supervisor, self.spec_for, max_live=max_live)

    def spec_for(self, key: str) -> ChildSpec[Any]:
        """Make the spec of a key; "bad" has none."""
        if key == "bad":
            raise Boom("no spec")
        return scripted(
            key, self.journal, setup=self._setup, terminate=self._terminate, restart=RestartPolicy.TRANSIENT
        )


@asynccontextmanager
async def open_house(
    *, max_live: int = 1024, setup: Hook | None = None, terminate: Hook | None = None
) -> AsyncIterator[House]:
    """Open a house."""
    async with open_supervisor() as supervisor:
        yield House(supervisor, max_live=max_live, setup=setup, terminate=terminate)


async def test_the_first_use_starts_and_later_ones_find() -> None:
    """get starts an actor once; the same key gives the same actor until it stops."""
    async with open_house() as house:
        assert house.registry.live("k") is None
        first = await house.registry.get("k")
        assert await house.registry.get("k") is first
        assert house.registry.live("k") is first
        assert house.journal == ["k setup"]


async def test_concurrent_first_uses_start_one() -> None:
    """A hundred first uses in the same moment start one actor, and all get its address."""

    async def slow(_: Scripted) -> None:
        await anyio.sleep(1)

    refs: list[ActorRef[Any]] = []
    async with open_house(setup=slow) as house:

        async def use() -> None:
            refs.append(await house.registry.get("k"))

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(use)
        assert len(refs) == 100
        assert len(set(refs)) == 1
        assert house.journal == ["k setup"]


async def test_a_failed_start_reaches_everyone_who_waited_and_is_forgotten() -> None:
    """All who waited for the failed start get its error; the next use tries again."""
    attempts = 0

    async def fails_first(_: Scripted) -> None:
        nonlocal attempts
        attempts += 1
        await anyio.sleep(1)
        if attempts == 1:
            raise Boom("first")

    failures: list[Boom] = []
    async with open_house(setup=fails_first) as house:

        async def use() -> None:
            with pytest.raises(Boom) as caught:
                await house.registry.get("k")
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(use)
        assert len(failures) == 10
        assert house.registry.statistics().live == 0
        assert await house.registry.ask("k", Note("x"), within_s=1) == 1


async def test_a_key_without_a_spec_is_a_failed_start() -> None:
    """An error in spec_for reaches the user and leaves nothing behind."""
    async with open_house(max_live=1) as house:
        with pytest.raises(Boom):
            await house.registry.get("bad")
        assert await house.registry.ask("good", Note("x"), within_s=1) == 1


async def test_a_passivated_actor_is_forgotten_and_started_anew() -> None:
    """After passivation the key costs nothing; the next message starts a new actor."""
    async with open_house() as house:
        await house.registry.ask("k", Act(passivate), within_s=1)
        await anyio.sleep(1)
        assert house.registry.live("k") is None
        assert house.registry.statistics().live == 0
        assert house.supervisor.statistics().children == ()
        assert await house.registry.ask("k", Note("x"), within_s=1) == 1
        assert house.registry.statistics().started == 2


async def test_a_stopped_actor_is_forgotten() -> None:
    """An actor that is stopped by its supervisor, or that failed too often to restart, leaves the registry too."""
    async with open_house() as house:
        ref = await house.registry.get("k")
        await house.supervisor.stop_child("k")
        with pytest.raises(ActorStopped):
            await ref.tell(Note("x"))
        assert await house.registry.ask("k", Note("x"), within_s=1) == 1


async def test_a_restarted_actor_keeps_its_place() -> None:
    """A crash is no end for the registry: the same address serves the next life."""
    async with open_house() as house:
        ref = await house.registry.get("k")
        await ref.tell(Crash())
        assert await house.registry.ask("k", Note("x"), within_s=1) == 1
        assert house.registry.live("k") is ref


@pytest.mark.slow
async def test_ten_thousand_idle_keys_cost_no_tasks() -> None:
    """Ten thousand keys that were used and fell idle leave no child, no entry and no task behind."""
    async with open_house(max_live=10) as house:
        for number in range(10_000):
            await house.registry.tell(f"k{number}", Act(note_and_passivate))
        await anyio.sleep(1)
        statistics = house.registry.statistics()
        assert (statistics.live, statistics.waiting, statistics.started) == (0, 0, 10_000)
        assert house.supervisor.statistics().children == ()
        assert house.journal.count("k9999 handled") == 1
        assert sum(line.endswith("handled") for line in house.journal) == 10_000
        gc.collect()
        assert not [thing for thing in gc.get_objects() if isinstance(thing, Scripted)]


async def test_no_message_is_lost_to_passivation() -> None:
    """Every message told through the registry is handled once, though the actor passivates after each one."""
    for pause in (0, 0.25, 0.5, 1, 1.5):

        async def slow_end(_: Scripted) -> None:
            await anyio.sleep(1)

        async with open_house(terminate=slow_end) as house:

            async def send(delay_s: float, house: House = house) -> None:
                await anyio.sleep(delay_s)
                await house.registry.tell("k", Act(note_and_passivate))

            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(send, number * pause)
            await anyio.sleep(10)
            assert house.journal.count("k handled") == 50
            assert house.journal.count("k setup") == house.journal.count("k normal")


async def test_an_actor_that_passivates_in_setup_still_gets_its_message() -> None:
    """tell and ask keep the actor awake until their message is there, even if it has nothing to do when it starts."""
    async with open_house(setup=passivate) as house:
        for number in range(5):
            assert await house.registry.ask("k", Note(f"ask {number}"), within_s=1) == 1
            await anyio.sleep(number)
            await house.registry.tell("k", Act(note_and_passivate))
            await anyio.sleep(1)
            assert house.registry.statistics().live == 0
        assert house.journal.count("k handled") == 5


async def test_live_actors_are_bounded_and_further_first_uses_wait() -> None:
    """At most max_live actors live; a first use beyond that waits until one stops, and statistics show it."""
    async with open_house(max_live=2) as house, anyio.create_task_group() as tasks:
        await house.registry.get("a")
        await house.registry.get("b")
        tasks.start_soon(house.registry.tell, "c", Note("x"))
        tasks.start_soon(house.registry.tell, "d", Note("x"))
        await anyio.sleep(10)
        statistics = house.registry.statistics()
        assert (statistics.live, statistics.max_live, statistics.waiting) == (2, 2, 2)
        assert await house.registry.ask("a", Note("known keys go on"), within_s=1) == 1
        await house.registry.ask("a", Act(passivate), within_s=1)
        await anyio.sleep(1)
        assert house.registry.statistics().waiting == 1
        await house.supervisor.stop_child("b")
        await anyio.sleep(1)
        assert {child.name for child in house.supervisor.statistics().children} == {"c", "d"}


async def test_room_that_is_not_needed_goes_to_the_next() -> None:
    """When two wait for room for one key, the second finds the actor of the first and leaves its room to others."""
    async with open_house(max_live=2) as house, anyio.create_task_group() as tasks:
        await house.registry.get("a")
        await house.registry.get("b")
        for key in ("c", "c", "d"):
            tasks.start_soon(house.registry.tell, key, Note("x"))
            await anyio.sleep(1)
        await house.supervisor.stop_child("a")
        await anyio.sleep(1)
        assert house.registry.statistics().waiting == 2
        await house.supervisor.stop_child("b")
        await anyio.sleep(1)
        assert {child.name for child in house.supervisor.statistics().children} == {"c", "d"}
        assert house.journal.count("c x") == 2


async def test_a_first_use_cancelled_at_any_wait_gives_its_room_back() -> None:
    """Cancelled at each wait, a first use leaves no actor, no waiting place and no taken room."""

    async def attempt(index: int) -> bool:
        async with open_house(max_live=1) as house, anyio.create_task_group() as tasks:
            await house.registry.get("a")

            async def stop_a() -> None:
                await anyio.sleep(1)
                await house.supervisor.stop_child("a")

            tasks.start_soon(stop_a)
            cancelled = await cancelled_at(index, lambda: house.registry.tell("b", Note("b")))
            await anyio.sleep(10)
            if cancelled:
                assert "b b" not in house.journal
            else:
                assert house.journal.count("b b") == 1
            await house.supervisor.stop_child("b")
            with anyio.fail_after(1):
                await house.registry.tell("c", Note("c"))
            assert house.registry.statistics().waiting == 0
        return cancelled

    assert await at_each_wait(attempt) >= 2


async def test_when_the_starter_is_cancelled_another_user_starts() -> None:
    """A first use that is cancelled undoes its start; one that waited for that start begins its own."""

    async def slow(_: Scripted) -> None:
        await anyio.sleep(2)

    async with open_house(setup=slow) as house, anyio.create_task_group() as tasks:
        got: list[ActorRef[Any]] = []

        async def patient() -> None:
            got.append(await house.registry.get("k"))

        with anyio.move_on_after(1):
            tasks.start_soon(patient)
            await house.registry.get("k")
        await anyio.sleep(10)
        assert len(got) == 1
        assert house.registry.live("k") is got[0]


async def test_a_stopping_supervisor_refuses_first_uses() -> None:
    """Once the supervisor has stopped, a first use raises SupervisorStopped."""
    async with open_house() as house:
        await house.registry.get("k")
    with pytest.raises(SupervisorStopped):
        await house.registry.tell("k", Note("x"))


def test_a_registry_without_room_is_refused() -> None:
    """max_live below 1 is a ValueError."""
    with pytest.raises(ValueError, match="max_live is 0"):
        Registry(open_supervisor(), lambda _: scripted("a", []), max_live=0)
