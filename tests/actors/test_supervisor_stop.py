"""Stopping children: in exact reverse order, one by one, each within its own limit."""

from __future__ import annotations

import anyio
import pytest

from conveyor.actors import ActorCrashed, ActorExit, ActorStopped, ExitReason, open_supervisor
from tests.support.scripted import Act, Boom, Hook, Note, Scripted, fail, forever, scripted

pytestmark = pytest.mark.anyio


class Stopwatch:
    """Journal lines with the seconds since the start."""

    def __init__(self) -> None:
        self.began = anyio.current_time()
        self.lines: list[tuple[float, str]] = []

    def append(self, line: str) -> None:
        """Stamp a line."""
        self.lines.append((round(anyio.current_time() - self.began, 3), line))


def takes(delay_s: float) -> Hook:
    """Return a hook that takes so many seconds."""

    async def hook(_: Scripted) -> None:
        await anyio.sleep(delay_s)

    return hook


async def test_children_stop_in_exact_reverse_order_one_by_one() -> None:
    """No child begins to stop before the one started after it is gone, dynamic ones included."""
    watch = Stopwatch()
    specs = [scripted(name, watch, terminate=takes(1)) for name in "abc"]  # type: ignore[arg-type]
    async with open_supervisor(specs) as supervisor:
        await supervisor.start_child(scripted("d", watch, terminate=takes(2)))  # type: ignore[arg-type]
    assert watch.lines[4:] == [(0, "d shutdown"), (2, "c shutdown"), (3, "b shutdown"), (4, "a shutdown")]
    assert anyio.current_time() - watch.began == pytest.approx(5)


async def test_the_message_in_hand_is_finished_and_the_rest_is_not_begun() -> None:
    """A stop lets the message in hand end within the limit and answers it; what waits gets ActorStopped."""
    journal: list[str] = []
    outcomes: list[object] = []
    async with open_supervisor([scripted("a", journal, shutdown_s=5)]) as supervisor:
        ref = supervisor.ref("a")

        async def slow(actor: Scripted) -> str:
            await anyio.sleep(4)
            actor.write("finished")
            return "answer"

        async def ask_slow() -> None:
            outcomes.append(await ref.ask(Act(slow), within_s=100))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_slow)
            await anyio.sleep(1)
            await ref.tell(Note("not begun"))
            await supervisor.stop_child("a")
        assert outcomes == ["answer"]
        assert ref.statistics().mailbox.undelivered == 1
    assert journal == ["a setup", "a finished", "a shutdown"]


@pytest.mark.parametrize(("works_s", "reason", "overran"), [(2.9, "shutdown", False), (3.1, "killed", True)])
async def test_the_limit_of_the_message_in_hand(works_s: float, reason: str, overran: bool) -> None:
    """Up to shutdown_s the message in hand may end by itself; then it is cancelled, and terminate says KILLED."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    spec = scripted("a", journal, shutdown_s=3)
    async with open_supervisor([spec], on_exit=exits.append) as supervisor:
        await supervisor.ref("a").tell(Act(takes(1 + works_s)))
        await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(min(works_s, 3))
    assert journal == ["a setup", f"a {reason}"]
    assert [(ended.reason.value, ended.overran, ended.is_unexpected) for ended in exits] == [(reason, overran, overran)]


async def test_the_limit_of_terminate() -> None:
    """A terminate that overruns shutdown_s is cancelled and reported KILLED, and the next child still stops."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    specs = [scripted("a", journal), scripted("b", journal, terminate=forever, shutdown_s=3)]
    async with open_supervisor(specs, on_exit=exits.append):
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(3)
    assert journal[2:] == ["b shutdown", "a shutdown"]
    assert [(ended.name, ended.reason, ended.overran) for ended in exits] == [
        ("b", ExitReason.KILLED, True),
        ("a", ExitReason.SHUTDOWN, False),
    ]


async def test_each_child_has_its_own_limit() -> None:
    """The limits of children that all overrun add up: message in hand and terminate, child by child."""
    specs = [
        scripted(name, [], shutdown_s=limit_s, terminate=forever) for name, limit_s in (("a", 1), ("b", 10), ("c", 0.5))
    ]
    async with open_supervisor(specs) as supervisor:
        for name in "abc":
            await supervisor.ref(name).tell(Act(forever))
        await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(2 * (1 + 10 + 0.5))


async def test_a_terminate_that_fails_is_reported_and_stops_nothing() -> None:
    """An error in terminate is told as FAILED, the child is gone all the same, and the block ends well."""
    journal: list[str] = []
    exits: list[ActorExit] = []
    async with open_supervisor([scripted("a", journal), scripted("b", journal, terminate=fail)], on_exit=exits.append):
        pass
    assert [(ended.name, ended.reason) for ended in exits] == [("b", ExitReason.FAILED), ("a", ExitReason.SHUTDOWN)]
    assert isinstance(exits[0].error, Boom)


async def test_a_stop_within_a_limit_of_its_own() -> None:
    """stop_child(within_s=...) takes the place of the spec's shutdown_s."""
    async with open_supervisor([scripted("a", [], shutdown_s=100)]) as supervisor:
        ref = supervisor.ref("a")
        await ref.tell(Act(forever))
        await anyio.sleep(1)
        began = anyio.current_time()
        await supervisor.stop_child("a", within_s=2)
        assert anyio.current_time() - began == pytest.approx(2)


async def test_a_kill_does_not_wait_for_the_message_in_hand() -> None:
    """stop_child(KILLED) cancels at once: the asker gets ActorCrashed without a cause, terminate cleans up."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal)]) as supervisor, anyio.create_task_group() as tasks:
        ref = supervisor.ref("a")

        async def ask() -> None:
            with pytest.raises(ActorCrashed, match="was cancelled") as caught:
                await ref.ask(Act(forever), within_s=100)
            assert caught.value.__cause__ is None

        tasks.start_soon(ask)
        await anyio.sleep(1)
        began = anyio.current_time()
        await supervisor.stop_child("a", ExitReason.KILLED)
        assert anyio.current_time() - began < 0.001
    assert journal == ["a setup", "a killed"]


async def test_cancelling_the_wait_does_not_cancel_the_stop() -> None:
    """A stop_child that is cancelled leaves the child stopping; waiting again sees it gone."""
    journal: list[str] = []
    async with open_supervisor([scripted("a", journal, terminate=takes(3))]) as supervisor:
        with anyio.move_on_after(1) as scope:
            await supervisor.stop_child("a")
        assert scope.cancelled_caught
        ref = supervisor.ref("a")
        await supervisor.stop_child("a")
        with pytest.raises(ActorStopped):
            await ref.tell(Note("x"))
    assert journal == ["a setup", "a shutdown"]


async def test_host_cancellation_passes_straight_through_in_order() -> None:
    """When the host is cancelled, children are cancelled and cleaned up one by one in reverse order (N-RUN-05).

    A child that stops can still ask one that was started before it, which is why the order matters.
    """
    watch = Stopwatch()

    async def tell_the_first(actor: Scripted) -> None:
        await supervisor.ref("a").ask(Note(f"last words of {actor.name}"), within_s=10)
        await anyio.sleep(1)

    specs = [
        scripted("a", watch),  # type: ignore[arg-type]
        scripted("b", watch, terminate=tell_the_first),  # type: ignore[arg-type]
        scripted("c", watch, terminate=tell_the_first),  # type: ignore[arg-type]
    ]
    supervisor = open_supervisor(specs)
    async with anyio.create_task_group() as host, supervisor:
        await supervisor.ref("c").tell(Act(forever))
        await supervisor.ref("b").tell(Act(forever))
        await anyio.sleep(1)
        host.cancel_scope.cancel()
        watch.began = anyio.current_time()
        await anyio.sleep_forever()
    assert watch.lines[3:] == [
        (0, "c killed"),
        (0, "a last words of c"),
        (1, "b killed"),
        (1, "a last words of b"),
        (2, "a killed"),
    ]


async def test_host_cancellation_is_bounded_by_the_limits() -> None:
    """A child whose clean-up hangs delays the host's cancellation by its limit, not longer."""
    with anyio.CancelScope() as host:
        async with open_supervisor([scripted("a", [], terminate=forever, shutdown_s=4)]):
            began = anyio.current_time()
            host.cancel()
            await anyio.sleep_forever()
    assert host.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(4)


async def test_an_error_in_the_block_leaves_it_bare() -> None:
    """The host's own error comes out as it is, never in a group (N-RUN-07), after the children have stopped."""
    journal: list[str] = []
    with pytest.raises(Boom, match="mine"):
        async with open_supervisor([scripted("a", journal)]):
            raise Boom("mine")
    assert journal == ["a setup", "a shutdown"]


async def test_an_observer_that_fails_harms_nobody() -> None:
    """An error in on_exit is logged; supervision goes on."""

    def broken(_: ActorExit) -> None:
        raise Boom("observer")

    async with open_supervisor([scripted("a", [])], on_exit=broken) as supervisor:
        await supervisor.ref("a").tell(Act(fail))
        assert await supervisor.ref("a").ask(Note("x"), within_s=10) == 1
