"""One row for each repository, and the totals that it carries (N-UX-03).

Accepted = delivered + superseded + waiting + parked holds at every moment, because each transaction that moves an item
moves its totals too; what waits is counted where it lies. One version of a path, one text of an index entry, or one
bundle is one item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from .schema import repositories


@dataclass(slots=True)
class Tally:
    """What one operation adds to a repository's totals."""

    accepted: int = 0
    delivered: int = 0
    superseded: int = 0
    parked: int = 0


def lock_repository(connection: Connection, repository: str) -> RowMapping:
    """Give the repository's row, made if need be, and keep other writers of it away until the transaction ends."""
    query = select(repositories).where(repositories.c.repository == repository).with_for_update()
    row = connection.execute(query).mappings().first()
    if row is None:
        connection.execute(insert(repositories).values(repository=repository))
        row = connection.execute(query).mappings().one()
    return row


def change_repository(connection: Connection, repository: str, **values: Any) -> None:
    """Set columns of the repository's row."""
    connection.execute(update(repositories).where(repositories.c.repository == repository).values(**values))


def add_tally(connection: Connection, repository: str, tally: Tally, **values: Any) -> None:
    """Move the repository's totals, and set other columns of its row with them."""
    totals = repositories.c
    for name in ("accepted", "delivered", "superseded", "parked"):
        added = getattr(tally, name)
        if added:
            values[name] = totals[name] + added
    if values:
        change_repository(connection, repository, **values)


__all__ = ["Tally", "add_tally", "change_repository", "lock_repository"]
