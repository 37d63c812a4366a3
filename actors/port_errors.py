"""Errors that the adapters of the ports raise, beside HubError."""

from __future__ import annotations

from typing import ClassVar

from ..protocol.errors import ConveyorError


class StoreError(ConveyorError):
    """The store could not do it; nothing was changed."""

    code: ClassVar[str] = "STORE_ERROR"


class StoreFull(StoreError):
    """There is no room on the disk. Accepted work is kept; try again when there is space (N-STO-05)."""

    code: ClassVar[str] = "STORE_FULL"


class StoreBusy(StoreError):
    """Other processes held the store for longer than the limit; try again."""

    code: ClassVar[str] = "STORE_BUSY"


class StoreDamaged(StoreError):
    """The database is not readable as one; it was left as it is."""

    code: ClassVar[str] = "STORE_DAMAGED"


class StoreUnusable(StoreError):
    """The place or file cannot serve as a store: foreign, newer, read-only, wrong owner, missing directory, network
    filesystem. It was left untouched (N-STO-01).
    """

    code: ClassVar[str] = "STORE_UNUSABLE"


class StoreClosed(StoreError):
    """The store was closed."""

    code: ClassVar[str] = "STORE_CLOSED"


class UsedAfterFork(ConveyorError):
    """The object belongs to the process that made it; a forked child has to open its own (N-STO-06, N-RUN-03)."""

    code: ClassVar[str] = "USED_AFTER_FORK"


class CredentialMissing(ConveyorError):
    """No token was found; work stays queued until there is one."""

    code: ClassVar[str] = "CREDENTIAL_MISSING"


class ContentChanged(ConveyorError):
    """The bytes of a file are not those that were handed over."""

    code: ClassVar[str] = "CONTENT_CHANGED"


class LocalFileMissing(ConveyorError):
    """A local path is no regular file, or cannot be read."""

    code: ClassVar[str] = "LOCAL_FILE_MISSING"


class LocalFileTooLarge(ConveyorError):
    """A local file has more bytes than allowed."""

    code: ClassVar[str] = "LOCAL_FILE_TOO_LARGE"


__all__ = [
    "ContentChanged",
    "CredentialMissing",
    "LocalFileMissing",
    "LocalFileTooLarge",
    "StoreBusy",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnusable",
    "UsedAfterFork",
]
