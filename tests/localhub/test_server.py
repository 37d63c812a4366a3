"""The Hub as a process and on sockets: readiness, ends, many clients, and silence."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from conveyor.runtime.localhub import HubHostRefused, HubServeOptions, open_local_hub
from conveyor.runtime.localhub.__main__ import main
from tests.localhub.requests_of_a_client import body_of, header, plain, put
from tests.support.local_hub import (
    TOKEN,
    LocalHubUnderTest,
    local_hub_process,
    running_local_hub,
    start_local_hub_process,
)

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def commit_to(url: str, repo: str, path: str, content: bytes) -> httpx.Response:
    """Post a commit with one file, with a client of its own."""
    with httpx.Client(verify=False, headers=HEADERS, timeout=60) as client:
        body = body_of(header(), put(path, content))
        return client.post(f"{url}/api/datasets/{repo}/commit/main", content=body)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "hub.example"])
def test_only_loopback_without_an_explicit_flag(tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal says why and what to do; nothing was made."""
    options = HubServeOptions(root=tmp_path / "hub", host=host)

    async def start() -> None:
        async with open_local_hub(options):
            pass

    with pytest.raises(HubHostRefused, match=r"could read and change .* --allow-other-hosts"):
        asyncio.run(start())
    assert not (tmp_path / "hub").exists()
    assert main(["--root", str(tmp_path / "hub"), "--host", host]) == 2
    assert "--allow-other-hosts" in capsys.readouterr().err


def test_another_host_with_the_flag(tmp_path: Path) -> None:
    """Who says so explicitly may."""
    with running_local_hub(tmp_path / "hub", host="0.0.0.0", allow_other_hosts=True) as hub:
        port = hub.url.rpartition(":")[2]
        assert plain.get(f"http://127.0.0.1:{port}/api/agent-harnesses").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stdin", "SIGTERM", "SIGINT"])
def test_a_process_says_ready_and_ends_cleanly(tmp_path: Path, end: str) -> None:
    """One line on standard output, exit 0, silence on standard error, the port closed and the directory free."""
    command = [
        sys.executable,
        "-m",
        "conveyor.runtime.localhub",
        "--root",
        str(tmp_path / "hub"),
        "--until-stdin-closes",
    ]
    process = subprocess.Popen(
        [*command, "--repository", "a/b"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    ready, url = process.stdout.readline().decode().split()
    assert ready == "ready"
    assert commit_to(url, "a/b", "x", b"1").status_code == 200
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as stuck:
        stuck.sendall(b"POST /api/datasets/a/b/commit/main HTTP/1.1\r\nHost: x\r\n")
        if end != "stdin":
            process.send_signal(getattr(signal, end))
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"")
    with pytest.raises(httpx.ConnectError):
        plain.get(url)
    with running_local_hub(tmp_path / "hub") as again:
        assert len(again.commits("a/b")) == 1


@pytest.mark.slow
def test_a_killed_process_leaves_its_commits_and_no_number_twice(tmp_path: Path) -> None:
    """After SIGKILL the log goes on behind the last request, and both files agree."""
    hub = start_local_hub_process(tmp_path / "hub", "--create-missing", "--no-sync")
    assert hub.process is not None
    for number in range(3):
        assert commit_to(hub.url, "a/b", str(number), b"1").status_code == 200
    hub.process.kill()
    hub.process.communicate()
    with (tmp_path / "hub" / "requests.jsonl").open("ab") as log:
        log.write(b'{"n":')
    with local_hub_process(tmp_path / "hub") as again:
        assert commit_to(again.url, "a/b", "late", b"1").status_code == 200
        commits = again.commits("a/b")
    assert [change["path"] for row in commits for change in row["changes"]] == ["0", "1", "2", "late"]
    assert len({row["request"] for row in commits}) == 4


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--faults", "none.toml"], "none.toml cannot be read"),
        (["--tokens", "none.json"], "none.json"),
        (["--repository", "thing:a/b"], "no repository type"),
    ],
)
def test_bad_use_is_exit_2_with_words(
    tmp_path: Path, arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and what was wrong."""
    assert main(["--root", str(tmp_path / "hub"), *arguments]) == 2
    message = capsys.readouterr().err
    assert word in message
    assert "Traceback" not in message


def test_a_taken_port_is_named(hub: LocalHubUnderTest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two servers on one port are refused, not shared."""
    port = hub.url.rpartition(":")[2]
    assert main(["--root", str(tmp_path / "other"), "--port", port]) == 2
    assert "address already in use" in capsys.readouterr().err.lower()


@pytest.mark.slow
def test_128_clients_at_once(tmp_path: Path) -> None:
    """Each has a connection of its own; every commit is answered and lands once (409 is asked again)."""
    repos = tuple(f"a/r{n}" for n in range(8))

    def client_work(number: int) -> int:
        while True:
            answer = commit_to(hub.url, repos[number % 8], f"f{number}", str(number).encode())
            if answer.status_code != 409:
                return answer.status_code

    with running_local_hub(tmp_path / "hub", repositories=repos) as hub, ThreadPoolExecutor(128) as pool:
        assert set(pool.map(client_work, range(128))) == {200}
        landed = [change["path"] for row in hub.commits() for change in row["changes"]]
    assert sorted(landed) == sorted(f"f{number}" for number in range(128))


def test_noise_on_a_connection_is_answered_and_not_logged(
    hub: LocalHubUnderTest, client: httpx.Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Garbage, an early close and a lost answer leave no traceback and no log line behind."""
    port = int(hub.url.rpartition(":")[2])
    for noise in (b"", b"GET /api/datasets/local/data HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        socket.create_connection(("127.0.0.1", port)).close()
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(noise)
    hub.fault("lost", {"do": "drop_before", "reset": True}, times=1)
    with pytest.raises(httpx.TransportError):
        client.get("/api/whoami-v2")
    assert client.get("/api/whoami-v2").status_code == 200
    assert [record for record in caplog.records if "httpx" not in record.name] == []
    assert capfd.readouterr() == ("", "")


def test_a_directory_that_fails_is_a_500_with_words(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The commit is refused, nothing is recorded, and the Hub goes on once the directory is well again."""
    blobs = hub.root / "repos" / "datasets" / "local" / "data" / "blobs"
    blobs.rename(blobs.with_name("away"))
    blobs.touch()
    answer = client.post("/api/datasets/local/data/commit/main", content=body_of(header(), put("a")))
    assert answer.status_code == 500
    assert f"cannot use its directory {hub.root}" in answer.json()["error"]
    assert hub.commits("local/data") == []
    blobs.unlink()
    blobs.with_name("away").rename(blobs)
    answer = client.post("/api/datasets/local/data/commit/main", content=body_of(header(), put("a")))
    assert answer.status_code == 200


def test_private_files_are_private(hub: LocalHubUnderTest) -> None:
    """The secret that signs storage addresses, and the logs, are their owner's alone."""
    for name in ("hub.json", "commits.jsonl", "requests.jsonl", "lock"):
        assert os.stat(hub.root / name).st_mode & 0o077 == 0, name


def test_a_download_that_nobody_takes_ends(tmp_path: Path) -> None:
    """A client that leaves in the middle of a large answer ends it; the log says so."""
    with running_local_hub(tmp_path / "hub", repositories=("a/b",)) as hub:
        size = 9 * 1024 * 1024
        assert commit_to(hub.url, "a/b", "x.txt", b"x" * size).status_code == 200
        hub.fault("held", {"do": "stall_answer", "after_bytes": 300_000}, kind="resolve")
        with socket.create_connection(("127.0.0.1", int(hub.url.rpartition(":")[2]))) as raw:
            raw.sendall(b"GET /datasets/a/b/resolve/main/x.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            hub.wait_stalled("held")
        (row,) = hub.wait_logged("resolve")
        assert row["outcome"] == "dropped"
        assert row["bytes_out"] < size
        hub.clear_faults()
        with socket.create_connection(("127.0.0.1", int(hub.url.rpartition(":")[2]))) as raw:
            raw.sendall(b"GET /datasets/a/b/resolve/main/x.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            assert raw.recv(9) == b"HTTP/1.1 "
        assert hub.wait_logged("resolve", 2)[1]["outcome"] == "disconnected"
