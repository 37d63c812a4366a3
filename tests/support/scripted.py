"""An actor that does what each message tells it, and keeps a journal that outlives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from conveyor.actors import ActorContext, Behaviour, ChildSpec, Command, ExitReason, RestartBackoff


class Boom(Exception):
    """An unexpected error, planted by a test."""


@dataclass(frozen=True, slots=True)
class Note(Command[int]):
    """Write `text` in the journal; answers how many notes this life has taken."""

    text: str


@dataclass(frozen=True, slots=True)
class Act(Command[Any]):
    """Run a function inside `handle` and answer with its result."""

    action: Callable[[Scripted], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Crash(Command[None]):
    """Fail with Boom."""


class Scripted(Behaviour[Note | Act | Crash]):
    """The scripted actor. Plant hooks on an instance's class or pass them to `scripted`."""

    def __init__(self, name: str, journal: list[str], hooks: Hooks) -> None:
        self.name = name
        self.journal = journal
        self.hooks = hooks
        self.notes = 0
        self.context: ActorContext[Note | Act | Crash]

    def write(self, text: str) -> None:
        """Add a line to the journal."""
        self.journal.append(f"{self.name} {text}")

    async def setup(self, context: ActorContext[Note | Act | Crash]) -> None:
        """Run the set-up hook and note that it was called."""
        self.context = context
        self.write("setup")
        if self.hooks.setup is not None:
            await self.hooks.setup(self)

    async def handle(self, message: Note | Act | Crash) -> object:
        """Do what the message says."""
        match message:
            case Note(text):
                self.notes += 1
                self.write(text)
                return self.notes
            case Act(action):
                return await action(self)
            case Crash():
                raise Boom(self.name)

    async def wake(self) -> None:
        """Note the time of the wake, or run the hook."""
        if self.hooks.wake is not None:
            await self.hooks.wake(self)
        else:
            self.write(f"wake {anyio.current_time():g}")

    async def terminate(self, reason: ExitReason) -> None:
        """Note the reason and run the hook."""
        self.write(reason.value)
        if self.hooks.terminate is not None:
            await self.hooks.terminate(self)


Hook = Callable[[Scripted], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a scripted actor does besides its messages."""

    setup: Hook | None = None
    wake: Hook | None = None
    terminate: Hook | None = None


NO_DELAY = RestartBackoff(first_s=0)


def scripted(
    name: str,
    journal: list[str],
    *,
    setup: Hook | None = None,
    wake: Hook | None = None,
    terminate: Hook | None = None,
    **limits: Any,
) -> ChildSpec[Note | Act | Crash]:
    """Return the child spec of a scripted actor that restarts at once unless `limits` say otherwise."""
    hooks = Hooks(setup, wake, terminate)
    limits.setdefault("backoff", NO_DELAY)
    return ChildSpec(name, lambda: Scripted(name, journal, hooks), **limits)


async def forever(_: object = None) -> None:
    """Never return; for hooks and actions that hang."""
    await anyio.sleep_forever()


async def fail(_: object = None) -> None:
    """Fail with Boom; for hooks and actions."""
    raise Boom("planted")
