"""Sending one commit so that it lands once, whatever becomes of the answer (hub API notes, section 12).

The attempt is recorded before its first byte leaves. All requests of an attempt name the same parent, so at most one of
them can land; an unknown outcome is looked up in the branch's history by the delivery id before anything is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import anyio

from ..protocol.commit_text import find_delivery_id
from ..protocol.lease import Lease
from ..protocol.outcome import HubError, Outcome, OutcomeKind
from ..protocol.receipts import DeliveryCode
from ..protocol.work import Attempt
from .delivery_world import DeliveryWorld
from .ports import CommitRequest
from .store_operations import OpenAttempt, PlanOutdated, SettleLanded, SettleNotLanded

_LOOK_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


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
        return await self._send_recorded(attempt, contents, is_first=True)

    async def settle_open(self, attempt: Attempt, contents: dict[str, bytes] | None) -> SendResult:
        """Find out what became of a recorded attempt, by this or an earlier process, and settle it.

        Args:
            attempt: as it was recorded.
            contents: by SHA-256, what it takes to send it again; None where its bytes are no longer to be had, then it
                is only looked up, and given up when it did not land within the time.
        """
        return await self._look(attempt, contents, Outcome(OutcomeKind.UNKNOWN, "UnknownOutcome"))

    async def _send_recorded(self, attempt: Attempt, contents: dict[str, bytes], *, is_first: bool) -> SendResult:
        """Send a recorded attempt; only its first request can be refused without a look at the history."""
        world = self._world
        request = CommitRequest(
            attempt.repository, attempt.parent, attempt.title, attempt.body, attempt.files, contents
        )
        for round_number in range(world.limits.conflict_rounds):
            try:
                commit_id = await world.hub.commit(request)
            except HubError as error:
                outcome = error.outcome
                if outcome.kind is OutcomeKind.UNKNOWN:
                    if not is_first:
                        return StillUnknown(outcome)
                    return await self._look(attempt, contents, outcome)
                if outcome.kind is OutcomeKind.CONFLICT and outcome.same_parent:
                    # Another commit is under way. The head need not have moved, so the same parent is tried again.
                    await anyio.sleep(2.0**round_number * (0.5 + world.jitter()))
                    continue
                if not is_first:
                    return StillUnknown(outcome)
                if outcome.kind is OutcomeKind.CONFLICT:
                    await self._settle_not_landed(attempt, None)
                    return HeadMoved()
                await self._settle_not_landed(attempt, _code_of(outcome))
                return Rejected(outcome)
            return await self._settle_landed(attempt, commit_id)
        outcome = Outcome(OutcomeKind.TRANSIENT, "CommitInProgress", status=409)
        if not is_first:
            return StillUnknown(outcome)
        await self._settle_not_landed(attempt, DeliveryCode.UPLOAD_FAILED)
        return Rejected(outcome)

    async def _look(self, attempt: Attempt, contents: dict[str, bytes] | None, outcome: Outcome) -> SendResult:
        """Look at the history until it says whether the attempt landed; send it again while its parent is the head."""
        last = outcome
        with anyio.move_on_after(self._world.limits.settle_s):
            for look_number in range(1_000_000):
                try:
                    result = await self._look_once(attempt)
                    if result is None and contents is not None and look_number > 0:
                        again = await self._send_recorded(attempt, contents, is_first=False)
                        if isinstance(again, Landed):
                            return again
                        if isinstance(again, StillUnknown):
                            last = again.outcome
                except HubError as error:
                    result, last = None, error.outcome
                if result is not None:
                    return result
                pause_s = _LOOK_PAUSES_S[min(look_number, len(_LOOK_PAUSES_S) - 1)]
                await anyio.sleep(max(pause_s * (0.75 + 0.5 * self._world.jitter()), last.retry_after_s or 0.0))
        if contents is None:
            # It cannot be sent again and did not land in all this time. Whatever is planned next on the same parent
            # excludes it, and has the same delivery id if it carries the same.
            await self._settle_not_landed(attempt, None)
            return HeadMoved()
        return StillUnknown(last)

    async def _look_once(self, attempt: Attempt) -> SendResult | None:
        """One look; None when the parent is still the head, so that the attempt may land yet."""
        commits = await self._world.hub.recent_commits(attempt.repository, back_to=attempt.parent)
        for commit in commits:
            if find_delivery_id(commit.body) == attempt.delivery_id:
                return await self._settle_landed(attempt, commit.commit_id)
        if commits and commits[0].commit_id == attempt.parent:
            return None
        if any(commit.commit_id == attempt.parent for commit in commits):
            await self._settle_not_landed(attempt, None)
            return HeadMoved()
        return await self._compare_content(attempt, commits[0].commit_id if commits else "main")

    async def _compare_content(self, attempt: Attempt, revision: str) -> SendResult:
        """The history does not reach back to the parent (it was squashed): the content at the head decides."""
        paths = [file.path for file in attempt.files]
        remote = await self._world.hub.paths_info(attempt.repository, revision, paths)
        if all(file.path in remote and remote[file.path].holds(file.digests) for file in attempt.files):
            return await self._settle_landed(attempt, revision)
        await self._settle_not_landed(attempt, None)
        return HeadMoved()

    async def _settle_landed(self, attempt: Attempt, commit_id: str) -> Landed:
        world = self._world
        await world.ledger.write(
            SettleLanded(delivery_id=attempt.delivery_id, commit_id=commit_id, landed_unix_s=world.clock.unix_s())
        )
        world.board.settled(attempt.repository)
        return Landed(commit_id)

    async def _settle_not_landed(self, attempt: Attempt, code: DeliveryCode | None) -> None:
        await self._world.ledger.write(SettleNotLanded(delivery_id=attempt.delivery_id, error_code=code))


def _code_of(outcome: Outcome) -> DeliveryCode:
    if outcome.kind is OutcomeKind.REFUSED_REPOSITORY:
        return DeliveryCode.REPOSITORY_UNAVAILABLE
    return DeliveryCode.UPLOAD_FAILED


__all__ = ["CommitSender", "HeadMoved", "Landed", "Rejected", "SendResult", "StillUnknown"]
