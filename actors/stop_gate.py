"""What the actors of one runtime share about stopping and waiting: the gate, the uploads in flight, the board."""

from __future__ import annotations

from collections import Counter

import anyio


class StopGate:
    """Says whether the shutdown has begun. Set first, before any other step of it (finding W33).

    Whatever starts an upload asks before the lease, after the lease, and after the claim.
    """

    def __init__(self) -> None:
        self._stopping = anyio.Event()

    @property
    def is_stopping(self) -> bool:
        """The shutdown has begun: no new upload starts."""
        return self._stopping.is_set()

    def begin(self) -> None:
        """Begin the shutdown; calling it again changes nothing."""
        self._stopping.set()

    async def wait_stopping(self) -> None:
        """Wait until the shutdown begins."""
        await self._stopping.wait()


class InFlight:
    """Counts what is under way for each repository, so that a shutdown can wait for it.

    One counts the hand-overs being taken, another the bundles between their last check before an upload and their end.
    """

    def __init__(self) -> None:
        self._by_repository: Counter[str] = Counter()
        self._ended = anyio.Event()

    def enter(self, repository: str) -> None:
        """Something of the repository has begun."""
        self._by_repository[repository] += 1

    def leave(self, repository: str) -> None:
        """Something of the repository has ended, in whatever way. Raises RuntimeError if nothing is under way."""
        if repository not in self._by_repository:
            raise RuntimeError(f"more of {repository!r} has ended than had begun: each `enter` is left once")
        self._by_repository[repository] -= 1
        if self._by_repository[repository] <= 0:
            del self._by_repository[repository]
            self._ended.set()
            self._ended = anyio.Event()

    @property
    def repositories(self) -> tuple[str, ...]:
        """Repositories with something under way, by name."""
        return tuple(sorted(self._by_repository))

    async def wait_none(self) -> None:
        """Wait until nothing is under way."""
        while self._by_repository:
            await self._ended.wait()

    async def wait_none_of(self, repository: str) -> None:
        """Wait until nothing of this repository is under way."""
        while repository in self._by_repository:
            await self._ended.wait()


ANY_REPOSITORY = ""
"""The name under which a waiter is woken by a settlement of any repository."""


class SettlementBoard:
    """Wakes those who wait for something of a repository to be settled.

    Nothing is queued: whoever waits looks at the store again. A waiter takes a `ticket` before it looks, so that
    what is settled between the look and the wait is not missed.
    """

    def __init__(self) -> None:
        self._events: dict[str, anyio.Event] = {}

    def ticket(self, repository: str) -> anyio.Event:
        """The event that the next settlement of the repository sets."""
        return self._events.setdefault(repository, anyio.Event())

    def settled(self, repository: str) -> None:
        """Something of the repository was settled: wake those who hold a ticket of it, or of any."""
        for name in (repository, ANY_REPOSITORY):
            event = self._events.pop(name, None)
            if event is not None:
                event.set()

    def settled_somewhere(self) -> None:
        """Another process changed the store: wake everybody."""
        for repository in list(self._events):
            self.settled(repository)


__all__ = ["ANY_REPOSITORY", "InFlight", "SettlementBoard", "StopGate"]
