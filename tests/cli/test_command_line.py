"""The shape of the command line: version, help, bad use; nothing is started or changed by any of it (N-CLI-01)."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from conveyor.runtime.cli.commands import run
from conveyor.runtime.exit_codes import ExitCode
from tests.support.command import COMMAND, command_environment, conveyor

COMMANDS = ["sweep", "deliver", "status", "drain", "hub", "hub serve"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """It is the installed distribution's."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"conveyor {version('conveyor')}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command explains itself within 80 columns."""
    assert run([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: conveyor")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Commands:"),
        (["nix"], "No such command 'nix'"),
        (["deliver"], "Missing argument"),
        (["deliver", "x"], "Missing option '--to'"),
        (["status", "--nix"], "No such option: --nix"),
        (["drain", "--within", "-1"], "greater than or equal to 0"),
        (["drain", "--within", "soon"], "valid number"),
        (["sweep", "--jobs", "0"], "greater than or equal to 1"),
        (["drain", "--set", "nix"], "--set 'nix' is not NAME=VALUE"),
        (["drain", "--set", "nix=1"], "nix (from an argument) is not a setting"),
        (["drain", "--set", "lease_s=1"], "must be a number from 3 to 3600 s"),
        (["drain", "--settings", "/nix.toml"], "settings file /nix.toml cannot be read"),
        (["drain", "--endpoint", "ftp://x"], "setting endpoint"),
    ],
)
def test_bad_use(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unusable command line is status 2 and one clear message, and nothing is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONVEYOR_STORE_PATH", str(tmp_path / "state" / "store.db"))
    assert run(arguments) == ExitCode.BAD_USE
    captured = capsys.readouterr()
    assert expected in captured.err + captured.out
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_a_json_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    """With `--json`, programs read the error where they read the rest; people still see it on standard error."""
    assert run(["drain", "--json", "--set", "lease_s=1"]) == ExitCode.BAD_USE
    captured = capsys.readouterr()
    error = json.loads(captured.out)
    assert (error["type"], error["code"], error["exit"]) == ("error", "INVALID_SETTING", 2)
    assert captured.err == f"conveyor: {error['message']}\n"


def test_a_sweep_wants_a_directory_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory with anything in it is refused, untouched."""
    (tmp_path / "mine.txt").write_text("mine")
    assert run(["sweep", "--directory", str(tmp_path)]) == ExitCode.BAD_USE
    assert "is not empty; a sweep needs a directory of its own" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    """`conveyor status | true` ends as it would have ended otherwise, without a complaint."""
    env = command_environment(tmp_path / "home")
    process = subprocess.Popen(
        [*COMMAND, "status", "--store", str(tmp_path / "s" / "store.db")],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 0


@pytest.mark.slow
def test_a_defect_is_one_line_and_tells_no_text(tmp_path: Path) -> None:
    """An error that nobody foresaw is status 1: its kind and place, never its words; debug logging adds the frames."""
    plant = (
        "import sys; import conveyor.runtime.cli.status as s\n"
        "async def broken(settings): raise KeyError('canary-secret')\n"
        "s.read_stored_status = broken\n"
        "from conveyor.runtime.cli import main; main()"
    )
    store = tmp_path / "s" / "store.db"
    store.parent.mkdir(mode=0o700)
    store.touch()
    for more, has_frames in ([], False), (["--set", "log_level=debug"], True):
        done = subprocess.run(
            [sys.executable, "-c", plant, "status", "--store", str(store), *more],
            env=command_environment(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == ExitCode.INTERNAL_ERROR
        assert "internal error, KeyError in <string>, line 2" in done.stderr
        assert "canary" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert (len(done.stderr.splitlines()) > 1) is has_frames


@pytest.mark.slow
def test_status_of_a_store_that_is_not_there(tmp_path: Path) -> None:
    """It says so, ends with 0, and makes nothing."""
    env = command_environment(tmp_path / "home")
    store = tmp_path / "state" / "store.db"
    done = conveyor("status", "--store", store, env=env)
    assert (done.code, done.out) == (0, f"There is no store at {store} yet: nothing was handed over.\n")
    typed = conveyor("status", "--store", store, "--json", env=env)
    assert typed.last("status")["state"] == "absent"
    assert not store.parent.exists()
