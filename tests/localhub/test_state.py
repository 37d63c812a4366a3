"""The directory: born right, rebuilt right, safe against kills, refused when it is not ours."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from conveyor.runtime.localhub import HubRootUnusable
from conveyor.runtime.localhub.landing import CommitDraft, Put, PutLfs, Remove, RemoveFolder, land, squash
from conveyor.runtime.localhub.problems import HubRefusal
from conveyor.runtime.localhub.records import CommitRecord
from conveyor.runtime.localhub.repository import Repository
from conveyor.runtime.localhub.state import HubState, parse_repo_name

MAIN = "refs/heads/main"


def commit(state: HubState, repository: Repository, *operations: Put | PutLfs | Remove | RemoveFolder) -> CommitRecord:
    """Land an unconditional commit on main."""
    return land(state, repository, CommitDraft(MAIN, None, "title", "", "u", operations))


def test_a_repository_is_born_with_one_commit(tmp_path: Path) -> None:
    """The initial commit is by the system and holds the default attributes (hub API notes section 1)."""
    state = HubState(tmp_path / "hub")
    repository, made = state.create("dataset", "a/b")
    assert made
    (record,) = repository.commits.values()
    assert (record.title, record.author, record.origin, record.parent) == ("initial commit", "system", "system", None)
    assert "*.parquet filter=lfs" in repository.text_at(record.id, ".gitattributes")
    assert state.create("dataset", "a/b") == (repository, False)
    state.close()


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """Refs, trees of every commit, contents and times are the same."""
    state = HubState(tmp_path / "hub")
    repository, _ = state.create("dataset", "a/b", private=True)
    digest = repository.objects.add_lfs(b"large")
    first = commit(state, repository, Put("x/y", b"1"), PutLfs("z.bin", digest, 5))
    second = commit(state, repository, Remove("x/y"), Put("x/w", b"2"))
    state.move_ref(repository, "refs/tags/v1", first.id)
    state.move_ref(repository, "refs/heads/gone", first.id)
    state.move_ref(repository, "refs/heads/gone", None)
    state.create("model", "a/c")
    state.delete("model", "a/c")
    trees = {key: dict(repository.tree(key)) for key in repository.commits}
    state.close()

    again = HubState(tmp_path / "hub")
    reread = again.get("dataset", "a/b")
    assert reread.private
    assert reread.refs == {MAIN: second.id, "refs/tags/v1": first.id}
    assert {key: dict(reread.tree(key)) for key in reread.commits} == trees
    assert reread.objects.lfs_path(digest).read_bytes() == b"large"
    assert again.find("model", "a/c") is None
    assert not (tmp_path / "hub" / "repos" / "models" / "a" / "c").exists()
    again.close()


def test_a_commit_record_names_each_path_with_both_digests(tmp_path: Path) -> None:
    """What landed can be proved from ``commits.jsonl`` alone, unchanged paths included."""
    state = HubState(tmp_path / "hub")
    repository, _ = state.create("dataset", "a/b")
    commit(state, repository, Put("f", b"one"), Put("g", b"same"))
    commit(state, repository, Put("f", b"two"), Put("g", b"same"))
    state.close()
    rows = [json.loads(line) for line in (tmp_path / "hub" / "commits.jsonl").read_text().splitlines()]
    changes = {change["path"]: change for change in rows[-1]["changes"]}
    assert changes["f"]["action"] == "modify"
    assert changes["f"]["sha256"] == hashlib.sha256(b"two").hexdigest()
    assert changes["f"]["oid"] == hashlib.sha1(b"blob 3\0two").hexdigest()
    assert changes["f"]["size"] == 3
    assert changes["g"]["action"] == "unchanged"
    assert rows[-1]["parent"] == rows[-2]["id"]


def test_a_killed_birth_is_finished(tmp_path: Path) -> None:
    """A repository whose initial commit was cut off gets it at the next start."""
    state = HubState(tmp_path / "hub")
    state.create("dataset", "a/b")
    state.close()
    journal = tmp_path / "hub" / "commits.jsonl"
    birth = journal.read_bytes().split(b"\n")[0] + b"\n"
    journal.write_bytes(birth + b'{"kind":"commit","repo_ty')
    again = HubState(tmp_path / "hub")
    assert list(again.get("dataset", "a/b").refs) == [MAIN]
    again.close()


WRITER = """
import sys
from pathlib import Path
from conveyor.runtime.localhub.landing import CommitDraft, Put, land
from conveyor.runtime.localhub.state import HubState
state = HubState(Path(sys.argv[1]))
repository, _ = state.create("dataset", "a/b")
number = len(repository.commits)
while True:
    puts = tuple(Put(f"f{n}", f"{number}-{n}".encode()) for n in range(5))
    record = land(state, repository, CommitDraft("refs/heads/main", None, str(number), "", "u", puts))
    print(record.id, flush=True)
    number += 1
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_loses_no_landed_commit(tmp_path: Path) -> None:
    """After SIGKILL every announced commit is there, all its files are whole, and the next process goes on."""
    root, dice = tmp_path / "hub", random.Random(1)
    announced: list[str] = []
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(dice.randint(1, 25)):
            announced.append(process.stdout.readline().decode().strip())
        process.kill()
        announced.extend(line for line in process.stdout.read().decode().split("\n") if len(line) == 40)
        process.stdout.close()
        process.wait()
        state = HubState(root)
        repository = state.get("dataset", "a/b")
        history = [record.id for record in repository.history(repository.refs[MAIN])]
        assert set(announced) <= set(history)
        for entry in repository.tree(repository.refs[MAIN]).values():
            content = repository.objects.blob_path(entry.oid).read_bytes()
            assert hashlib.sha256(content).hexdigest() == entry.sha256
        assert list((repository.objects.folder / "tmp").iterdir()) == []
        state.close()


def test_two_servers_cannot_share_a_directory(tmp_path: Path) -> None:
    """The second is refused with words; the first goes on; after it the directory is free."""
    first = HubState(tmp_path / "hub")
    with pytest.raises(HubRootUnusable, match="being served by another local Hub"):
        HubState(tmp_path / "hub")
    first.create("dataset", "a/b")
    first.close()
    HubState(tmp_path / "hub").close()


def test_a_foreign_directory_is_refused_untouched(tmp_path: Path) -> None:
    """Serving somebody's home by mistake writes nothing of ours beside the lock."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(HubRootUnusable, match=r"not a local Hub's directory .*thesis\.tex"):
        HubState(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "lock"}


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """An older program does not guess what a newer one wrote."""
    HubState(tmp_path / "hub").close()
    (tmp_path / "hub" / "hub.json").write_text('{"format": 2, "secret": "00"}')
    with pytest.raises(HubRootUnusable, match="format 2, this version knows up to 1"):
        HubState(tmp_path / "hub")


@pytest.mark.parametrize("name", ["a", "a/b/c", "a/", "-a/b", "a/b.git", "a/b..c", "a/b--c", "a/b-", "../b", "a/ b"])
def test_bad_repository_names_are_refused(tmp_path: Path, name: str) -> None:
    """A name can never leave the directory, and the rule is named."""
    state = HubState(tmp_path / "hub")
    with pytest.raises(HubRefusal, match="NAMESPACE/NAME") as caught:
        state.create("dataset", name)
    assert caught.value.status == 400
    state.close()


def test_a_deleted_repository_takes_no_commit(tmp_path: Path) -> None:
    """A request that found the repository before it was deleted cannot write a record for it."""
    state = HubState(tmp_path / "hub")
    repository, _ = state.create("dataset", "a/b")
    state.delete("dataset", "a/b")
    for attempt in (
        lambda: commit(state, repository, Put("x", b"")),
        lambda: state.move_ref(repository, "refs/tags/t", "0" * 40),
        lambda: squash(state, repository, MAIN, "t", "u"),
    ):
        with pytest.raises(HubRefusal, match="Repository not found"):
            attempt()
    state.close()
    HubState(tmp_path / "hub").close()


def test_squash_keeps_files_and_drops_history(tmp_path: Path) -> None:
    """One commit without parent holds the same tree."""
    state = HubState(tmp_path / "hub")
    repository, _ = state.create("dataset", "a/b")
    before = commit(state, repository, Put("x", b"1"))
    after = squash(state, repository, MAIN, "squashed", "u")
    assert after.parent is None
    assert after.tree == before.tree
    assert dict(repository.tree(after.id)) == dict(repository.tree(before.id))
    assert [record.id for record in repository.history(repository.refs[MAIN])] == [after.id]
    state.close()


def test_times_never_run_backwards_on_a_branch(tmp_path: Path) -> None:
    """A clock set back does not reorder the history."""
    times = iter([5_000, 5_000, 1_000])
    state = HubState(tmp_path / "hub", now_unix_ms=lambda: next(times))
    repository, _ = state.create("dataset", "a/b")
    assert commit(state, repository, Put("x", b"1")).time == "1970-01-01T00:00:05.000Z"
    state.close()


def test_repository_names_with_types() -> None:
    """The type may be written in front, as prefix or as folder."""
    assert parse_repo_name("a/b") == ("dataset", "a/b")
    assert parse_repo_name("model:a/b") == ("model", "a/b")
    assert parse_repo_name("datasets/a/b") == ("dataset", "a/b")
    with pytest.raises(ValueError, match="no repository type"):
        parse_repo_name("thing:a/b")
