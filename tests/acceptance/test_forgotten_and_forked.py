"""A Conveyor that is forgotten while a commit starts, and a forked child that leaves through the inherited loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT
from tests.support.command import command_environment, conveyor

pytestmark = pytest.mark.slow
both_loops = pytest.mark.parametrize("loop", ["asyncio", "trio"])

NOBODY = "http://127.0.0.1:9"
LIMIT_S = 20.0

PROGRAM = """
import os, sys
from pathlib import Path
import anyio
from conveyor.protocol import RunFile, StageRunFiles
from conveyor.runtime import Settings, UsedAfterFork, open_conveyor

async def main() -> None:
    state = Path("state.json").absolute()
    state.write_text('{"step": 1}')
    conveyor = open_conveyor(Settings.load())
    await conveyor.__aenter__()

    async def hand_over(run: str) -> None:
        files = (RunFile("state.json", state),)
        await conveyor.stage_run_files(StageRunFiles(repository="acme/forget", run_id=run, files=files))

    for number in range(5):
        await hand_over(f"run-{number}")
    if LEAVE == "forget":
        return
    child = os.fork()
    if child == 0:
        try:
            await hand_over("run-child")
        except UsedAfterFork:
            if LEAVE == "close":
                await conveyor.__aexit__(None, None, None)
                return
            if LEAVE == "raise":
                raise ValueError("the child breaks off") from None
            sys.exit(3)
    with anyio.fail_after(15):
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            await anyio.sleep(0.02)
    print("child ended with", os.waitstatus_to_exitcode(ended[1]), flush=True)
    await conveyor.aclose(within_s=1.0)

LEAVE = sys.argv[2]
anyio.run(main, backend=sys.argv[1])
"""


def run(loop: str, leave: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, which has to come in time."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, loop, leave],
        env=command_environment(place / "home", NOBODY, "hf_canary")
        | {"CONVEYOR_STORE_PATH": str(place / "state" / "store.db"), "PYTHONPATH": str(ROOT)},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@both_loops
@pytest.mark.parametrize("again", range(3))
def test_forgotten_while_a_commit_starts_is_one_warning(again: int, loop: str, tmp_path: Path) -> None:
    """The end of the loop interrupts no work on the store: no traceback, one warning, lease given back (N-RUN-02)."""
    done = run(loop, "forget", tmp_path)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "ConveyorNotClosed: " in line]
    assert len(warnings) == 1, done.stderr
    for noise in ("Traceback", "unhandled exception", "Task was destroyed", "never retrieved", "never awaited"):
        assert noise not in done.stderr, done.stderr
    env = command_environment(tmp_path / "home")
    status = conveyor("status", "--store", tmp_path / "state" / "store.db", "--json", env=env)
    assert status.last("status")["repositories"][0]["lease_owner"] is None


@both_loops
@pytest.mark.parametrize(("leave", "code"), [("exit", 3), ("raise", 1), ("close", 0)])
def test_a_forked_child_leaves_through_the_loop(leave: str, code: int, loop: str, tmp_path: Path) -> None:
    """The child ends at once, touches nothing, says nothing of ours; the parent closes as ever (N-STO-06)."""
    done = run(loop, leave, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"child ended with {code}" in done.stdout
    assert done.stderr.count("Traceback") == (1 if leave == "raise" else 0), done.stderr
    for noise in ("Task was destroyed", "never awaited", "ConveyorNotClosed", "unhandled exception"):
        assert noise not in done.stderr, done.stderr
