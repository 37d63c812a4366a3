"""The receipts of hand-overs that were not taken, and the list of what is left over."""

from __future__ import annotations

from ..actors.shutdown import LeftOver
from ..protocol.errors import ConveyorError
from ..protocol.receipts import BundleReceipt, BundleStatus, RunFilesReceipt, RunFilesStatus
from ..protocol.requests import HandOverRefused, StageDatasetBundle, StageRunFiles
from .status import Status


def refused_run_files(request: StageRunFiles, error: HandOverRefused) -> RunFilesReceipt:
    """It breaks a rule: handing it over again would break it again."""
    return RunFilesReceipt(
        status=RunFilesStatus.REFUSED,
        repository=_text(request.repository),
        run_id=_text(request.run_id),
        refusal_code=error.refusal_code,
        message=str(error),
    )


def unavailable_run_files(request: StageRunFiles, error: ConveyorError) -> RunFilesReceipt:
    """It could not be made durable in time: nothing is promised."""
    return RunFilesReceipt(
        status=RunFilesStatus.UNAVAILABLE,
        repository=_text(request.repository),
        run_id=_text(request.run_id),
        message=_unavailable(error),
    )


def refused_bundle(request: StageDatasetBundle, error: HandOverRefused) -> BundleReceipt:
    """It breaks a rule: handing it over again would break it again."""
    return BundleReceipt(
        handover_id="",
        status=BundleStatus.REFUSED,
        error_code=error.refusal_code,
        repository=_text(request.repository),
        message=str(error),
    )


def unavailable_bundle(request: StageDatasetBundle, error: ConveyorError) -> BundleReceipt:
    """It could not be made durable in time: nothing is promised."""
    return BundleReceipt(
        handover_id="",
        status=BundleStatus.UNAVAILABLE,
        repository=_text(request.repository),
        message=_unavailable(error),
    )


def left_over(status: Status) -> tuple[LeftOver, ...]:
    """What each repository still has."""
    return tuple(
        LeftOver(
            repository=line.repository,
            files=line.waiting_files,
            entries=line.waiting_entries,
            bundles=line.waiting_bundles,
            size_bytes=line.waiting_bytes,
            has_unknown_commit=line.has_unknown_commit,
        )
        for line in status.repositories
        if line.is_waiting
    )


def _text(value: object) -> str:
    """A request that was refused may hold anything."""
    return value if isinstance(value, str) else ""


def _unavailable(error: ConveyorError) -> str:
    return f"not accepted ({error.code}): {error}; nothing is promised, hand it over again"


__all__ = ["left_over", "refused_bundle", "refused_run_files", "unavailable_bundle", "unavailable_run_files"]
