"""`conveyor drain`: every outcome has its exit status, signals end it in time, and a strange store is left alone."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from conveyor.runtime.exit_codes import ExitCode
from tests.cli.conftest import Desk
from tests.support.command import COMMAND, conveyor, running

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9"


def queue_up(desk: Desk, count: int = 1) -> None:
    """Leave files in the store: handed over without a token."""
    desk.deliver(desk.folder(**{f"f{number}__txt": str(number) for number in range(count)}), token=None)


def test_nothing_to_do(desk: Desk) -> None:
    """Status 0, whether there is no default store or nothing waits in it; three drains make no commit (N-HUB-15)."""
    done = desk.run_plain("drain")
    assert (done.code, done.out.startswith("Nothing to do: there is no store at ")) == (0, True)
    assert desk.deliver(desk.folder(a__txt="1")).code == 0
    for _ in range(3):
        done = desk.run("drain")
        assert (done.code, done.out) == (0, "Nothing to do: nothing waits in this store.\n")
    assert len(desk.hub.commits(desk.repository)) == 1


def test_a_named_store_that_is_not_there_is_a_mistake(desk: Desk) -> None:
    """A wrong path must not look like a job done: status 6, with the path and where it came from; nothing is made."""
    done = desk.run("drain")
    assert done.code == 6
    assert f"there is no store at {desk.store} (from argument store_path)" in done.err
    assert not desk.store.parent.exists()


def test_a_hub_out_of_reach_leaves_it_over(desk: Desk) -> None:
    """With a limit, status 3 after it, and the numbers; the same store delivers when the Hub is back."""
    queue_up(desk, 3)
    done = desk.run("drain", "--within", "1", "--json", HF_ENDPOINT=NOBODY)
    assert done.code == ExitCode.LEFT_OVER
    assert done.last("drain") == {"type": "drain", "delivered": 0, "waiting": 3, "parked": 0, "exit": 3}
    told = desk.run("drain", "--within", "0.1", HF_ENDPOINT=NOBODY)
    assert told.code == ExitCode.LEFT_OVER
    assert "Delivered 0, left over 3." in told.out
    assert f"{desk.repository}: 3 files, 3 B, left over" in told.out
    assert desk.run("status").code == ExitCode.LEFT_OVER
    assert desk.run("drain").code == 0
    assert len(desk.remote()) == 3


def test_the_status_document_adds_up(desk: Desk) -> None:
    """Versioned JSON on one line: accepted = delivered + superseded + parked + waiting, by repository too (N-UX-03)."""
    queue_up(desk, 3)
    desk.deliver(desk.folder(f0__txt="newer"), token=None)
    document = desk.run("status", "--json").last("status")
    assert document["version"] == 1
    assert document["state"] == "stored"
    assert document["accepted"] == 4
    assert document["accepted"] == sum(document[key] for key in ("delivered", "superseded", "parked", "waiting"))
    assert (document["superseded"], document["waiting"]) == (1, 3)
    (line,) = document["repositories"]
    assert line["repository"] == desk.repository
    assert line["waiting_files"] == document["waiting"]
    assert line["waiting_bytes"] == document["waiting_bytes"] == len("newer") + 2
    before = desk.store.read_bytes()
    desk.run("status")
    assert desk.store.read_bytes() == before


def make_foreign(path: Path) -> None:
    """Another program's SQLite database."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()


def make_newer(path: Path) -> None:
    """A store of a later version of Conveyor."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999'")
    connection.close()


def make_damaged(path: Path) -> None:
    """A store with its pages overwritten, the header aside."""
    content = bytearray(path.read_bytes())
    content[100:] = b"\xa5" * (len(content) - 100)
    path.write_bytes(content)


def make_text(path: Path) -> None:
    """No database at all."""
    path.write_text("shopping list: milk, bread, and a good many other things\n" * 20)


@pytest.mark.parametrize("spoil", [make_foreign, make_newer, make_damaged, make_text])
def test_a_store_that_is_none_of_ours_is_left_alone(spoil: object, desk: Desk) -> None:
    """Status 6 from status, drain and deliver, with advice, and the file keeps every byte (N-STO-01)."""
    assert callable(spoil)
    if spoil in (make_newer, make_damaged):
        queue_up(desk)
    else:
        desk.store.parent.mkdir(mode=0o700)
    spoil(desk.store)
    desk.store.chmod(0o600)
    before = desk.store.read_bytes()
    folder = desk.folder(a__txt="1")
    for done in (desk.run("status"), desk.run("drain"), desk.deliver(folder), desk.run("drain", "--json")):
        assert done.code == ExitCode.STORE_UNUSABLE, done
        assert done.err.startswith("conveyor: ")
        assert str(desk.store) in done.err
    assert desk.store.read_bytes() == before
    assert desk.hub.commits(desk.repository) == []


def test_a_directory_is_no_store(desk: Desk) -> None:
    """Status 6, and nothing is put into it."""
    desk.store.mkdir(parents=True, mode=0o700)
    desk.store.parent.chmod(0o700)
    for done in (desk.run("status"), desk.run("drain"), desk.deliver(desk.folder(a__txt="1"))):
        assert done.code == ExitCode.STORE_UNUSABLE, done
    assert list(desk.store.iterdir()) == []


def test_a_directory_open_to_others_is_refused(desk: Desk) -> None:
    """Status 6, with the command that mends it (N-SEC-02)."""
    desk.store.parent.mkdir()
    desk.store.parent.chmod(0o777)
    done = desk.deliver(desk.folder(a__txt="1"))
    assert done.code == ExitCode.STORE_UNUSABLE
    assert "chmod" in done.err
    assert list(desk.store.parent.iterdir()) == []


def test_a_store_that_cannot_be_written_is_left_alone(desk: Desk) -> None:
    """The database's directory is gone read-only in the way that stops root too: its path leads through a file."""
    through = desk.root / "file"
    through.write_text("x")
    desk.store = through / "store.db"
    done = desk.deliver(desk.folder(a__txt="1"))
    assert done.code == ExitCode.STORE_UNUSABLE, done
    assert through.read_text() == "x"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.LEFT_OVER)]
)
def test_a_signal_ends_it_in_time(number: signal.Signals, code: ExitCode, desk: Desk) -> None:
    """The first one stops the waiting, the rest is kept; statuses 130 and 3; what is left is said."""
    queue_up(desk, 2)
    env = desk.environment() | {"HF_ENDPOINT": NOBODY}
    with running("drain", "--store", desk.store, "--set", "shutdown_s=1", env=env, place=desk.root / "io") as drain:
        drain.wait_for(lambda: "commit-failed" in drain.err.read_text())
        drain.signal(number)
        done = drain.finish(20)
    assert done.code == code, done
    assert "conveyor: stopping; what is not delivered in time is kept" in done.err
    assert "Delivered 0, left over 2." in done.out
    assert desk.run("drain").code == 0


def test_a_second_signal_does_not_wait(desk: Desk) -> None:
    """While the last commit stands still for ever, a second SIGTERM ends the process at once (N-RUN-09)."""
    queue_up(desk)
    name = f"stall {desk.repository}"
    desk.hub.fault(name, {"do": "stall_answer"}, kind="commit", repo=desk.repository, times=1)
    try:
        env = desk.environment()
        with running(
            "drain", "--store", desk.store, "--set", "shutdown_s=600", env=env, place=desk.root / "io"
        ) as drain:
            desk.hub.wait_stalled(name)
            drain.signal(signal.SIGTERM)
            drain.wait_for(lambda: "stopping" in drain.err.read_text())
            drain.signal(signal.SIGTERM)
            done = drain.finish(10)
    finally:
        desk.hub.release(name)
    assert done.code == ExitCode.LEFT_OVER
    assert "stopped at once" in done.err
    # The stalled commit had landed: it is found, and not made again.
    assert desk.run("drain").code == 0
    assert len(desk.hub.commits(desk.repository)) == 1


def test_lines_are_calm_and_typed(desk: Desk) -> None:
    """Without a terminal a stage has at most one line a second; with `--json` every line is one (N-CLI-04)."""
    queue_up(desk, 2)
    env = desk.environment() | {"HF_ENDPOINT": NOBODY}
    told = conveyor("drain", "--store", desk.store, "--within", "3", "--set", "shutdown_s=1", env=env)
    assert 1 <= sum(line.startswith("deliver: ") for line in told.err.splitlines()) <= 4
    typed = desk.run("drain", "--json")
    assert typed.code == 0
    assert [record["type"] for record in typed.records][-1] == "drain"
    assert typed.err == ""


def test_log_lines_may_be_json(desk: Desk) -> None:
    """With `log_format=json` every warning on standard error is an object; progress for people is not among them."""
    queue_up(desk)
    more = (
        "--within",
        "0.5",
        "--set",
        "shutdown_s=1",
        "--set",
        "log_format=json",
        "--json",
        "--set",
        "log_level=debug",
    )
    done = desk.run("drain", *more, HF_ENDPOINT=NOBODY)
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert {"level", "logger", "message", "type", "unix_s"} == set(lines[0])
    assert any(line["level"] == "warning" and "commit-failed" in line["message"] for line in lines)


def test_a_terminal_shows_bars(desk: Desk) -> None:
    """On a terminal there are bars, taken away at the end; the result is plain text on standard output."""
    queue_up(desk, 2)
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "drain", "--store", str(desk.store)],
        env=desk.environment() | {"TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(controller, 65_536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(controller)
    assert process.stdout is not None
    out = process.stdout.read().decode()
    process.stdout.close()
    assert process.wait(30) == 0
    assert out == "Delivered 2, left over 0.\n"
    assert b"\x1b[" in shown
    assert b"deliver" in shown
    assert "━".encode() in shown


def test_the_same_hand_over_twice_lands_once(desk: Desk) -> None:
    """A copied store delivers nothing a second time (N-HUB-15)."""
    queue_up(desk)
    shutil.copytree(desk.store.parent, desk.root / "copy")
    assert desk.run("drain").code == 0
    original, desk.store = desk.store, desk.root / "copy" / "store.db"
    done = desk.run("drain")
    assert done.code == 0, done
    assert len(desk.hub.commits(desk.repository)) == 1
    assert desk.remote() == {"runs/run-1/f0.txt": hashlib.sha256(b"0").hexdigest()}
    assert original != desk.store
