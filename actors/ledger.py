"""The Ledger: the one writer of the hand-over database of this process, with group commit.

Writes that arrive while a transaction runs wait in the Ledger's mailbox and share the next one: one durable commit to
the disk answers all of them. Each is answered only after it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from .behaviour import ActorContext, BatchBehaviour
from .mailbox import Pending
from .port_errors import StoreError, StoreFull
from .ports import Failed, Store
from .ref import ActorRef, Command
from .store_operations import RecordBundle, RecordRunFiles, Write

R = TypeVar("R")

LEDGER_CAPACITY: Final = 1024
"""Writes that may wait. One more makes its sender wait for room."""

MAX_BATCH: Final = 256
"""Writes that may share a transaction."""

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Content that may share a transaction; a single larger hand-over gets one of its own."""


@dataclass(frozen=True, slots=True)
class Perform(Command[R], Generic[R]):
    """Carry out a write and answer its result once it is durable."""

    operation: Write[R]
    then: Callable[[], None] | None = None
    """Called once it is durable, also when nobody waits for the answer any more; must not wait or raise."""


class Ledger(BatchBehaviour[Perform[Any]]):
    """Carries out writes in groups.

    An operation that refuses (a lost lease, for example) is answered with its error; the others of its transaction are
    not disturbed. When the store itself fails, every write of the group is answered with that error and had no effect.
    On a full disk each write of the group is tried on its own first, so that a large hand-over for which there is no
    room does not take the renewals of leases with it (N-STO-05).

    Args:
        store: where to write.
    """

    max_batch = MAX_BATCH

    def __init__(self, store: Store) -> None:
        self._store = store

    async def setup(self, context: ActorContext[Perform[Any]]) -> None:
        """Nothing to prepare: the store was opened before."""

    async def handle_batch(self, messages: Sequence[Pending[Perform[Any]]]) -> None:
        """Carry out the waiting writes, in their order, in as few transactions as their bytes allow."""
        for group in _split_by_bytes(messages):
            try:
                await self._transact(group)
            except StoreFull as error:
                if len(group) == 1:
                    group[0].refuse(error)
                    continue
                for pending in group:
                    await self._transact_alone(pending)
            except StoreError as error:
                for pending in group:
                    pending.refuse(error)

    async def _transact(self, group: Sequence[Pending[Perform[Any]]]) -> None:
        answers = await self._store.transact([pending.message.operation for pending in group])
        for pending, answer in zip(group, answers, strict=True):
            if isinstance(answer, Failed):
                pending.refuse(answer.error)
                continue
            if pending.message.then is not None:
                pending.message.then()
            pending.answer(answer)

    async def _transact_alone(self, pending: Pending[Perform[Any]]) -> None:
        try:
            await self._transact([pending])
        except StoreError as error:
            pending.refuse(error)


class LedgerRef:
    """How the other actors write.

    Args:
        ref: the Ledger's address.
    """

    def __init__(self, ref: ActorRef[Perform[Any]]) -> None:
        self._ref = ref

    async def write(self, operation: Write[R], *, within_s: float = 30.0, then: Callable[[], None] | None = None) -> R:
        """Carry out a write; returns once it is durable.

        Waits for room in the Ledger's mailbox. A caller that is cancelled leaves; a write that was already taken is
        carried out all the same, and `then` is called for it: whoever has to hear of a durable write is told there, not
        by a caller that may have left.

        Raises:
            ConveyorError: whatever the operation refuses with.
            StoreError: the store could not do it; nothing changed.
            AskTimeout: it took longer than `within_s`; whether it was carried out is not known.
            ActorStopped: the Ledger has ended.
        """
        return await self._ref.ask(Perform(operation, then), within_s=within_s)


def _content_bytes(operation: Write[Any]) -> int:
    if isinstance(operation, RecordRunFiles):
        return sum(file.digests.size_bytes for file in operation.files)
    if isinstance(operation, RecordBundle):
        return sum(copy.digests.size_bytes for copy in operation.copies.values())
    return 0


def _split_by_bytes(messages: Sequence[Pending[Perform[Any]]]) -> list[list[Pending[Perform[Any]]]]:
    groups: list[list[Pending[Perform[Any]]]] = []
    room_bytes = 0
    for pending in messages:
        size_bytes = _content_bytes(pending.message.operation)
        if not groups or size_bytes > room_bytes:
            groups.append([])
            room_bytes = MAX_BATCH_BYTES
        groups[-1].append(pending)
        room_bytes -= size_bytes
    return groups


__all__ = ["LEDGER_CAPACITY", "MAX_BATCH", "MAX_BATCH_BYTES", "Ledger", "LedgerRef", "Perform"]
