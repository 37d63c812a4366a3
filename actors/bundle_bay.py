"""The bundles of one repository between their claim and their end: being prepared, or ready for the commit slot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import anyio

from ..protocol.errors import LeaseLost
from ..protocol.lease import Lease
from ..protocol.work import BundleWork
from .behaviour import ActorContext
from .bundle_commit import BundleCommit
from .bundle_upload import BundleUpload, ReadyBundle
from .commit_sender import CommitSender
from .delivery_world import DeliveryWorld
from .errors import ActorCrashed, ActorStopped, AskTimeout
from .lease_keeper import LeaseKeeper
from .port_errors import CredentialMissing, StoreError
from .run_files_commit import CommitResult
from .store_operations import ClaimBundle, ReleaseBundle

LOCAL_TROUBLE: Final = (StoreError, AskTimeout, ActorCrashed, ActorStopped)
"""Trouble of the store or of another actor: it is waited out."""

_TROUBLE_PAUSE_S: Final = 5.0


class BundleBay:
    """Owns a task for each bundle that is being prepared, and keeps those that are ready.

    Each claimed bundle is counted as in flight from its claim to its end, once, whatever that end is.

    Args:
        repository: which one.
        world: the ports and limits.
        context: of the actor that owns the tasks.
        keeper: holds the lease that bundles are claimed under.
        sender: what sends and settles attempts.
        on_change: called when a bundle is ready, or is not being prepared any more; must not wait.
    """

    def __init__(
        self,
        repository: str,
        world: DeliveryWorld,
        context: ActorContext[Any],
        keeper: LeaseKeeper,
        sender: CommitSender,
        on_change: Callable[[], None],
    ) -> None:
        self._repository = repository
        self._world = world
        self._context = context
        self._keeper = keeper
        self._on_change = on_change
        self._upload = BundleUpload(world)
        self._commit = BundleCommit(repository, world, sender, self._upload, self._forget_one)
        self._uploads: dict[str, anyio.CancelScope] = {}
        self._ready: dict[str, ReadyBundle] = {}
        self._ready_since_unix_s = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether it needs the lease."""
        return bool(self._uploads or self._ready)

    @property
    def has_room(self) -> bool:
        """Whether another bundle may be claimed now."""
        return len(self._uploads) + len(self._ready) < self._world.limits.claimed_bundles

    @property
    def ready_since_unix_s(self) -> float | None:
        """Since when a bundle waits for the commit slot; None without one."""
        return self._ready_since_unix_s if self._ready else None

    async def claim(self, lease: Lease) -> None:
        """Claim the bundles that are due, as many as there is room for, and begin to prepare them.

        The gate is asked before each claim and after it: one claimed after a shutdown began is given back (section 6).

        Raises:
            LeaseLost: the lease is gone.
        """
        world = self._world
        while self._may_claim():
            work = await world.ledger.write(ClaimBundle(lease, now_unix_s=world.clock.unix_s()))
            if work is None:
                return
            if world.gate.is_stopping:
                await world.ledger.write(ReleaseBundle(work.handover_id, lease))
                return
            # Before its task runs for the first time: it needs the lease from now on.
            self._uploads[work.handover_id] = anyio.CancelScope()
            world.in_flight.enter(self._repository)
            self._context.start_task(self._prepare, work, lease, name=f"bundle {work.handover_id}")

    async def commit(self, lease: Lease) -> CommitResult:
        """Commit the bundles that are ready, as many as one commit may carry. Those that are not settled stay ready.

        Raises:
            LeaseLost: the lease is gone.
        """
        try:
            return await self._commit.run(self._commit.choose(list(self._ready.values())), lease)
        finally:
            self._ready_since_unix_s = self._world.clock.unix_s()

    def forget(self, handover_ids: Iterable[str]) -> None:
        """These bundles are settled."""
        for handover_id in handover_ids:
            self._forget_one(handover_id)

    def stop(self) -> None:
        """The lease is lost: all that was claimed under it stops before its next effect (N-RUN-12)."""
        for scope in self._uploads.values():
            scope.cancel("the lease was lost")
        self.forget(list(self._ready))

    def _may_claim(self) -> bool:
        return self.has_room and not self._world.gate.is_stopping

    def _forget_one(self, handover_id: str) -> None:
        if self._ready.pop(handover_id, None) is not None:
            self._world.in_flight.leave(self._repository)

    async def _prepare(self, work: BundleWork, lease: Lease) -> None:
        ready: ReadyBundle | None = None
        try:
            with self._uploads[work.handover_id]:
                ready = await self._upload.prepare(work, lease)
        except LeaseLost:
            self._keeper.lose()
        except (CredentialMissing, *LOCAL_TROUBLE) as error:
            self._world.warn.warn("local-trouble", type(error).__name__, "a bundle is given back and tried again")
            await self._give_back(work, lease)
        finally:
            del self._uploads[work.handover_id]
            held = self._keeper.lease
            if ready is not None and held is not None and held.fence == lease.fence:
                self._keep(ready)
            else:
                self._world.in_flight.leave(self._repository)
            self._on_change()

    def _keep(self, ready: ReadyBundle) -> None:
        if not self._ready:
            self._ready_since_unix_s = self._world.clock.unix_s()
        self._ready[ready.work.handover_id] = ready

    async def _give_back(self, work: BundleWork, lease: Lease) -> None:
        """After a pause, as whatever was in the way is likely to be so still; at a shutdown at once."""
        gate = self._world.gate
        while True:
            with anyio.move_on_after(_TROUBLE_PAUSE_S):
                await gate.wait_stopping()
            try:
                await self._world.ledger.write(ReleaseBundle(work.handover_id, lease))
            except LOCAL_TROUBLE:
                if not gate.is_stopping:
                    continue
            return


__all__ = ["LOCAL_TROUBLE", "BundleBay"]
