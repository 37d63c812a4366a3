"""What the kernel lends to a behaviour: waking, owned tasks, passivation."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors import (
    ActorCrashed,
    ActorExit,
    ActorStopped,
    ExitReason,
    RestartPolicy,
    TaskHandle,
    TaskLimitReached,
    open_supervisor,
)
from tests.support.scripted import Act, Boom, Note, Scripted, fail, forever, scripted

pytestmark = pytest.mark.anyio


def wake_in(*delays_s: float | None) -> Act:
    """Return a message that sets these wakes, one after the other."""

    async def act(actor: Scripted) -> None:
        for delay_s in delays_s:
            actor.context.wake_at(None if delay_s is None else anyio.current_time() + delay_s)

    return Act(act)


async def test_an_actor_wakes_at_its_time_and_not_before() -> None:
    """wake is called at the deadline, once; messages that come earlier are handled earlier."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal)]) as supervisor:
        ref, began = supervisor.ref("a"), anyio.current_time()
        await ref.ask(wake_in(3600), within_s=1)
        await anyio.sleep(3599)
        await ref.ask(Note("early"), within_s=1)
        await anyio.sleep(7200)
        assert journal == ["a setup", "a early", f"a wake {began + 3600:g}"]


@pytest.mark.parametrize(
    ("delays_s", "wakes_after_s"),
    [((100, 5), [5]), ((5, 100), [100]), ((5, None), []), ((-50,), [0])],
    ids=["sooner", "later", "dropped", "past"],
)
async def test_the_last_wake_set_counts(delays_s: tuple[float | None, ...], wakes_after_s: list[float]) -> None:
    """A new deadline replaces the former, None drops it, one in the past wakes at once."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal)]) as supervisor:
        began = anyio.current_time()
        await supervisor.ref("a").ask(wake_in(*delays_s), within_s=1)
        await anyio.sleep(1000)
        assert journal[1:] == [f"a wake {began + after_s:g}" for after_s in wakes_after_s]


async def test_a_task_can_set_the_wake_of_its_waiting_actor() -> None:
    """wake_at takes effect at once, also when the actor already waits for a later time or for nothing."""
    journal: list[str] = []

    async def setup(actor: Scripted) -> None:
        async def later() -> None:
            await anyio.sleep(10)
            actor.context.wake_at(anyio.current_time() + 1)

        actor.context.wake_at(anyio.current_time() + 500)
        actor.context.start_task(later)

    async with open_supervisor([scripted("a", journal, setup=setup)]):
        began = anyio.current_time()
        await anyio.sleep(1000)
    assert journal == ["a setup", f"a wake {began + 11:g}", "a shutdown"]


async def test_a_due_wake_is_not_starved_by_messages() -> None:
    """A wake that is due comes before the next message, however full the mailbox is."""
    journal: list[str] = []

    async def slow(_: Scripted) -> None:
        await anyio.sleep(10)

    async with open_supervisor([scripted("a", journal)]) as supervisor:
        ref = supervisor.ref("a")
        await ref.tell(wake_in(5))
        await ref.tell(Act(slow))
        await ref.ask(Note("after"), within_s=100)
        assert [line.split()[1] for line in journal] == ["setup", "wake", "after"]


async def test_a_failing_wake_is_a_crash() -> None:
    """An error in wake ends the life like any other; the next life has no wake set."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal, wake=fail)]) as supervisor:
        await supervisor.ref("a").tell(wake_in(1))
        await anyio.sleep(100)
        assert journal == ["a setup", "a failed", "a setup"]


async def test_owned_tasks_end_with_their_life_before_terminate() -> None:
    """Stopping cancels the tasks of an actor and waits for their clean-up, and only then calls terminate."""
    journal: list[str] = []

    async def careful(actor: Scripted) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
            actor.write("task cleaned up")

    async def start(actor: Scripted) -> None:
        actor.context.start_task(careful, actor)

    async with open_supervisor([scripted("a", journal, setup=start)]) as supervisor:
        await anyio.sleep(1)
        assert supervisor.ref("a").statistics().tasks == 1
    assert journal == ["a setup", "a task cleaned up", "a shutdown"]


async def test_a_failing_task_crashes_its_actor() -> None:
    """The error of an owned task is the error of the life (N-RUN-08); the message in hand gets ActorCrashed."""
    exits: list[ActorExit] = []

    async def start_failing(actor: Scripted) -> None:
        actor.context.start_task(fail)
        await anyio.sleep_forever()

    async with open_supervisor([scripted("a", [])], on_exit=exits.append) as supervisor:
        ref = supervisor.ref("a")
        with pytest.raises(ActorCrashed) as caught:
            await ref.ask(Act(start_failing), within_s=10)
        assert isinstance(caught.value.__cause__, Boom)
        assert await ref.ask(Note("alive"), within_s=10) == 1
    assert (exits[0].reason, type(exits[0].error)) == (ExitReason.FAILED, Boom)


async def test_a_task_can_be_cancelled_alone() -> None:
    """Cancelling one handle ends that task and nothing else; doing it again is harmless."""
    handles: list[TaskHandle] = []

    async def start(actor: Scripted) -> None:
        handles.extend(actor.context.start_task(forever, name=f"t{number}") for number in range(2))
        handles[1].cancel()

    async with open_supervisor([scripted("a", [])]) as supervisor:
        ref = supervisor.ref("a")
        await ref.ask(Act(start), within_s=1)
        await handles[1].wait_finished()
        assert [handle.is_running for handle in handles] == [True, False]
        handles[0].cancel()
        await handles[0].wait_finished()
        handles[0].cancel()
        assert ref.statistics().tasks == 0
        assert ref.statistics().restarts == 0


async def test_the_number_of_tasks_is_bounded() -> None:
    """An actor may own max_tasks running tasks; one more raises TaskLimitReached, an ended one frees a place."""

    async def fill(actor: Scripted) -> str:
        handles = [actor.context.start_task(forever) for _ in range(3)]
        with pytest.raises(TaskLimitReached, match="already owns 3"):
            actor.context.start_task(forever)
        handles[0].cancel()
        await handles[0].wait_finished()
        actor.context.start_task(forever)
        return "full"

    async with open_supervisor([scripted("a", [], max_tasks=3)]) as supervisor:
        assert await supervisor.ref("a").ask(Act(fill), within_s=1) == "full"


async def test_a_task_started_in_terminate_is_refused() -> None:
    """Once a life is over its context starts nothing more, and the starter is told."""
    seen: list[str] = []

    async def terminate(actor: Scripted) -> None:
        try:
            actor.context.start_task(forever)
        except RuntimeError as error:
            seen.append(str(error))

    async with open_supervisor([scripted("a", [], terminate=terminate)]):
        pass
    assert len(seen) == 1
    assert "is over" in seen[0]


async def passivate(actor: Scripted) -> None:
    """Ask to end when idle; a message body and a hook."""
    actor.context.passivate()


async def test_an_idle_actor_passivates_normally() -> None:
    """With an empty mailbox the actor ends NORMAL, and its address says that it has stopped."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal, restart=RestartPolicy.TRANSIENT)]) as supervisor:
        ref = supervisor.ref("a")
        await ref.ask(Act(passivate), within_s=1)
        await ref.wait_stopped()
        with pytest.raises(ActorStopped):
            await ref.tell(Note("x"))
    assert journal == ["a setup", "a normal"]


async def test_a_waiting_message_cancels_passivation() -> None:
    """Messages that already wait when an actor asks to passivate are handled, and it lives on."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal, restart=RestartPolicy.TRANSIENT)]) as supervisor:
        ref = supervisor.ref("a")
        ref.tell_nowait(Act(passivate))
        ref.tell_nowait(Note("x"))
        await anyio.sleep(10)
        assert await ref.ask(Note("y"), within_s=1) == 2


async def test_a_message_during_the_last_clean_up_starts_the_actor_again() -> None:
    """A message that arrives while a passivating actor is in terminate is handled by a new life, not lost."""
    journal: list[str] = []

    async def slow(_: Scripted) -> None:
        await anyio.sleep(3)

    spec = scripted("a", journal, restart=RestartPolicy.TRANSIENT, terminate=slow)
    async with open_supervisor([spec]) as supervisor:
        ref = supervisor.ref("a")
        await ref.ask(Act(passivate), within_s=1)
        await anyio.sleep(1)
        assert await ref.ask(Note("late"), within_s=10) == 1
        assert ref.statistics().restarts == 0
    assert journal == ["a setup", "a normal", "a setup", "a late", "a shutdown"]


async def test_a_permanent_actor_may_not_passivate() -> None:
    """It would be restarted at once, so asking is an error that says what to change."""
    exits: list[ActorExit] = []
    async with open_supervisor([scripted("a", [])], on_exit=exits.append) as supervisor:
        with pytest.raises(ActorCrashed):
            await supervisor.ref("a").ask(Act(passivate), within_s=1)
    assert "TRANSIENT" in str(exits[0].error)


@pytest.mark.parametrize("reason", [ExitReason.KILLED, ExitReason.FAILED])
async def test_an_actor_stops_itself_only_for_good_reasons(reason: ExitReason) -> None:
    """context.stop takes NORMAL or SHUTDOWN; anything else is an error."""
    exits: list[ActorExit] = []

    async def stop(actor: Scripted) -> None:
        actor.context.stop(reason)

    async with open_supervisor([scripted("a", [])], on_exit=exits.append) as supervisor:
        await supervisor.ref("a").tell(Act(stop))
        await anyio.sleep(1)
    assert isinstance(exits[0].error, ValueError)
