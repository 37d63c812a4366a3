"""`conveyor deliver`: files, folders and bundles arrive; everything else is refused with what to do, and kept apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from conveyor.runtime.exit_codes import ExitCode
from tests.cli.conftest import READER, Desk

pytestmark = pytest.mark.slow


def sha256(text: str) -> str:
    """The digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_folder_arrives(desk: Desk) -> None:
    """Every file below it, in one commit, under runs/ID; lines are calm without a terminal."""
    place = desk.folder(a__txt="1", b__json="{}")
    (place / "deep").mkdir()
    (place / "deep" / "c.txt").write_text("3")
    done = desk.deliver(place)
    assert done.code == ExitCode.DELIVERED, done.err
    assert done.out.endswith(f"Arrived in {desk.repository}.\n")
    assert "\x1b" not in done.out + done.err
    assert desk.remote() == {
        "runs/run-1/a.txt": sha256("1"),
        "runs/run-1/b.json": sha256("{}"),
        "runs/run-1/deep/c.txt": sha256("3"),
    }
    assert len(desk.hub.commits(desk.repository)) == 1


def test_a_file_with_a_pointer_arrives(desk: Desk) -> None:
    """One file under a prefix of one's own, and the pointer at the top level; `--json` says the same in lines."""
    place = desk.folder(a__txt="1", p__json='{"latest": 1}')
    done = desk.deliver(place / "a.txt", "--prefix", "live", "--pointer", place / "p.json", "--json")
    assert done.code == 0
    assert done.err == ""
    assert done.last("receipt")["pending_files"] == 0
    assert done.last("deliver") == {"type": "deliver", "repository": desk.repository, "run_id": "run-1", "exit": 0}
    assert set(desk.remote()) == {"live/run-1/a.txt", "latest_staging.json"}


def test_a_bundle_arrives_with_an_inventory(desk: Desk) -> None:
    """The folder's files in one commit, with roles by name and by option, and an inventory that nobody had to write."""
    place = desk.folder(data__bin="x" * 1000, loss__json="{}")
    done = desk.deliver(place, "--bundle", "--role", "loss.json=metrics", "--message", "Run 1 is done")
    assert done.code == 0, done.err
    remote = desk.remote()
    assert set(remote) >= {f"staged/run-1/{name}" for name in ("data.bin", "loss.json", "staged_manifest.json")}
    (commit,) = desk.hub.commits(desk.repository)
    assert commit["title"].startswith("Run 1 is done")
    assert sorted(file.name for file in place.iterdir()) == ["data.bin", "loss.json"]
    assert list((desk.store.parent / "inventories").iterdir()) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--bundle", "--role", "nix.txt=metrics"], "is not NAME=ROLE with the name of a file in"),
        (["--bundle", "--role", "metrics"], "is not NAME=ROLE with the name of a file in"),
        (["--bundle", "--pointer", "p.json"], "--pointer belongs to run files"),
        (["--role", "a.txt=metrics"], "--role and --message belong to bundles"),
        (["--message", "m"], "--role and --message belong to bundles"),
    ],
)
def test_options_that_do_not_fit_are_refused(more: list[str], expected: str, desk: Desk) -> None:
    """Status 2 with what is wrong, before anything is opened."""
    done = desk.deliver(desk.folder(a__txt="1"), *more)
    assert done.code == ExitCode.BAD_USE
    assert expected in done.err
    assert not desk.store.parent.exists()


def test_paths_with_nothing_to_deliver_are_refused(desk: Desk) -> None:
    """A missing path, an empty folder, a nested bundle and a file that is none, each by its name."""
    nested = desk.folder("nested", a__txt="1")
    (nested / "sub").mkdir()
    (nested / "sub" / "b.txt").write_text("2")
    special = desk.folder("special", a__txt="1")
    (special / "dangling").symlink_to("nowhere")
    for path, more, expected in (
        (desk.root / "nix", [], f"{desk.root / 'nix'} is no file and no folder"),
        (desk.folder("empty"), [], f"{desk.root / 'empty'} has no files in it"),
        (nested, ["--bundle"], "a bundle is flat"),
        (special, [], f"{special / 'dangling'} is no regular file"),
    ):
        done = desk.deliver(path, *more)
        assert done.code == ExitCode.BAD_USE
        assert expected in done.err
    assert not desk.store.parent.exists()


def test_a_refused_hand_over_names_file_rule_limit_and_next_step(desk: Desk) -> None:
    """What the protocol refuses is status 2, nothing is queued, and programs read it too."""
    large = desk.root / "large"
    large.mkdir()
    with (large / "model.bin").open("wb") as file:
        file.truncate(32 * 1024 * 1024 + 1)
    told = desk.deliver(large)
    assert told.code == ExitCode.BAD_USE
    assert "not taken: " in told.err
    for part in ("model.bin", "33554432", "33554433"):
        assert part in told.err, told.err
    typed = desk.run("deliver", large, "--to", "no-owner", "--run", "r", "--json")
    assert typed.code == ExitCode.BAD_USE
    assert typed.last("receipt")["status"] == "refused"
    assert "OWNER/NAME" in typed.last("error")["message"]
    status = desk.run("status", "--json").last("status")
    assert (status["accepted"], status["waiting"]) == (0, 0)
    assert desk.hub.commits(desk.repository) == []


def test_a_link_to_a_folder_is_refused_and_one_to_a_file_is_followed(desk: Desk) -> None:
    """One policy for links: nothing is passed over in silence (N-TRA-16)."""
    outside = desk.folder("outside", z__txt="z")
    folder = desk.folder(a__txt="1")
    (folder / "linked").symlink_to(outside)
    told = desk.deliver(folder)
    assert told.code == ExitCode.BAD_USE
    assert f"{folder / 'linked'} is a link to a folder, which is not followed" in told.err
    (folder / "linked").unlink()
    (folder / "b.txt").symlink_to(outside / "z.txt")
    assert desk.deliver(folder).code == 0
    assert desk.remote() == {"runs/run-1/a.txt": sha256("1"), "runs/run-1/b.txt": sha256("z")}


def test_without_a_token_it_is_kept_and_said(desk: Desk) -> None:
    """Status 5 at once, with what to do; logging in and draining delivers it (N-CLI-01)."""
    done = desk.deliver(desk.folder(a__txt="1"), token=None)
    assert done.code == ExitCode.PAUSED
    assert "no token was found" in done.out
    assert "Next step: set HF_TOKEN or run `hf auth login`, then `conveyor drain`" in done.out
    drained = desk.run("drain")
    assert (drained.code, drained.out) == (0, "Delivered 1, left over 0.\n")
    assert desk.remote() == {"runs/run-1/a.txt": sha256("1")}


@pytest.mark.parametrize(
    ("token", "repository", "expected"),
    [
        ("hf_canary_of_yesterday", None, "the token is wrong or has expired"),
        (READER, None, "the token may not write to lab/"),
        ("hf_canary_writer", "lab/nowhere", "there is no dataset repository lab/nowhere that the token can see"),
    ],
)
def test_what_needs_a_person_ends_soon(token: str, repository: str | None, expected: str, desk: Desk) -> None:
    """401, 403 and 404 pause the repository: status 5 within bounded time, three different next steps (N-UX-02)."""
    desk.repository = repository or desk.repository
    done = desk.deliver(desk.folder(a__txt="1"), token=token)
    assert done.code == ExitCode.PAUSED, done
    assert f"{desk.repository} is paused: HTTP 40" in done.out
    assert expected in done.out
    status = desk.run("status")
    assert status.code == ExitCode.PAUSED
    assert expected in status.out
    typed = desk.run("status", "--json").last("status")
    assert typed["waiting"] == 1
    assert "HTTP 40" in typed["repositories"][0]["paused_reason"]


def test_a_paused_repository_is_tried_again_when_asked(desk: Desk) -> None:
    """With a good token, drain and deliver do not wait for the back-off of five minutes."""
    desk.deliver(desk.folder(a__txt="1"), token=READER)
    assert desk.run("drain").code == 0
    desk.deliver(desk.folder(a__txt="2"), token="hf_canary_wrong")
    assert desk.deliver(desk.folder(b__txt="2"), run_id="run-2").code == 0
    assert desk.remote()["runs/run-1/a.txt"] == sha256("2")


def test_a_file_that_the_hub_never_takes_is_parked(desk: Desk) -> None:
    """Status 4: the others arrive, the bad one is named with its reason; retried, it arrives (N-HUB-05)."""
    name = f"refused {desk.repository}"
    action = {"do": "status", "status": 400, "error_message": "bad.txt is not welcome"}
    desk.hub.fault(name, action, kind="commit", repo=desk.repository, path="runs/run-1/bad.txt")
    done = desk.deliver(desk.folder(bad__txt="1"))
    assert done.code == ExitCode.PARKED, done
    assert f"parked: {desk.repository} runs/run-1/bad.txt" in done.out
    status = desk.run("status", "--json")
    assert status.code == ExitCode.PARKED
    document = status.last("status")
    assert [line["path"] for line in document["parked_files"]] == ["runs/run-1/bad.txt"]
    assert document["accepted"] == sum(document[key] for key in ("delivered", "superseded", "parked", "waiting"))
    desk.hub.call("POST", "faults", {"rules": [], "replace": True})
    again = desk.run("drain", "--retry-parked")
    assert again.code == 0, again
    assert desk.remote() == {"runs/run-1/bad.txt": sha256("1")}


def test_a_local_hub_needs_no_token_and_no_server(desk: Desk, tmp_path: Path) -> None:
    """With `--local-hub DIR` everything is rehearsed in a directory; the user's own token is not sent there."""
    place = tmp_path / "hub"
    done = desk.deliver(desk.folder(a__txt="1"), "--local-hub", place, token=None)
    assert done.code == 0, done.err
    records = [json.loads(line) for line in (place / "commits.jsonl").read_text().splitlines()]
    assert [record["repo"] for record in records if record.get("origin") == "client"] == [desk.repository]


def test_a_sweep_on_a_hub_wants_write_access(desk: Desk) -> None:
    """Without a token, or with one that may only read, it ends with status 2 before anything is handed over."""
    for token, expected in ((None, "needs a token"), (READER, "the token may not write to")):
        place = desk.root / expected.replace(" ", "-")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(desk.root)
            done = desk.run_plain("sweep", "--jobs", 1, "--to", desk.repository, "--directory", place, token=token)
        assert done.code == ExitCode.BAD_USE, done
        assert expected in done.err
        assert not (place / "expected.jsonl").exists()
    assert desk.hub.commits(desk.repository) == []
