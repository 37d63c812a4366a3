"""Reading a repository's agenda under a wall clock that may jump (finding W24)."""

from __future__ import annotations

from typing import Final

import anyio

from ..protocol.work import RepositoryAgenda
from .agenda import has_any_time_ahead, has_times_ahead
from .delivery_world import DeliveryWorld
from .store_operations import ClampTimes, ReadAgenda

_SET_BACK_S: Final = 1.0
"""A wall clock that falls behind the monotonic one by more than this was set back."""


class AgendaReader:
    """Reads the agenda of one repository, and has stored times brought back to now where the clock was set back.

    Args:
        repository: which one.
        world: the store and the clocks.
    """

    def __init__(self, repository: str, world: DeliveryWorld) -> None:
        self._repository = repository
        self._world = world
        self._ahead_s: float | None = None
        self.last: RepositoryAgenda | None = None
        """As it was read last."""

    async def read(self) -> RepositoryAgenda:
        """The agenda now.

        Raises:
            StoreError, AskTimeout: the store could not say.
        """
        world = self._world
        now = world.clock.unix_s()
        query = ReadAgenda(self._repository, now_unix_s=now, horizon_s=world.pace.horizon_s)
        agenda = await world.store.query(query)
        ahead_s = now - anyio.current_time()
        if self._ahead_s is None:
            # Nobody here knows yet under which clock the times were stored.
            is_suspect = has_any_time_ahead(agenda, now, world.limits.lease_s)
        else:
            is_suspect = ahead_s < self._ahead_s - _SET_BACK_S or has_times_ahead(agenda, now, world.backoff.max_s)
        if is_suspect:
            await world.ledger.write(
                ClampTimes(repository=self._repository, now_unix_s=now, backoff_max_s=world.backoff.max_s)
            )
            agenda = await world.store.query(query)
        self._ahead_s, self.last = ahead_s, agenda
        return agenda


__all__ = ["AgendaReader"]
