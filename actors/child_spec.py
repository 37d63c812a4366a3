"""What a supervisor is told about a child, and what it tells about the end of one."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .behaviour import Behaviour, ExitReason
from .intensity import RestartBackoff

M = TypeVar("M")


class RestartPolicy(enum.Enum):
    """Which ends of a child are followed by a restart (Erlang/OTP's words). A requested stop never is."""

    PERMANENT = "permanent"
    """Every end."""
    TRANSIENT = "transient"
    """Only an unexpected end: FAILED or KILLED."""
    TEMPORARY = "temporary"
    """None."""

    def restarts_after(self, reason: ExitReason) -> bool:
        """Return whether a life that ended by itself with `reason` is followed by another."""
        if self is RestartPolicy.TRANSIENT:
            return reason in (ExitReason.FAILED, ExitReason.KILLED)
        return self is RestartPolicy.PERMANENT


@dataclass(frozen=True, slots=True)
class ChildSpec(Generic[M]):
    """How to start, restart and stop one child. Raises ValueError for a limit out of range."""

    name: str
    """Unique under its supervisor."""
    behaviour: Callable[[], Behaviour[M]]
    """Makes the behaviour of each life; must not wait."""
    restart: RestartPolicy = RestartPolicy.PERMANENT
    mailbox_capacity: int = 64
    """Messages that may wait; 1 or more."""
    shutdown_s: float = 5.0
    """Seconds that the message in hand gets when the child is asked to stop, and seconds that `terminate` gets after it
    (after a crash too). Each is cancelled when its time is over, so a stop takes twice this at most, plus whatever
    shields itself from cancellation."""
    backoff: RestartBackoff = field(default_factory=RestartBackoff)
    max_tasks: int = 64
    """Running tasks that the actor may own at once; 1 or more."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a child spec needs a name; give it one that is unique under its supervisor")
        if self.mailbox_capacity < 1:
            raise ValueError(f"mailbox_capacity of {self.name!r} is {self.mailbox_capacity}; it must be 1 or more")
        if self.max_tasks < 1:
            raise ValueError(f"max_tasks of {self.name!r} is {self.max_tasks}; it must be 1 or more")
        if not self.shutdown_s >= 0:
            raise ValueError(f"shutdown_s of {self.name!r} is {self.shutdown_s}; it must be 0 seconds or more")


@dataclass(frozen=True, slots=True)
class ActorExit:
    """One life of an actor has ended. An unexpected end is told at once, before `terminate` (N-RUN-08)."""

    name: str
    reason: ExitReason
    error: Exception | None
    """The unexpected error of a FAILED life."""
    overran: bool
    """Whether it was cancelled because it used up its shutdown limit."""
    requested: bool
    """Whether the supervisor had asked it to end."""
    restarts: bool
    """Whether another life follows."""
    restart_delay_s: float
    """Seconds until then; 0 when none follows, or when the supervisor starts it together with others."""

    @property
    def is_unexpected(self) -> bool:
        """Whether a person should hear of it."""
        if self.reason is ExitReason.KILLED:
            return self.overran or not self.requested
        return self.reason is ExitReason.FAILED


AnyChildSpec = ChildSpec[Any]

__all__ = ["ActorExit", "AnyChildSpec", "ChildSpec", "RestartPolicy"]
