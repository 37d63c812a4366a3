"""Control calls: foreign commits, clock, logs, and who may not make them."""

from pathlib import Path

import httpx
import pytest

from tests.localhub.requests_of_a_client import API, commit, plain, put
from tests.support.local_hub import LocalHubUnderTest, running_local_hub


def test_a_foreign_commit_by_control_call(hub: LocalHubUnderTest) -> None:
    """The answer is its record; a file by an LFS name becomes an LFS file."""
    record = hub.foreign_commit("local/data", {"a.bin": "1", "b.txt": "2"}, title="theirs")
    assert record["id"] == hub.head("local/data")
    assert [change["lfs"] for change in record["changes"]] == [True, False]
    removed = hub.foreign_commit("local/data", None, delete=["b.txt"])
    assert [change["action"] for change in removed["changes"]] == ["delete"]
    assert [row["id"] for row in hub.commits("local/data", origin="foreign")] == [record["id"], removed["id"]]


@pytest.mark.parametrize(
    ("what", "body", "word"),
    [
        ("commits", {"repo": "local/none"}, "Repository not found"),
        ("commits", {"repo": "x:local/data"}, "no repository type"),
        ("commits", {"repo": "local/data", "files": {"a": 1}}, "files"),
        ("commits", {"repo": "local/data", "delete": ["none"]}, "doesn't exist"),
        ("faults", {"rules": [{"name": "a"}]}, "action"),
        ("clock", {"advance_s": -1}, "advance_s"),
        ("tokens", {}, "revoke"),
        ("nothing", {}, "no control call"),
    ],
)
def test_bad_control_calls_say_what_is_wrong(hub: LocalHubUnderTest, what: str, body: object, word: str) -> None:
    """As the Hub's own refusals do."""
    answer = plain.post(f"{hub.url}/_control/{what}", json=body)
    assert answer.status_code in {400, 404}
    assert word in answer.json()["error"]


def test_a_web_page_cannot_make_control_calls(hub: LocalHubUnderTest) -> None:
    """A browser sends a form or text across origins without asking, JSON it does not."""
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        answer = plain.post(
            f"{hub.url}/_control/tokens", content='{"revoke":true}', headers={"Content-Type": content_type}
        )
        assert answer.status_code == 400


def test_control_can_be_switched_off(tmp_path: Path) -> None:
    """The Hub works on without it."""
    with running_local_hub(tmp_path / "hub", control=False) as hub:
        assert plain.get(f"{hub.url}/_control/state").status_code == 404
        assert plain.get(f"{hub.url}/api/agent-harnesses").status_code == 200


def test_the_clock_moves_commit_times(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """An hour passes for the Hub alone."""
    commit(client, put("a")).raise_for_status()
    hub.advance(3600)
    commit(client, put("b")).raise_for_status()
    first, second = hub.commits("local/data")
    assert 3_600_000 <= second["time_unix_ms"] - first["time_unix_ms"] < 3_660_000


def test_the_log_tells_what_a_request_was(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Kind, repository, status, bytes, user and the commit it made; no token anywhere; the file says the same."""
    landed = commit(client, put("a")).json()["commitOid"]
    client.get(f"{API}/tree/main", headers={"User-Agent": "tester"})
    (row,) = hub.requests("commit")
    assert row["commit"] == landed
    assert (row["method"], row["repo_type"], row["repo"]) == ("POST", "dataset", "local/data")
    assert (row["status"], row["outcome"], row["user"], row["faults"]) == (200, "answered", "local", [])
    assert row["bytes_in"] > 0
    assert row["bytes_out"] > 0
    (tree,) = hub.requests("tree", since=row["n"])
    assert tree["user_agent"] == "tester"
    text = (hub.root / "requests.jsonl").read_text()
    assert text.count("\n") == 2
    assert "hf_" not in text


def test_state_lists_repositories_and_refs(hub: LocalHubUnderTest) -> None:
    """By type and name."""
    (row,) = hub.call("GET", "state")["repositories"]
    assert (row["type"], row["id"], row["private"], list(row["refs"])) == (
        "dataset",
        "local/data",
        False,
        ["refs/heads/main"],
    )
