"""Frozen records of what the kernel is doing now; taking one changes nothing and never waits."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class ActorState(enum.Enum):
    """Where an actor is in its life."""

    STARTING = "starting"
    """`setup` has not returned yet; messages are accepted and wait."""
    RUNNING = "running"
    STOPPING = "stopping"
    """It was asked to stop, or has ended and is in `terminate`."""
    RESTARTING = "restarting"
    """Its last life failed and the next has not begun; messages are accepted and wait."""
    STOPPED = "stopped"
    """Gone for good; its address raises ActorStopped."""


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """One look at a mailbox."""

    depth: int
    """Messages that wait now."""
    capacity: int
    """Messages that may wait; further senders wait for room."""
    accepted: int
    """Messages taken in since the mailbox was made."""
    oldest_wait_s: float
    """Seconds the message at the head has waited; 0 when empty."""
    waiting_senders: int
    """Tasks that wait for room."""
    undelivered: int
    """Messages that were still waiting when the actor stopped for good; asks among them were answered ActorStopped."""


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """One look at an actor, over all its lives."""

    name: str
    state: ActorState
    handled: int
    """Messages that were handled to the end, refusals included."""
    refused: int
    """Messages that were answered with an error on purpose."""
    crashed: int
    """Messages that a life died on."""
    restarts: int
    """Lives after the first that followed an end, passivation aside."""
    tasks: int
    """Running tasks that the actor owns now."""
    mailbox: MailboxStatistics

    @property
    def depth(self) -> int:
        """Messages that wait now."""
        return self.mailbox.depth

    @property
    def capacity(self) -> int:
        """Messages that may wait."""
        return self.mailbox.capacity

    @property
    def oldest_wait_s(self) -> float:
        """Seconds the message at the head has waited; 0 when empty."""
        return self.mailbox.oldest_wait_s


@dataclass(frozen=True, slots=True)
class SupervisorStatistics:
    """One look at a supervisor and its children, in start order."""

    name: str
    children: tuple[ActorStatistics, ...]
    restarts: int
    """Restarts since the supervisor opened."""
    restarts_in_period: int
    """Restarts that count against the restart intensity now."""
    max_restarts: int
    """The restart that follows this many within `period_s` escalates."""
    period_s: float


@dataclass(frozen=True, slots=True)
class RegistryStatistics:
    """One look at a registry. Idle keys cost nothing, so they are not counted."""

    live: int
    """Actors that live now, the starting ones included."""
    max_live: int
    """Actors that may live at once; a first use beyond it waits."""
    waiting: int
    """Tasks that wait until another actor has passivated."""
    started: int
    """Actors started since the registry was made."""


__all__ = ["ActorState", "ActorStatistics", "MailboxStatistics", "RegistryStatistics", "SupervisorStatistics"]
