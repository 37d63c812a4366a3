"""A bound on the bytes that hand-overs hold in memory between reading a file and its place in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class ByteBudget:
    """Lets so many bytes be held at once; who asks for more waits, in the order of asking.

    Cancellation: whoever is cancelled while it waits holds nothing and does not keep its place.

    Args:
        limit_bytes: how much may be held; a single larger claim is let through alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    @property
    def held_bytes(self) -> int:
        """What is held now."""
        return self._held_bytes

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold so many bytes for the length of the block."""
        await self._acquire(size_bytes)
        try:
            yield
        finally:
            self._held_bytes -= size_bytes
            self._admit()

    async def _acquire(self, size_bytes: int) -> None:
        if not self._waiting and self._has_room(size_bytes):
            self._held_bytes += size_bytes
            return
        turn = (size_bytes, anyio.Event())
        self._waiting.append(turn)
        try:
            await turn[1].wait()
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self._held_bytes -= size_bytes
            self._admit()
            raise

    def _has_room(self, size_bytes: int) -> bool:
        return self._held_bytes == 0 or self._held_bytes + size_bytes <= self._limit_bytes

    def _admit(self) -> None:
        while self._waiting and self._has_room(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            self._held_bytes += size_bytes
            turn.set()


__all__ = ["ByteBudget"]
