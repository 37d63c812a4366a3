"""The local Hub as a process of its own, which ends with the process that started it."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import anyio
import anyio.abc
import anyio.streams.text

from ...protocol.errors import ConveyorError

START_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0


class LocalHubFailed(ConveyorError):
    """The local Hub did not start."""

    code: ClassVar[str] = "LOCAL_HUB_FAILED"


@asynccontextmanager
async def local_hub_process(
    root: Path, *, repositories: Sequence[str] = (), options: Sequence[str] = ()
) -> AsyncIterator[str]:
    """Run `python -m conveyor.runtime.localhub` for the length of the block.

    Its standard input is a pipe from this process: when this process ends in any way, the Hub ends too.

    Args:
        root: the directory that holds its repositories.
        repositories: made when missing.
        options: further options of the command.

    Yields:
        The address to use as endpoint.

    Raises:
        LocalHubFailed: it did not get ready; the message says why.
    """
    if importlib.util.find_spec("uvicorn") is None or importlib.util.find_spec("starlette") is None:
        raise LocalHubFailed("the local Hub needs starlette and uvicorn; install them with `pip install conveyor[hub]`")
    await _wait_unlocked(root)
    command = [sys.executable, "-m", "conveyor.runtime.localhub", "--root", str(root), "--until-stdin-closes", *options]
    for repository in repositories:
        command += ["--repository", repository]
    process = await anyio.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, env=_environment(), start_new_session=True
    )
    try:
        yield await _wait_ready(process)
    finally:
        with anyio.CancelScope(shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            with anyio.move_on_after(STOP_WITHIN_S):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.aclose()


async def _wait_unlocked(root: Path) -> None:
    """Wait for a local Hub that is ending on the same directory: its starter was killed a moment ago, perhaps."""
    with anyio.move_on_after(STOP_WITHIN_S):
        while _is_locked(root / "lock"):
            await anyio.sleep(0.1)


def _is_locked(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # there is none yet, or it cannot be read: the server itself says what is wrong
    return False


async def _wait_ready(process: anyio.abc.Process) -> str:
    assert process.stdout is not None
    lines = anyio.streams.text.TextReceiveStream(process.stdout)
    text = ""
    with anyio.move_on_after(START_WITHIN_S):
        try:
            while "\n" not in text:
                text += await lines.receive()
        except anyio.EndOfStream:
            pass
    word, _, url = text.strip().partition(" ")
    if word != "ready":
        raise LocalHubFailed("the local Hub did not start; its own message is above")
    return url


def _environment() -> dict[str, str]:
    """Without credentials: the local Hub needs none."""
    return {name: value for name, value in os.environ.items() if name not in ("HF_TOKEN", "HUGGINGFACE_TOKEN")}


__all__ = ["LocalHubFailed", "local_hub_process"]
