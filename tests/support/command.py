"""The `conveyor` command as a process: run to its end, or watched and ended by its own pid."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from conveyor.runtime.cli import main; main()"]
LIMIT_S = 90.0


@dataclass(frozen=True)
class Finished:
    """What a command left: its exit status and its two outputs. It never shows a traceback or a token."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        for text in (self.out, self.err):
            assert "Traceback" not in text, text
            assert "Exception ignored" not in text, text
            assert "hf_" not in text, text

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines of standard output, each of which has to be JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def last(self, kind: str) -> dict[str, Any]:
        """The last JSON line of a type."""
        return [record for record in self.records if record["type"] == kind][-1]


def command_environment(home: Path, endpoint: str | None = None, token: str | None = None) -> dict[str, str]:
    """The environment of a command: a home of its own, nothing of the developer's, one Hub."""
    home.mkdir(parents=True, exist_ok=True)
    clean = ("HF_", "HUGGING", "CONVEYOR_", "XDG_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(clean)}
    env |= {"HOME": str(home), "HF_HOME": str(home / "hf"), "NO_PROXY": "127.0.0.1,localhost", "COLUMNS": "80"}
    # A test must never reach the real Hub: an address where nobody listens, unless it names one.
    env["HF_ENDPOINT"] = endpoint or "http://127.0.0.1:9"
    return env if token is None else env | {"HF_TOKEN": token}


def conveyor(*arguments: object, env: dict[str, str], within_s: float = LIMIT_S) -> Finished:
    """Run a command to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


@dataclass
class RunningCommand:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def wait_for(self, condition: Callable[[], bool], within_s: float = LIMIT_S) -> None:
        """Return once the condition holds; looks at it again and again while the command runs."""
        deadline = time.monotonic() + within_s
        while not condition():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.01)
                if condition():
                    return
                raise AssertionError(f"the command ended before: {self.err.read_text()}{self.out.read_text()}")
            assert time.monotonic() < deadline, f"it did not come so far: {self.err.read_text()}"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def finish(self, within_s: float = LIMIT_S) -> Finished:
        """Wait for its end."""
        code = self.process.wait(within_s)
        return Finished(code, self.out.read_text(), self.err.read_text())


@contextlib.contextmanager
def running(*arguments: object, env: dict[str, str], place: Path) -> Iterator[RunningCommand]:
    """Start a command; whatever is left of it at the end of the block is killed."""
    place.mkdir(parents=True, exist_ok=True)
    out, err = place / "out.txt", place / "err.txt"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], env=env, stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file
        )
    try:
        yield RunningCommand(process, out, err)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


__all__ = ["COMMAND", "Finished", "RunningCommand", "command_environment", "conveyor", "running"]
