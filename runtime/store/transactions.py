"""One transaction: a group of writes, each of which may refuse without disturbing the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection

from ...actors.ports import Failed
from ...actors.store_operations import Query, Write
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
    if len(operations) == 1:
        return [_write_alone(connection, operations[0])]
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
    return answers


def _write_alone(connection: Connection, operation: Write[Any]) -> Any:
    """The same for one operation, whose transaction is its savepoint."""
    transaction = connection.begin()
    try:
        result = perform(connection, operation)
    except DATABASE_ERRORS as error:
        transaction.rollback()
        if not is_refused_row(error):
            raise
        return Failed(error)
    except Exception as error:
        transaction.rollback()
        return Failed(error)
    except BaseException:
        transaction.rollback()
        raise
    try:
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise
    return result


def read_one(connection: Connection, operation: Query[R]) -> R:
    """Answer a query from one consistent state.

    Raises:
        DBAPIError, sqlite3.Error: the database could not do it.
    """
    with connection.begin():
        return answer(connection, operation)


__all__ = ["read_one", "write_all"]
