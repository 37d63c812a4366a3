"""Holding the lease of one repository: taken on demand, renewed while there is work, never released under a thread.

Source: hand-over protocol, section 5.7; findings W22 and W23; N-RUN-12. The lease is safe for as long as this process's
own monotonic clock says, a margin before others may take it; the wall clock is only evidence for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import anyio

from ..protocol.errors import LeaseLost
from ..protocol.lease import SAFETY_MARGIN_S, Lease, LeaseHeld
from .behaviour import ActorContext, TaskHandle
from .delivery_world import DeliveryWorld
from .errors import ActorCrashed, ActorStopped, AskTimeout
from .port_errors import StoreError
from .store_operations import AcquireLease, ReleaseLease, RenewLease

_RETRY_RENEWAL_S: Final = 5.0
_RENEWAL_WITHIN_S: Final = 10.0


class LeaseKeeper:
    """Keeps the lease of one repository for its actor.

    A lease that was lost, or whose release failed, may still be the current one in the store. It is given back before
    another is taken: then the next one has a new fence, and bundles claimed under the old one are free again.

    Args:
        repository: which one.
        world: the ports and limits.
        context: of the actor that owns the renewing task.
        on_lost: called at once when the lease is lost; it must stop the work before its next effect.
    """

    def __init__(
        self, repository: str, world: DeliveryWorld, context: ActorContext[Any], on_lost: Callable[[], None]
    ) -> None:
        self._repository = repository
        self._world = world
        self._context = context
        self._on_lost = on_lost
        self._lease: Lease | None = None
        self._owed: Lease | None = None
        self._safe_until = 0.0
        self._renewing: TaskHandle | None = None

    @property
    def lease(self) -> Lease | None:
        """The lease in hand, if it is safe to work under it now."""
        if self._lease is not None and anyio.current_time() < self._safe_until:
            return self._lease
        return None

    async def ensure(self) -> Lease | LeaseHeld:
        """Give the lease in hand, or take it; answers who holds it otherwise.

        Raises:
            StoreError, AskTimeout: the store could not say.
        """
        if self._lease is not None:
            if self.lease is not None:
                return self._lease
            self.lose()
        await self._give_back()
        limits = self._world.limits
        asked_at = anyio.current_time()
        answer = await self._world.ledger.write(
            AcquireLease(
                repository=self._repository,
                owner=self._world.owner,
                now_unix_s=self._world.clock.unix_s(),
                lease_s=limits.lease_s,
            )
        )
        if isinstance(answer, Lease):
            self._owed = None
            self._hold(answer, asked_at)
            self._renewing = self._context.start_task(self._renew, name="renew lease")
            self._world.warn.clear("lease-lost", self._repository)
        return answer

    async def release(self) -> bool:
        """Give the lease back, and with it every bundle claimed under it, without counting attempts.

        While an abandoned thread still works for the repository the lease is left to expire instead.

        Returns:
            Whether no lease is held any more, in this process or in the store.

        Raises:
            StoreError, AskTimeout: the store could not take it back; it is owed, and expires in time.
        """
        if self._lease is not None:
            self._lease, self._owed = None, self._lease
        self._stop_renewing()
        return await self._give_back()

    def lose(self) -> None:
        """The lease is not safe any more, or not ours: stop everything under it. Without a lease, nothing."""
        if self._lease is None:
            return
        self._lease, self._owed = None, self._lease
        self._stop_renewing()
        self._world.warn.warn(
            "lease-lost", self._repository, "its work was stopped; whoever holds the lease now goes on with it"
        )
        self._on_lost()

    async def _give_back(self) -> bool:
        owed = self._owed
        if owed is None:
            return True
        if self._world.hub.unfinished_threads(self._repository):
            self._world.warn.warn(
                "lease-left-to-expire",
                self._repository,
                "a transfer that cannot be interrupted still runs; the lease is not released under it",
            )
            return False
        self._world.warn.clear("lease-left-to-expire", self._repository)
        await self._world.ledger.write(ReleaseLease(owed))
        if self._owed is owed:
            self._owed = None
        return True

    def _hold(self, lease: Lease, asked_at: float) -> None:
        self._lease = lease
        self._safe_until = asked_at + self._world.limits.lease_s - min(SAFETY_MARGIN_S, self._world.limits.lease_s / 4)

    def _stop_renewing(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()

    async def _renew(self) -> None:
        pause_s = self._world.limits.renew_every_s
        while True:
            await anyio.sleep(pause_s)
            held, asked_at = self._lease, anyio.current_time()
            if held is None:
                return
            try:
                renewed = await self._world.ledger.write(
                    RenewLease(lease=held, now_unix_s=self._world.clock.unix_s(), lease_s=self._world.limits.lease_s),
                    within_s=max(0.0, min(_RENEWAL_WITHIN_S, self._safe_until - asked_at)),
                )
            except LeaseLost:
                if self._lease is held:
                    self.lose()
                return
            except (StoreError, AskTimeout, ActorCrashed, ActorStopped):
                # The lease still runs; it is lost only when its safe time has passed without a renewal.
                left_s = self._safe_until - anyio.current_time()
                if left_s <= 0.0 and self._lease is held:
                    self.lose()
                    return
                pause_s = min(_RETRY_RENEWAL_S, left_s)
                continue
            if self._lease is held:
                self._hold(renewed, asked_at)
            pause_s = self._world.limits.renew_every_s


__all__ = ["LeaseKeeper"]
