"""The store: the hand-over database, as SQLAlchemy Core operations and their adapters over SQLite."""

from __future__ import annotations

from .filesystems import FilesystemProbe, filesystem_type, is_network
from .opening import open_memory_store, open_store
from .options import OnNetwork, StoreAdapter, StoreOptions
from .store import AsyncSqliteStore, InlineSqliteStore, SqliteStore, ThreadSqliteStore

__all__ = [
    "AsyncSqliteStore",
    "FilesystemProbe",
    "InlineSqliteStore",
    "OnNetwork",
    "SqliteStore",
    "StoreAdapter",
    "StoreOptions",
    "ThreadSqliteStore",
    "filesystem_type",
    "is_network",
    "open_memory_store",
    "open_store",
]
