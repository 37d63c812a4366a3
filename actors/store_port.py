"""What an operation of the store is: a write or a query, each with the type of its answer."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from ..protocol.errors import ConveyorError

R = TypeVar("R", covariant=True)


class Write(Generic[R]):
    """An operation that changes the store and answers an `R`."""


class Query(Generic[R]):
    """An operation that only reads the store and answers an `R`."""


class PlanOutdated(ConveyorError):
    """What a commit was to carry has changed since it was planned; nothing was recorded. Plan it again."""

    code: ClassVar[str] = "PLAN_OUTDATED"


__all__ = [
    "PlanOutdated",
    "Query",
    "Write",
]
