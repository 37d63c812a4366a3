"""One local Hub for the tests of the command line, and a place of its own for each test."""

from __future__ import annotations

import io
import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from conveyor.runtime.cli.commands import run
from conveyor.runtime.localhub.options import TokenGrant
from tests.support.command import Finished, command_environment
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

WRITER = "hf_canary_writer"
READER = "hf_canary_reader"

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    """The command sets its logger up; in this process other tests come after it."""
    logger = logging.getLogger("conveyor")
    before = (logger.level, logger.propagate, list(logger.handlers))
    yield
    logger.setLevel(before[0])
    logger.propagate, logger.handlers[:] = before[1], before[2]


@pytest.fixture(scope="session")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHubUnderTest]:
    """A Hub with a token that may write and one that may only read."""
    tokens = (TokenGrant(WRITER, "ann"), TokenGrant(READER, "ben", role="read"))
    root = tmp_path_factory.mktemp("shared-hub") / "hub"
    with running_local_hub(root, tokens=tokens) as hub:
        yield hub


@dataclass
class Desk:
    """Where a test works: a repository, a store, a folder of files, and the command."""

    hub: LocalHubUnderTest
    root: Path
    repository: str
    env: dict[str, str]
    store: Path = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.root / "state" / "store.db"

    def folder(self, name: str = "results", **files: str) -> Path:
        """A folder with these files; `__` in a name is a dot."""
        place = self.root / name
        place.mkdir(exist_ok=True)
        for file, content in files.items():
            (place / file.replace("__", ".")).write_text(content)
        return place

    def environment(self, token: str | None = WRITER) -> dict[str, str]:
        """The environment of a process that works here, with a token or without."""
        return self.env if token is None else self.env | {"HF_TOKEN": token}

    def run(self, command: str, *arguments: object, token: str | None = WRITER, **more: str) -> Finished:
        """Run a command on this store and Hub."""
        return self.run_plain(command, *arguments, "--store", self.store, token=token, **more)

    def run_plain(self, command: str, *arguments: object, token: str | None = WRITER, **more: str) -> Finished:
        """Run a command on this Hub, in this process: its start is most of what a small one costs."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in set(os.environ) - set(self.env):
                patch.delenv(name)
            for name, value in (self.environment(token) | more).items():
                patch.setenv(name, value)
            code = run([command, *map(str, arguments)])
        return Finished(code, out.getvalue(), err.getvalue())

    def deliver(self, path: Path, *more: object, token: str | None = WRITER, run_id: str = "run-1") -> Finished:
        """Deliver a path to the repository."""
        return self.run("deliver", path, "--to", self.repository, "--run", run_id, *more, token=token)

    def remote(self) -> dict[str, str]:
        """Every path of the repository that came from a client, with the SHA-256 that landed last."""
        found: dict[str, str] = {}
        for commit in self.hub.commits(self.repository):
            found |= {change["path"]: change["sha256"] for change in commit["changes"]}
        return found


@pytest.fixture
def desk(shared_hub: LocalHubUnderTest, tmp_path: Path) -> Desk:
    """A repository and a store of the test's own."""
    repository = f"lab/desk-{next(_numbers)}"
    answer = httpx.post(
        f"{shared_hub.url}/api/repos/create",
        json={"type": "dataset", "organization": "lab", "name": repository.partition("/")[2]},
        headers={"Authorization": f"Bearer {WRITER}"},
    )
    answer.raise_for_status()
    return Desk(shared_hub, tmp_path, repository, command_environment(tmp_path / "home", shared_hub.url))


__all__ = ["READER", "WRITER", "Desk"]
