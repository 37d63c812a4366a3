"""The RepositoryActor: one per repository, lease holder and commit spacer.

It sleeps until its next due time or its next message; there is no polling tick. Commits are made one at a time, in
its own task; bundles are verified and uploaded beside them, in tasks that it owns. All its state is durable: a
crashed one is restarted from the store.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

import anyio

from ..protocol.errors import LeaseLost
from ..protocol.lease import Lease, LeaseHeld
from ..protocol.outcome import Outcome, OutcomeKind
from ..protocol.receipts import DeliveryCode
from ..protocol.work import AttemptKind, BundleWork, RepositoryAgenda, UploadMode
from .agenda import NextStep, Step, has_times_ahead, next_step
from .behaviour import ActorContext, Behaviour, ExitReason
from .bundle_commit import BundleCommit
from .bundle_upload import BundleUpload, ReadyBundle
from .commit_sender import CommitSender, Landed, StillUnknown
from .delivery_world import DeliveryWorld
from .errors import ActorCrashed, ActorStopped, AskTimeout
from .lease_keeper import LeaseKeeper
from .port_errors import CredentialMissing, StoreError
from .ref import Command
from .run_files_commit import CommitResult, RunFilesCommit
from .store_operations import (
    ClaimBundle,
    ClampTimes,
    CountFailure,
    NoteMissingCredential,
    PauseRepository,
    ReadAgenda,
    ReadContents,
    ReadOpenAttempt,
    ReleaseBundle,
)

_LOG: Final = logging.getLogger("conveyor.delivery")
_STORE_PAUSE_S: Final = 5.0
LOOK_EVERY_S: Final = 0.25
"""How often news of work alone makes an actor look at the store."""
_LOCAL_TROUBLE: Final = (StoreError, AskTimeout, ActorCrashed, ActorStopped)


@dataclass(frozen=True, slots=True)
class WorkArrived:
    """Something of the repository may have changed: look at the store again."""


@dataclass(frozen=True, slots=True)
class FinalCommitDone:
    """What a final commit came to."""

    commit_id: str | None
    """The last commit made, if any."""
    is_clean: bool
    """No run file, entry or unknown commit is left."""


@dataclass(frozen=True, slots=True)
class FinalCommit(Command[FinalCommitDone]):
    """Commit all pending run files now, whatever their due time, spacing and backoff (protocol, section 6)."""

    until: float
    """On the scale of `anyio.current_time()`: nothing is begun after it."""


RepositoryMessage = WorkArrived | FinalCommit


class RepositoryActor(Behaviour[RepositoryMessage]):
    """Delivers everything that is pending for one repository.

    Args:
        repository: `OWNER/NAME`.
        world: its ports, limits, and what it shares with the other actors.
    """

    def __init__(self, repository: str, world: DeliveryWorld) -> None:
        self._repository = repository
        self._world = world
        self._sender = CommitSender(world)
        self._run_files = RunFilesCommit(repository, world, self._sender)
        self._upload = BundleUpload(world)
        self._bundles = BundleCommit(repository, world, self._sender, self._upload)
        self._uploads: dict[str, anyio.CancelScope] = {}
        self._ready: list[ReadyBundle] = []
        self._ready_since_unix_s = 0.0
        self._work: anyio.CancelScope | None = None
        self._quiet_until = float("-inf")
        self._looked_at = float("-inf")
        self._unknowns = 0
        self._idle_since: float | None = None
        self._without_credential: tuple[int, int, int] | None = None

    async def setup(self, context: ActorContext[RepositoryMessage]) -> None:
        """Be ready at once; the store is looked at right after."""
        self._context = context
        self._keeper = LeaseKeeper(self._repository, self._world, context, self._stop_work)
        context.wake_at(anyio.current_time())

    async def handle(self, message: RepositoryMessage) -> FinalCommitDone | None:
        """Look at the store again, or make the final commit."""
        if isinstance(message, FinalCommit):
            return await self._final_commit(message.until)
        look_at = self._looked_at + LOOK_EVERY_S
        if anyio.current_time() < look_at:
            # A sweep brings such news by the hundred, and each look at the store costs: one look serves them all.
            self._context.wake_at(look_at)
        else:
            await self._advance()
        return None

    async def wake(self) -> None:
        """Do what has become due."""
        await self._advance()

    async def terminate(self, reason: ExitReason) -> None:
        """Give the lease back, with every bundle claimed under it; the uploads were cancelled before."""
        for bundle in self._ready:
            self._world.in_flight.leave(bundle.work.repository)
        self._ready.clear()
        await self._keeper.release()

    # --- deciding ---

    async def _advance(self) -> None:
        """Do everything that is due, then set the next wake. Trouble of the store or of another actor is waited out."""
        try:
            while await self._do_next():
                pass
            self._looked_at = anyio.current_time()
        except LeaseLost:
            self._stop_work()
            self._context.wake_at(anyio.current_time() + self._world.limits.held_lease_check_s)
        except CredentialMissing:
            # It vanished between the look and its use; the next look waits for it.
            self._context.wake_at(anyio.current_time() + self._world.limits.held_lease_check_s)
        except _LOCAL_TROUBLE as error:
            self._world.warn.warn(
                "local-trouble", type(error).__name__, "deliveries wait for it; everything accepted is kept"
            )
            self._context.wake_at(anyio.current_time() + _STORE_PAUSE_S)

    async def _do_next(self) -> bool:
        """Take one step if one is due; answers whether to look again."""
        world = self._world
        agenda = await self._agenda()
        step = self._decide(agenda)
        if step is None:
            await self._rest(agenda)
            return False
        self._idle_since = None
        delay_s = step.at_unix_s - world.clock.unix_s()
        if delay_s > 0:
            await self._sleep(delay_s)
            return False
        if not await world.hub.has_credential():
            await self._note_missing_credential(agenda)
            await self._sleep(world.limits.credential_check_s)
            return False
        self._without_credential = None
        world.warn.clear("credential-missing")
        return await self._do_leased(step)

    async def _do_leased(self, planned: NextStep) -> bool:
        """Take a step under the lease, after everything was checked again; answers whether to look again."""
        lease = await self._keeper.ensure()
        if isinstance(lease, LeaseHeld):
            await self._sleep(max(1.0, lease.expires_unix_s - self._world.clock.unix_s()))
            return False
        step = self._decide(await self._agenda())
        if step is None or step.step is not planned.step or step.at_unix_s > self._world.clock.unix_s():
            return True
        with anyio.CancelScope() as self._work:
            await self._take(step.step, lease)
        self._work = None
        return True

    async def _take(self, step: Step, lease: Lease) -> None:
        match step:
            case Step.SETTLE:
                await self._settle_open()
            case Step.CLAIM:
                await self._claim(lease)
            case Step.RUN_FILES:
                await self._note(await self._run_files.run(lease), is_run_files=True)
            case Step.BUNDLES:
                await self._commit_ready(lease)

    async def _agenda(self) -> RepositoryAgenda:
        world = self._world
        now = world.clock.unix_s()
        query = ReadAgenda(self._repository, now_unix_s=now, horizon_s=world.pace.horizon_s)
        agenda = await world.store.query(query)
        if has_times_ahead(agenda, now, world.backoff.max_s):
            await world.ledger.write(
                ClampTimes(repository=self._repository, now_unix_s=now, backoff_max_s=world.backoff.max_s)
            )
            agenda = await world.store.query(query)
        return agenda

    def _decide(self, agenda: RepositoryAgenda) -> NextStep | None:
        world = self._world
        now = world.clock.unix_s()
        if world.gate.is_stopping:
            # Run files wait for the final commit; what was uploaded before the stop may still take the slot.
            agenda = replace(agenda, run_files_due_unix_s=None)
        return next_step(
            agenda,
            now_unix_s=now,
            pace=world.pace,
            may_claim=(
                not world.gate.is_stopping and len(self._uploads) + len(self._ready) < world.limits.claimed_bundles
            ),
            ready_since_unix_s=self._ready_since_unix_s if self._ready else None,
            quiet_until_unix_s=now + max(0.0, self._quiet_until - anyio.current_time()),
        )

    async def _sleep(self, delay_s: float) -> None:
        """Set the next wake, and give the lease back meanwhile unless uploads need it."""
        if not self._uploads and not self._ready:
            await self._keeper.release()
        self._context.wake_at(anyio.current_time() + delay_s)

    async def _rest(self, agenda: RepositoryAgenda) -> None:
        """Nothing is due: give the lease back, and after a while end; the registry starts another one on demand."""
        if self._uploads or self._ready:
            return
        await self._keeper.release()
        if not agenda.is_idle or self._world.gate.is_stopping:
            return
        now = anyio.current_time()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= self._world.limits.idle_s:
            self._context.passivate()
        else:
            self._context.wake_at(self._idle_since + self._world.limits.idle_s)

    # --- commits ---

    async def _note(self, result: CommitResult, *, is_run_files: bool) -> None:
        """Take note of what a cycle came to: backoff, pauses, warnings."""
        world = self._world
        outcome = result.outcome
        if outcome is None:
            self._unknowns = 0
            if result.commit_id is not None:
                await self._note_landed()
            return
        world.warn.warn("commit-failed", outcome.error_type, "its files stay queued and are tried again")
        if result.is_unknown:
            self._unknowns += 1
            self._quiet_until = anyio.current_time() + world.backoff.pause_s(self._unknowns)
        elif outcome.kind is OutcomeKind.CONFLICT:
            # Other writers were faster each time: wait a little, and charge nothing to anybody (N-HUB-02).
            self._quiet_until = anyio.current_time() + world.backoff.first_s * (1.0 + world.jitter())
        elif is_run_files:
            await self._count_failure(outcome, result)
        if outcome.kind in (OutcomeKind.NEEDS_PERSON, OutcomeKind.REFUSED_REPOSITORY):
            await world.ledger.write(
                PauseRepository(self._repository, _pause_reason(outcome), now_unix_s=world.clock.unix_s())
            )

    async def _count_failure(self, outcome: Outcome, result: CommitResult) -> None:
        world = self._world
        now = world.clock.unix_s()
        agenda = await self._agenda()
        pause_s = world.backoff.pause_s(agenda.failures + 1)
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
        if (await self._agenda()).paused_reason is not None:
            await world.ledger.write(PauseRepository(self._repository, None, now_unix_s=world.clock.unix_s()))

    async def _note_missing_credential(self, agenda: RepositoryAgenda) -> None:
        """Show it in the receipts of what is pending, once for each change of that; it is no attempt (finding W21)."""
        world = self._world
        pending = (agenda.pending_paths, agenda.pending_entries, agenda.pending_bundles)
        if pending == self._without_credential:
            return
        self._without_credential = pending
        world.warn.warn(
            "credential-missing",
            "no token",
            "uploads are paused and everything stays queued; set HF_TOKEN or log in, it is noticed without a restart",
        )
        await world.ledger.write(NoteMissingCredential(self._repository))

    async def _settle_open(self) -> None:
        """Settle the commit whose outcome this or an earlier process does not know."""
        attempt = await self._world.store.query(ReadOpenAttempt(self._repository))
        if attempt is None:
            return
        wanted = tuple({file.digests.sha256 for file in attempt.files if file.mode is UploadMode.REGULAR})
        kept = dict(await self._world.store.query(ReadContents(wanted))) if wanted else {}
        result = await self._sender.settle_open(attempt, kept if kept.keys() == set(wanted) else None)
        match result:
            case StillUnknown(outcome):
                await self._note(CommitResult(outcome=outcome, is_unknown=True), is_run_files=False)
            case Landed(commit_id):
                self._forget(attempt.handover_ids)
                await self._note(CommitResult(commit_id=commit_id), is_run_files=attempt.kind is AttemptKind.RUN_FILES)
            case _:
                self._unknowns = 0

    async def _final_commit(self, until: float) -> FinalCommitDone:
        """Commit everything pending of run files, asking again for a lease that another process holds (W41)."""
        commit_id: str | None = None
        try:
            while anyio.current_time() < until:
                agenda = await self._agenda()
                if not (agenda.pending_paths or agenda.pending_entries or agenda.has_open_attempt):
                    return FinalCommitDone(commit_id, is_clean=True)
                if not await self._world.hub.has_credential():
                    await self._note_missing_credential(agenda)
                    break
                lease = await self._keeper.ensure()
                if isinstance(lease, LeaseHeld):
                    await anyio.sleep(self._world.limits.held_lease_check_s)
                    continue
                with anyio.CancelScope(deadline=until) as self._work:
                    if agenda.has_open_attempt:
                        await self._settle_open()
                        if (await self._agenda()).has_open_attempt:
                            break
                        continue
                    result = await self._run_files.run(lease)
                    await self._note(result, is_run_files=True)
                    commit_id = result.commit_id or commit_id
                    if result.outcome is not None:
                        break
        except LeaseLost:
            self._stop_work()
        except (CredentialMissing, *_LOCAL_TROUBLE) as error:
            self._world.warn.warn("local-trouble", type(error).__name__, "a final commit could not be made")
        finally:
            self._work = None
            self._context.wake_at(anyio.current_time())
        return FinalCommitDone(commit_id, is_clean=False)

    # --- bundles ---

    async def _claim(self, lease: Lease) -> None:
        """Claim one bundle and begin to prepare it; one claimed after a shutdown began is given back (section 6)."""
        world = self._world
        work = await world.ledger.write(ClaimBundle(lease, now_unix_s=world.clock.unix_s()))
        if work is None:
            return
        if world.gate.is_stopping:
            await world.ledger.write(ReleaseBundle(work.handover_id, lease))
            return
        world.in_flight.enter(self._repository)
        self._uploads[work.handover_id] = anyio.CancelScope()
        self._context.start_task(self._prepare, work, lease, name=f"bundle {work.handover_id}")

    async def _prepare(self, work: BundleWork, lease: Lease) -> None:
        ready: ReadyBundle | None = None
        try:
            with self._uploads[work.handover_id]:
                ready = await self._upload.prepare(work, lease)
        except LeaseLost:
            pass
        except (CredentialMissing, *_LOCAL_TROUBLE) as error:
            self._world.warn.warn("local-trouble", type(error).__name__, "a bundle is given back and tried again")
            await self._give_back(work, lease)
        finally:
            del self._uploads[work.handover_id]
            if ready is not None and self._keeper.lease is not None:
                if not self._ready:
                    self._ready_since_unix_s = self._world.clock.unix_s()
                self._ready.append(ready)
            else:
                self._world.in_flight.leave(self._repository)
            self._nudge()

    async def _give_back(self, work: BundleWork, lease: Lease) -> None:
        self._quiet_until = anyio.current_time() + _STORE_PAUSE_S
        try:
            await self._world.ledger.write(ReleaseBundle(work.handover_id, lease))
        except (LeaseLost, *_LOCAL_TROUBLE):
            # The claim goes with the lease, at the latest when that expires.
            return

    async def _commit_ready(self, lease: Lease) -> None:
        chosen = self._bundles.choose(self._ready)
        ids = {bundle.work.handover_id for bundle in chosen}
        try:
            result = await self._bundles.run(chosen, lease)
        finally:
            # Each of them is settled, postponed, or part of a recorded attempt by now; or the lease is gone.
            self._forget(ids)
            self._ready_since_unix_s = self._world.clock.unix_s()
        await self._note(result, is_run_files=False)

    def _forget(self, handover_ids: tuple[str, ...] | set[str]) -> None:
        for bundle in [ready for ready in self._ready if ready.work.handover_id in handover_ids]:
            self._ready.remove(bundle)
            self._world.in_flight.leave(self._repository)

    # --- stopping ---

    def _stop_work(self) -> None:
        """The lease is lost: everything under it stops before its next effect, and records no result (N-RUN-12)."""
        if self._work is not None:
            self._work.cancel("the lease was lost")
        for scope in self._uploads.values():
            scope.cancel("the lease was lost")
        self._forget({bundle.work.handover_id for bundle in self._ready})
        self._nudge()

    def _nudge(self) -> None:
        try:
            self._context.ref.tell_nowait(WorkArrived())
        except (anyio.WouldBlock, ActorStopped):
            # A full mailbox holds such a message already; a stopped actor needs none.
            return


def _pause_reason(outcome: Outcome) -> str:
    status = f"HTTP {outcome.status}, " if outcome.status is not None else ""
    said = f": {outcome.server_text}" if outcome.server_text else ""
    return f"{status}{outcome.error_type}{said}"


__all__ = ["FinalCommit", "FinalCommitDone", "RepositoryActor", "RepositoryMessage", "WorkArrived"]
