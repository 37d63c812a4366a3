"""The composition root: `open_conveyor` builds the adapters and the tree of actors. The one file that knows all parts.

Embedded use touches no signal handler, exit hook, event-loop policy or logging set-up (N-RUN-06).
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

import anyio

from ..actors.errors import ActorCrashed, ActorStopped, AskTimeout, SupervisorStopped
from ..actors.intake import HandOverBundle, HandOverRunFiles, Stopping
from ..actors.port_errors import StoreError, UsedAfterFork
from ..actors.read_back import read_back_run_files
from ..actors.shutdown import PhaseReport, ShutdownPhase, ShutdownReport
from ..actors.stop_gate import ANY_REPOSITORY
from ..actors.store_operations import ReadBundleReceipt, ReadRunReceipt
from ..protocol.errors import ConveyorError
from ..protocol.receipts import BundleReceipt, ReadBack, RunFilesReceipt, WriteAccess
from ..protocol.requests import HandOverRefused, StageDatasetBundle, StageRunFiles
from .adapters.assembly import Adapters
from .answers import left_over, refused_bundle, refused_run_files, unavailable_bundle, unavailable_run_files
from .life import ConveyorNotClosed, Life
from .resuming import flush_everything, resume_repositories
from .settings import Settings
from .status import Status
from .tickets import BundleTicket, RunFilesTicket
from .tree import ActorTree

RUN_FILES_WITHIN_S: Final = 5.0
"""How long a run-file hand-over may take before it is answered `unavailable` (hand-over protocol, section 2.2)."""

BUNDLE_WITHIN_S: Final = 30.0
"""The same for a bundle, whose small files are hashed on the way."""

CLOSE_WITHIN_S: Final = 6.0
"""What closing may still take once the leases are released: the last actors, and the store."""

_LOCAL_TROUBLE: Final = (StoreError, AskTimeout, ActorCrashed, ActorStopped, SupervisorStopped, Stopping)


class Conveyor:
    """A running Conveyor; made by `open_conveyor` and alive inside its `async with` block.

    Its actors live in a task of their own. So nothing that goes wrong with a delivery, not even an end of the actors
    for good, reaches into the host's block before the host asks (N-UX-04); it is raised when the block is left. Every
    method belongs to the event loop and the process that opened it.
    """

    def __init__(self, settings: Settings, adapters: Adapters | None) -> None:
        self._settings = settings
        self._given = adapters
        self._pid = os.getpid()
        self._life: Life | None = None
        self._closing: anyio.Lock | None = None
        self._report: ShutdownReport | None = None
        self._final_status: Status | None = None

    # --- life ---

    async def __aenter__(self) -> Conveyor:
        """Open the adapters and start the actors; returns when everything is ready."""
        if self._life is not None:
            raise ConveyorNotOpen("this Conveyor was opened before; make another one with `open_conveyor`")
        self._closing = anyio.Lock()
        self._life = Life(self._settings, self._given)
        await self._life.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Shut down within the settings' time; a cancelled host only has the leases released and the store closed.

        In a forked child it does nothing: what the child inherited belongs to its parent (N-STO-06).
        """
        if os.getpid() != self._pid:
            return
        life = self._require_life()
        if isinstance(exc, anyio.get_cancelled_exc_class()):
            await life.end_at_once()
        else:
            await self.aclose()
        if life.failure is not None and not isinstance(exc, Exception):
            raise life.failure

    async def aclose(self, *, within_s: float | None = None) -> ShutdownReport:
        """Shut down: take nothing new, start no upload, commit the pending run files, and say what is left.

        Calling it again gives the same report. Cancelled, it has the leases released and the store closed, at once.

        Args:
            within_s: the deadline in seconds from now; the setting `shutdown_s` if it is None.

        Raises:
            ConveyorNotOpen: it was never opened.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        life = self._require_life()
        assert self._closing is not None
        async with self._closing:
            if self._report is None:
                try:
                    self._report = await self._shut_down(
                        life, self._settings.shutdown_s if within_s is None else within_s
                    )
                except anyio.get_cancelled_exc_class():
                    await life.end_at_once()
                    raise
        return self._report

    async def _shut_down(self, life: Life, within_s: float) -> ShutdownReport:
        report, stored = ShutdownReport(), None
        if not life.has_ended:
            life.is_closing = True
            try:
                report = await life.tree.shutdown(within_s=within_s)
            except StoreError:
                # The store cannot say which repositories have work; what was accepted is in it all the same.
                await life.end_at_once()
            stored = await life.final_status()
        self._final_status = stored
        began = anyio.current_time()
        in_time = await life.end(within_s=CLOSE_WITHIN_S)
        # A store that cannot say what is left has not closed as it should.
        has_closed = in_time and stored is not None
        closed = PhaseReport(ShutdownPhase.CLOSE_STORE, anyio.current_time() - began, overran=not has_closed)
        left, parked = ((), 0) if stored is None else (left_over(stored), stored.parked)
        return replace(report, phases=(*report.phases, closed), left_over=left, parked=parked)

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
            receipt = refused_run_files(request, error)
        except _LOCAL_TROUBLE as error:
            receipt = unavailable_run_files(request, error)
        else:
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
        except HandOverRefused as error:
            receipt = refused_bundle(request, error)
        except _LOCAL_TROUBLE as error:
            receipt = unavailable_bundle(request, error)
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
        life = self._require_life()
        return await life.read_status("stopping" if life.tree.gate.is_stopping else "running")

    @property
    def final_status(self) -> Status:
        """How things stood when `aclose` was done.

        Raises:
            ConveyorNotOpen: it was not closed.
            StoreError: the store could not say.
        """
        if self._final_status is None and self._report is not None:
            raise StoreError(
                f"the store {self._settings.store_path} could not say what is left; see `conveyor status` once it can"
            )
        if self._final_status is None:
            raise ConveyorNotOpen("there is no final status: close the Conveyor with `aclose` first")
        return self._final_status

    async def has_credential(self) -> bool:
        """Whether a token for the Hub is found now; without one everything waits.

        Raises:
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        return await self._require_tree().hub.has_credential()

    async def resume(self, repository: str | None = None, *, retry_parked: bool = False) -> None:
        """Try again at once: lifts pauses and back-offs, and brings parked files back if asked for.

        A person says so after the cause is gone. Spacing, budget and the Hub's own wish to wait (429) hold.

        Args:
            repository: the only one to resume; None for all.
            retry_parked: whether files that were set aside for good are tried once more.

        Raises:
            StoreError: the store could not be read or written.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        life = self._require_life()
        await resume_repositories(life.tree, await life.read_status("running"), repository, retry_parked=retry_parked)

    async def drain(self, *, within_s: float | None = None) -> Status:
        """Deliver everything that waits, without waiting for due times; spacing, budget and back-off hold.

        Hand-overs go on being taken meanwhile; it returns when nothing waits, or when the time is over.

        Args:
            within_s: how long to wait; None without a limit.

        Returns:
            The status at the end; its `waiting` says what is left.

        Raises:
            ConveyorNotOpen: it was closed meanwhile; what waits is kept.
            RestartIntensityExceeded: its actors failed too often and ended for good; what waits is kept.
            StoreError: the store could not be read or written.
            UsedAfterFork: this is a forked child.
        """
        self._check_process()
        life = self._require_life()
        with anyio.move_on_after(within_s):
            while not life.has_ended:
                settlement = life.tree.board.ticket(ANY_REPOSITORY)
                await flush_everything(life.tree)
                status = await life.read_status("running")
                if not status.waiting:
                    break
                for line in status.repositories:
                    life.tree.nudge(line.repository)
                with anyio.move_on_after(life.tree.world.limits.credential_check_s):
                    await settlement.wait()
        if life.has_ended:
            raise life.failure or ConveyorNotOpen(
                "this Conveyor was closed; what waits is kept: open another one to drain it"
            )
        return await self.status()

    # --- inside ---

    def _require_life(self) -> Life:
        if self._life is None:
            raise ConveyorNotOpen("this Conveyor is not open; use `async with open_conveyor(...) as conveyor:`")
        return self._life

    def _require_tree(self) -> ActorTree:
        return self._require_life().tree

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
        RestartIntensityExceeded: on leaving, when actors failed too often and ended for good; hand-overs were answered
            `unavailable` since then, and everything accepted before is kept.
    """
    if settings is None:
        settings = Settings.load(**overrides)
    elif overrides:
        settings = replace(settings, **overrides)
    return Conveyor(settings, adapters)


__all__ = [
    "BUNDLE_WITHIN_S",
    "RUN_FILES_WITHIN_S",
    "Conveyor",
    "ConveyorNotClosed",
    "ConveyorNotOpen",
    "open_conveyor",
]
