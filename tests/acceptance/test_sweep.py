"""The main job end to end, as a process: verified when undisturbed, delivered once when killed in the middle."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conveyor.runtime.sweep.plan import SweepPlan, sweep_repositories
from conveyor.runtime.sweep.producers import read_expected
from conveyor.runtime.sweep.verify import verify
from tests.support.command import RunningCommand, command_environment, conveyor, running
from tests.support.local_hub import running_local_hub

pytestmark = pytest.mark.slow

JOBS = 12
REPOSITORIES = 2
REWRITES = 5
PLAN = SweepPlan(jobs=JOBS, repositories=sweep_repositories(REPOSITORIES), rewrites=REWRITES)
HAND_OVERS = JOBS * (REWRITES + 1)
SHORT_LEASE = ("--set", "lease_s=15", "--set", "lease_renew_s=5")


@dataclass(frozen=True)
class SweepPlace:
    """The directory of a sweep."""

    root: Path

    @property
    def accepted(self) -> int:
        """Hand-overs that were answered so far."""
        return len(self._lines("expected.jsonl"))

    def commits(self) -> list[dict[str, Any]]:
        """Commits that landed so far, without those that made the repositories."""
        records = [json.loads(line) for line in self._lines("hub/commits.jsonl")]
        return [record for record in records if record["kind"] == "commit" and record["origin"] == "client"]

    def requests(self, kind: str) -> int:
        """Requests of a kind that ended so far."""
        return sum(json.loads(line)["kind"] == kind for line in self._lines("hub/requests.jsonl"))

    def _lines(self, name: str) -> list[str]:
        file = self.root / name
        # A last line without its end is being written.
        return file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []


def gaps_s(commits: list[dict[str, Any]]) -> list[float]:
    """The times between neighbouring commits of each repository, in seconds."""
    found = []
    for repository in {record["repo"] for record in commits}:
        times = sorted(record["time_unix_ms"] for record in commits if record["repo"] == repository)
        found += [(later - earlier) / 1000 for earlier, later in itertools.pairwise(times)]
    return found


def landings(commits: list[dict[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """For each repository and path the SHA-256 of the contents that landed, in order."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in sorted(commits, key=lambda record: int(record["time_unix_ms"])):
        for change in record["changes"]:
            if change["action"] in ("add", "modify"):
                found.setdefault((record["repo"], change["path"]), []).append(change["sha256"])
    return found


@dataclass(frozen=True)
class Undisturbed:
    """Two sweeps that nobody kills; they run beside the other test, because most of a sweep is waiting."""

    root: Path
    told: RunningCommand
    typed: RunningCommand


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """Both sweeps, started."""
    root = tmp_path_factory.mktemp("undisturbed")
    env = command_environment(root / "home")
    sized = ("--jobs", JOBS, "--repositories", REPOSITORIES, "--rewrites", REWRITES)
    with ExitStack() as stack:
        told, typed = (
            stack.enter_context(
                running("sweep", *sized, "--directory", root / name, *more, env=env, place=root / f"{name}-io")
            )
            for name, more in (("told", ()), ("typed", ("--json",)))
        )
        yield Undisturbed(root, told, typed)


MOMENTS: dict[str, Callable[[SweepPlace], bool]] = {
    "while producing": lambda place: place.accepted >= HAND_OVERS // 4,
    "at the first commits": lambda place: bool(place.commits()),
    "while bundles upload": lambda place: place.requests("lfs-put") >= 3,
}


@pytest.mark.timeout(300)
def test_a_killed_sweep_is_delivered_by_a_drain(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """SIGKILL at three moments: everything that was accepted arrives, final bytes land once, commits keep 10 s apart.

    The drain waits for the lease of the killed process, which nobody gave back.
    """
    env = command_environment(tmp_path / "home")
    places = {moment: SweepPlace(tmp_path / moment.replace(" ", "-")) for moment in MOMENTS}
    sized = ("--jobs", JOBS, "--repositories", REPOSITORIES, "--rewrites", REWRITES)
    with ExitStack() as stack:
        sweeps = {
            moment: stack.enter_context(
                running(
                    "sweep",
                    *(*sized, "--directory", place.root, *SHORT_LEASE),
                    env=env,
                    place=tmp_path / f"{place.root.name}-io",
                )
            )
            for moment, place in places.items()
        }
        _kill_each_at_its_moment(sweeps, places)
    assert HAND_OVERS // 4 <= places["while producing"].accepted < HAND_OVERS

    with ExitStack() as stack:
        drains = {
            moment: stack.enter_context(
                running(
                    "drain",
                    *("--store", place.root / "store" / "store.db", "--local-hub", place.root / "hub", *SHORT_LEASE),
                    env=env,
                    place=tmp_path / f"{place.root.name}-drain",
                )
            )
            for moment, place in places.items()
        }
        finished = {moment: drain.finish(150) for moment, drain in drains.items()}

    for moment, place in places.items():
        assert finished[moment].code == 0, (moment, finished[moment])
        assert "left over 0" in finished[moment].out
        _check_arrived_once(place, tmp_path)

    again = conveyor("drain", "--store", places["while producing"].root / "store" / "store.db", env=env)
    assert (again.code, again.out) == (0, "Nothing to do: nothing waits in this store.\n")


@pytest.mark.timeout(180)
def test_a_small_sweep_is_verified(undisturbed: Undisturbed) -> None:
    """It ends with status 0 and a table of 80 columns; with `--json` every line is JSON and the figures agree."""
    tmp_path = undisturbed.root
    people, programs = undisturbed.told.finish(120), undisturbed.typed.finish(120)

    assert people.code == 0, people.err + people.out
    assert "VERIFIED: every byte is there, each landed once, commits at least 10 s apart." in people.out
    assert f"conveyor drain --store {tmp_path}/told/store/store.db --local-hub {tmp_path}/told/hub" in people.out
    table = people.out[people.out.index("Commits, from") : people.out.index("VERIFIED")]
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "sweep/outputs-2" in table

    assert programs.code == 0, programs.err + programs.out
    assert programs.err == ""
    assert {record["type"] for record in programs.records} == {"progress", "sweep"}
    report = programs.last("sweep")
    assert report["verified"] is True
    assert report["hand_overs"] == HAND_OVERS
    assert report["files_read_back"] == JOBS * 8
    assert (report["missing"], report["different"], report["refused"], report["left_over"]) == ([], [], [], 0)
    place = SweepPlace(tmp_path / "typed")
    assert sum(row["commits"] for row in report["repositories"]) == len(place.commits())
    assert min(gaps_s(place.commits()), default=10.0) >= 9.99
    assert not (tmp_path / "typed" / "read-back").exists()


def _kill_each_at_its_moment(sweeps: dict[str, RunningCommand], places: dict[str, SweepPlace]) -> None:
    waiting = dict(sweeps)
    while waiting:
        for moment, sweep in list(waiting.items()):
            if MOMENTS[moment](places[moment]):
                sweep.kill()
                del waiting[moment]
        if waiting:
            next(iter(waiting.values())).wait_for(lambda: True)


def _check_arrived_once(place: SweepPlace, tmp_path: Path) -> None:
    accepted = read_expected(place.root / "expected.jsonl")
    commits = place.commits()
    landed = landings(commits)
    for repository, paths in accepted.items():
        for path, sha256 in paths.items():
            final = landed[repository, path][-1]
            # The last hand-over before the kill may be in the store without its line in the list.
            assert final in {sha256, *_later_contents(path, sha256)}, path
            assert Counter(landed[repository, path])[final] == 1, path
    assert min(gaps_s(commits), default=10.0) >= 9.99, gaps_s(commits)
    heads: dict[str, dict[str, str]] = {}
    for (repository, path), contents in landed.items():
        heads.setdefault(repository, {})[path] = contents[-1]
    with running_local_hub(place.root / "hub") as hub:
        read = verify(heads, endpoint=hub.url, token="hf_reader", cache=tmp_path / "cache")
    assert read.is_good, (read.missing, read.different)


def _later_contents(path: str, sha256: str) -> list[str]:
    """What the producer of a path hands over after the content with this digest."""
    folder, run_id, name = path.split("/")
    if folder != "runs":
        return []
    job = int(run_id.removeprefix("job-"))
    contents = [
        hashlib.sha256(dict(PLAN.run_files(job, rewrite))[name]).hexdigest()
        for rewrite in range(REWRITES)
        if name in dict(PLAN.run_files(job, rewrite))
    ]
    return contents[contents.index(sha256) + 1 :] if sha256 in contents else []
