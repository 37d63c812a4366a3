"""The bounded queue: who waits, in which order, and what cancellation leaves behind."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from conveyor.actors import ActorStopped, Mailbox, Pending
from tests.support.cancel_points import at_each_wait, cancelled_at

pytestmark = pytest.mark.anyio


def drain(mailbox: Mailbox[int]) -> list[int]:
    """Take all that lies in the mailbox."""
    taken = []
    while (pending := mailbox.take()) is not None:
        taken.append(pending.message)
    return taken


async def settle() -> None:
    """Let every task run until it waits; virtual time makes this exact."""
    await anyio.sleep(0.001)


async def test_the_bound_holds_and_a_full_mailbox_says_so() -> None:
    """No more than capacity messages lie in a mailbox; put_nowait raises WouldBlock on the next."""
    mailbox: Mailbox[int] = Mailbox(capacity=3)
    for number in range(3):
        mailbox.put_nowait(Pending(number))
    with pytest.raises(anyio.WouldBlock):
        mailbox.put_nowait(Pending(3))
    assert mailbox.statistics().depth == 3
    assert drain(mailbox) == [0, 1, 2]


@pytest.mark.parametrize("capacity", [1, 2, 7])
async def test_senders_wait_and_are_served_in_order(capacity: int) -> None:
    """Senders beyond the bound wait, come in first come first served, and the bound holds all the time."""
    mailbox: Mailbox[int] = Mailbox(capacity=capacity)
    taken: list[int] = []
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(mailbox.put, Pending(number))
            await settle()
        assert mailbox.statistics().depth == capacity
        assert mailbox.statistics().waiting_senders == 20 - capacity
        while len(taken) < 20:
            assert mailbox.statistics().depth <= capacity
            taken += drain(mailbox)
            await settle()
    assert taken == list(range(20))


async def test_put_nowait_does_not_overtake_a_waiting_sender() -> None:
    """Room that a waiting sender was promised is not given to one that does not wait."""
    mailbox: Mailbox[int] = Mailbox(capacity=1)
    mailbox.put_nowait(Pending(0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mailbox.put, Pending(1))
        await settle()
        mailbox.take()
        with pytest.raises(anyio.WouldBlock):
            mailbox.put_nowait(Pending(2))
        await settle()
        assert drain(mailbox) == [1]


async def test_put_is_all_or_nothing_at_each_wait() -> None:
    """Cancelled at any wait, a put has sent nothing and keeps no room; else its message lies in the mailbox once."""

    async def attempt(index: int) -> bool:
        mailbox: Mailbox[int] = Mailbox(capacity=1)
        mailbox.put_nowait(Pending(0))

        async def take_later() -> None:
            for _ in range(3):
                await checkpoint()
            mailbox.take()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_later)
            cancelled = await cancelled_at(index, lambda: mailbox.put(Pending(1)))
        assert drain(mailbox) == ([] if cancelled else [1])
        mailbox.put_nowait(Pending(2))
        assert mailbox.statistics().waiting_senders == 0
        return cancelled

    assert await at_each_wait(attempt) >= 1


async def test_a_cancelled_sender_passes_its_turn_on() -> None:
    """When the sender whose turn it is was cancelled, the next one gets the room."""
    mailbox: Mailbox[int] = Mailbox(capacity=1)
    mailbox.put_nowait(Pending(0))
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as first:
                first.start_soon(mailbox.put, Pending(1))
                await settle()
                tasks.start_soon(mailbox.put, Pending(2))
                await settle()
                scope.cancel()
                mailbox.take()
        await settle()
        assert drain(mailbox) in ([2], [1, 2])
        assert mailbox.statistics().waiting_senders == 0


async def test_closing_answers_everybody() -> None:
    """Closing gives ActorStopped to waiting asks and waiting senders, and counts what lay in the mailbox."""
    mailbox: Mailbox[int] = Mailbox(capacity=2, owner="a")
    asked: Pending[int] = Pending(0, is_ask=True)
    mailbox.put_nowait(asked)
    mailbox.put_nowait(Pending(1))
    outcomes: list[str] = []

    async def send() -> None:
        try:
            await mailbox.put(Pending(2))
        except ActorStopped as error:
            outcomes.append(error.actor)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        tasks.start_soon(send)
        await settle()
        mailbox.close()
        mailbox.close()
    assert outcomes == ["a", "a"]
    with pytest.raises(ActorStopped):
        asked.outcome()
    assert mailbox.statistics().undelivered == 2
    with pytest.raises(ActorStopped):
        mailbox.put_nowait(Pending(3))
    with pytest.raises(ActorStopped):
        await mailbox.put(Pending(3))


async def test_a_message_that_was_not_begun_can_be_taken_back() -> None:
    """withdraw removes a waiting message and gives its room away; a begun one stays begun."""
    mailbox: Mailbox[int] = Mailbox(capacity=1)
    first: Pending[int] = Pending(0)
    mailbox.put_nowait(first)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mailbox.put, Pending(1))
        await settle()
        assert mailbox.withdraw(first)
        assert not mailbox.withdraw(first)
    begun = mailbox.take()
    assert begun is not None
    assert begun.message == 1
    assert not mailbox.withdraw(begun)


async def test_statistics_tell_how_long_the_oldest_waits() -> None:
    """oldest_wait_s is the age of the message at the head."""
    mailbox: Mailbox[int] = Mailbox(capacity=5)
    assert mailbox.statistics().oldest_wait_s == 0
    mailbox.put_nowait(Pending(0))
    await anyio.sleep(7)
    mailbox.put_nowait(Pending(1))
    await anyio.sleep(2)
    assert mailbox.statistics().oldest_wait_s == pytest.approx(9)
    mailbox.take()
    assert mailbox.statistics().oldest_wait_s == pytest.approx(2)
    assert mailbox.statistics().accepted == 2


async def test_a_message_is_answered_once() -> None:
    """A second answer is a defect of the caller and changes nothing."""
    pending: Pending[int] = Pending(0, is_ask=True)
    pending.answer(1)
    with pytest.raises(RuntimeError, match="answered before"):
        pending.refuse(ValueError())
    assert pending.outcome() == 1
    assert not pending.is_refused


def test_a_mailbox_without_room_is_refused() -> None:
    """A capacity below 1 is a ValueError that names the actor."""
    with pytest.raises(ValueError, match="'a' has capacity 0"):
        Mailbox(capacity=0, owner="a")
