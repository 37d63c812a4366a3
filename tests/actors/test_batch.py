"""Batch behaviours: many waiting messages at once, each answered on its own."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from conveyor.actors import (
    ActorContext,
    ActorCrashed,
    ActorExit,
    AskTimeout,
    BatchBehaviour,
    ChildSpec,
    Command,
    Pending,
    TaskLimitReached,
    UnansweredMessages,
    open_supervisor,
)
from tests.support.scripted import NO_DELAY, Boom

pytestmark = pytest.mark.anyio


class Put(Command[str]):
    """One thing to record; `what` says how it goes."""

    def __init__(self, what: str) -> None:
        self.what = what


class Recorder(BatchBehaviour[Put]):
    """Records a batch in one second, like a group commit."""

    max_batch = 5

    def __init__(self, batches: list[list[str]], abandoned: list[str]) -> None:
        self.batches = batches
        self.abandoned = abandoned

    async def setup(self, context: ActorContext[Put]) -> None:
        """Keep the context, for deferred answers."""
        self.context = context

    async def handle_batch(self, messages: Sequence[Pending[Put]]) -> None:
        """Take a second for all of them, then answer each."""
        self.batches.append([pending.message.what for pending in messages])
        await anyio.sleep(1)
        for pending in messages:
            what = pending.message.what
            match what:
                case "bad":
                    pending.refuse(ValueError(what))
                case "crash":
                    raise Boom(what)
                case "forget":
                    pass
                case "later":
                    pending.defer(on_abandoned=lambda: self.abandoned.append("later"))
                    self.context.start_task(self.answer_later, pending)
                case "never":
                    pending.defer()
                case _:
                    pending.answer(f"{what} done")

    async def answer_later(self, pending: Pending[Put]) -> None:
        """Answer five seconds later."""
        await anyio.sleep(5)
        pending.answer("late")


class Desk:
    """An open supervisor with one recorder, and a way to ask it many things at once."""

    def __init__(self, **limits: int) -> None:
        self.batches: list[list[str]] = []
        self.abandoned: list[str] = []
        self.exits: list[ActorExit] = []
        spec = ChildSpec("r", lambda: Recorder(self.batches, self.abandoned), backoff=NO_DELAY, **limits)  # type: ignore[arg-type]
        self.supervisor = open_supervisor([spec], on_exit=self.exits.append)

    async def ask_all(self, *things: str) -> list[str]:
        """Ask all at once, in order; returns the answers, or the names of the errors."""
        outcomes = [""] * len(things)
        ref = self.supervisor.ref("r")

        async def ask(index: int, what: str) -> None:
            try:
                outcomes[index] = await ref.ask(Put(what), within_s=100)
            except (ActorCrashed, ValueError, AskTimeout) as error:
                outcomes[index] = type(error).__name__

        async with anyio.create_task_group() as tasks:
            for index, what in enumerate(things):
                tasks.start_soon(ask, index, what)
                await anyio.sleep(0.001)
        return outcomes


async def test_waiting_messages_come_together() -> None:
    """While one batch is worked on, later messages gather and come as the next one, oldest first, max_batch at most."""
    desk = Desk()
    async with desk.supervisor:
        began = anyio.current_time()
        answers = await desk.ask_all(*"abcdefghi")
        assert answers == [f"{what} done" for what in "abcdefghi"]
        assert desk.batches == [["a"], ["b", "c", "d", "e", "f"], ["g", "h", "i"]]
        assert anyio.current_time() - began == pytest.approx(3)
        assert desk.supervisor.ref("r").statistics().handled == 9


async def test_each_message_of_a_batch_has_its_own_answer() -> None:
    """A refused message does not touch the others of its batch."""
    desk = Desk()
    async with desk.supervisor:
        assert await desk.ask_all("a", "b", "bad", "c") == ["a done", "b done", "ValueError", "c done"]
        assert desk.supervisor.ref("r").statistics().refused == 1


async def test_a_crash_answers_what_the_batch_owes() -> None:
    """Answers given before the crash stand, the batch's unanswered asks get ActorCrashed, later ones are handled."""
    desk = Desk()
    async with desk.supervisor:
        outcomes = await desk.ask_all("a", "b", "crash", "c", "d", "e", "f")
        assert outcomes == [
            "a done",
            "b done",
            "ActorCrashed",
            "ActorCrashed",
            "ActorCrashed",
            "ActorCrashed",
            "f done",
        ]
        assert desk.batches[2] == ["f"]


async def test_forgetting_an_answer_is_a_crash_not_a_hang() -> None:
    """An ask that handle_batch leaves unanswered gets ActorCrashed at once, caused by UnansweredMessages."""
    desk = Desk()
    async with desk.supervisor:
        assert await desk.ask_all("forget") == ["ActorCrashed"]
        assert await desk.ask_all("a") == ["a done"]
    assert isinstance(desk.exits[0].error, UnansweredMessages)


async def test_a_deferred_answer_comes_from_an_owned_task() -> None:
    """A deferred ask does not hold up the next batch; its answer comes when its task gives it."""
    desk = Desk()
    async with desk.supervisor:
        began = anyio.current_time()
        assert await desk.ask_all("later", "a") == ["late", "a done"]
        assert anyio.current_time() - began == pytest.approx(6)
    assert desk.abandoned == []


async def test_the_end_of_a_life_answers_what_was_deferred() -> None:
    """When the actor crashes before a deferred answer is given, the asker gets ActorCrashed."""
    desk = Desk()
    async with desk.supervisor:
        assert await desk.ask_all("later", "never", "crash") == ["ActorCrashed"] * 3


async def test_an_asker_that_gives_up_is_told_to_the_one_who_deferred() -> None:
    """on_abandoned is called once when the deadline of a deferred ask passes; the late answer is dropped quietly."""
    desk = Desk()
    async with desk.supervisor:
        with pytest.raises(AskTimeout):
            await desk.supervisor.ref("r").ask(Put("later"), within_s=3)
        assert desk.abandoned == ["later"]
        await anyio.sleep(10)
        assert await desk.ask_all("a") == ["a done"]
    assert desk.abandoned == ["later"]


async def test_owing_too_many_answers_is_a_crash() -> None:
    """No more answers may be deferred at once than the actor may own tasks."""
    desk = Desk(max_tasks=2)
    async with desk.supervisor:
        assert await desk.ask_all("never", "never", "never") == ["ActorCrashed"] * 3
    assert isinstance(desk.exits[0].error, TaskLimitReached)


async def test_a_batch_behaviour_can_be_called_for_one_message() -> None:
    """handle() is a batch of one: it returns the answer or raises the refusal, without an actor around it."""
    recorder = Recorder([], [])
    assert await recorder.handle(Put("a")) == "a done"
    with pytest.raises(ValueError, match="bad"):
        await recorder.handle(Put("bad"))
