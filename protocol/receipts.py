"""What a build is told about its hand-overs (hand-over protocol, sections 4.1 to 4.6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from .requests import RefusalCode


class DeliveryCode(StrEnum):
    """Why a delivery is not done yet, or never will be."""

    REPOSITORY_UNAVAILABLE = "REPOSITORY_UNAVAILABLE"
    UPLOAD_FAILED = "UPLOAD_FAILED"
    CREDENTIAL_MISSING = "CREDENTIAL_MISSING"
    PRESERVED_FILES_MISSING = "PRESERVED_FILES_MISSING"
    PRESERVED_BYTES_CHANGED = "PRESERVED_BYTES_CHANGED"
    REMOTE_DIFFERS = "REMOTE_DIFFERS"


class RunFilesStatus(StrEnum):
    """Whether a run-file hand-over was taken."""

    RECORDED = "recorded"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    """It could not be made durable within the time: nothing is promised, hand it over again."""


class BundleStatus(StrEnum):
    """How far a bundle has come. `uploaded`, `already_staged`, `failed` and `refused` are final."""

    PENDING = "pending"
    UPLOADED = "uploaded"
    ALREADY_STAGED = "already_staged"
    FAILED = "failed"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"

    @property
    def is_final(self) -> bool:
        """No later receipt will say anything else."""
        return self not in (BundleStatus.PENDING, BundleStatus.UNAVAILABLE)


class RunFilesReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one run's files in one repository (section 4.1)."""

    status: RunFilesStatus
    repository: str
    run_id: str
    pending_files: int = 0
    files_attempted: int = 0
    files_committed: int = 0
    commit_attempts: int = 0
    commits: int = 0
    last_error_code: DeliveryCode | None = None
    last_commit: str | None = None
    refusal_code: RefusalCode | None = None
    message: str | None = None
    """For a person: what was refused, by which rule, and what to do. Not part of the protocol's answer."""

    def to_message(self) -> dict[str, Any]:
        """The receipt as the protocol's object: `refusal_code` only where refused, and no `message`."""
        answer = msgspec.to_builtins(self)
        del answer["message"]
        if self.refusal_code is None:
            del answer["refusal_code"]
        return dict(answer)


class BundleReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one bundle (section 4.4)."""

    handover_id: str
    status: BundleStatus
    error_code: DeliveryCode | RefusalCode | None = None
    revision: str | None = None
    attempts: int = 0
    repository: str
    prefix: str = ""
    """`<prefix>/<run_id>`, or empty when refused."""
    copied_files: tuple[str, ...] = ()
    message: str | None = None
    """For a person, as above. Not part of the protocol's answer."""

    def to_message(self) -> dict[str, Any]:
        """The receipt as the protocol's object, without `message`."""
        answer = msgspec.to_builtins(self)
        del answer["message"]
        answer["copied_files"] = list(self.copied_files)
        return dict(answer)


class ReadBackStatus(StrEnum):
    """What comparing the Hub's bytes with the committed ones came to."""

    REFUSED = "refused"
    PENDING = "pending"
    FAILED = "failed"
    PASSED = "passed"


class ReadBack(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the Hub holds what was committed for a run (section 4.3)."""

    status: ReadBackStatus
    files: int = 0
    mismatched_paths: tuple[str, ...] = ()
    error_code: str | None = None


class WriteAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the credential may write to a repository (section 4.6)."""

    status: str = "checked"
    credential: str
    """`missing` or `present`."""
    reachable: bool | None = None
    can_write: bool | None = None
    error_type: str | None = None


__all__ = [
    "BundleReceipt",
    "BundleStatus",
    "DeliveryCode",
    "ReadBack",
    "ReadBackStatus",
    "RunFilesReceipt",
    "RunFilesStatus",
    "WriteAccess",
]
