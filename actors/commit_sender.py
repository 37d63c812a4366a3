"""Sending one commit so that it lands once, whatever becomes of the answer (hub API notes, section 12).

The attempt is recorded before its first byte leaves. All requests of an attempt name the same parent, so at most one of
them can land; an unknown outcome is looked up in the branch's history by the delivery id before anything is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from ..protocol.commit_text import find_delivery_id
from ..protocol.lease import Lease
from ..protocol.outcome import HubError, Outcome, OutcomeKind
from ..protocol.receipts import DeliveryCode
from ..protocol.work import Attempt
from .delivery_world import DeliveryWorld
from .ports import CommitRequest
from .store_operations import OpenAttempt, PlanOutdated, SettleLanded, SettleNotLanded

R = TypeVar("R")

_LOOK_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
SQUASHED_AFTER_S: Final = 60.0
"""A history that does not reach back to the parent may only be late; after this long it counts as squashed."""
STOPPING_SEARCH_S: Final = 6.0
"""During a shutdown an unknown outcome is searched for this long; the recorded attempt is left to a later process."""


@dataclass(frozen=True, slots=True)
class Landed:
    """The commit is in the repository, and the store knows."""

    commit_id: str


@dataclass(frozen=True, slots=True)
class HeadMoved:
    """It can never land on its parent; the plan has to be made again on the new head."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It did not land; the store knows."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """Nobody could say within the time. The attempt stays recorded, and is looked up again before anything else."""

    outcome: Outcome


SendResult = Landed | HeadMoved | Rejected | StillUnknown


class CommitSender:
    """Sends commits of one repository and settles what became of them.

    Args:
        world: the ports.
    """

    def __init__(self, world: DeliveryWorld) -> None:
        self._world = world
        self._give_up: tuple[str, float] | None = None
        """The attempt searched for during the shutdown, and until when, on the scale of `anyio.current_time()`."""

    async def send(
        self, attempt: Attempt, contents: dict[str, bytes], lease: Lease, *, index_content: bytes | None = None
    ) -> SendResult:
        """Record an attempt, send it, and settle it.

        Args:
            attempt: the plan.
            contents: by SHA-256, the bytes of every file that goes inline.
            lease: the lease it is made under; checked in the same transaction that records the attempt (finding W22).
            index_content: the merged `runs.json`, if it carries entries.

        Raises:
            LeaseLost: the lease is gone; nothing was sent.
            StoreError: the attempt could not be recorded; nothing was sent.
        """
        world = self._world
        try:
            await world.ledger.write(
                OpenAttempt(
                    attempt=attempt,
                    lease=lease,
                    now_unix_s=world.clock.unix_s(),
                    index_content=index_content,
                    contents=contents,
                )
            )
        except PlanOutdated:
            # A path was settled at a newer version meanwhile, by a process that held the lease before.
            return HeadMoved()
        return await self._send_first(attempt, contents)

    async def settle_present(
        self, attempt: Attempt, lease: Lease, commit_id: str, *, index_content: bytes | None = None
    ) -> Landed:
        """Settle what the repository already holds at `commit_id`, without a commit (finding W48).

        Raises:
            LeaseLost: the lease is gone; nothing was recorded.
            PlanOutdated: it changed meanwhile.
        """
        await self._world.ledger.write(
            OpenAttempt(attempt, lease, self._world.clock.unix_s(), index_content=index_content)
        )
        return await self._settle_landed(attempt, commit_id, is_new_commit=False)

    async def settle_open(self, attempt: Attempt, contents: dict[str, bytes] | None) -> SendResult:
        """Find out what became of a recorded attempt, by this or an earlier process, and settle it.

        Args:
            attempt: as it was recorded.
            contents: by SHA-256, what it takes to send it again; None where its bytes are no longer to be had, then it
                is only looked up, and given up when it did not land within the time.
        """
        if not attempt.files:
            # Only what was there already is recorded this way, and a crash came between its two records.
            return await self._settle_landed(attempt, attempt.parent, is_new_commit=False)
        return await self._look(attempt, contents, Outcome(OutcomeKind.UNKNOWN, "UnknownOutcome"))

    async def _send_first(self, attempt: Attempt, contents: dict[str, bytes]) -> SendResult:
        """Send a recorded attempt; only its first request can be refused without a look at the history."""
        answer = await self._request(attempt, contents)
        if isinstance(answer, str):
            return await self._settle_landed(attempt, answer)
        if answer.kind is OutcomeKind.UNKNOWN:
            return await self._look(attempt, contents, answer)
        if answer.kind is OutcomeKind.CONFLICT and not answer.same_parent:
            return await self._settle_not_landed(attempt, None, HeadMoved())
        return await self._settle_not_landed(attempt, _code_of(answer), Rejected(answer))

    async def _request(self, attempt: Attempt, contents: dict[str, bytes]) -> str | Outcome:
        """Send it, again while another commit is under way; gives the commit id, or what it came to."""
        hub, limits = self._world.hub, self._world.limits
        request = CommitRequest(
            attempt.repository, attempt.parent, attempt.title, attempt.body, attempt.files, contents
        )
        for round_number in range(limits.conflict_rounds):
            try:
                return await hub.commit(request)
            except HubError as error:
                if not error.outcome.same_parent:
                    return error.outcome
                # The head need not have moved, so the same parent is tried again.
                pause_s = 2.0**round_number * (0.5 + self._world.jitter())
                await anyio.sleep(max(pause_s, error.outcome.retry_after_s or 0.0))
        return Outcome(OutcomeKind.TRANSIENT, "CommitInProgress", status=409, same_parent=True)

    async def _look(self, attempt: Attempt, contents: dict[str, bytes] | None, outcome: Outcome) -> SendResult:
        """Look until it is known whether the attempt landed, for a while; then settle it."""
        search = _Search(attempt, contents, outcome, anyio.current_time())
        found: SendResult | None = None
        with anyio.move_on_after(self._world.limits.settle_s):
            found = await self._find_out(search)
        if found is None and contents is None and not search.is_given_up:
            # It cannot be sent again and did not land in all this time. Whatever is planned next on the same parent
            # excludes it, and has the same delivery id if it carries the same.
            found = HeadMoved()
        match found:
            case Landed(commit_id):
                return await self._settle_landed(attempt, commit_id)
            case HeadMoved():
                return await self._settle_not_landed(attempt, None, found)
            case Rejected(refusal):
                return await self._settle_not_landed(attempt, _code_of(refusal), found)
        return StillUnknown(search.last)

    async def _find_out(self, search: _Search) -> SendResult | None:
        """Look at the history, and send the attempt again while it may land yet, until one of both tells.

        None when a shutdown ended the search.
        """
        looks = 0
        while True:
            is_patient = anyio.current_time() < search.began + SQUASHED_AFTER_S
            try:
                found = await self._look_once(search.attempt, is_patient=is_patient)
            except HubError as error:
                found, search.last = None, error.outcome
            else:
                if found is None and search.contents is not None and looks:
                    answer = await self._request(search.attempt, search.contents)
                    if isinstance(answer, str):
                        return Landed(answer)
                    search.last = answer
                    if answer.kind is OutcomeKind.REFUSED_ITEM and not is_patient:
                        # Refused for what it carries, and all the while not in the history: it never landed.
                        return Rejected(answer)
            if found is not None:
                return found
            pause_s = _LOOK_PAUSES_S[min(looks, len(_LOOK_PAUSES_S) - 1)] * (0.75 + 0.5 * self._world.jitter())
            pause_s = max(pause_s, search.last.retry_after_s or 0.0)
            if self._world.gate.is_stopping and anyio.current_time() + pause_s > self._stopping_until(search.attempt):
                # Leaving does not wait for a Hub that cannot say: the attempt stays recorded (hand-over protocol, 6).
                search.is_given_up = True
                return None
            looks = 0 if await self._pause(pause_s, search.last) else looks + 1

    def _stopping_until(self, attempt: Attempt) -> float:
        """Until when this attempt is searched for during the shutdown, however many of its phases ask."""
        if self._give_up is None or self._give_up[0] != attempt.delivery_id:
            self._give_up = attempt.delivery_id, anyio.current_time() + STOPPING_SEARCH_S
        return self._give_up[1]

    async def _pause(self, pause_s: float, last: Outcome) -> bool:
        """Wait. A shutdown that begins meanwhile ends that, unless the Hub asked to wait; answers whether it did."""
        gate = self._world.gate
        if gate.is_stopping or last.retry_after_s:
            await anyio.sleep(pause_s)
            return False
        with anyio.move_on_after(pause_s):
            await gate.wait_stopping()
            return True
        return False

    async def _look_once(self, attempt: Attempt, *, is_patient: bool) -> Landed | HeadMoved | None:
        """One look; None when it does not tell, so that the attempt may land yet or may have landed.

        The listing may lag behind. Where it does not show the parent, or shows it as the head, it proves nothing: the
        server itself decides, when the same request is sent again.
        """
        commits = await self._world.hub.recent_commits(attempt.repository, back_to=attempt.parent)
        for commit in commits:
            if find_delivery_id(commit.body) == attempt.delivery_id:
                return Landed(commit.commit_id)
        if not commits or commits[0].commit_id == attempt.parent:
            return None
        if any(commit.commit_id == attempt.parent for commit in commits):
            return HeadMoved()
        return None if is_patient else await self._compare_content(attempt, commits[0].commit_id)

    async def _compare_content(self, attempt: Attempt, revision: str) -> Landed | HeadMoved:
        """The history does not reach back to the parent (it was squashed): the content at the head decides."""
        paths = [file.path for file in attempt.files]
        remote = await self._world.hub.paths_info(attempt.repository, revision, paths)
        is_there = all(file.path in remote and remote[file.path].holds(file.digests) for file in attempt.files)
        return Landed(revision) if is_there else HeadMoved()

    async def _settle_landed(self, attempt: Attempt, commit_id: str, *, is_new_commit: bool = True) -> Landed:
        world = self._world
        await world.ledger.write(
            SettleLanded(
                delivery_id=attempt.delivery_id,
                commit_id=commit_id,
                landed_unix_s=world.clock.unix_s(),
                is_new_commit=is_new_commit,
            ),
            then=lambda: world.board.settled(attempt.repository),
        )
        return Landed(commit_id)

    async def _settle_not_landed(self, attempt: Attempt, code: DeliveryCode | None, result: R) -> R:
        world = self._world
        await world.ledger.write(
            SettleNotLanded(delivery_id=attempt.delivery_id, error_code=code, parent=attempt.parent),
            # What equals the committed bytes is settled by that, too.
            then=lambda: world.board.settled(attempt.repository),
        )
        return result


@dataclass(slots=True)
class _Search:
    """The search for what became of one attempt."""

    attempt: Attempt
    contents: dict[str, bytes] | None
    last: Outcome
    began: float
    is_given_up: bool = False
    """It ended before its time, because of a shutdown: nothing is concluded from that."""


def _code_of(outcome: Outcome) -> DeliveryCode:
    if outcome.kind is OutcomeKind.REFUSED_REPOSITORY:
        return DeliveryCode.REPOSITORY_UNAVAILABLE
    return DeliveryCode.UPLOAD_FAILED


__all__ = ["CommitSender", "HeadMoved", "Landed", "Rejected", "SendResult", "StillUnknown"]
