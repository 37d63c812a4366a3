"""Making what waits due now, and trying again what waits for a person."""

from __future__ import annotations

import contextlib

from ..actors.errors import ActorCrashed, ActorStopped, AskTimeout
from ..actors.store_operations import ClampTimes, FlushEverything, PauseRepository, RetryParked
from .status import Status
from .tree import ActorTree


async def flush_everything(tree: ActorTree) -> None:
    """Make everything that waits due now; a Ledger in trouble is asked again at the next look.

    Raises:
        StoreError: the store could not do it.
    """
    with contextlib.suppress(AskTimeout, ActorCrashed, ActorStopped):
        await tree.ledger.write(FlushEverything(now_unix_s=tree.clock.unix_s()))


async def resume_repositories(tree: ActorTree, status: Status, only: str | None, *, retry_parked: bool) -> None:
    """Lift pause and back-off of every repository where something waits, or of one: a person says "try now".

    The Hub's own wish to wait (429), the spacing and the budget hold.

    Raises:
        StoreError: the store could not do it.
    """
    now = tree.clock.unix_s()
    parked = {line.repository for line in status.parked_files} if retry_parked else set()
    waiting = {line.repository for line in status.repositories if line.is_waiting}
    paused = {line.repository for line in status.repositories if line.paused_reason is not None}
    if only is not None:
        parked, waiting, paused = parked & {only}, waiting & {only}, paused & {only}
    with contextlib.suppress(AskTimeout, ActorCrashed, ActorStopped):
        for repository in sorted(parked):
            await tree.ledger.write(RetryParked(repository, now_unix_s=now))
        for repository in sorted(paused):
            await tree.ledger.write(PauseRepository(repository, None, now_unix_s=now))
        for repository in sorted(waiting):
            await tree.ledger.write(ClampTimes(repository=repository, now_unix_s=now, backoff_max_s=0.0))
    for repository in parked | waiting | paused:
        tree.nudge(repository)


__all__ = ["flush_everything", "resume_repositories"]
