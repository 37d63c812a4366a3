"""Starting children: ready means ready, and a start that fails or is cancelled leaves nothing behind."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors import (
    ActorExit,
    ActorStopped,
    Behaviour,
    ChildSpec,
    DuplicateActor,
    ExitReason,
    RestartPolicy,
    Supervisor,
    SupervisorStopped,
    UnknownActor,
    open_supervisor,
)
from tests.support.cancel_points import at_each_wait, cancelled_at
from tests.support.scripted import Act, Boom, Note, Scripted, fail, forever, scripted

pytestmark = pytest.mark.anyio


async def five_seconds(_: Scripted) -> None:
    """Take five seconds."""
    await anyio.sleep(5)


async def test_start_returns_when_every_child_is_ready() -> None:
    """Children are set up one after the other, in order, and the block begins when the last is ready."""
    journal: list[str] = []
    began = anyio.current_time()
    async with open_supervisor([scripted(name, journal, setup=five_seconds) for name in "abc"]):
        assert anyio.current_time() - began == pytest.approx(15)
        assert journal == ["a setup", "b setup", "c setup"]


async def test_a_failed_start_raises_its_error_and_stops_the_others_in_reverse() -> None:
    """The starter gets the error of setup itself, never a group (N-RUN-07), with a note that names the actor."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    specs = [scripted("a", journal), scripted("b", journal), scripted("c", journal, setup=fail), scripted("d", journal)]
    with pytest.raises(Boom) as caught:
        async with open_supervisor(specs, on_exit=exits.append, name="top"):
            pytest.fail("the block must not begin")
    assert caught.value.__notes__ == ["while starting actor 'c' under supervisor 'top'"]
    assert journal == ["a setup", "b setup", "c setup", "b shutdown", "a shutdown"]
    assert [ended.name for ended in exits] == ["b", "a"]


async def test_a_behaviour_that_cannot_be_made_is_a_failed_start() -> None:
    """An error in the factory of a behaviour reaches the starter like one in setup."""

    def broken() -> Behaviour[Note]:
        raise Boom("no behaviour")

    with pytest.raises(Boom):
        async with open_supervisor([ChildSpec("a", broken)]):
            pytest.fail("the block must not begin")


async def test_a_dynamic_child_that_fails_to_start_leaves_nothing() -> None:
    """After a failed start_child the name is free again and the other children never noticed."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal)]) as supervisor:
        with pytest.raises(Boom):
            await supervisor.start_child(scripted("b", journal, setup=fail))
        with pytest.raises(UnknownActor):
            supervisor.ref("b")
        ref = await supervisor.start_child(scripted("b", journal))
        assert await ref.ask(Note("x"), within_s=1) == 1
        assert [child.name for child in supervisor.statistics().children] == ["a", "b"]
    assert journal == ["a setup", "b setup", "b setup", "b x", "b shutdown", "a shutdown"]


async def test_messages_sent_before_the_actor_is_ready_wait_for_it() -> None:
    """The address works during a restart's setup; what is told then is handled once it is ready."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal, setup=five_seconds)]) as supervisor:
        ref = supervisor.ref("a")
        await ref.tell(Act(fail))
        began = anyio.current_time()
        assert await ref.ask(Note("x"), within_s=60) == 1
        assert anyio.current_time() - began == pytest.approx(5)


async def test_names_are_unique() -> None:
    """A second child of the same name is refused and the first is untouched."""
    async with open_supervisor([scripted("a", [])]) as supervisor:
        with pytest.raises(DuplicateActor, match="already has a child named 'a'"):
            await supervisor.start_child(scripted("a", []))
        assert await supervisor.ref("a").ask(Note("x"), within_s=1) == 1


async def test_no_child_starts_once_the_supervisor_is_stopping() -> None:
    """start_child raises SupervisorStopped before the block, during the stop, and after it."""
    supervisor = open_supervisor()
    refused: list[str] = []

    async def start_another(_: Scripted) -> None:
        with pytest.raises(SupervisorStopped):
            await supervisor.start_child(scripted("b", []))
        refused.append("b")

    with pytest.raises(SupervisorStopped):
        await supervisor.start_child(scripted("a", []))
    async with supervisor:
        await supervisor.start_child(scripted("a", [], terminate=start_another))
    with pytest.raises(SupervisorStopped):
        await supervisor.start_child(scripted("a", []))
    assert refused == ["b"]


async def test_a_supervisor_opens_once() -> None:
    """Entering the same supervisor twice is a defect of the caller."""
    supervisor = open_supervisor()
    async with supervisor:
        with pytest.raises(RuntimeError, match="opened before"):
            await supervisor.__aenter__()


async def test_a_start_cancelled_at_any_wait_is_undone() -> None:
    """Cancelled at each wait of start_child, the child is gone, its name is free, and nothing runs on."""

    async def two_waits(actor: Scripted) -> None:
        await anyio.sleep(1)
        actor.write("half way")
        await anyio.sleep(1)

    async def attempt(index: int) -> bool:
        journal: list[str] = []
        async with open_supervisor() as supervisor:
            cancelled = await cancelled_at(
                index, lambda: supervisor.start_child(scripted("a", journal, setup=two_waits))
            )
            assert len(supervisor.statistics().children) == (0 if cancelled else 1)
            before = list(journal)
            await anyio.sleep(100)
            assert journal == before
        return cancelled

    assert await at_each_wait(attempt) >= 1


async def test_an_opening_cancelled_at_any_wait_is_undone() -> None:
    """Cancelled at each wait of opening, exactly the children that were ready are terminated, in reverse."""

    async def attempt(index: int) -> bool:
        journal: list[str] = []

        async def open_and_close() -> None:
            async with open_supervisor([scripted(name, journal) for name in "abc"]):
                pass

        cancelled = await cancelled_at(index, open_and_close)
        started = [line[0] for line in journal if line.endswith("setup")]
        ended = [line[0] for line in journal if not line.endswith("setup")]
        assert ended == started[::-1]
        return cancelled

    assert await at_each_wait(attempt) >= 3


async def test_a_child_stopped_while_it_starts_is_not_handed_out() -> None:
    """When somebody else stops a child before it is ready, its starter gets ActorStopped."""

    async def stop_it(supervisor: Supervisor) -> None:
        await anyio.sleep(1)
        await supervisor.stop_child("a", ExitReason.KILLED)

    async with open_supervisor() as supervisor, anyio.create_task_group() as tasks:
        tasks.start_soon(stop_it, supervisor)
        with pytest.raises(ActorStopped):
            await supervisor.start_child(scripted("a", [], setup=forever))


async def test_a_temporary_child_may_be_done_before_its_starter_looks() -> None:
    """A child that was ready and ended at once is a good start; its address says that it has stopped."""

    async def stop(actor: Scripted) -> None:
        actor.context.stop()

    async with open_supervisor() as supervisor:
        ref = await supervisor.start_child(scripted("a", [], setup=stop, restart=RestartPolicy.TEMPORARY))
        await ref.wait_stopped()


@pytest.mark.parametrize(
    "limits",
    [{"name": ""}, {"mailbox_capacity": 0}, {"shutdown_s": -1}, {"max_tasks": 0}],
    ids=lambda limits: next(iter(limits)),
)
def test_a_child_spec_out_of_range_is_refused(limits: dict[str, object]) -> None:
    """A limit that makes no sense is a ValueError when the spec is made, not later."""
    with pytest.raises(ValueError, match=r"must be|needs a name"):
        scripted(**{"name": "a", "journal": [], **limits})  # type: ignore[arg-type]
