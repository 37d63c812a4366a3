"""asyncio's own means of cancellation: hosts use them, and they can even hit the task of an actor."""

from __future__ import annotations

import asyncio
import gc

import anyio
import pytest

from conveyor.actors import (
    ActorCrashed,
    ActorExit,
    ActorStopped,
    ActorTaskLost,
    ExitReason,
    Mailbox,
    Pending,
    open_supervisor,
)
from tests.support.scripted import Act, Note, Scripted, forever, scripted

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only("asyncio's own cancellation does not exist on trio")]


def task_of(name: str) -> asyncio.Task[object]:
    """Return the running task of an actor."""
    return next(task for task in asyncio.all_tasks() if task.get_name() == f"actor {name}")


async def test_a_killed_task_is_reported_at_once_and_the_actor_restarts() -> None:
    """Killing an actor's task is an unexpected end: told within a second, message answered, actor alive (N-RUN-08)."""
    journal: list[str] = []
    exits: list[tuple[float, ActorExit]] = []

    async def slow(_: Scripted) -> None:
        await anyio.sleep(4)

    def told(ended: ActorExit) -> None:
        exits.append((anyio.current_time(), ended))

    async with open_supervisor([scripted("a", journal, terminate=slow)], on_exit=told) as supervisor:
        ref = supervisor.ref("a")

        async def kill() -> None:
            await anyio.sleep(1)
            task_of("a").cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            began = anyio.current_time()
            with pytest.raises(ActorCrashed):
                await ref.ask(Act(forever), within_s=100)
        told_at, ended = exits[0]
        assert told_at - began < 2
        assert (ended.reason, ended.is_unexpected, ended.restarts) == (ExitReason.KILLED, True, True)
        assert await ref.ask(Note("alive"), within_s=100) == 1
    assert journal[:3] == ["a setup", "a killed", "a setup"]


async def test_killing_idle_and_terminating_actors_over_and_over() -> None:
    """An actor whose task is killed while idle, or twice in a row, comes back each time."""
    journal: list[str] = []
    spec = scripted("a", journal)
    async with open_supervisor([spec]) as supervisor:
        for _ in range(20):
            await anyio.sleep(10)
            task_of("a").cancel()
            assert await supervisor.ref("a").ask(Note("alive"), within_s=10) == 1
    assert journal.count("a killed") == 20


@pytest.mark.filterwarnings("ignore:coroutine 'Child.live' was never awaited:RuntimeWarning")
async def test_a_task_killed_before_its_first_step_stops_the_supervisor() -> None:
    """A task that never ran cannot report itself: the block is cancelled and says so, nothing hangs (N-RUN-08)."""
    journal: list[str] = []
    starts: list[asyncio.Task[object]] = []

    async def block() -> None:
        async with open_supervisor([scripted("a", journal)], name="top") as supervisor:
            starts.append(asyncio.create_task(supervisor.start_child(scripted("b", journal))))
            await anyio.sleep(0)
            task_of("b").cancel()
            await anyio.sleep(3600)

    with pytest.raises(ActorTaskLost, match="supervisor 'top'"):
        await block()
    with pytest.raises(ActorStopped):
        await starts[0]
    assert journal == ["a setup", "a killed"]
    gc.collect()  # Python's own warning about the coroutine that never ran belongs to this test


async def test_nothing_depends_on_the_garbage_collector() -> None:
    """With a collection at each turn under load, no task and no message is lost (N-RUN-08)."""
    journal: list[str] = []
    async with open_supervisor([scripted(name, journal, mailbox_capacity=2) for name in "abc"]) as supervisor:

        async def ask_many(name: str) -> None:
            for _ in range(4):
                await supervisor.ref(name).ask(Note("x"), within_s=10)
                gc.collect()

        async with anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(ask_many, name)
                tasks.start_soon(ask_many, name)
        assert [child.handled for child in supervisor.statistics().children] == [8, 8, 8]


async def test_a_hosts_asyncio_timeout_reaches_through() -> None:
    """asyncio.timeout around the block cancels it, the children are cleaned up, and the host gets its TimeoutError."""
    journal: list[str] = []

    async def block() -> None:
        async with asyncio.timeout(5), open_supervisor([scripted(name, journal) for name in "ab"]):
            await anyio.sleep(3600)

    with pytest.raises(TimeoutError):
        await block()
    assert journal == ["a setup", "b setup", "b killed", "a killed"]


async def test_a_hosts_asyncio_task_group_reaches_through() -> None:
    """A failing sibling in an asyncio.TaskGroup cancels the block like any other task of the host."""
    journal: list[str] = []

    async def actors() -> None:
        async with open_supervisor([scripted("a", journal)]):
            await anyio.sleep(3600)

    async def fails() -> None:
        await anyio.sleep(1)
        raise KeyError("mine")

    async def host() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(actors())
            tasks.create_task(fails())

    with pytest.raises(ExceptionGroup) as caught:
        await host()
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    assert journal == ["a setup", "a killed"]


async def test_a_second_cancellation_cuts_the_stop_short_and_leaves_nothing() -> None:
    """A host task cancelled again while the children stop kills what is left; no task outlives the block."""
    journal: list[str] = []

    async def actors() -> None:
        specs = [scripted("a", journal), scripted("b", journal, terminate=forever, shutdown_s=100)]
        async with open_supervisor(specs):
            await anyio.sleep(3600)

    task = asyncio.create_task(actors())
    await anyio.sleep(1)
    task.cancel()
    await anyio.sleep(1)
    assert journal == ["a setup", "b setup", "b killed"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(journal[2:]) == ["a killed", "b killed"]
    assert not [other for other in asyncio.all_tasks() if other.get_name().startswith("actor ")]


async def test_a_sender_cancelled_in_the_turn_it_got_room_has_sent_nothing() -> None:
    """asyncio can cancel a task that was woken already: the place kept for it goes to the next sender."""
    mailbox: Mailbox[int] = Mailbox(capacity=1)
    mailbox.put_nowait(Pending(0))
    first = asyncio.create_task(mailbox.put(Pending(1)))
    second = asyncio.create_task(mailbox.put(Pending(2)))
    await anyio.sleep(0.1)
    mailbox.take()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    taken = mailbox.take()
    assert taken is not None
    assert taken.message == 2
    assert mailbox.is_quiet


async def test_a_sender_woken_by_room_sees_a_mailbox_that_closed_meanwhile() -> None:
    """A sender that was given a place in the same turn in which the actor stopped gets ActorStopped."""
    mailbox: Mailbox[int] = Mailbox(capacity=1)
    mailbox.put_nowait(Pending(0))
    waiting = asyncio.create_task(mailbox.put(Pending(1)))
    await anyio.sleep(0.1)
    mailbox.take()
    mailbox.close()
    with pytest.raises(ActorStopped):
        await waiting
    assert mailbox.statistics().undelivered == 0
