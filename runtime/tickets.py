"""Tickets: what a hand-over gives back, to wait for it or to ask for its receipt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar

import anyio

from ..actors.port_errors import StoreClosed
from ..actors.ports import Store
from ..actors.stop_gate import SettlementBoard
from ..actors.store_operations import AreSettled, ListParked, ReadBundleReceipt, ReadRunReceipt
from ..protocol.errors import ConveyorError
from ..protocol.receipts import BundleReceipt, BundleStatus, RunFilesReceipt, RunFilesStatus


class NotAccepted(ConveyorError):
    """The hand-over was refused, or could not be made durable in time; there is nothing to wait for."""

    code: ClassVar[str] = "NOT_ACCEPTED"


class NotDelivered(ConveyorError):
    """It was not delivered within the time, or never will be. What was accepted is kept and stays asked for."""

    code: ClassVar[str] = "NOT_DELIVERED"


class RunFilesTicket:
    """One run-file hand-over.

    Attributes:
        receipt: the run's receipt as it was when the hand-over was answered.
    """

    def __init__(
        self,
        receipt: RunFilesReceipt,
        *,
        store: Store,
        board: SettlementBoard,
        versions: tuple[tuple[str, int], ...] = (),
        entry_text: str | None = None,
    ) -> None:
        self.receipt = receipt
        self._store = store
        self._board = board
        self._versions = versions
        self._entry_text = entry_text

    @property
    def is_durable(self) -> bool:
        """The bytes are in the store; the files may be rewritten or deleted."""
        return self.receipt.status is RunFilesStatus.RECORDED

    async def wait_durable(self) -> RunFilesReceipt:
        """Give the receipt of a durable hand-over. A hand-over is answered only then, so this does not wait.

        Raises:
            NotAccepted: it was refused or could not be made durable in time.
        """
        await anyio.lowlevel.checkpoint()
        if not self.is_durable:
            raise NotAccepted(self.receipt.message or f"the hand-over is {self.receipt.status.value}")
        return self.receipt

    async def wait_delivered(self, *, within_s: float | None = None) -> RunFilesReceipt:
        """Wait until each path holds these bytes, or newer ones, on the Hub; gives the run's receipt then.

        Args:
            within_s: how long to wait; None without a limit.

        Raises:
            NotAccepted: there is nothing to wait for.
            NotDelivered: a file was set aside for good; or it took longer, or the Conveyor was closed, and the
                hand-over stays queued.
            StoreError: the store could not be read.
        """
        await self.wait_durable()
        repository, run_id = self.receipt.repository, self.receipt.run_id

        async def is_settled() -> bool:
            if await self._store.query(AreSettled(repository, run_id, self._versions, self._entry_text)):
                return True
            await self._refuse_if_parked()
            return False

        await _wait_settled(self._board, repository, is_settled, within_s)
        return await self.read_receipt()

    async def _refuse_if_parked(self) -> None:
        mine = set(self._versions)
        for parked in await self._store.query(ListParked(self.receipt.repository)):
            if (parked.path, parked.version) in mine:
                raise NotDelivered(
                    f"{parked.path} was set aside and will not be delivered to {parked.repository} as it is "
                    f"({parked.error_code.value}): {parked.reason}"
                )

    async def read_receipt(self) -> RunFilesReceipt:
        """The run's receipt now.

        Raises:
            StoreError: the store could not be read, or was closed.
        """
        return await self._store.query(ReadRunReceipt(self.receipt.repository, self.receipt.run_id))


class BundleTicket:
    """One bundle hand-over.

    Attributes:
        receipt: the bundle's receipt as it was when the hand-over was answered.
    """

    def __init__(self, receipt: BundleReceipt, *, store: Store, board: SettlementBoard) -> None:
        self.receipt = receipt
        self._store = store
        self._board = board

    @property
    def is_durable(self) -> bool:
        """The bundle is queued, and what the receipt lists as copied may be rewritten or deleted."""
        return self.receipt.status not in (BundleStatus.REFUSED, BundleStatus.UNAVAILABLE)

    async def wait_durable(self) -> BundleReceipt:
        """Give the receipt of a durable hand-over. A hand-over is answered only then, so this does not wait.

        Raises:
            NotAccepted: it was refused or could not be made durable in time.
        """
        await anyio.lowlevel.checkpoint()
        if not self.is_durable:
            raise NotAccepted(self.receipt.message or f"the hand-over is {self.receipt.status.value}")
        return self.receipt

    async def wait_delivered(self, *, within_s: float | None = None) -> BundleReceipt:
        """Wait until the bundle is uploaded or already staged; gives its receipt then.

        Args:
            within_s: how long to wait; None without a limit.

        Raises:
            NotAccepted: there is nothing to wait for.
            NotDelivered: it failed for good; or it took longer, or the Conveyor was closed, and it stays queued.
            StoreError: the store could not be read.
        """
        await self.wait_durable()
        latest = self.receipt

        async def is_final() -> bool:
            nonlocal latest
            latest = await self.read_receipt()
            return latest.status.is_final

        await _wait_settled(self._board, self.receipt.repository, is_final, within_s)
        if latest.status is BundleStatus.FAILED:
            raise NotDelivered(
                f"bundle {latest.handover_id} for {latest.repository} failed for good: {latest.error_code}; "
                "correct its files and hand it over again"
            )
        return latest

    async def read_receipt(self) -> BundleReceipt:
        """The bundle's receipt now.

        Raises:
            StoreError: the store could not be read, or was closed.
        """
        return await self._store.query(ReadBundleReceipt(self.receipt.handover_id)) or self.receipt


async def _wait_settled(
    board: SettlementBoard, repository: str, is_settled: Callable[[], Awaitable[bool]], within_s: float | None
) -> None:
    with anyio.move_on_after(within_s):
        while True:
            settlement = board.ticket(repository)
            try:
                if await is_settled():
                    return
            except StoreClosed:
                raise NotDelivered(
                    f"not delivered to {repository}: the Conveyor was closed before; it stays queued, and the next one "
                    "on the same store, or `conveyor drain`, delivers it"
                ) from None
            await settlement.wait()
    raise NotDelivered(
        f"not delivered to {repository} within {within_s:g} s; it stays queued, and the receipt tells how far it is"
    )


__all__ = ["BundleTicket", "NotAccepted", "NotDelivered", "RunFilesTicket"]
