"""The local Hub for tests: on a thread of the test process or as a process of its own, with its control calls."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conveyor.runtime.localhub import HubServeOptions, open_local_hub

TOKEN = "hf_local_writer"


@dataclass
class LocalHubUnderTest:
    """A running local Hub. ``hub_env()`` is what a client process needs in its environment."""

    url: str
    root: Path
    process: "subprocess.Popen[bytes] | None" = None

    def call(self, method: str, what: str, body: object = None) -> Any:
        """A control call; the answer's JSON. Raises ``urllib.error.HTTPError`` for a refusal."""
        data = None if method in {"GET", "DELETE"} else json.dumps(body if body is not None else {}).encode()
        request = urllib.request.Request(
            f"{self.url}/_control/{what}", data=data, method=method, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())

    def fault(self, name: str, action: object, *, times: int | None = None, **match: object) -> None:
        """Add one rule: ``hub.fault("lost", {"do": "land_then_drop"}, kind="commit", nth=1)``."""
        rule = {"name": name, "action": action, "match": match, "times": times}
        self.call("POST", "faults", {"rules": [rule]})

    def faults(self, *rules: object, seed: int = 0, replace: bool = False) -> None:
        """Add rules in the form of a fault script."""
        self.call("POST", "faults", {"rules": rules, "seed": seed, "replace": replace})

    def fired(self, name: str) -> int:
        """How often a rule fired."""
        rules = self.call("GET", "faults")["rules"]
        return next(int(rule["fired"]) for rule in rules if rule["name"] == name)

    def stalled(self) -> list[str]:
        """Names of the rules whose requests stand still now."""
        found: list[str] = self.call("GET", "faults")["stalled"]
        return found

    def wait_stalled(self, rule: str) -> None:
        """Return once a request stands still under this rule; asks the Hub again and again."""
        for _ in range(20_000):
            if rule in self.stalled():
                return
        raise AssertionError(f"No request came to stand still under the rule {rule}.")

    def wait_logged(self, kind: str, amount: int = 1) -> list[dict[str, Any]]:
        """The log rows of this kind, once there are so many; asks the Hub again and again."""
        for _ in range(20_000):
            if len(rows := self.requests(kind)) >= amount:
                return rows
        raise AssertionError(f"Fewer than {amount} requests of kind {kind} ended.")

    def clear_faults(self) -> None:
        """Drop all rules, let stalled requests go on, make revoked tokens valid."""
        self.call("DELETE", "faults")

    def release(self, rule: str | None = None) -> int:
        """Let stalled requests go on; returns how many."""
        return int(self.call("POST", "release", {"rule": rule})["released"])

    def advance(self, seconds: float) -> None:
        """Move the Hub's clock on: quotas, windows and storage addresses age, nobody waits."""
        self.call("POST", "clock", {"advance_s": seconds})

    def revoke_tokens(self) -> None:
        """Refuse every token with 401 until ``clear_faults``."""
        self.call("POST", "tokens", {"revoke": True})

    def foreign_commit(self, repo: str, files: dict[str, str] | None = None, **more: object) -> dict[str, Any]:
        """Another writer commits; returns the commit's record."""
        record: dict[str, Any] = self.call("POST", "commits", {"repo": repo, "files": files, **more})
        return record

    def commits(self, repo: str | None = None, *, origin: str | None = "client") -> list[dict[str, Any]]:
        """Landed commits in order of time, by default those of clients alone; ``origin=None`` for all."""
        rows = self.call("GET", f"commits?repo={repo}" if repo else "commits")
        return [row for row in rows if origin is None or row["origin"] == origin]

    def requests(self, kind: str | None = None, *, since: int = 0) -> list[dict[str, Any]]:
        """Requests that ended, in order of their end; control calls are not among them."""
        rows = self.call("GET", f"log?since={since}")
        return [row for row in rows if kind is None or row["kind"] == kind]

    def head(self, repo: str, ref: str = "refs/heads/main", *, repo_type: str = "dataset") -> str:
        """The commit id a ref stands for."""
        rows = self.call("GET", "state")["repositories"]
        refs = next(row["refs"] for row in rows if row["id"] == repo and row["type"] == repo_type)
        return str(refs[ref])

    def hub_env(self, home: Path, *, token: str | None = TOKEN) -> dict[str, str]:
        """Environment of a client process: this Hub, a scratch home below ``home``, no Xet, no telemetry."""
        env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
        env |= {
            "HOME": str(home),
            "HF_HOME": str(home / "huggingface"),
            "HF_ENDPOINT": self.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        return env if token is None else env | {"HF_TOKEN": token}


@contextlib.contextmanager
def running_local_hub(root: Path, **options: Any) -> Iterator[LocalHubUnderTest]:
    """A local Hub on a thread of this process, on a free port. ``options`` are those of ``HubServeOptions``.

    Objects are not synced to the disk unless ``sync=True`` is given.
    """
    settings = HubServeOptions(root=root, **{"sync": False, "shutdown_grace_s": 1.0, **options})
    started, failures, found = threading.Event(), list[BaseException](), list[Any]()

    async def main() -> None:
        stop = asyncio.Event()
        async with open_local_hub(settings) as served:
            found.extend((served.url, asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="local-hub")
    thread.start()
    started.wait()
    if failures:
        thread.join()
        raise failures[0]
    url, loop, stop = found
    try:
        yield LocalHubUnderTest(url, root)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        if failures:
            raise failures[0]


def start_local_hub_process(root: Path, *arguments: str) -> LocalHubUnderTest:
    """A local Hub as a process that ends with this one; the caller ends it (``process.stdin.close()`` or a signal)."""
    command = [sys.executable, "-m", "conveyor.runtime.localhub", "--root", str(root), "--until-stdin-closes"]
    process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline().decode().split()
    if len(line) != 2 or line[0] != "ready":
        process.communicate()
        raise RuntimeError(f"The local Hub did not start (exit {process.returncode}); see standard error.")
    return LocalHubUnderTest(line[1], root, process)


@contextlib.contextmanager
def local_hub_process(root: Path, *arguments: str) -> Iterator[LocalHubUnderTest]:
    """A local Hub as a process, ended by closing its standard input."""
    hub = start_local_hub_process(root, *arguments)
    assert hub.process is not None
    try:
        yield hub
    finally:
        hub.process.communicate()


__all__ = ["TOKEN", "LocalHubUnderTest", "local_hub_process", "running_local_hub", "start_local_hub_process"]
