"""Running one command: signals, errors to exit statuses, never a traceback for the user."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from ...actors.port_errors import StoreError
from ...protocol.errors import ConveyorError
from ..exit_codes import ExitCode
from ..setting_spec import SettingsError
from ..settings import Settings
from ..sweep.hub_process import LocalHubFailed


class BadUse(ConveyorError):
    """The command line asks for something that cannot be done."""

    code = "BAD_USE"


@dataclass(slots=True)
class StopRequest:
    """Set by the first SIGINT or SIGTERM: finish what is due and exit. A second one does not wait."""

    event: anyio.Event = field(default_factory=anyio.Event)
    signal_number: int | None = None

    @property
    def was_interrupted(self) -> bool:
        """The keyboard stopped it."""
        return self.signal_number == signal.SIGINT


def run_command(command: Callable[[StopRequest], Awaitable[ExitCode]]) -> ExitCode:
    """Run a command's coroutine on asyncio and give its exit status.

    Only the standalone command handles signals; embedded use never does (N-RUN-06).
    """

    async def run() -> ExitCode:
        stop = StopRequest()
        code = ExitCode.INTERRUPTED
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_signals, stop, tasks.cancel_scope)
            code = await command(stop)
            tasks.cancel_scope.cancel("the command is done")
        return code

    try:
        return anyio.run(run)
    except BaseExceptionGroup as group:
        error = _first_of(group)
        if not isinstance(error, ConveyorError):
            raise
        return _fail(error)


@asynccontextmanager
async def until_stopped(stop: StopRequest) -> AsyncIterator[None]:
    """Cut the block short, quietly, when a stop is asked for."""

    async def watch(scope: anyio.CancelScope) -> None:
        await stop.event.wait()
        scope.cancel("a stop was asked for")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel("the work is done")


def set_up_logging(settings: Settings, *, is_quiet: bool) -> None:
    """Send the program's own warnings to standard error; only the standalone command does this (N-RUN-06)."""
    logger = logging.getLogger("conveyor")
    if not logger.handlers:
        stream = logging.StreamHandler(sys.stderr)
        stream.setFormatter(logging.Formatter("conveyor: %(message)s"))
        logger.addHandler(stream)
    logger.setLevel(logging.ERROR if is_quiet else settings.log_level.upper())
    logger.propagate = False


async def _watch_signals(stop: StopRequest, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            if stop.event.is_set():
                scope.cancel("a second signal came")
                return
            stop.signal_number = number
            stop.event.set()


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(error: ConveyorError) -> ExitCode:
    sys.stderr.write(f"conveyor: {error}\n")
    if isinstance(error, (BadUse, SettingsError, LocalHubFailed)):
        return ExitCode.BAD_USE
    return ExitCode.STORE_UNUSABLE if isinstance(error, StoreError) else ExitCode.INTERNAL_ERROR


__all__ = ["BadUse", "StopRequest", "run_command", "set_up_logging", "until_stopped"]
