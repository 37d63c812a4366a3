"""What the cycles of one repository came to: backoff, pauses, warnings, and what a person has to know."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

import anyio

from ..protocol.outcome import Outcome, OutcomeKind
from ..protocol.receipts import DeliveryCode
from ..protocol.work import RepositoryAgenda
from .agenda_reader import AgendaReader
from .delivery_world import DeliveryWorld
from .run_files_commit import CommitResult
from .store_operations import CountFailure, NoteMissingCredential, PauseRepository, ReadPending

_LOG: Final = logging.getLogger("conveyor.delivery")
_NOT_REACHED: Final = frozenset({"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol"})


class CycleNotes:
    """Takes note of what became of each cycle, durably where others have to know it.

    Args:
        repository: which one.
        world: the ports and limits.
        agenda: the repository's state.
    """

    def __init__(self, repository: str, world: DeliveryWorld, agenda: AgendaReader) -> None:
        self._repository = repository
        self._world = world
        self._agenda = agenda
        self._quiet_until = float("-inf")
        self._unknowns = 0
        self._entries_held_until = float("-inf")
        self._holds = 0
        self._without_credential: tuple[int, int, int] | None = None

    def quiet_until_unix_s(self) -> float:
        """Before this time on the wall clock nothing is tried: an outcome is unknown, or others were faster."""
        return self._world.clock.unix_s() + max(0.0, self._quiet_until - anyio.current_time())

    async def without_held_entries(self, agenda: RepositoryAgenda) -> RepositoryAgenda:
        """The agenda in which entries that wait for a readable `runs.json` are not due: files do not wait for them."""
        held_s = self._entries_held_until - anyio.current_time()
        if held_s <= 0.0 or not agenda.pending_entries:
            return agenda
        pending = await self._world.store.query(ReadPending(self._repository))
        due = min((path.due_unix_s for path in pending.paths), default=float("inf"))
        return replace(agenda, run_files_due_unix_s=min(due, self._world.clock.unix_s() + held_s))

    def settled(self) -> None:
        """An unknown outcome is known now."""
        self._unknowns = 0

    async def note(self, result: CommitResult, *, is_run_files: bool) -> None:
        """Take note of what a cycle came to."""
        world, outcome = self._world, result.outcome
        if is_run_files:
            await self._note_entries(result)
        if outcome is None:
            self._unknowns = 0
            if result.commit_id is not None:
                await self._note_landed()
            return
        world.warn.warn(
            "commit-failed", outcome.error_type, f"{trouble(outcome)}; its files stay queued and are tried again"
        )
        if result.is_unknown:
            self._unknowns += 1
            self._quiet_until = anyio.current_time() + world.backoff.pause_s(self._unknowns)
        elif result.is_narrowed or (result.held_runs and outcome.kind is OutcomeKind.REFUSED_ITEM):
            # The next one carries less, or entries that wait by themselves: no repetition, so it does not back off.
            self._quiet_until = anyio.current_time() + world.backoff.first_s
        elif outcome.kind is OutcomeKind.CONFLICT:
            # Other writers were faster each time: wait a little, and charge nothing to anybody (N-HUB-02).
            self._quiet_until = anyio.current_time() + world.backoff.first_s * (1.0 + world.jitter())
        elif is_run_files:
            await self._count_failure(outcome, result)
        await self.pause_for(outcome)

    async def pause_for(self, outcome: Outcome) -> None:
        """Show a repository as paused that waits for a person."""
        if outcome.kind not in (OutcomeKind.NEEDS_PERSON, OutcomeKind.REFUSED_REPOSITORY):
            return
        status = f"HTTP {outcome.status}, " if outcome.status is not None else ""
        said = f": {outcome.server_text}" if outcome.server_text else ""
        await self._world.ledger.write(
            PauseRepository(
                self._repository, f"{status}{outcome.error_type}{said}", now_unix_s=self._world.clock.unix_s()
            )
        )

    async def missing_credential(self, agenda: RepositoryAgenda) -> None:
        """Show it in the receipts of what is pending, once for each change of that; it is no attempt (finding W21)."""
        world = self._world
        pending = (agenda.pending_paths, agenda.pending_entries, agenda.pending_bundles)
        if pending == self._without_credential:
            return
        world.warn.warn(
            "credential-missing",
            "no token",
            "uploads are paused and everything stays queued; set HF_TOKEN or log in, it is noticed without a restart",
        )
        await world.ledger.write(NoteMissingCredential(self._repository))
        self._without_credential = pending

    def has_credential(self) -> None:
        """There is a credential."""
        self._without_credential = None
        self._world.warn.clear("credential-missing")

    async def _note_entries(self, result: CommitResult) -> None:
        if not result.held_runs:
            self._holds = 0 if result.outcome is None else self._holds
            return
        self._holds += 1
        self._entries_held_until = anyio.current_time() + self._world.backoff.pause_s(self._holds)
        await self._world.ledger.write(
            CountFailure(
                repository=self._repository,
                runs=dict.fromkeys(result.held_runs, 0),
                error_code=DeliveryCode.UPLOAD_FAILED,
                not_before_unix_s=0.0,
            )
        )

    async def _count_failure(self, outcome: Outcome, result: CommitResult) -> None:
        world = self._world
        now = world.clock.unix_s()
        failures = 0 if self._agenda.last is None else self._agenda.last.failures
        pause_s = world.backoff.pause_s(failures + 1)
        if outcome.kind in (OutcomeKind.NEEDS_PERSON, OutcomeKind.REFUSED_REPOSITORY):
            pause_s = world.backoff.max_s
        retry_after_s = outcome.retry_after_s or 0.0
        await world.ledger.write(
            CountFailure(
                repository=self._repository,
                runs=result.runs or {},
                error_code=DeliveryCode.UPLOAD_FAILED,
                not_before_unix_s=now + max(pause_s, retry_after_s),
                pause_until_unix_s=now + retry_after_s if retry_after_s else 0.0,
            )
        )

    async def _note_landed(self) -> None:
        world = self._world
        world.warn.clear("commit-failed")
        _LOG.debug("committed to %s", self._repository)
        if self._agenda.last is not None and self._agenda.last.paused_reason is not None:
            await world.ledger.write(PauseRepository(self._repository, None, now_unix_s=world.clock.unix_s()))


def trouble(outcome: Outcome) -> str:
    """What went wrong in plain words for a person: a class of trouble and a status, never a text of the Hub."""
    if outcome.error_type == "MalformedAnswer":
        return "the answer of the Hub was not understood"
    if outcome.error_type in _NOT_REACHED:
        return "the Hub cannot be reached"
    if outcome.status is not None:
        return f"the Hub answered HTTP {outcome.status}"
    if outcome.kind is OutcomeKind.CONFLICT:
        return "other writers committed first"
    if outcome.kind in (OutcomeKind.UNKNOWN, OutcomeKind.TRANSIENT):
        return "no complete answer of the Hub arrived"
    return "the Hub does not take it"


__all__ = ["CycleNotes", "trouble"]
