"""One transaction: a group of writes, each of which may refuse without disturbing the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar, cast

from sqlalchemy import Connection

from ...actors.ports import Failed
from ...actors.store_operations import Query, RecordRunFiles, Write
from .contents import discard_freed, finish_contents
from .hand_overs import record_together
from .operations import answer, perform
from .sqlite_errors import DATABASE_ERRORS, is_refused_row

R = TypeVar("R")


def write_all(connection: Connection, operations: Sequence[Write[Any]]) -> list[Any]:
    """Carry out the writes in one transaction; returns once it is on the disk.

    An operation that raises is answered with `Failed` and takes back its own effects. An error of the database itself
    takes back everything.

    Raises:
        DBAPIError, sqlite3.Error: the database could not do it; nothing was changed.
    """
    try:
        try:
            return _write_together(connection, operations)
        except _OneRefused as refused:
            if len(operations) == 1:
                return [Failed(refused.error)]
        # One refused, which is rare. Everything was taken back; now each gets a savepoint of its own.
        discard_freed(connection)
        return _write_apart(connection, operations)
    finally:
        discard_freed(connection)


class _OneRefused(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _write_together(connection: Connection, operations: Sequence[Write[Any]]) -> list[Any]:
    """All or nothing, without the cost of savepoints."""
    with connection.begin():
        answers: list[Any] = []
        for alike, group in groupby(operations, key=type):
            try:
                if alike is RecordRunFiles:
                    answers += record_together(connection, list(cast("Iterator[RecordRunFiles]", group)))
                else:
                    answers += [perform(connection, operation) for operation in group]
            except DATABASE_ERRORS as error:
                if not is_refused_row(error):
                    raise
                raise _OneRefused(error) from error
            except Exception as error:
                raise _OneRefused(error) from error
        finish_contents(connection)
        return answers


def _write_apart(connection: Connection, operations: Sequence[Write[Any]]) -> list[Any]:
    answers: list[Any] = []
    with connection.begin():
        for operation in operations:
            savepoint = connection.begin_nested()
            try:
                result = perform(connection, operation)
            except DATABASE_ERRORS as error:
                if not is_refused_row(error):
                    raise
                savepoint.rollback()
                answers.append(Failed(error))
            except Exception as error:
                savepoint.rollback()
                answers.append(Failed(error))
            else:
                savepoint.commit()
                answers.append(result)
        finish_contents(connection)
    return answers


def read_one(connection: Connection, operation: Query[R]) -> R:
    """Answer a query from one consistent state.

    Raises:
        DBAPIError, sqlite3.Error: the database could not do it.
    """
    with connection.begin():
        return answer(connection, operation)


__all__ = ["read_one", "write_all"]
