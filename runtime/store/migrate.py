"""Bringing an older store up to date with Alembic, inside the caller's transaction.

Alembic is imported only when there is something to migrate, so that an ordinary start does not pay for it.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from . import migrations


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for a connection; it reads no file and sets up no logging."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring the database to the newest version."""
    command.upgrade(alembic_config(connection), "head")


__all__ = ["alembic_config", "upgrade"]
