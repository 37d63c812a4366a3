"""Upkeep of the store: rows of settled hand-overs are forgotten after the retention period."""

from __future__ import annotations

import contextlib
from typing import Final

import anyio

from ..actors.behaviour import ActorContext, Behaviour
from ..actors.errors import ActorCrashed, ActorStopped, AskTimeout
from ..actors.ledger import LedgerRef
from ..actors.port_errors import StoreError
from ..actors.ports import Clock
from ..actors.store_operations import Prune

FIRST_AFTER_S: Final = 60.0
"""So that a short command leaves the store alone."""

EVERY_S: Final = 3600.0

PAUSE_S: Final = 1.0
"""Between two parts of one clean-up, so that hand-overs hardly notice it."""


class Upkeep(Behaviour[None]):
    """Prunes the store once an hour, in small transactions.

    Args:
        ledger: writes.
        clock: dates.
        retention_s: how long rows of settled hand-overs are kept.
    """

    def __init__(self, ledger: LedgerRef, clock: Clock, retention_s: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._retention_s = retention_s

    async def setup(self, context: ActorContext[None]) -> None:
        """Begin after a minute."""
        self._context = context
        context.wake_at(anyio.current_time() + FIRST_AFTER_S)

    async def handle(self, message: None) -> None:
        """It takes no messages."""

    async def wake(self) -> None:
        """Prune one part; come back soon if there is more."""
        deleted = 0
        # In trouble it is in no hurry: the next hour will do.
        with contextlib.suppress(StoreError, AskTimeout, ActorCrashed, ActorStopped):
            deleted = await self._ledger.write(Prune(before_unix_s=self._clock.unix_s() - self._retention_s))
        self._context.wake_at(anyio.current_time() + (PAUSE_S if deleted else EVERY_S))


__all__ = ["Upkeep"]
