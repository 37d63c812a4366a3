"""What SQLite's query planner is told about the tables.

Left alone, the planner takes every index for equally selective, and walks a million settled rows of a repository where
a partial index would name the three that are pending. It is told once, with figures of a store that has grown large,
and its plans then stay the same whatever the store holds: no statistics are ever gathered.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

_LARGE: Final = (
    ("run_paths", "run_paths", "1000000 10000 1"),
    ("run_paths", "run_paths_pending", "1000 100 1 1"),
    ("run_paths", "run_paths_parked", "10 5 1"),
    ("run_paths", "run_paths_kept", "1000 2"),
    ("run_paths", "run_paths_settled", "1000000 10"),
    ("run_hand_overs", "run_hand_overs", "1000000 10000 100 1"),
    ("run_hand_overs", "run_hand_overs_pending", "1000 100 10"),
    ("run_hand_overs", "run_hand_overs_by_path", "1000000 10000 2"),
    ("runs", "runs", "100000 1000 1"),
    ("runs", "runs_entry_pending", "100 10 1"),
    ("runs", "runs_settled", "100000 10"),
)
"""Table, index (of the primary key: the table's own name), and: rows, then rows alike in the first column, in the first
two, and so on."""


def teach_planner(connection: Connection) -> None:
    """Write down the figures, in the caller's transaction."""
    connection.exec_driver_sql("ANALYZE")
    connection.exec_driver_sql("DELETE FROM sqlite_stat1")
    connection.exec_driver_sql("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", list(_LARGE))
    # Read by every connection that opens the database later, and by this one now.
    connection.exec_driver_sql("ANALYZE sqlite_schema")


__all__ = ["teach_planner"]
