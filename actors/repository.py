"""The RepositoryActor: one per repository, lease holder and commit spacer.

It sleeps until its next due time or its next message; there is no polling tick. Commits are made one at a time, in
its own task; bundles are verified and uploaded beside them, in tasks that it owns. All its state is durable: a
crashed one is restarted from the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import anyio

from ..protocol.errors import LeaseLost
from ..protocol.lease import Lease, LeaseHeld
from ..protocol.work import AttemptKind, RepositoryAgenda, UploadMode
from .agenda import NextStep, Step, next_step
from .agenda_reader import AgendaReader
from .behaviour import ActorContext, Behaviour, ExitReason
from .bundle_bay import LOCAL_TROUBLE, BundleBay
from .commit_sender import CommitSender, Landed, StillUnknown
from .cycle_notes import CycleNotes
from .delivery_world import DeliveryWorld
from .errors import ActorStopped
from .lease_keeper import LeaseKeeper
from .port_errors import CredentialMissing
from .ref import Command
from .run_files_commit import CommitResult, RunFilesCommit
from .store_operations import ReadContents, ReadOpenAttempt

LOOK_EVERY_S: Final = 0.25
"""How often news of work alone makes an actor look at the store."""

_TROUBLE_PAUSE_S: Final = 5.0
_SHORTEST_SLEEP_S: Final = 0.001
"""Wall-clock times have a coarser grain than waiting: a wake an instant too early would come again and again."""


@dataclass(frozen=True, slots=True)
class WorkArrived:
    """Something of the repository may have changed: look at the store again."""


@dataclass(frozen=True, slots=True)
class FinalCommitDone:
    """What a final commit came to."""

    commit_ids: tuple[str, ...]
    """The commits made, in their order."""
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
        self._agenda = AgendaReader(repository, world)
        self._notes = CycleNotes(repository, world, self._agenda)
        self._sender = CommitSender(world)
        self._run_files = RunFilesCommit(repository, world, self._sender)
        self._work: anyio.CancelScope | None = None
        self._looked_at = float("-inf")
        self._idle_since: float | None = None
        self._has_trouble = False

    async def setup(self, context: ActorContext[RepositoryMessage]) -> None:
        """Be ready at once; the store is looked at right after."""
        self._context = context
        self._keeper = LeaseKeeper(self._repository, self._world, context, self._stop_work)
        self._bay = BundleBay(self._repository, self._world, context, self._keeper, self._sender, self._nudge)
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
        self._bay.stop()
        try:
            await self._keeper.release()
        except LOCAL_TROUBLE as error:
            self._world.warn.warn("local-trouble", type(error).__name__, "a lease is left to expire")

    # --- deciding ---

    async def _advance(self) -> None:
        """Do everything that is due, then set the next wake. Trouble of the store or of another actor is waited out."""
        try:
            while await self._do_next():
                pass
        except LeaseLost:
            self._keeper.lose()
            self._context.wake_at(anyio.current_time() + self._world.limits.held_lease_check_s)
        except CredentialMissing:
            # It vanished between the look and its use; the next look waits for it.
            self._context.wake_at(anyio.current_time() + self._world.limits.held_lease_check_s)
        except LOCAL_TROUBLE as error:
            self._has_trouble = True
            self._world.warn.warn(
                "local-trouble", type(error).__name__, "deliveries wait for it; everything accepted is kept"
            )
            self._context.wake_at(anyio.current_time() + _TROUBLE_PAUSE_S)
        else:
            if self._has_trouble:
                self._has_trouble = False
                self._world.warn.clear("local-trouble")
        finally:
            self._looked_at = anyio.current_time()

    async def _do_next(self) -> bool:
        """Take one step if one is due; answers whether to look again."""
        world = self._world
        agenda = await self._read_agenda()
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
            await self._notes.missing_credential(agenda)
            await self._sleep(world.limits.credential_check_s)
            return False
        self._notes.has_credential()
        return await self._do_leased(step)

    async def _do_leased(self, planned: NextStep) -> bool:
        """Take a step under the lease, after everything was checked again; answers whether to look again."""
        lease = await self._keeper.ensure()
        if isinstance(lease, LeaseHeld):
            await self._sleep(max(1.0, lease.expires_unix_s - self._world.clock.unix_s()))
            return False
        step = self._decide(await self._read_agenda())
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
                await self._bay.claim(lease)
            case Step.RUN_FILES:
                await self._notes.note(await self._run_files.run(lease), is_run_files=True)
            case Step.BUNDLES:
                await self._notes.note(await self._bay.commit(lease), is_run_files=False)

    async def _read_agenda(self) -> RepositoryAgenda:
        return await self._notes.without_held_entries(await self._agenda.read())

    def _decide(self, agenda: RepositoryAgenda) -> NextStep | None:
        world = self._world
        if world.gate.is_stopping:
            # Run files wait for the final commit; what was uploaded before the stop may still take the slot.
            agenda = replace(agenda, run_files_due_unix_s=None)
        return next_step(
            agenda,
            now_unix_s=world.clock.unix_s(),
            pace=world.pace,
            may_claim=not world.gate.is_stopping and self._bay.has_room,
            ready_since_unix_s=self._bay.ready_since_unix_s,
            quiet_until_unix_s=self._notes.quiet_until_unix_s(),
        )

    async def _sleep(self, delay_s: float) -> None:
        """Set the next wake, and give the lease back meanwhile unless uploads need it."""
        if not self._bay.is_busy:
            await self._keeper.release()
        self._context.wake_at(anyio.current_time() + max(delay_s, _SHORTEST_SLEEP_S))

    async def _rest(self, agenda: RepositoryAgenda) -> None:
        """Nothing is due: give the lease back, and after a while end; the registry starts another one on demand."""
        if self._bay.is_busy:
            return
        await self._keeper.release()
        if self._world.gate.is_stopping:
            return
        now = anyio.current_time()
        if not agenda.is_idle:
            # Its bundles are claimed: by another process, which frees them by releasing its lease or by losing it, or
            # under a lease of our own that was given back only now.
            self._idle_since = None
            left_s = agenda.lease_expires_unix_s - self._world.clock.unix_s()
            is_foreign = agenda.lease_owner not in (None, self._world.owner)
            shortest_s = self._world.limits.held_lease_check_s
            self._context.wake_at(now + max(shortest_s, min(left_s, self._world.limits.lease_s) if is_foreign else 0.0))
            return
        if self._idle_since is None:
            self._idle_since = now
        ends_at = self._idle_since + self._world.limits.idle_s
        if now >= ends_at:
            self._context.passivate()
        else:
            self._context.wake_at(ends_at)

    # --- commits ---

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
                await self._notes.note(CommitResult(outcome=outcome, is_unknown=True), is_run_files=False)
            case Landed(commit_id):
                self._bay.forget(attempt.handover_ids)
                is_run_files = attempt.kind is AttemptKind.RUN_FILES
                await self._notes.note(CommitResult(commit_id=commit_id), is_run_files=is_run_files)
            case _:
                self._notes.settled()

    async def _final_commit(self, until: float) -> FinalCommitDone:
        """Commit everything pending of run files, asking again for a lease that another process holds (W41)."""
        made: list[str] = []
        is_clean = False
        try:
            is_clean = await self._commit_finally(until, made)
        except LeaseLost:
            self._keeper.lose()
        except (CredentialMissing, *LOCAL_TROUBLE) as error:
            self._world.warn.warn("local-trouble", type(error).__name__, "a final commit could not be made")
        finally:
            self._work = None
            self._context.wake_at(anyio.current_time())
        return FinalCommitDone(tuple(made), is_clean)

    async def _commit_finally(self, until: float, made: list[str]) -> bool:
        """Put the ids of the commits into `made`; answers whether nothing is left."""
        before: RepositoryAgenda | None = None
        while anyio.current_time() < until:
            agenda = await self._agenda.read()
            if not (agenda.pending_paths or agenda.pending_entries or agenda.has_open_attempt):
                return True
            if before is not None and _left(agenda) == _left(before):
                return False
            if not await self._world.hub.has_credential():
                await self._notes.missing_credential(agenda)
                return False
            lease = await self._keeper.ensure()
            if isinstance(lease, LeaseHeld):
                await anyio.sleep(self._world.limits.held_lease_check_s)
                continue
            before = agenda
            result = CommitResult()
            with anyio.CancelScope(deadline=until) as self._work:
                if agenda.has_open_attempt:
                    await self._settle_open()
                    continue
                result = await self._run_files.run(lease)
                if result.commit_id is not None:
                    made.append(result.commit_id)
                await self._notes.note(result, is_run_files=True)
                if result.outcome is not None and not result.is_narrowed:
                    return False
            if result.is_narrowed:
                before = None
        return False

    # --- stopping ---

    def _stop_work(self) -> None:
        """The lease is lost: everything under it stops before its next effect, and records no result (N-RUN-12)."""
        if self._work is not None:
            self._work.cancel("the lease was lost")
        self._bay.stop()
        self._nudge()

    def _nudge(self) -> None:
        try:
            self._context.ref.tell_nowait(WorkArrived())
        except (anyio.WouldBlock, ActorStopped):
            # A full mailbox holds such a message already; a stopped actor needs none.
            return


def _left(agenda: RepositoryAgenda) -> tuple[int, int, bool]:
    return agenda.pending_paths, agenda.pending_entries, agenda.has_open_attempt


__all__ = ["FinalCommit", "FinalCommitDone", "RepositoryActor", "RepositoryMessage", "WorkArrived"]
