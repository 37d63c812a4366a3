"""What SQLite reports, as the errors of the `Store` port."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from ...actors.port_errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreUnusable

DATABASE_ERRORS: Final = (DBAPIError, sqlite3.Error)

_LITTLE_ROOM_BYTES: Final = 1024 * 1024


def driver_error(error: BaseException) -> sqlite3.Error | None:
    """The driver's own error, however it was wrapped."""
    if isinstance(error, DBAPIError):
        original: object = error.orig
        while isinstance(original, BaseException) and not isinstance(original, sqlite3.Error):
            original = original.__cause__
        return original if isinstance(original, sqlite3.Error) else None
    return error if isinstance(error, sqlite3.Error) else None


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code, 0 if it has none."""
    driver = driver_error(error)
    return (getattr(driver, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether somebody else holds the database just now."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_refused_row(error: BaseException) -> bool:
    """Whether one statement was refused, and the transaction stands."""
    return primary_code(error) in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)


def store_error(error: BaseException, path: Path | None) -> StoreError:
    """The port's error for a database error: it names the store, what is wrong, and what to do."""
    where = "the store in memory" if path is None else f"the store {path}"
    code = primary_code(error)
    name = getattr(driver_error(error), "sqlite_errorname", None) or type(error).__name__
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _has_little_room(path)):
        return StoreFull(
            f"there is no room for {where}: nothing new was accepted, all that was accepted is kept; free some space "
            "on its disk, no restart is needed"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"other processes hold {where}; try again")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(
            f"{where} is damaged ({name}) and was left as it is; keep a copy of it with its side files, and start with "
            "another path or restore a backup"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreUnusable(
            f"{where} cannot be written ({name}): it was moved or replaced, or its disk became read-only; check its "
            "directory and start again"
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"the disk under {where} failed ({name}); nothing was changed; check disk, quota and mount, then try again"
        )
    return StoreError(f"{where} could not do it ({name}); nothing was changed")


def _has_little_room(path: Path | None) -> bool:
    if path is None:
        return False
    try:
        figures = os.statvfs(path.parent)
    except OSError:
        return False
    return figures.f_bavail * figures.f_frsize < _LITTLE_ROOM_BYTES


__all__ = ["DATABASE_ERRORS", "driver_error", "is_busy", "is_refused_row", "primary_code", "store_error"]
