"""The probe that tests play an actor with."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from conveyor.actors import ActorStopped
from tests.support.actor_probe import ActorProbe
from tests.support.scripted import Crash, Note

pytestmark = pytest.mark.anyio


async def test_a_probe_takes_and_answers() -> None:
    """What is asked of the probe's address reaches the test, and the test's answer reaches the asker."""
    probe: ActorProbe[Any] = ActorProbe()
    answers: list[object] = []

    async def ask() -> None:
        answers.append(await probe.ref.ask(Note("x"), within_s=10))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        pending = await probe.expect(Note)
        assert pending.message.text == "x"
        pending.answer(7)
    assert answers == [7]
    await probe.expect_silence(for_s=3600)


async def test_a_probe_fails_the_test_when_it_is_not_satisfied() -> None:
    """Silence, a wrong message, and a message where silence was expected are assertion errors."""
    probe: ActorProbe[Any] = ActorProbe("p")
    with pytest.raises(AssertionError, match="'p' got no message within 3 s"):
        await probe.receive(within_s=3)
    await probe.ref.tell(Note("x"))
    with pytest.raises(AssertionError, match="expected Crash"):
        await probe.expect(Crash)
    await probe.ref.tell(Note("x"))
    with pytest.raises(AssertionError, match="expected silence"):
        await probe.expect_silence(for_s=1)


async def test_a_probe_can_be_gone() -> None:
    """A stopped probe behaves like a stopped actor."""
    probe: ActorProbe[Any] = ActorProbe()
    probe.stop()
    with pytest.raises(ActorStopped):
        await probe.ref.tell(Note("x"))
