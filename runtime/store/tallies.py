"""One row for each repository, and the totals that it carries (N-UX-03).

Accepted = delivered + superseded + waiting + parked holds at every moment, because each transaction that moves an item
moves its totals too; what waits is counted where it lies. One version of a path, one text of an index entry, or one
bundle is one item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Integer, RowMapping, bindparam, insert, select, update

from .schema import repositories


@dataclass(slots=True)
class Tally:
    """What one operation adds to a repository's totals."""

    accepted: int = 0
    delivered: int = 0
    superseded: int = 0
    parked: int = 0


_TOTALS: Final = ("accepted", "delivered", "superseded", "parked")
_THIS: Final = repositories.c.repository == bindparam("of_repository")
_ROW: Final = select(repositories).where(_THIS).with_for_update()
_ADD: Final = (
    update(repositories)
    .where(_THIS)
    .values({name: repositories.c[name] + bindparam(f"added_{name}", type_=Integer()) for name in _TOTALS})
)


def lock_repository(connection: Connection, repository: str) -> RowMapping:
    """Give the repository's row, made if need be, and keep other writers of it away until the transaction ends."""
    row = connection.execute(_ROW, {"of_repository": repository}).mappings().first()
    if row is None:
        connection.execute(insert(repositories).values(repository=repository))
        row = connection.execute(_ROW, {"of_repository": repository}).mappings().one()
    return row


def change_repository(connection: Connection, repository: str, **values: Any) -> None:
    """Set columns of the repository's row."""
    connection.execute(update(repositories).where(repositories.c.repository == repository).values(**values))


def add_tally(connection: Connection, repository: str, tally: Tally, **values: Any) -> None:
    """Move the repository's totals, and set other columns of its row with them."""
    if values:
        change_repository(connection, repository, **values)
    if tally != Tally():
        added = {f"added_{name}": getattr(tally, name) for name in _TOTALS}
        connection.execute(_ADD, {"of_repository": repository, **added})


__all__ = ["Tally", "add_tally", "change_repository", "lock_repository"]
