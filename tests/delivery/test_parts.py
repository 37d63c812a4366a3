"""The small parts that the actors of delivery share, each on its own."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from conveyor.actors.agenda import Step, next_step
from conveyor.actors.byte_budget import ByteBudget
from conveyor.actors.cycle_notes import trouble
from conveyor.actors.stop_gate import ANY_REPOSITORY, InFlight, SettlementBoard
from conveyor.actors.warnings import WarnOnce
from conveyor.actors.work_watch import WorkBoard
from conveyor.protocol.outcome import Outcome, OutcomeKind
from conveyor.protocol.schedule import CommitPace
from conveyor.protocol.work import RepositoryAgenda

NOW = 1_700_000_000.0
NOTHING = RepositoryAgenda(
    repository="acme/data",
    pending_paths=0,
    pending_entries=0,
    run_files_due_unix_s=None,
    pending_bundles=0,
    bundles_due_unix_s=None,
    has_open_attempt=False,
    not_before_unix_s=0.0,
    pause_until_unix_s=0.0,
    failures=0,
    commits_unix_s=(),
    last_commit_unix_s=None,
    lease_owner=None,
    lease_expires_unix_s=0.0,
    paused_reason=None,
)


def decide(agenda: RepositoryAgenda, ready_since: float | None = None, quiet_until: float = 0.0) -> object:
    """What comes next, and in how many seconds; None for nothing."""
    step = next_step(
        agenda,
        now_unix_s=NOW,
        pace=CommitPace(),
        may_claim=True,
        ready_since_unix_s=ready_since,
        quiet_until_unix_s=quiet_until,
    )
    return None if step is None else (step.step, step.at_unix_s - NOW)


def test_what_has_waited_longest_for_the_slot_goes_first() -> None:
    """Section 5.6: run files and bundles take turns, so neither starves the other."""
    both = replace(NOTHING, run_files_due_unix_s=NOW - 5)
    assert decide(both, ready_since=NOW - 9) == (Step.BUNDLES, 0)
    assert decide(both, ready_since=NOW - 1) == (Step.RUN_FILES, 0)


def test_an_open_attempt_comes_before_everything_and_obeys_only_its_own_pause() -> None:
    """Section 12 of the Hub API notes: nothing is sent while an outcome is unknown."""
    agenda = replace(NOTHING, has_open_attempt=True, run_files_due_unix_s=NOW, bundles_due_unix_s=NOW)
    assert decide(agenda) == (Step.SETTLE, 0)
    assert decide(agenda, quiet_until=NOW + 7) == (Step.SETTLE, 7)


def test_backoff_of_run_files_holds_back_no_bundle_and_a_rate_limit_holds_back_both() -> None:
    """Section 5.6: bundles do not wait for the run files' not-before time; a 429 concerns every commit (W49)."""
    agenda = replace(NOTHING, run_files_due_unix_s=NOW, not_before_unix_s=NOW + 100)
    assert decide(agenda, ready_since=NOW) == (Step.BUNDLES, 0)
    limited = replace(agenda, pause_until_unix_s=NOW + 50, bundles_due_unix_s=NOW)
    assert decide(limited, ready_since=NOW) == (Step.CLAIM, 50)


def test_claiming_needs_no_commit_slot() -> None:
    """Finding W19: preparing a bundle goes on while the spacing after a commit still runs."""
    agenda = replace(NOTHING, bundles_due_unix_s=NOW, run_files_due_unix_s=NOW, commits_unix_s=(NOW - 2,))
    assert decide(agenda) == (Step.CLAIM, 0)
    assert decide(replace(agenda, bundles_due_unix_s=None)) == (Step.RUN_FILES, 8)
    assert decide(NOTHING) is None


@pytest.mark.anyio
async def test_bytes_are_held_in_the_order_of_asking_and_a_cancelled_asker_keeps_no_place() -> None:
    """The bound on memory: a large claim waits its turn and is not starved by small ones behind it."""
    budget = ByteBudget(10)
    order: list[str] = []

    async def hold(name: str, size_bytes: int) -> None:
        async with budget.hold(size_bytes):
            order.append(name)
            await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, "first", 6)
        await anyio.sleep(0.1)
        tasks.start_soon(hold, "large", 25)
        await anyio.sleep(0.1)
        with anyio.move_on_after(0.2):
            await hold("given up", 1)
        tasks.start_soon(hold, "small", 1)
        await anyio.sleep(0.1)
        assert (order, budget.waiting) == (["first"], 2)
    assert order == ["first", "large", "small"]
    assert (budget.held_bytes, budget.waiting) == (0, 0)


@pytest.mark.anyio
async def test_what_is_under_way_is_left_exactly_once() -> None:
    """The shutdown waits for it: a missing leave would hold it up, one too many would let it go too early."""
    under_way = InFlight()
    under_way.enter("a")
    under_way.enter("a")
    under_way.enter("b")
    under_way.leave("a")
    assert under_way.repositories == ("a", "b")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(under_way.wait_none)
        under_way.leave("a")
        await under_way.wait_none_of("a")
        under_way.leave("b")
    with pytest.raises(RuntimeError, match="each `enter` is left once"):
        under_way.leave("b")


@pytest.mark.anyio
async def test_a_settlement_wakes_those_of_its_repository_and_those_of_any() -> None:
    """A ticket taken before the look misses nothing that is settled between the look and the wait."""
    board = SettlementBoard()
    own, other, every = board.ticket("a"), board.ticket("b"), board.ticket(ANY_REPOSITORY)
    board.settled("a")
    assert (own.is_set(), other.is_set(), every.is_set()) == (True, False, True)
    board.settled_somewhere()
    assert other.is_set()


@pytest.mark.anyio
async def test_a_repository_is_on_the_board_once_however_many_hand_overs_came() -> None:
    """The board of work is bounded by the number of repositories; whoever waits for a name gets the oldest."""
    board = WorkBoard()
    for _ in range(1000):
        board.add("a")
    board.add("b")
    assert [await board.take(), await board.take()] == ["a", "b"]
    with anyio.move_on_after(5) as waiting:
        await board.take()
    assert waiting.cancelled_caught


def test_a_kind_of_trouble_is_reported_once_until_it_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Finding W38: each kind once, and again when the situation comes back."""
    warn = WarnOnce()
    for _ in range(3):
        warn.warn("commit-failed", "ReadTimeout", "it is tried again")
    warn.warn("commit-failed", "ConnectError", "it is tried again")
    warn.clear("commit-failed", "ReadTimeout")
    warn.warn("commit-failed", "ReadTimeout", "it is tried again")
    warn.warn("commit-failed", "ConnectError", "it is tried again")
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(OutcomeKind.TRANSIENT, "ConnectError"), "the Hub cannot be reached"),
        (Outcome(OutcomeKind.UNKNOWN, "ReadTimeout"), "no complete answer of the Hub arrived"),
        (Outcome(OutcomeKind.TRANSIENT, "HfHubHTTPError", 500), "the Hub answered HTTP 500"),
        (Outcome(OutcomeKind.UNKNOWN, "MalformedAnswer", 200), "the answer of the Hub was not understood"),
        (Outcome(OutcomeKind.CONFLICT, "HeadMoved"), "other writers committed first"),
    ],
)
def test_a_failed_commit_is_explained_in_plain_words(outcome: Outcome, words: str) -> None:
    """N-SEC-01: the class of trouble and the status, and nothing that the Hub said."""
    assert trouble(replace(outcome, server_text="see https://hub.example/?token=hf_secret")) == words
