"""Running one command: signals, and errors to exit statuses; never a traceback for the user unless he asks for it."""

from __future__ import annotations

import logging
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import anyio
import msgspec

from ...actors.port_errors import StoreError
from ...protocol.errors import ConveyorError
from ..exit_codes import ExitCode
from ..setting_spec import SettingsError
from ..settings import Settings
from ..sweep.hub_process import LocalHubFailed
from ..sweep.run import NoWriteAccess
from ..sweep.verify import ReadBackFailed
from .output import tell


class BadUse(ConveyorError):
    """The command line asks for something that cannot be done."""

    code: ClassVar[str] = "BAD_USE"


@dataclass(slots=True)
class StopRequest:
    """Set by the first SIGINT or SIGTERM: finish what is due and exit. A second one does not wait."""

    event: anyio.Event = field(default_factory=anyio.Event)
    signal_number: int | None = None

    @property
    def was_interrupted(self) -> bool:
        """The keyboard stopped it."""
        return self.signal_number == signal.SIGINT

    @property
    def code(self) -> ExitCode:
        """The exit status of work that a signal ended."""
        return ExitCode.INTERRUPTED if self.was_interrupted else ExitCode.LEFT_OVER


def run_command(command: Callable[[StopRequest], Awaitable[ExitCode]]) -> ExitCode:
    """Run a command's coroutine on asyncio and give its exit status.

    Only the standalone command handles signals; embedded use never does (N-RUN-06).

    Raises:
        Exception: whatever the command raised, bare.
    """

    async def run() -> ExitCode:
        stop = StopRequest()
        code: ExitCode | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_signals, stop, tasks.cancel_scope)
            code = await command(stop)
            tasks.cancel_scope.cancel("the command is done")
        if code is None:
            tell("conveyor: stopped at once; what was accepted is kept, and `conveyor drain` continues it")
            return stop.code
        return code

    try:
        return anyio.run(run)
    except BaseExceptionGroup as group:
        raise _most_telling(group) from None


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


def explain(error: BaseException, *, as_json: bool) -> ExitCode:
    """Say what went wrong in one line, and give the exit status for it.

    Of an error that nobody foresaw only the kind and the place are told: its text might hold anything.
    """
    code = _code_of(error)
    if isinstance(error, ConveyorError):
        name, text = error.code, str(error)
    elif isinstance(error, OSError) and error.strerror:
        name = "LOCAL_TROUBLE"
        text = f"{error.filename or 'the system'}: {error.strerror}; what was accepted is kept in the store"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
        name = "INTERNAL_ERROR"
        text = (
            f"internal error, {type(error).__name__}{place}; what was accepted is kept in the store. "
            "Next step: report it, with what `--set log_level=debug` shows"
        )
        if logging.getLogger("conveyor").isEnabledFor(logging.DEBUG):
            sys.stderr.writelines(traceback.format_tb(error.__traceback__))
    tell(f"conveyor: {text}")
    if as_json:
        sys.stdout.write(
            msgspec.json.encode({"type": "error", "code": name, "message": text, "exit": code.value}).decode() + "\n"
        )
    return code


def set_up_logging(settings: Settings, *, is_quiet: bool) -> None:
    """Send the program's own warnings to standard error; only the standalone command does this (N-RUN-06)."""
    logger = logging.getLogger("conveyor")
    stream = _CurrentStandardError()
    stream.setFormatter(_JsonLines() if settings.log_format == "json" else logging.Formatter("conveyor: %(message)s"))
    logger.handlers[:] = [stream]
    logger.setLevel(logging.ERROR if is_quiet and settings.log_level != "debug" else settings.log_level.upper())
    logger.propagate = False


class _JsonLines(logging.Formatter):
    """One object a line: time in seconds since the epoch, level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "type": "log",
            "unix_s": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return msgspec.json.encode(line).decode()


class _CurrentStandardError(logging.Handler):
    """Writes to what is standard error at the moment: bars put something else there while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        tell(self.format(record))


async def _watch_signals(stop: StopRequest, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            if stop.event.is_set():
                scope.cancel("a second signal came")
                return
            tell("conveyor: stopping; what is not delivered in time is kept. Once more stops at once")
            stop.signal_number = number
            stop.event.set()


def _code_of(error: BaseException) -> ExitCode:
    if isinstance(error, (BadUse, SettingsError, LocalHubFailed, NoWriteAccess)):
        return ExitCode.BAD_USE
    if isinstance(error, StoreError):
        return ExitCode.STORE_UNUSABLE
    return ExitCode.NOT_VERIFIED if isinstance(error, ReadBackFailed) else ExitCode.INTERNAL_ERROR


def _most_telling(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One error of a group: the first that was foreseen, else the first."""
    leaves: list[BaseException] = []
    groups = [group]
    while groups:
        for error in groups.pop(0).exceptions:
            if isinstance(error, BaseExceptionGroup):
                groups.append(error)
            else:
                leaves.append(error)
    return next((error for error in leaves if isinstance(error, ConveyorError)), leaves[0])


__all__ = ["BadUse", "StopRequest", "explain", "run_command", "set_up_logging", "until_stopped"]
