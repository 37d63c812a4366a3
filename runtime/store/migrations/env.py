"""Alembic's environment: runs the migrations on the connection, and in the transaction, of the caller."""

from __future__ import annotations

from alembic import context

from conveyor.runtime.store.schema import VERSION_TABLE, metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, version_table=VERSION_TABLE, transactional_ddl=True)
context.run_migrations()
