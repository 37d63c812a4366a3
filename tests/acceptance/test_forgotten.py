"""A Conveyor that is forgotten while a commit starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import command_environment, conveyor

pytestmark = pytest.mark.slow
both_loops = pytest.mark.parametrize("loop", ["asyncio", "trio"])

NOBODY = "http://127.0.0.1:9"
LIMIT_S = 20.0

PROGRAM = """
import sys
from pathlib import Path
import anyio
from conveyor.protocol import RunFile, StageRunFiles
from conveyor.runtime import Settings, open_conveyor

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

anyio.run(main, backend=sys.argv[1])
"""


def run(loop: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, which has to come in time."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, loop],
        env=command_environment(place / "home", NOBODY, "hf_canary")
        | {"CONVEYOR_STORE_PATH": str(place / "state" / "store.db")},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@both_loops
@pytest.mark.parametrize("again", range(3))
def test_forgotten_while_a_commit_starts_is_one_warning(again: int, loop: str, tmp_path: Path) -> None:
    """The end of the loop interrupts no work on the store: no traceback, one warning, lease given back (N-RUN-02)."""
    done = run(loop, tmp_path)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "ConveyorNotClosed: " in line]
    assert len(warnings) == 1, done.stderr
    for noise in ("Traceback", "unhandled exception", "Task was destroyed", "never retrieved", "never awaited"):
        assert noise not in done.stderr, done.stderr
    env = command_environment(tmp_path / "home")
    status = conveyor("status", "--store", tmp_path / "state" / "store.db", "--json", env=env)
    assert status.last("status")["repositories"][0]["lease_owner"] is None
