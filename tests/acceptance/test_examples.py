"""The examples and the README's program run as they stand, against a local Hub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.rules import ROOT
from tests.support.command import COMMAND, command_environment
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

pytestmark = pytest.mark.slow

TOKEN = "hf_canary"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A local Hub with the repositories that the examples name."""
    with running_local_hub(tmp_path / "hub", repositories=("acme/staging", "lab/one")) as hub:
        yield hub


def run(command: list[str], place: Path, hub: LocalHubUnderTest, **more: str) -> str:
    """Run an example in a directory of its own; gives what it printed."""
    work = place / "work"
    work.mkdir()
    env = command_environment(place / "home", hub.url, TOKEN) | {"CONVEYOR_STORE_PATH": str(place / "s" / "store.db")}
    done = subprocess.run(command, cwd=work, env=env | more, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    return done.stdout


def landed(hub: LocalHubUnderTest, repository: str) -> set[str]:
    """The paths that clients committed."""
    return {change["path"] for commit in hub.commits(repository) for change in commit["changes"]}


def test_the_program_in_the_readme(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """It delivers what its text says, at the path that its text says."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    run([sys.executable, "-c", program], tmp_path, hub)
    assert landed(hub, "acme/staging") == {"runs/run-1/state.json"}
    assert "`runs/run-1/state.json`" in readme


def test_the_asyncio_example(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Two builds, ten rewrites each, few commits, the newest state of both."""
    out = run([sys.executable, str(ROOT / "examples" / "embedded_asyncio.py"), "lab/one"], tmp_path, hub)
    assert out == "everything has arrived\n"
    assert landed(hub, "lab/one") >= {"runs/run-0/state.json", "runs/run-1/state.json"}
    assert len(hub.commits("lab/one")) <= 3


def test_the_trio_example(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """One bundle in one commit."""
    out = run([sys.executable, str(ROOT / "examples" / "embedded_trio.py"), "lab/one"], tmp_path, hub)
    assert out == "uploaded as lab/one/staged/run-1\n"
    names = {"weights.bin", "metrics.json", "staged_manifest.json"}
    assert landed(hub, "lab/one") >= {f"staged/run-1/{name}" for name in names}
    assert len(hub.commits("lab/one")) == 1


def test_the_shell_example(hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Two states and a bundle, with the command that is installed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "conveyor"
    command.write_text(f"#!/bin/sh\nexec {COMMAND[0]} -c '{COMMAND[2]}' \"$@\"\n")
    command.chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    out = run(["sh", str(ROOT / "examples" / "deliver.sh"), "lab/one", "run-7"], tmp_path, hub, PATH=path)
    assert out.count("Arrived in lab/one.") == 3
    assert landed(hub, "lab/one") >= {"runs/run-7/state.json", "staged/run-7/metrics.json"}


def test_every_example_is_run() -> None:
    """An example without a test would rot."""
    names = {file.name for file in (ROOT / "examples").iterdir() if file.suffix in (".py", ".sh")}
    assert names == {"embedded_asyncio.py", "embedded_trio.py", "deliver.sh"}
