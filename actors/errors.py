"""Errors of the actor kernel, flat: one class for each thing that can have happened to a message or an actor.

For a message the classes answer one question: was it begun? `ActorStopped` means it never was, so it may be sent again
elsewhere; `ActorCrashed` means it was and its effect is unknown; `AskTimeout` says which in `begun`.
"""

from __future__ import annotations

from typing import ClassVar

from ..protocol.errors import ConveyorError


class ActorStopped(ConveyorError):
    """The actor has stopped for good; the message was not begun and nothing was changed by it."""

    code: ClassVar[str] = "ACTOR_STOPPED"

    def __init__(self, actor: str) -> None:
        super().__init__(
            f"actor {actor!r} has stopped and takes no more messages; this message was not begun: "
            "ask its supervisor or registry for a live actor, or give up if the runtime is stopping"
        )
        self.actor = actor


class ActorCrashed(ConveyorError):
    """The actor ended while it worked on the message, so whether the message had its effect is unknown.

    The unexpected error, when there was one, is the `__cause__`; without a cause the actor was cancelled in the middle.
    """

    code: ClassVar[str] = "ACTOR_CRASHED"

    def __init__(self, actor: str, error: BaseException | None) -> None:
        how = "was cancelled" if error is None else f"failed with {type(error).__name__}"
        super().__init__(
            f"actor {actor!r} {how} while it worked on this message, so its effect is unknown: "
            "look at what was recorded before sending it again"
        )
        self.actor = actor
        self.__cause__ = error


class AskTimeout(ConveyorError):
    """No answer came within the limit that the asker gave.

    `begun` is False when the message was taken back from the mailbox untouched; True when the actor had begun it: it
    goes on, and only its answer is dropped.
    """

    code: ClassVar[str] = "ASK_TIMEOUT"

    def __init__(self, actor: str, within_s: float, *, begun: bool) -> None:
        left = (
            "the actor had begun it and goes on, its answer will be dropped: look before sending it again"
            if begun
            else "it was not begun and has been taken back: send it again or allow more time"
        )
        super().__init__(f"actor {actor!r} gave no answer within {within_s:g} s; {left}")
        self.actor = actor
        self.within_s = within_s
        self.begun = begun


class ReplyError(ConveyorError):
    """The root of errors that are answers: raised by `handle`, sent to the asker, and the actor lives on."""

    code: ClassVar[str] = "REPLY_ERROR"


class Answer(ReplyError):
    """Raised by a behaviour to answer with any error: the asker sees `error` itself, the actor lives on."""

    code: ClassVar[str] = "ANSWER"

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the answer is {type(error).__name__}: {error}")
        self.error = error


class UnansweredMessages(ConveyorError):
    """A batch behaviour returned without answering every ask of its batch: a defect, so the actor crashes."""

    code: ClassVar[str] = "UNANSWERED_MESSAGES"

    def __init__(self, actor: str, unanswered: int) -> None:
        super().__init__(
            f"actor {actor!r} returned from handle_batch with {unanswered} unanswered asks: "
            "call answer() or refuse() on each message of the batch before returning"
        )
        self.actor = actor
        self.unanswered = unanswered


class TaskLimitReached(ConveyorError):
    """An actor tried to own more running tasks than its child spec allows."""

    code: ClassVar[str] = "TASK_LIMIT_REACHED"

    def __init__(self, actor: str, max_tasks: int) -> None:
        super().__init__(
            f"actor {actor!r} already owns {max_tasks} running tasks, its limit: "
            "wait for one to end before starting another, or raise max_tasks in its child spec"
        )
        self.actor = actor
        self.max_tasks = max_tasks


class DuplicateActor(ConveyorError):
    """A child of this name already lives under the supervisor; the running one was not touched."""

    code: ClassVar[str] = "DUPLICATE_ACTOR"

    def __init__(self, supervisor: str, actor: str) -> None:
        super().__init__(
            f"supervisor {supervisor!r} already has a child named {actor!r} and names are unique: "
            "use ref() to reach it, or stop it first"
        )
        self.supervisor = supervisor
        self.actor = actor


class UnknownActor(ConveyorError):
    """The supervisor has no child of this name now; it never had, or that child has stopped."""

    code: ClassVar[str] = "UNKNOWN_ACTOR"

    def __init__(self, supervisor: str, actor: str) -> None:
        super().__init__(
            f"supervisor {supervisor!r} has no child named {actor!r}: it was never started or has stopped; "
            "start it with start_child()"
        )
        self.supervisor = supervisor
        self.actor = actor


class SupervisorStopped(ConveyorError):
    """The supervisor is stopping or has stopped, so no new child may start."""

    code: ClassVar[str] = "SUPERVISOR_STOPPED"

    def __init__(self, supervisor: str) -> None:
        super().__init__(
            f"supervisor {supervisor!r} is stopping and starts no more children: open a new one to start work again"
        )
        self.supervisor = supervisor


class ActorTaskLost(ConveyorError):
    """The event loop dropped the task of an actor before its first step, so everything under the supervisor stopped.

    Only asyncio can do that, when somebody cancels all its tasks by hand (N-RUN-08).
    """

    code: ClassVar[str] = "ACTOR_TASK_LOST"

    def __init__(self, supervisor: str) -> None:
        super().__init__(
            f"a task of supervisor {supervisor!r} was cancelled from outside before it began, so everything under it "
            "was stopped: cancel the block that opened the supervisor, not the event loop's single tasks"
        )
        self.supervisor = supervisor


class RestartIntensityExceeded(ConveyorError):
    """Children failed more often than the restart intensity allows; the supervisor stopped all of them.

    The error of the last failure is the `__cause__`.
    """

    code: ClassVar[str] = "RESTART_INTENSITY_EXCEEDED"

    def __init__(self, supervisor: str, actor: str, *, max_restarts: int, period_s: float) -> None:
        super().__init__(
            f"actor {actor!r} under supervisor {supervisor!r} ended once more after {max_restarts} restarts "
            f"in {period_s:g} s, the limit, so everything under it was stopped: "
            "see the cause of the last failure, mend it, and start again"
        )
        self.supervisor = supervisor
        self.actor = actor
        self.max_restarts = max_restarts
        self.period_s = period_s


__all__ = [
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
