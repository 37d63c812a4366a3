"""The clocks of the tests themselves: an hour passes in no time, and threads still get through."""

from __future__ import annotations

import time

import anyio
import anyio.to_thread
import pytest

pytestmark = pytest.mark.anyio


async def test_an_hour_passes_at_once() -> None:
    """Sleeping for an hour of virtual time takes less than a real second."""
    began, real_began = anyio.current_time(), time.perf_counter()
    await anyio.sleep(3600)
    assert 3600 <= anyio.current_time() - began < 3600.001
    assert time.perf_counter() - real_began < 1


async def test_time_jumps_to_the_next_deadline_only() -> None:
    """Deadlines pass in their order, each at its own time, however far apart they are."""
    began = anyio.current_time()
    woke: list[float] = []

    async def sleeper(delay_s: float) -> None:
        await anyio.sleep(delay_s)
        woke.append(round(anyio.current_time() - began, 6))

    async with anyio.create_task_group() as tasks:
        for delay_s in (86_400.0, 0.001, 5.0, 200_000.0):
            tasks.start_soon(sleeper, delay_s)
    assert woke == [0.001, 5.0, 86_400.0, 200_000.0]


async def test_a_thread_is_waited_for_when_nothing_else_is_due() -> None:
    """Without a deadline ahead the loop waits for a worker thread, and its answer arrives."""
    assert await anyio.to_thread.run_sync(lambda: sum(range(100_000))) == 4_999_950_000


@pytest.mark.real_time
async def test_real_time_is_real() -> None:
    """A test marked real_time runs on the real clock: time does not jump to a deadline that is far away."""
    began, real_began = anyio.current_time(), time.perf_counter()
    with anyio.move_on_after(3600):
        await anyio.to_thread.run_sync(lambda: None)
    assert abs((anyio.current_time() - began) - (time.perf_counter() - real_began)) < 0.5


async def test_real_time_by_fixture(real_time_backend: tuple[str, dict[str, object]]) -> None:
    """A test that uses the fixture real_time_backend runs on the real clock too."""
    assert real_time_backend[1] == {}
