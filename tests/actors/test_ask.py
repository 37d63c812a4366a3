"""Asking and telling: answers, refusals, deadlines, crashes and stops."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from conveyor.actors import (
    ActorCrashed,
    ActorRef,
    ActorStopped,
    Answer,
    AskTimeout,
    Behaviour,
    ChildSpec,
    Command,
    ReplyError,
    RestartPolicy,
    open_supervisor,
)
from tests.support.scripted import Act, Boom, Crash, Note, Scripted, forever, scripted

pytestmark = pytest.mark.anyio


class TooSmall(ReplyError):
    """A validation error that is an answer by its class."""


class Raise(Command[None]):
    """Makes the strict actor raise what it is given."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Strict(Behaviour[Raise]):
    """Raises what it is told to; LookupError is listed as an answer."""

    answers = (LookupError,)

    async def handle(self, message: Raise) -> None:
        """Raise it."""
        raise message.error


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (TooSmall("one"), TooSmall),
        (KeyError("by its listed root"), KeyError),
        (Answer(OSError("carried")), OSError),
    ],
    ids=["a ReplyError", "a listed class", "carried by Answer"],
)
async def test_validation_is_an_answer(error: Exception, answer: type[Exception]) -> None:
    """An error marked as an answer reaches the asker as it is, and the actor lives on in the same life."""
    async with open_supervisor([ChildSpec("a", Strict)]) as supervisor:
        ref: ActorRef[Raise] = supervisor.ref("a")
        with pytest.raises(answer):
            await ref.ask(Raise(error), within_s=1)
        await ref.tell(Raise(error))
        with pytest.raises(answer):
            await ref.ask(Raise(error), within_s=1)
        statistics = ref.statistics()
        assert (statistics.handled, statistics.refused, statistics.crashed, statistics.restarts) == (3, 3, 0, 0)


async def test_any_other_error_is_a_crash() -> None:
    """The message an actor died on is answered ActorCrashed, caused by the error; the rest is handled later."""
    journal: list[str] = []
    outcomes: dict[str, object] = {}
    async with open_supervisor([scripted("a", journal)]) as supervisor:
        ref = supervisor.ref("a")

        async def ask(name: str, command: Command[object]) -> None:
            try:
                outcomes[name] = await ref.ask(command, within_s=10)
            except ActorCrashed as error:
                outcomes[name] = error.__cause__

        async with anyio.create_task_group() as tasks:
            for name, command in (
                ("first", Note("1")),
                ("second", Crash()),
                ("third", Note("3")),
                ("fourth", Note("4")),
            ):
                tasks.start_soon(ask, name, command)
                await anyio.lowlevel.checkpoint()
        assert (outcomes["first"], outcomes["third"], outcomes["fourth"]) == (1, 1, 2)
        assert isinstance(outcomes["second"], Boom)
        assert ref.statistics().crashed == 1


async def test_a_crash_keeps_the_whole_mailbox_in_order() -> None:
    """Messages told before and while an actor is between two lives are all handled, once, in order."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal, mailbox_capacity=20)]) as supervisor:
        ref = supervisor.ref("a")
        ref.tell_nowait(Crash())
        for number in range(10):
            ref.tell_nowait(Note(str(number)))
        await ref.ask(Note("end"), within_s=10)
    assert journal == ["a setup", "a failed", "a setup", *(f"a {n}" for n in range(10)), "a end", "a shutdown"]


async def test_an_ask_ends_at_its_deadline() -> None:
    """AskTimeout comes exactly within_s seconds after the ask, names the limit, and says that the command was begun."""
    async with open_supervisor([scripted("a", [], shutdown_s=0)]) as supervisor:
        began = anyio.current_time()
        with pytest.raises(AskTimeout, match=r"no answer within 2.5 s.*had begun it") as caught:
            await supervisor.ref("a").ask(Act(forever), within_s=2.5)
        assert anyio.current_time() - began == pytest.approx(2.5)
        assert caught.value.begun


async def test_a_command_that_was_not_begun_in_time_is_taken_back() -> None:
    """When the deadline passes in the mailbox, the command is never handled, and the error says so."""
    journal: list[str] = []

    async def slow(_: Scripted) -> None:
        await anyio.sleep(10)

    async with open_supervisor([scripted("a", journal)]) as supervisor:
        ref = supervisor.ref("a")
        await ref.tell(Act(slow))
        await anyio.sleep(1)
        with pytest.raises(AskTimeout, match="taken back") as caught:
            await ref.ask(Note("late"), within_s=1)
        assert not caught.value.begun
        assert ref.statistics().depth == 0
        assert await ref.ask(Note("next"), within_s=20) == 1
    assert "a late" not in journal


async def test_waiting_for_room_counts_against_the_deadline() -> None:
    """An ask that finds the mailbox full gives up at its deadline without having sent anything."""
    async with open_supervisor([scripted("a", [], mailbox_capacity=1, shutdown_s=0)]) as supervisor:
        ref = supervisor.ref("a")
        await ref.tell(Act(forever))
        await anyio.sleep(1)
        await ref.tell(Note("fills it"))
        with pytest.raises(AskTimeout) as caught:
            await ref.ask(Note("no room"), within_s=3)
        assert not caught.value.begun
        assert ref.statistics().mailbox.waiting_senders == 0
        with pytest.raises(anyio.WouldBlock):
            ref.tell_nowait(Note("no room"))


async def test_tell_waits_for_room() -> None:
    """Backpressure: a sender gets on only as fast as the actor handles, and the mailbox never exceeds its bound."""
    journal: list[str] = []

    async def one_second(_: Scripted) -> None:
        await anyio.sleep(1)

    async with open_supervisor([scripted("a", journal, mailbox_capacity=3)]) as supervisor:
        ref = supervisor.ref("a")
        began = anyio.current_time()
        for _ in range(10):
            await ref.tell(Act(one_second))
            assert ref.statistics().depth <= 3
        # One is in hand and three wait when the tenth is accepted, so six have been handled: six seconds.
        assert anyio.current_time() - began == pytest.approx(6)


async def test_what_waits_when_an_actor_stops_is_answered_and_counted() -> None:
    """Asks that were not begun get ActorStopped, the one in hand that overran ActorCrashed; nothing waits for ever."""
    outcomes: list[str] = []
    async with open_supervisor([scripted("a", [], shutdown_s=1, mailbox_capacity=4)]) as supervisor:
        ref = supervisor.ref("a")

        async def ask(command: Command[object]) -> None:
            try:
                await ref.ask(command, within_s=100)
            except (ActorStopped, ActorCrashed) as error:
                outcomes.append(type(error).__name__)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, Act(forever))
            await anyio.sleep(1)
            for number in range(6):  # four lie in the mailbox, two wait for room
                tasks.start_soon(ask, Note(str(number)))
            await anyio.sleep(1)
            await supervisor.stop_child("a")
        assert sorted(outcomes) == ["ActorCrashed", *["ActorStopped"] * 6]
        assert ref.statistics().mailbox.undelivered == 4
        assert ref.statistics().depth == 0


@pytest.mark.parametrize("policy", [RestartPolicy.TEMPORARY, RestartPolicy.TRANSIENT])
async def test_an_address_outlives_its_actor(policy: RestartPolicy) -> None:
    """Every way to reach a stopped actor raises ActorStopped at once and names it."""
    async with open_supervisor([scripted("a", [], restart=policy)]) as supervisor:
        ref = supervisor.ref("a")
        await supervisor.stop_child("a")
        await ref.wait_stopped()
        sends: list[Callable[[], object]] = [
            lambda: ref.tell(Note("x")),
            lambda: ref.ask(Note("x"), within_s=1),
            lambda: ref.tell_nowait(Note("x")),
        ]
        for send in sends:
            with pytest.raises(ActorStopped, match="'a' has stopped"):
                await send()  # type: ignore[misc]


async def test_a_busy_actor_lets_others_run() -> None:
    """A behaviour that never waits cannot starve the event loop: another task runs between its messages."""
    async with open_supervisor([scripted("a", [], mailbox_capacity=10_000)]) as supervisor:
        ref = supervisor.ref("a")
        for number in range(1000):
            ref.tell_nowait(Note(str(number)))
        seen: list[int] = []
        while ref.statistics().depth:
            await anyio.lowlevel.checkpoint()
            seen.append(ref.statistics().handled)
        assert len(seen) > 10
