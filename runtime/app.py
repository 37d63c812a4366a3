"""The composition root: `open_conveyor` builds the adapters and the tree of actors. The one file that knows all parts.

Embedded use touches no signal handler, exit hook, event-loop policy or logging set-up (N-RUN-06).
"""

from __future__ import annotations

import os
import warnings
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import anyio

from ..actors.errors import ActorCrashed, ActorStopped, AskTimeout, SupervisorStopped
from ..actors.intake import HandOverBundle, HandOverRunFiles, Stopping
from ..actors.port_errors import StoreError, UsedAfterFork
from ..actors.read_back import read_back_run_files
from ..actors.shutdown import LeftOver, PhaseReport, ShutdownPhase, ShutdownReport
from ..actors.stop_gate import ANY_REPOSITORY
from ..actors.store_operations import (
    FlushEverything,
    ReadBundleReceipt,
    ReadRunReceipt,
    ReadStatus,
    StoreStatus,
)
from ..actors.work_watch import WorkBoard
from ..protocol.errors import ConveyorError
from ..protocol.receipts import (
    BundleReceipt,
    BundleStatus,
    ReadBack,
    RunFilesReceipt,
    RunFilesStatus,
    WriteAccess,
)
from ..protocol.requests import HandOverRefused, StageDatasetBundle, StageRunFiles
from .adapters.assembly import Adapters, open_adapters
from .settings import Settings
from .status import Status, make_status
from .tickets import BundleTicket, RunFilesTicket
from .tree import ActorTree

RUN_FILES_WITHIN_S: Final = 5.0
"""How long a run-file hand-over may take before it is answered `unavailable` (hand-over protocol, section 2.2)."""

BUNDLE_WITHIN_S: Final = 30.0
"""The same for a bundle, whose small files are hashed on the way."""

CANCELLED_CLOSE_S: Final = 3.0
"""What a cancelled host still waits for leases to be released and the store to be closed (N-RUN-04)."""

_LOCAL_TROUBLE: Final = (StoreError, AskTimeout, ActorCrashed, ActorStopped, SupervisorStopped, Stopping)


class Conveyor:
    """A running Conveyor; made by `open_conveyor` and alive inside its `async with` block.

    Every method belongs to the event loop and the process that opened it.
    """

    def __init__(self, settings: Settings, adapters: Adapters | None) -> None:
        self._settings = settings
        self._given = adapters
        self._pid = os.getpid()
        self._stack = AsyncExitStack()
        self._tree: ActorTree | None = None
        self._adapters: Adapters | None = None
        self._report: ShutdownReport | None = None
        self._final_status: Status | None = None
        self._is_closed = True

    # --- life ---

    async def __aenter__(self) -> Conveyor:
        """Open the adapters and start the actors; returns when everything is ready."""
        try:
            adapters = self._given
            if adapters is None:
                adapters = await self._stack.enter_async_context(open_adapters(self._settings))
            tree = ActorTree(adapters, self._settings, WorkBoard())
            await self._stack.enter_async_context(tree)
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CANCELLED_CLOSE_S):
                await self._stack.aclose()
            raise
        self._adapters, self._tree = adapters, tree
        self._is_closed = False
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Shut down within the settings' time; a cancelled host only has the leases released and the store closed."""
        if exc_type is not None and issubclass(exc_type, anyio.get_cancelled_exc_class()):
            await self._close_cancelled()
        elif not self._is_closed:
            try:
                await self.aclose()
            except anyio.get_cancelled_exc_class():
                await self._close_cancelled()
                raise
        self._is_closed = True
        return await self._stack.__aexit__(exc_type, exc, traceback)

    async def aclose(self, *, within_s: float | None = None) -> ShutdownReport:
        """Shut down: take nothing new, start no upload, commit the pending run files, and say what is left.

        Calling it again gives the same report.

        Args:
            within_s: the deadline in seconds from now; the setting `shutdown_s` if it is None.

        Raises:
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        if self._report is None:
            tree = self._require_tree()
            report = await tree.shutdown(within_s=self._settings.shutdown_s if within_s is None else within_s)
            began = anyio.current_time()
            stored = await self._stored_at_end()
            with anyio.CancelScope(shield=True), anyio.move_on_after(tree.close_s) as scope:
                await tree.close()
            closed = PhaseReport(
                ShutdownPhase.CLOSE_STORE, anyio.current_time() - began, overran=scope.cancelled_caught
            )
            left, parked = ((), 0) if stored is None else (_left_over(stored), stored.parked)
            self._report = replace(report, phases=(*report.phases, closed), left_over=left, parked=parked)
            self._is_closed = True
        return self._report

    async def _close_cancelled(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CANCELLED_CLOSE_S):
            tree = self._require_tree()
            await tree.stop_at_once()
        self._is_closed = True

    def __del__(self) -> None:
        """A forgotten close is said once; what was accepted is durable, and any later process delivers it
        (N-RUN-02).
        """
        if not getattr(self, "_is_closed", True) and os.getpid() == self._pid:
            waiting = self._tree.accepted if self._tree is not None else 0
            warnings.warn(
                f"a Conveyor was not closed; up to {waiting} accepted hand-overs may be undelivered. They are kept in "
                f"{self._settings.store_path}: run `conveyor drain`, or use `async with open_conveyor(...)`",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    # --- hand-overs ---

    async def stage_run_files(self, request: StageRunFiles, *, within_s: float = RUN_FILES_WITHIN_S) -> RunFilesTicket:
        """Hand over files of a running build; they may be rewritten as soon as this returns (protocol, section 4.1).

        It never raises for trouble with a delivery, a file or the store: the receipt says `refused` with the rule, or
        `unavailable` when it could not be made durable within the time (N-UX-04).

        Args:
            request: the files.
            within_s: how long it may take.

        Raises:
            UsedAfterFork: this is a forked child; open a Conveyor of its own there.
        """
        self._check_process()
        tree = self._require_tree()
        try:
            taken = await tree.intake.ask(HandOverRunFiles(request), within_s=within_s)
        except HandOverRefused as error:
            receipt = RunFilesReceipt(
                status=RunFilesStatus.REFUSED,
                repository=_text(request.repository),
                run_id=_text(request.run_id),
                refusal_code=error.refusal_code,
                message=str(error),
            )
        except _LOCAL_TROUBLE as error:
            receipt = RunFilesReceipt(
                status=RunFilesStatus.UNAVAILABLE,
                repository=_text(request.repository),
                run_id=_text(request.run_id),
                message=_unavailable(error),
            )
        else:
            tree.accepted += 1
            return RunFilesTicket(
                taken.recorded.receipt,
                store=tree.store,
                board=tree.board,
                versions=taken.recorded.versions,
                entry_text=taken.entry_text,
            )
        return RunFilesTicket(receipt, store=tree.store, board=tree.board)

    async def stage_dataset_bundle(
        self, request: StageDatasetBundle, *, within_s: float = BUNDLE_WITHIN_S
    ) -> BundleTicket:
        """Hand over the files of a finished build (protocol, section 4.4).

        What the receipt lists in `copied_files` may be rewritten at once; the others have to stay until it is final.
        Like `stage_run_files` it raises for no trouble with a delivery, a file or the store.

        Raises:
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        tree = self._require_tree()
        try:
            receipt = await tree.intake.ask(HandOverBundle(request), within_s=within_s)
            tree.accepted += 1
        except HandOverRefused as error:
            receipt = BundleReceipt(
                handover_id="",
                status=BundleStatus.REFUSED,
                error_code=error.refusal_code,
                repository=_text(request.repository),
                message=str(error),
            )
        except _LOCAL_TROUBLE as error:
            receipt = BundleReceipt(
                handover_id="",
                status=BundleStatus.UNAVAILABLE,
                repository=_text(request.repository),
                message=_unavailable(error),
            )
        return BundleTicket(receipt, store=tree.store, board=tree.board)

    # --- looking ---

    async def run_files_receipt(self, repository: str, run_id: str) -> RunFilesReceipt:
        """The receipt of a run; one never heard of is `recorded` with zeros (protocol, section 4.2).

        Raises:
            StoreError: the store could not be read.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        return await self._require_tree().store.query(ReadRunReceipt(repository, run_id))

    async def handover_receipt(self, handover_id: str) -> BundleReceipt | None:
        """The receipt of a bundle by its hand-over id, or None (protocol, section 4.5).

        Raises:
            StoreError: the store could not be read.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        return await self._require_tree().store.query(ReadBundleReceipt(handover_id))

    async def read_back_run_files(self, repository: str, run_id: str) -> ReadBack:
        """Compare what the Hub holds of a run with what was committed (protocol, section 4.3).

        Raises:
            StoreError: the store could not be read.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        tree = self._require_tree()
        return await read_back_run_files(tree.store, tree.hub, repository, run_id)

    async def check_write_access(self, repository: str) -> WriteAccess:
        """Whether the credential may write to a repository (protocol, section 4.6).

        Raises:
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        return await self._require_tree().hub.write_access(repository)

    async def status(self) -> Status:
        """What is waiting, delivered, paused; the pace of each repository; the actors.

        Raises:
            StoreError: the store could not be read.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        tree = self._require_tree()
        return make_status(
            await self._stored_status(),
            state="stopping" if tree.gate.is_stopping else "running",
            pace=tree.world.pace,
            now_unix_s=tree.clock.unix_s(),
            actors=tree.actor_statistics(),
        )

    @property
    def final_status(self) -> Status:
        """How things stood when `aclose` was done.

        Raises:
            ConveyorNotOpen: it was not closed, or the store could not say.
        """
        if self._final_status is None:
            raise ConveyorNotOpen("there is no final status: close the Conveyor with `aclose` first")
        return self._final_status

    async def drain(self, *, within_s: float | None = None) -> Status:
        """Deliver everything that waits, without waiting for due times; spacing, budget and backoff hold.

        Hand-overs go on being taken meanwhile; it returns when nothing waits, or when the time is over.

        Args:
            within_s: how long to wait; None without a limit.

        Returns:
            The status at the end; its `waiting` says what is left.

        Raises:
            StoreError: the store could not be read or written.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        tree = self._require_tree()
        with anyio.move_on_after(within_s):
            while True:
                settlement = tree.board.ticket(ANY_REPOSITORY)
                await tree.ledger.write(FlushEverything(now_unix_s=tree.clock.unix_s()))
                stored = await self._stored_status()
                if not stored.waiting:
                    break
                for row in stored.repositories:
                    tree.nudge(row.agenda.repository)
                with anyio.move_on_after(tree.world.limits.credential_check_s):
                    await settlement.wait()
        return await self.status()

    # --- inside ---

    async def _stored_status(self) -> StoreStatus:
        tree = self._require_tree()
        return await tree.store.query(ReadStatus(now_unix_s=tree.clock.unix_s(), horizon_s=tree.world.pace.horizon_s))

    async def _stored_at_end(self) -> StoreStatus | None:
        """What is left, once no actor works any more; None if the store cannot say."""
        tree = self._require_tree()
        try:
            with anyio.fail_after(CANCELLED_CLOSE_S):
                stored = await self._stored_status()
        except (StoreError, TimeoutError):
            return None
        self._final_status = make_status(stored, state="stopped", pace=tree.world.pace, now_unix_s=tree.clock.unix_s())
        return stored

    def _require_tree(self) -> ActorTree:
        if self._tree is None:
            raise ConveyorNotOpen("this Conveyor is not open; use `async with open_conveyor(...) as conveyor:`")
        return self._tree

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise UsedAfterFork(
                "this Conveyor was opened by the parent process and cannot be used after a fork; "
                "open another one in the child: several processes may share one store"
            )


class ConveyorNotOpen(ConveyorError):
    """A method was called outside the `async with` block."""

    code = "CONVEYOR_NOT_OPEN"


def open_conveyor(settings: Settings | None = None, *, adapters: Adapters | None = None, **overrides: Any) -> Conveyor:
    """Open a Conveyor: `async with open_conveyor(settings) as conveyor:`.

    Entering opens the store and starts the actors; leaving shuts down in the exact order of the protocol, within the
    setting `shutdown_s`. What was accepted and not delivered stays in the store.

    Args:
        settings: how to run; loaded from file and environment if it is None.
        adapters: other adapters than the real ones, for tests and simulations.
        overrides: single settings by name, stronger than all others.

    Raises:
        SettingsError: a setting cannot be used.
        StoreError: on entering, when the store cannot be opened.
        RestartIntensityExceeded: from the block, when actors failed too often; everything accepted is kept.
    """
    if settings is None:
        settings = Settings.load(**overrides)
    elif overrides:
        settings = replace(settings, **overrides)
    return Conveyor(settings, adapters)


def _left_over(stored: StoreStatus) -> tuple[LeftOver, ...]:
    return tuple(
        LeftOver(
            repository=row.agenda.repository,
            files=row.agenda.pending_paths,
            entries=row.agenda.pending_entries,
            bundles=row.agenda.pending_bundles,
            size_bytes=row.pending_bytes,
            has_unknown_commit=row.agenda.has_open_attempt,
        )
        for row in stored.repositories
        if not row.agenda.is_idle
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _unavailable(error: ConveyorError) -> str:
    return f"not accepted ({error.code}): {error}; nothing is promised, hand it over again"


__all__ = ["BUNDLE_WITHIN_S", "RUN_FILES_WITHIN_S", "Conveyor", "ConveyorNotOpen", "open_conveyor"]
