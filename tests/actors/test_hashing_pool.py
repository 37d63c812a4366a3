"""The hashing pool: a bound on what is hashed at once, callers that leave, and an account of it all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from conveyor.actors import (
    ActorCrashed,
    ActorRef,
    AskTimeout,
    ChildSpec,
    TaskLimitReached,
    open_supervisor,
)
from conveyor.actors.hashing_pool import HashFile, HashingPool, HashingStatistics, HashingTally
from conveyor.actors.port_errors import LocalFileMissing
from conveyor.actors.ports import LocalFiles, Progress
from conveyor.protocol.digests import ContentDigests, digest_bytes
from conveyor.runtime.adapters.files import CHUNK_BYTES, PosixFiles
from conveyor.runtime.adapters.memory_files import MemoryFiles
from tests.support.scripted import NO_DELAY, Boom

pytestmark = pytest.mark.anyio

WEEK_S = 7 * 24 * 3600.0


@asynccontextmanager
async def pool(
    files: LocalFiles,
    tally: HashingTally | None = None,
    *,
    workers: int = 2,
    capacity: int = 64,
    shutdown_s: float = 5.0,
) -> AsyncIterator[ActorRef[HashFile]]:
    """A running pool."""
    spec = ChildSpec(
        "hashing",
        lambda: HashingPool(files, workers=workers, tally=tally),
        mailbox_capacity=capacity,
        max_tasks=workers,
        shutdown_s=shutdown_s,
        backoff=NO_DELAY,
    )
    async with open_supervisor([spec]) as supervisor:
        yield supervisor.ref("hashing")


def ten_seconds_each(count: int) -> MemoryFiles:
    """Files `/0`, `/1`, ... of ten chunks, each of which takes a second."""
    contents = {f"/{number}": bytes([number]) * 10 for number in range(count)}
    return MemoryFiles(contents, chunk_bytes=1, chunk_s=1.0)


def about(times_s: dict[str, float]) -> object:
    """Times that are right up to the virtual tenths of a second that waiting for blocked tasks takes on asyncio."""
    return pytest.approx(times_s, abs=0.9)


class Answers:
    """Asks in the background, and what came of them with the time it came."""

    def __init__(self, ref: ActorRef[HashFile]) -> None:
        self._ref = ref
        self._began = anyio.current_time()
        self.order: list[str] = []
        self.at_s: dict[str, float] = {}
        self.errors: dict[str, Exception] = {}

    async def ask(self, path: str, within_s: float = WEEK_S) -> None:
        """Ask for one file."""
        try:
            await self._ref.ask(HashFile(path), within_s=within_s)
        except Exception as error:
            self.errors[path] = error
        self.order.append(path)
        self.at_s[path] = anyio.current_time() - self._began


class TestWork:
    """Hashing itself, and its bound."""

    async def test_the_digests_and_the_progress_of_a_file(self) -> None:
        """The answer is both digests; progress adds up to the size while the file is hashed."""
        files = MemoryFiles({"/a": b"12345"}, chunk_bytes=2)
        passed: list[int] = []
        async with pool(files) as ref:
            assert await ref.ask(HashFile("/a", passed.append), within_s=1) == digest_bytes(b"12345")
        assert passed == [2, 2, 1]

    async def test_no_more_than_the_workers_at_once_and_in_order(self) -> None:
        """Five files of ten seconds and two workers: two at a time, first come, first served, thirty seconds in all."""
        files = ten_seconds_each(5)
        async with pool(files) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                for number in range(5):
                    tasks.start_soon(answers.ask, f"/{number}")
                    await anyio.wait_all_tasks_blocked()
        assert answers.errors == {}
        assert answers.at_s == about({"/0": 10.0, "/1": 10.0, "/2": 20.0, "/3": 20.0, "/4": 30.0})
        assert files.most_hashing == 2

    async def test_what_waits_is_bounded_by_the_mailbox(self) -> None:
        """Workers busy, one in hand, the mailbox full: further senders wait, none is refused, all are served."""
        files = ten_seconds_each(8)
        async with pool(files, capacity=2) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(answers.ask, f"/{number}")
                await anyio.wait_all_tasks_blocked()
                mailbox = ref.statistics().mailbox
                assert (files.hashing, mailbox.depth, mailbox.waiting_senders) == (2, 2, 3)
        assert answers.errors == {}
        assert len(answers.order) == 8

    async def test_a_file_that_cannot_be_read_is_an_answer(self) -> None:
        """A missing file concerns its caller alone: the actor lives on and others are not disturbed."""
        files = ten_seconds_each(1)
        tally = HashingTally()
        async with pool(files, tally) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answers.ask, "/0")
                tasks.start_soon(answers.ask, "/nothing")
            assert ref.statistics().restarts == 0
        assert answers.at_s == about({"/nothing": 0.0, "/0": 10.0})
        assert isinstance(answers.errors["/nothing"], LocalFileMissing)
        assert tally.statistics() == HashingStatistics(
            workers=2, busy=0, hashed=1, failed=1, given_up=0, hashed_bytes=10
        )

    async def test_progress_that_raises_concerns_its_caller_alone(self) -> None:
        """The caller gets its own error back, once the file has passed, and is told no more; the actor lives on."""
        told: list[int] = []

        def progress(passed_bytes: int) -> None:
            told.append(passed_bytes)
            raise Boom

        async with pool(ten_seconds_each(1)) as ref:
            with pytest.raises(Boom):
                await ref.ask(HashFile("/0", progress), within_s=WEEK_S)
            assert await ref.ask(HashFile("/0"), within_s=WEEK_S) == digest_bytes(b"\0" * 10)
            assert ref.statistics().restarts == 0
        assert told == [1]

    async def test_a_tell_is_no_work(self) -> None:
        """Nobody would get the digests, so nothing is read."""
        files = ten_seconds_each(1)
        async with pool(files) as ref:
            await ref.tell(HashFile("/0"))
            await anyio.wait_all_tasks_blocked()
        assert files.readings["/0"] == 0


class TestLeaving:
    """Callers that give up, at every stage."""

    async def test_a_caller_that_leaves_frees_its_worker(self) -> None:
        """Cancelled at 3.5 s, the file's worker turns to the next one at once."""
        files = ten_seconds_each(2)
        tally = HashingTally()
        async with pool(files, tally, workers=1) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answers.ask, "/0", 3.5)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(answers.ask, "/1")
        assert answers.at_s == about({"/0": 3.5, "/1": 13.5})
        error = answers.errors["/0"]
        assert isinstance(error, AskTimeout)
        assert error.begun
        assert tally.statistics() == HashingStatistics(
            workers=1, busy=0, hashed=1, failed=0, given_up=1, hashed_bytes=13
        )

    async def test_callers_that_leave_while_they_wait_take_nobodys_place(self) -> None:
        """The one in hand and one in the mailbox leave: neither file is opened and the last one follows at once."""
        files = ten_seconds_each(4)
        tally = HashingTally()
        async with pool(files, tally, workers=1) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                for number, within_s in enumerate([WEEK_S, 3.0, 2.0, WEEK_S]):
                    tasks.start_soon(answers.ask, f"/{number}", within_s)
                    await anyio.wait_all_tasks_blocked()
        assert answers.at_s == about({"/1": 3.0, "/2": 2.0, "/0": 10.0, "/3": 20.0})
        assert sorted(files.readings) == ["/0", "/3"]
        assert tally.statistics().given_up == 1  # the one in hand; the other was taken out of the mailbox

    async def test_a_stuck_file_is_left_by_its_caller(self) -> None:
        """A file that never answers holds its worker only for as long as its caller waits."""
        files = ten_seconds_each(2)
        files.hold_file("/0")
        async with pool(files, workers=1) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answers.ask, "/0", 60.0)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(answers.ask, "/1")
        assert answers.at_s == about({"/0": 60.0, "/1": 70.0})

    @pytest.mark.parametrize("left_at_s", [0.0, 9.5, 10.0, 10.5, 20.0])
    async def test_leaving_at_any_moment_loses_no_worker(self, left_at_s: float) -> None:
        """Whenever callers leave, also as a worker becomes free: afterwards every worker works and nothing is owed."""
        files = ten_seconds_each(6)
        tally = HashingTally()
        async with pool(files, tally) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(answers.ask, f"/{number}", left_at_s if number % 2 else WEEK_S)
            began = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answers.ask, "/0")
                tasks.start_soon(answers.ask, "/1")
            assert anyio.current_time() - began == pytest.approx(10.0)
            assert ref.statistics().restarts == 0
        assert all(isinstance(error, AskTimeout) for error in answers.errors.values())
        assert len(answers.order) == 8
        assert tally.statistics().busy == 0


class Failing(MemoryFiles):
    """Files with a defect: one path fails with an unexpected error, after a second."""

    async def digest(self, local_path: str, progress: Progress) -> ContentDigests:
        """Fail unexpectedly for `/boom`."""
        digests = await super().digest(local_path, progress)
        if local_path == "/boom":
            raise Boom
        return digests


class TestEnds:
    """Ends of the actor."""

    async def test_an_unexpected_error_restarts_the_pool_and_keeps_what_waits(self) -> None:
        """What was being hashed or in hand is answered ActorCrashed; what waits is hashed in the next life."""
        files = Failing(
            {"/a": b"1234567890", "/boom": b"b", "/in hand": b"", "/waits": b"w"}, chunk_bytes=1, chunk_s=1.0
        )
        tally = HashingTally()
        async with pool(files, tally) as ref:
            answers = Answers(ref)
            async with anyio.create_task_group() as tasks:
                for path in ("/a", "/boom", "/in hand", "/waits"):
                    tasks.start_soon(answers.ask, path)
                    await anyio.wait_all_tasks_blocked()
            assert ref.statistics().restarts == 1
        assert {path: type(error) for path, error in answers.errors.items()} == dict.fromkeys(
            ("/a", "/boom", "/in hand"), ActorCrashed
        )
        assert answers.order[-1] == "/waits"
        assert tally.statistics().busy == 0
        assert tally.statistics().hashed == 1

    async def test_stopping_cancels_what_is_being_hashed(self) -> None:
        """With a free worker a stop takes no time; the callers learn that their work was begun and not finished."""
        files = ten_seconds_each(1)
        async with anyio.create_task_group() as tasks, pool(files) as ref:
            answers = Answers(ref)
            tasks.start_soon(answers.ask, "/0")
            await anyio.wait_all_tasks_blocked()
        assert answers.at_s == about({"/0": 0.0})
        assert isinstance(answers.errors["/0"], ActorCrashed)
        assert files.hashing == 0

    async def test_stopping_with_busy_workers_takes_the_shutdown_limit(self) -> None:
        """One command is in hand: it gets `shutdown_s` for a worker to become free, and no more."""
        files = ten_seconds_each(2)
        async with anyio.create_task_group() as tasks, pool(files, workers=1, shutdown_s=3.0) as ref:
            answers = Answers(ref)
            tasks.start_soon(answers.ask, "/0")
            tasks.start_soon(answers.ask, "/1")
            await anyio.wait_all_tasks_blocked()
        assert answers.at_s == about({"/0": 3.0, "/1": 3.0})
        assert all(isinstance(error, ActorCrashed) for error in answers.errors.values())

    async def test_fewer_tasks_than_workers_is_a_failed_start(self) -> None:
        """A child spec that does not allow the workers fails at the start, by name, not in the middle of work."""
        spec = ChildSpec("hashing", lambda: HashingPool(MemoryFiles(), workers=3), max_tasks=2)
        with pytest.raises(TaskLimitReached, match="already owns 2 running tasks"):
            async with open_supervisor([spec]):
                raise AssertionError("the supervisor must not open")

    def test_a_pool_without_workers_is_refused(self) -> None:
        """It would never answer."""
        with pytest.raises(ValueError, match="has 0 workers; it must have 1 or more"):
            HashingPool(MemoryFiles(), workers=0)


@pytest.mark.real_time
class TestOnDisk:
    """Real files in real threads."""

    async def test_many_files_through_few_threads(self, tmp_path: Path) -> None:
        """A hundred files and two workers: every digest is right, and progress adds up to all bytes."""
        contents = {str(tmp_path / str(number)): bytes([number]) * (number * 1000) for number in range(100)}
        for path, content in contents.items():
            Path(path).write_bytes(content)
        tally = HashingTally()
        digests: dict[str, ContentDigests] = {}
        passed: list[int] = []
        async with pool(PosixFiles(threads=2), tally) as ref:

            async def ask(path: str) -> None:
                digests[path] = await ref.ask(HashFile(path, passed.append), within_s=60)

            async with anyio.create_task_group() as tasks:
                for path in contents:
                    tasks.start_soon(ask, path)
        assert digests == {path: digest_bytes(content) for path, content in contents.items()}
        assert sum(passed) == tally.statistics().hashed_bytes == sum(map(len, contents.values()))

    async def test_a_caller_that_leaves_ends_the_thread(self, tmp_path: Path) -> None:
        """Once the caller has left, the thread ends after the chunk in hand, long before the file does."""
        path = tmp_path / "large"
        with path.open("wb") as file:
            file.truncate(10_000 * CHUNK_BYTES)  # ten gigabytes of nothing
        files = PosixFiles(threads=1)
        tally = HashingTally()
        async with pool(files, tally, workers=1) as ref:
            with pytest.raises(AskTimeout):
                await ref.ask(HashFile(str(path)), within_s=0.05)
            with anyio.fail_after(60):
                small = tmp_path / "small"
                small.write_bytes(b"x")
                assert await ref.ask(HashFile(str(small)), within_s=60) == digest_bytes(b"x")
                while files.abandoned_threads:
                    await anyio.sleep(0)
        assert tally.statistics().given_up == 1
        assert tally.statistics().hashed_bytes < 10_000 * CHUNK_BYTES
