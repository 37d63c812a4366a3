"""Conveyor inside programs that stop badly, fork, or meet a Hub that stands still; each is a process of its own."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conveyor.runtime.exit_codes import ExitCode
from tests.architecture.rules import ROOT
from tests.support.command import command_environment, conveyor
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

pytestmark = pytest.mark.slow
both_loops = pytest.mark.parametrize("loop", ["asyncio", "trio"])

HOST = ROOT / "tests" / "support" / "host_programs.py"
NOBODY = "http://127.0.0.1:9"
TOKEN = "hf_canary"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A local Hub with the one repository."""
    with running_local_hub(tmp_path / "hub", repositories=("lab/host",)) as hub:
        yield hub


def start(program: str, loop: str, place: Path, endpoint: str, token: str | None = TOKEN) -> subprocess.Popen[str]:
    """Start a host program."""
    return subprocess.Popen(
        [sys.executable, str(HOST), program, loop, str(place), endpoint],
        env=command_environment(place / "home", endpoint, token),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def drain(place: Path, hub: LocalHubUnderTest, *more: str) -> None:
    """Deliver what the program left, from another process that knows nothing of it."""
    env = command_environment(place / "home", hub.url, TOKEN)
    done = conveyor("drain", "--store", place / "state" / "store.db", *more, env=env)
    assert done.code == 0, done


def arrived(hub: LocalHubUnderTest) -> set[str]:
    """The paths that landed, each once."""
    paths = [change["path"] for commit in hub.commits("lab/host") for change in commit["changes"]]
    assert len(paths) == len(set(paths))
    return set(paths)


@both_loops
@pytest.mark.parametrize(("program", "code"), [("forget", 0), ("forget-and-exit", 7)])
def test_a_forgotten_close_is_one_warning(program: str, code: int, loop: str, tmp_path: Path) -> None:
    """50 items, no close: no traceback, gone within 2 s, one warning that counts them (N-RUN-02, N-RUN-11)."""
    process = start(program, loop, tmp_path, NOBODY)
    out, err = process.communicate(timeout=60)
    ended_at = time.time()
    assert process.returncode == code, err
    # The interpreter's own end is in it; the machine may be busy.
    assert ended_at - float(out) < 4
    warnings = [line for line in err.splitlines() if "ConveyorNotClosed" in line and "warnings.warn" not in line]
    assert len(warnings) == 1, err
    assert "50 accepted items are left" in warnings[0]
    for noise in ("Traceback", "Task was destroyed", "never retrieved", "ended unexpectedly", "never awaited"):
        assert noise not in err
    env = command_environment(tmp_path / "home")
    status = conveyor("status", "--store", tmp_path / "state" / "store.db", "--json", env=env)
    assert status.last("status")["waiting"] == 50
    assert status.last("status")["repositories"][0]["lease_owner"] is None


@both_loops
def test_what_a_forgetful_program_left_is_drained(loop: str, hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """The next drain delivers all 50, whose source files are long gone (N-RUN-02)."""
    process = start("forget", loop, tmp_path, NOBODY)
    process.communicate(timeout=60)
    drain(tmp_path, hub)
    assert arrived(hub) == {f"runs/run/f{number}.txt" for number in range(50)}


@both_loops
def test_accepted_means_held(loop: str, hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Enqueue, unlink, SIGKILL: another process delivers the content (N-STO-08)."""
    process = start("be-killed", loop, tmp_path, NOBODY, token=None)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == ("enqueued\n", -9)
    drain(tmp_path, hub)
    assert arrived(hub) == {f"runs/run/f{number}.txt" for number in range(5)}


@both_loops
@pytest.mark.parametrize(
    ("program", "kind", "action", "left"),
    [
        ("stall-at-commit", "commit", {"do": "stall_request"}, "(1, 0, True)"),
        ("stall-at-upload", "lfs-put", {"do": "stall_request", "after_bytes": 1000}, "(0, 1, False)"),
    ],
)
def test_a_stalled_hub_does_not_hold_the_stop(
    program: str, kind: str, action: dict[str, object], left: str, loop: str, hub: LocalHubUnderTest, tmp_path: Path
) -> None:
    """The Hub reads no more, for ever: a close within 2 s is done in time and says what is left (N-RUN-01)."""
    hub.fault("stall", action, kind=kind)
    process = start(program, loop, tmp_path, hub.url)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    hub.wait_stalled("stall")
    began = time.monotonic()
    out, err = process.communicate("stop\n", timeout=60)
    took_s = time.monotonic() - began
    assert process.returncode == 0, err
    assert "Traceback" not in err
    closing_s, repository, counts, _ = out.splitlines()
    assert float(closing_s) < 6
    assert took_s < 9
    assert (repository, counts) == ("lab/host", left)
    hub.clear_faults()


def test_the_lease_of_a_killed_process_is_shown(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Until it runs out, drain waits and status names the process and host that hold the repository (N-CLI-04)."""
    hub.fault("stall", {"do": "stall_request"}, kind="commit")
    process = start("stall-at-commit", "asyncio", tmp_path, hub.url)
    hub.wait_stalled("stall")
    process.kill()
    process.communicate()
    hub.clear_faults()
    store, env = tmp_path / "state" / "store.db", command_environment(tmp_path / "home", hub.url, TOKEN)
    done = conveyor("drain", "--store", store, "--within", "1", "--set", "shutdown_s=1", env=env)
    assert done.code == ExitCode.LEFT_OVER, done
    holder = f"lab/host is held by process {process.pid} on {socket.gethostname()}"
    assert holder in done.err
    status = conveyor("status", "--store", store, env=env)
    assert status.code == ExitCode.LEFT_OVER
    assert holder in status.out


@both_loops
def test_forked_children_touch_nothing(loop: str, hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Ten forked children use the object in vain and end normally; the parent delivers on (N-RUN-03, N-STO-06)."""
    process = start("fork", loop, tmp_path, hub.url)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    assert out.split() == ["10", "0"]
    assert arrived(hub) == {f"runs/run/f{number}.txt" for number in range(25)}
    with sqlite3.connect(tmp_path / "state" / "store.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_many_processes_open_one_store_at_once(tmp_path: Path) -> None:
    """32 processes in the same moment, half of them on each loop, 5 items each: no error, 160 items (N-STO-02)."""
    process = start("many", "both", tmp_path, NOBODY, token=None)
    out, err = process.communicate(timeout=100)
    assert out == "32\n", err
    env = command_environment(tmp_path / "home")
    status = conveyor("status", "--store", tmp_path / "state" / "store.db", "--json", env=env)
    assert status.code in (ExitCode.PAUSED, ExitCode.LEFT_OVER)
    assert status.last("status")["waiting"] == 160
