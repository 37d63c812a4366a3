"""What the `conveyor` command's exit status means (N-CLI-01). The table in the README is tested against this file."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """The exit statuses of `conveyor`. A status that is not listed here means failure.

    Statuses above 128 that are not listed (143, 137) come from the shell: the process was ended by a signal.
    """

    meaning: str
    """One line for a person."""

    def __new__(cls, status: int, meaning: str) -> Self:
        """A member is declared as its status and its meaning."""
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member

    DELIVERED = 0, "everything asked for was done; nothing is waiting, parked or paused"
    INTERNAL_ERROR = 1, "a defect in Conveyor; what was accepted is still in the store"
    BAD_USE = 2, "an unusable command line, setting or input file; nothing was changed"
    LEFT_OVER = 3, "accepted work is still waiting; it is durable, and `conveyor drain` continues it"
    PARKED = 4, "items were refused for good and set aside with a reason; `conveyor status` names them"
    PAUSED = 5, "a repository waits for a person or a new credential; `conveyor status` names it"
    STORE_UNUSABLE = 6, "the store cannot be opened, read or written; nothing was changed"
    NOT_VERIFIED = 7, "what was read back from the repositories differs from what was handed over"
    INTERRUPTED = 130, "stopped by the keyboard (SIGINT) before the work was done"

    @classmethod
    def of_work(cls, *, left_over: int, parked: int, paused: int) -> ExitCode:
        """The status for what is not delivered: numbers of hand-overs left over and parked, and paused repositories.

        When several hold, the one that only a person can end comes first: paused, then parked, then left over.
        """
        if paused:
            return cls.PAUSED
        if parked:
            return cls.PARKED
        if left_over:
            return cls.LEFT_OVER
        return cls.DELIVERED


__all__ = ["ExitCode"]
