"""Looking at the place of a store before anything there is touched: whose it is, and whether it is ours.

The database file itself is opened by SQLite alone: were it opened and closed by other means, the locks of every other
connection of this process to it would be gone.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from ...actors.port_errors import StoreUnusable
from .filesystems import is_network
from .options import OnNetwork, StoreOptions
from .schema import HEAD_VERSION, KNOWN_VERSIONS, VERSION_TABLE
from .sqlite import APPLICATION_ID, uri_of
from .sqlite_errors import primary_code, store_error

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

_IDENTITY_LOOKS: Final = 5
"""How often a file that is no database on its own is looked at, before it counts as damaged."""


class Readiness(Enum):
    """What there is at a place."""

    ABSENT = "absent"
    """Nothing: a store can be made."""
    OLDER = "older"
    """A store that an older version made: it has to be migrated."""
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is, and what is there."""

    path: Path
    """Links resolved: SQLite puts its side files beside the real file."""
    is_on_network: bool
    readiness: Readiness


def look(path: Path, options: StoreOptions) -> Place:
    """Look at a place without changing anything.

    Raises:
        StoreUnusable: it cannot be a store, and why, and what to do.
        StoreDamaged: it is a store that cannot be read.
        StoreBusy: it could not be read just now.
    """
    real = Path(os.path.realpath(path))
    directory = _nearest_directory(real.parent)
    kind = options.filesystem_probe(directory)
    on_network = is_network(kind)
    if on_network and options.on_network is OnNetwork.REFUSE:
        raise StoreUnusable(
            f"the store {real} would lie on a network filesystem ({kind}), where a write-ahead database is not safe; "
            "choose a path on a local disk, or allow the slower safe journal mode"
        )
    if directory != real.parent:
        _check_writable(directory)
        return Place(real, on_network, Readiness.ABSENT)
    _check_directory(directory)
    try:
        found = os.stat(real)
    except FileNotFoundError:
        _check_writable(directory)
        return Place(real, on_network, Readiness.ABSENT)
    except OSError as error:
        raise StoreUnusable(f"the store {real} cannot be looked at ({error.strerror}); check its directory") from None
    _check_file(real, found)
    application_id, version = _read_identity(real)
    _check_identity(real, application_id, version)
    _check_writable(directory, real)
    if version != HEAD_VERSION and not isinstance(version, _Unread):
        return Place(real, on_network, Readiness.OLDER)
    return Place(real, on_network, Readiness.READY)


def check_version(path: Path, version: str | None) -> None:
    """Refuse a version that this program does not know.

    Raises:
        StoreUnusable: the store is newer.
    """
    if version is not None and version not in KNOWN_VERSIONS:
        raise StoreUnusable(
            f"the store {path} has version {version}, which a newer Conveyor made; this one knows up to "
            f"{HEAD_VERSION}. It was left untouched; use the newer Conveyor, or another path"
        )


class _Unread:
    """The version could not be read without a change; it is checked once the store is open."""


def _nearest_directory(directory: Path) -> Path:
    while True:
        try:
            found = os.stat(directory)
        except FileNotFoundError:
            directory = directory.parent
            continue
        except OSError as error:
            raise StoreUnusable(
                f"the store's directory {directory} cannot be used ({error.strerror}); choose a path below a directory"
            ) from None
        if not stat.S_ISDIR(found.st_mode):
            raise StoreUnusable(f"{directory} is no directory; choose a path below a directory")
        return directory


def _check_directory(directory: Path) -> None:
    """A state directory is private (N-SEC-02): whoever can write there could put another database in our place."""
    found = os.stat(directory)
    if found.st_uid != os.geteuid():
        raise StoreUnusable(
            f"the store's directory {directory} belongs to user {found.st_uid}, not to {os.geteuid()}; choose a "
            "directory of your own"
        )
    if found.st_mode & _OTHERS_WRITE:
        # A sticky directory, such as /tmp, is meant to be everybody's: its mode must stay as it is.
        is_shared = bool(found.st_mode & stat.S_ISVTX)
        step = (
            "name a directory of your own below it" if is_shared else f"run 'chmod go-w {directory}', or name another"
        )
        raise StoreUnusable(
            f"the store's directory {directory} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}), who "
            f"could put another database in its place; {step}"
        )


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnusable(f"{path} is no regular file; give the path of a file for the store")
    if found.st_uid != os.geteuid():
        raise StoreUnusable(
            f"the store {path} belongs to user {found.st_uid}, not to {os.geteuid()}; use a store of your own"
        )
    if found.st_mode & _OTHERS_WRITE:
        raise StoreUnusable(
            f"the store {path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}): its content "
            f"cannot be trusted; if you do trust it, run 'chmod 600 {path}'"
        )


def _check_writable(directory: Path, path: Path | None = None) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StoreUnusable(
            f"the directory {directory} cannot be written: a store keeps side files there; make it writable, or "
            "choose another path"
        )
    if path is not None and not os.access(path, os.R_OK | os.W_OK):
        raise StoreUnusable(f"the store {path} cannot be written; make it writable, or choose another path")


def _check_identity(path: Path, application_id: int | None, version: str | _Unread | None) -> None:
    if application_id is None:
        raise StoreUnusable(
            f"{path} is no database of Conveyor: it is no SQLite database at all, or its header is damaged. It was "
            "left untouched; choose another path"
        )
    if application_id != APPLICATION_ID:
        raise StoreUnusable(
            f"{path} is another program's database (application id {application_id:#x}, not {APPLICATION_ID:#x}). It "
            "was left untouched; choose another path"
        )
    if not isinstance(version, _Unread):
        check_version(path, version)


def _read_identity(path: Path) -> tuple[int | None, str | _Unread | None]:
    """Read the header without any lock or side file, and the version as far as that is possible without a change."""
    corrupt: sqlite3.Error | None = None
    for _ in range(_IDENTITY_LOOKS):
        if os.stat(path).st_size == 0:
            return None, None
        try:
            return _read_identity_at_rest(path)
        except sqlite3.Error as error:
            if primary_code(error) == sqlite3.SQLITE_NOTADB:
                return None, None
            if primary_code(error) != sqlite3.SQLITE_CORRUPT:
                raise store_error(error, path) from error
            corrupt = error
        # In the middle of a checkpoint, one under way or one that a kill cut short, the file alone is no database: it
        # is one only together with its write-ahead file. Without such a file it was just finished, or is damaged.
        if _has_side_files(path):
            break
    else:
        assert corrupt is not None
        raise store_error(corrupt, path) from corrupt
    try:
        return _read_identity_live(path)
    except sqlite3.Error as error:
        raise store_error(error, path) from error


def _read_identity_at_rest(path: Path) -> tuple[int | None, str | _Unread | None]:
    connection = sqlite3.connect(uri_of(path, "mode=ro&immutable=1"), uri=True, isolation_level=None)
    try:
        ((application_id,),) = connection.execute("PRAGMA application_id").fetchall()
        if application_id != APPLICATION_ID:
            return application_id, None
        if _has_side_files(path):
            return application_id, _read_live_version(path)
        return application_id, _read_version(connection)
    finally:
        connection.close()


def _read_identity_live(path: Path) -> tuple[int | None, str | _Unread | None]:
    """Read it together with its write-ahead file, as any other reader does; the database itself is not changed."""
    connection = sqlite3.connect(uri_of(path, "mode=ro"), uri=True, isolation_level=None, timeout=5.0)
    try:
        ((application_id,),) = connection.execute("PRAGMA application_id").fetchall()
        return application_id, _read_version(connection) if application_id == APPLICATION_ID else None
    finally:
        connection.close()


def _read_live_version(path: Path) -> str | _Unread | None:
    """The version of a store that is in use, or was left in the middle: read-only, and not at all if that fails."""
    connection = None
    try:
        connection = sqlite3.connect(uri_of(path, "mode=ro"), uri=True, isolation_level=None, timeout=1.0)
        return _read_version(connection)
    except sqlite3.Error as error:
        if primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise
        return _Unread()
    finally:
        if connection is not None:
            connection.close()


def _read_version(connection: sqlite3.Connection) -> str | None:
    named = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (VERSION_TABLE,))
    if named.fetchone() is None:
        return None
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return None if row is None else str(row[0])


def _has_side_files(path: Path) -> bool:
    for suffix in ("-wal", "-journal"):
        try:
            if os.stat(f"{path}{suffix}").st_size > 0:
                return True
        except OSError:
            continue
    return False


__all__ = ["Place", "Readiness", "check_version", "look"]
