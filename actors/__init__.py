"""The behaviour of Conveyor: the actor kernel and the actors.

Actors reach the world only through ports (`typing.Protocol`): nothing here opens a file, a socket or a database, and
nothing here reads a wall clock. The kernel runs on asyncio and on trio.

| file | holds |
| --- | --- |
| `behaviour`, `ref`, `mailbox` | what the author of an actor writes; its address; its bounded queue |
| `incarnation`, `child` | one life of an actor; one address over many lives |
| `supervisor`, `child_spec`, `rest_for_one`, `intensity` | start in order, restart by rule, stop in reverse order |
| `registry` | from a key to a live actor, started on first use |
| `errors`, `statistics` | what went wrong; what is going on |
| `ports`, `port_errors`, `store_*` | what the actors need of the world, and what each operation of the store is |
| `intake`, `ledger`, `hashing_pool`, `work_watch` | hand-overs come in, are written in groups, hashed, noticed |
| `repository`, `agenda*`, `cycle_notes`, `lease_keeper` | one repository: its next step, its results, its lease |
| `run_files_commit`, `bundle_*`, `commit_sender` | what a commit carries, and how it lands once |
| `shutdown`, `stop_gate`, `read_back`, `warnings` | the order of a stop; who waits for what; trouble told once |
"""

from __future__ import annotations

from .behaviour import ActorContext, BatchBehaviour, Behaviour, ExitReason, TaskHandle
from .child_spec import ActorExit, ChildSpec, RestartPolicy
from .errors import (
    ActorCrashed,
    ActorStopped,
    ActorTaskLost,
    Answer,
    AskTimeout,
    DuplicateActor,
    ReplyError,
    RestartIntensityExceeded,
    SupervisorStopped,
    TaskLimitReached,
    UnansweredMessages,
    UnknownActor,
)
from .intensity import RestartBackoff, RestartIntensity
from .mailbox import Mailbox, Pending
from .ref import ActorRef, Command
from .registry import Registry
from .statistics import ActorState, ActorStatistics, MailboxStatistics, RegistryStatistics, SupervisorStatistics
from .supervisor import Strategy, Supervisor, open_supervisor

__all__ = [
    # writing an actor
    "ActorContext",
    "BatchBehaviour",
    "Behaviour",
    "Command",
    "ExitReason",
    "Pending",
    "TaskHandle",
    # reaching an actor
    "ActorRef",
    "Mailbox",
    "Registry",
    # supervising actors
    "ActorExit",
    "ChildSpec",
    "RestartBackoff",
    "RestartIntensity",
    "RestartPolicy",
    "Strategy",
    "Supervisor",
    "open_supervisor",
    # statistics
    "ActorState",
    "ActorStatistics",
    "MailboxStatistics",
    "RegistryStatistics",
    "SupervisorStatistics",
    # errors
    "ActorCrashed",
    "ActorStopped",
    "ActorTaskLost",
    "Answer",
    "AskTimeout",
    "DuplicateActor",
    "ReplyError",
    "RestartIntensityExceeded",
    "SupervisorStopped",
    "TaskLimitReached",
    "UnansweredMessages",
    "UnknownActor",
]
