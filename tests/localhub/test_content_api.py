"""Preupload, commit, paths-info and tree over HTTP (hub API notes sections 4, 5 and 8)."""

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.localhub.requests_of_a_client import API, body_of, commit, header, put, put_lfs, remove, upload
from tests.support.local_hub import TOKEN, LocalHubUnderTest, running_local_hub

MOVED = "A commit has happened since. Please refresh and try again."


def ask(client: httpx.Client, files: dict[str, bytes], **more: str) -> dict[str, dict[str, Any]]:
    """Preupload rows by path."""
    rows = [
        {"path": path, "size": len(content), "sample": base64.b64encode(content[:512]).decode()}
        for path, content in files.items()
    ]
    answer = client.post(f"{API}/preupload/main", json={"files": rows, **more})
    answer.raise_for_status()
    return {row["path"]: row for row in answer.json()["files"]}


def test_the_server_decides_inline_or_lfs(client: httpx.Client) -> None:
    """By name, by size, by what the first bytes are; text cut inside a character is still text."""
    cut = "é".encode() * 300
    modes = ask(
        client,
        {
            "a.txt": b"text",
            "b.bin": b"text",
            "c.dat": b"\0\1",
            "d.dat": b"\xff\xfe text of another kind",
            "e.txt": b"x" + cut,
            "f.txt": b"y" * (10 * 1024 * 1024 + 1),
            "g.txt": b"z" * (10 * 1024 * 1024),
            "empty.bin": b"",
        },
    )
    assert {path: row["uploadMode"] for path, row in modes.items()} == {
        "a.txt": "regular",
        "b.bin": "lfs",
        "c.dat": "lfs",
        "d.dat": "lfs",
        "e.txt": "regular",
        "f.txt": "lfs",
        "g.txt": "regular",
        "empty.bin": "lfs",
    }
    assert not any(row["shouldIgnore"] or "oid" in row for row in modes.values())


def test_preupload_tells_the_id_of_what_is_there(client: httpx.Client) -> None:
    """The git blob id of a regular file, the sha256 of an LFS one."""
    upload(client, b"large")
    commit(client, put("a.txt", b"text"), put_lfs("b.bin", b"large")).raise_for_status()
    rows = ask(client, {"a.txt": b"text", "b.bin": b"large"})
    assert rows["a.txt"]["oid"] == hashlib.sha1(b"blob 4\0text").hexdigest()
    assert rows["b.bin"]["oid"] == hashlib.sha256(b"large").hexdigest()


def test_gitignore_of_the_commit_goes_before_that_of_the_repository(client: httpx.Client) -> None:
    """``shouldIgnore`` follows the one that will hold."""
    commit(client, put(".gitignore", b"*.log\n")).raise_for_status()
    assert ask(client, {"x.log": b"1"})["x.log"]["shouldIgnore"]
    assert not ask(client, {"x.log": b"1"}, gitIgnore="*.tmp\n")["x.log"]["shouldIgnore"]


def test_attributes_of_the_repository_are_followed(client: httpx.Client) -> None:
    """Who rewrites ``.gitattributes`` changes what the next preupload answers."""
    commit(client, put(".gitattributes", b"*.txt filter=lfs -text\n")).raise_for_status()
    modes = ask(client, {"a.txt": b"t", "b.bin": b"t"})
    assert [modes["a.txt"]["uploadMode"], modes["b.bin"]["uploadMode"]] == ["lfs", "regular"]


@pytest.mark.parametrize("body", [{}, {"files": [{"path": "a"}]}, {"files": [{"path": "a", "size": 1, "sample": "?"}]}])
def test_a_malformed_preupload_is_400(client: httpx.Client, body: dict[str, Any]) -> None:
    """Missing fields and a sample that is not base64."""
    assert client.post(f"{API}/preupload/main", json=body).status_code == 400


def test_preupload_takes_256_files(client: httpx.Client) -> None:
    """One more is refused; an unknown branch has its own code."""
    rows = [{"path": f"f{n}", "size": 1, "sample": ""} for n in range(257)]
    assert client.post(f"{API}/preupload/main", json={"files": rows[:256]}).status_code == 200
    assert client.post(f"{API}/preupload/main", json={"files": rows}).status_code == 400
    assert client.post(f"{API}/preupload/no", json={"files": []}).headers["X-Error-Code"] == "RevisionNotFound"


def test_a_commit_lands_whole(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Title, description, author, files and deletions are one commit on top of the head."""
    before = hub.head("local/data")
    answer = commit(client, put("a/b", b"1"), put("c", b"2"), summary="first\nmore", description="id: 7")
    assert answer.status_code == 200
    assert answer.json()["commitOid"] == hub.head("local/data")
    assert answer.json()["commitUrl"] == f"{hub.url}/datasets/local/data/commit/{hub.head('local/data')}"
    (row,) = hub.commits("local/data")
    assert (row["parent"], row["title"], row["description"], row["author"]) == (
        before,
        "first",
        "more\n\nid: 7",
        "local",
    )
    assert row["request"] == next(line["n"] for line in hub.requests("commit"))
    commit(client, {"key": "deletedFolder", "value": {"path": "a/"}}, remove("c"), put("d")).raise_for_status()
    names = [item["path"] for item in client.get(f"{API}/tree/main", params={"recursive": "true"}).json()]
    assert names == [".gitattributes", "d"]


def test_a_parent_makes_a_commit_conditional(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """412 in the Hub's words once the head has moved, also for short ids; nothing lands (N-HUB-02)."""
    parent = hub.head("local/data")
    assert commit(client, put("a"), parentCommit=parent[:7]).status_code == 200
    for known in (parent, parent[:5], "0" * 40):
        answer = commit(client, put("b"), parentCommit=known)
        assert (answer.status_code, answer.json()["error"]) == (412, MOVED)
    assert commit(client, put("b"), parentCommit="main").status_code == 400
    assert len(hub.commits("local/data")) == 1


def test_without_a_parent_a_commit_goes_on_top(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Other writers' files are kept."""
    hub.foreign_commit("local/data", {"theirs": "1"})
    commit(client, put("ours")).raise_for_status()
    assert {"theirs", "ours"} <= {row["path"] for row in client.get(f"{API}/tree/main").json()}


def test_a_commit_that_changes_nothing_is_a_commit(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Only the client's own comparison prevents it; the log marks the path as unchanged."""
    first, second = commit(client, put("a")).json()["commitOid"], commit(client, put("a")).json()["commitOid"]
    third = commit(client).json()["commitOid"]
    assert len({first, second, third}) == 3
    rows = hub.commits("local/data")
    assert [[change["action"] for change in row["changes"]] for row in rows] == [["add"], ["unchanged"], []]
    assert len({row["tree"] for row in rows}) == 1


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ([b"{"], "not a JSON object"),
        ([b'{"key":"file"}'], "not a JSON object"),
        ([b'{"key":"file","value":[]}'], "must be an object"),
        ([b'{"key":"other","value":{}}'], "unknown key"),
        ([b'{"key":"file","value":{"path":"a","encoding":"base64","content":"?"}}'], "not base64"),
        ([b'{"key":"file","value":{"path":"a","encoding":"base64"}}'], "content must be a text"),
        ([b'{"key":"lfsFile","value":{"path":"a","algo":"md5","oid":"0","size":1}}'], "sha256"),
    ],
)
def test_malformed_lines_are_400(client: httpx.Client, lines: list[bytes], word: str) -> None:
    """The message names the line."""
    answer = client.post(f"{API}/commit/main", content=body_of(header()) + b"\n".join(lines))
    assert answer.status_code == 400
    assert word in answer.json()["error"]
    assert "line 2" in answer.json()["error"].lower()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        body_of(put("a")),
        body_of(header("")),
        body_of(header(" "), put("a")),
        body_of({"key": "header", "value": {}}),
    ],
)
def test_a_commit_needs_a_header_with_a_summary(client: httpx.Client, body: bytes) -> None:
    """First, and not empty."""
    assert client.post(f"{API}/commit/main", content=body).status_code == 400


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "a/", "./a", "a/../b", "..", ".git/config", "a/.GIT/x", "a\\b", "a\nb", "x" * 256, "a/."]
)
def test_bad_paths_are_400(hub: LocalHubUnderTest, client: httpx.Client, path: str) -> None:
    """One bad path refuses the whole commit."""
    answer = commit(client, put("good"), put(path))
    assert answer.status_code == 400
    assert "Invalid path" in answer.json()["error"]
    assert hub.commits("local/data") == []


def test_file_and_folder_cannot_share_a_name(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """In either order, within one commit and against what is there; replacing one by the other is fine."""
    commit(client, put("a/b")).raise_for_status()
    assert commit(client, put("a")).status_code == 400
    assert commit(client, put("a/b/c")).status_code == 400
    assert commit(client, put("x"), put("x/y")).status_code == 400
    assert commit(client, remove("a/b"), put("a")).status_code == 200
    assert len(hub.commits("local/data")) == 2


def test_deleting_what_is_not_there_is_404(client: httpx.Client) -> None:
    """``EntryNotFound``, exactly as a repeated delete that had landed."""
    answer = commit(client, remove("none"))
    assert (answer.status_code, answer.headers["X-Error-Code"]) == (404, "EntryNotFound")
    assert answer.json()["error"] == "A file with this name doesn't exist"
    gone = commit(client, {"key": "deletedFolder", "value": {"path": "none/"}})
    assert gone.headers["X-Error-Code"] == "EntryNotFound"


def test_limits_of_a_commit(tmp_path: Path) -> None:
    """An inline file above its limit is 400, a body above its limit 413, a folder above its limit 400."""
    limits: dict[str, Any] = {"inline_limit_bytes": 100, "commit_body_limit_bytes": 2000, "folder_limit": 3}
    with (
        running_local_hub(tmp_path / "hub", repositories=("local/data",), **limits) as hub,
        httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client,
    ):
        assert commit(client, put("a", b"x" * 101)).status_code == 400
        assert commit(client, put("a", b"x" * 2000)).status_code == 413
        assert commit(client, *[put(f"d/{n}") for n in range(4)]).status_code == 400
        assert commit(client, *[put(f"d/{n}") for n in range(3)], put("a", b"x" * 100)).status_code == 200
        assert hub.commits("local/data")[0]["request"] == 4


def test_one_commit_at_a_time_a_repository(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """While one is worked on another gets 409 and nothing of it lands; other repositories are free."""
    hub.fault("slow", {"do": "hold_slot"}, kind="commit", nth=1)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(commit, client, put("a"))
        hub.wait_stalled("slow")
        refused = commit(client, put("b"))
        client.post("/api/repos/create", json={"name": "local/other", "type": "dataset"}).raise_for_status()
        free = client.post("/api/datasets/local/other/commit/main", content=body_of(header(), put("b")))
        hub.release("slow")
        assert slow.result().status_code == 200
    assert free.status_code == 200
    assert refused.status_code == 409
    assert refused.json()["error"].startswith("Another commit operation is in progress for this repository")
    assert commit(client, put("b")).status_code == 200


def test_a_pull_request_is_a_ref_of_its_own(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Each ``create_pr`` opens a new one; main stays; the ref can be committed to and read, encoded."""
    head = hub.head("local/data")
    urls = [
        client.post(f"{API}/commit/main?create_pr=1", content=body_of(header(), put(f"f{n}"))).json()["pullRequestUrl"]
        for n in range(2)
    ]
    assert urls == [f"{hub.url}/datasets/local/data/discussions/{n}" for n in (1, 2)]
    assert hub.head("local/data") == head
    assert commit(client, put("g"), revision="refs%2Fpr%2F1").status_code == 200
    names = {row["path"] for row in client.get(f"{API}/tree/refs%2Fpr%2F1").json()}
    assert names == {".gitattributes", "f0", "g"}
    assert len(client.get(f"{API}/refs?include_prs=1").json()["pullRequests"]) == 2


def test_commit_quota_of_a_repository(tmp_path: Path) -> None:
    """The real Hub's hour: words always, ``Retry-After`` where asked for, free again when the oldest has aged."""
    with (
        running_local_hub(
            tmp_path / "hub", repositories=("local/data",), commits_per_hour=2, commit_quota_retry_after=True
        ) as hub,
        httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {TOKEN}"}) as client,
    ):
        assert [commit(client, put(str(n))).status_code for n in range(2)] == [200, 200]
        refused = commit(client, put("c"))
        assert refused.status_code == 429
        assert "You have exceeded the rate limit for repository commits (2 per hour)" in refused.json()["error"]
        assert 3590 <= int(refused.headers["Retry-After"]) <= 3600
        assert "r=0" not in refused.headers["RateLimit"]
        hub.advance(3600)
        assert commit(client, put("c")).status_code == 200


def test_paths_info_by_form_and_by_json(client: httpx.Client) -> None:
    """Unknown paths are left out, a path asked for twice is answered once, folders have tree ids."""
    upload(client, b"large")
    commit(client, put("d/a.txt", b"text"), put_lfs("d/b.bin", b"large")).raise_for_status()
    paths = ["d/a.txt", "d/b.bin", "d", "none", "d"]
    by_form = client.post(f"{API}/paths-info/main", data={"paths": paths, "expand": "false"}).json()
    assert by_form == client.post(f"{API}/paths-info/main", json={"paths": paths}).json()
    file, large, folder = by_form
    assert file == {"type": "file", "oid": hashlib.sha1(b"blob 4\0text").hexdigest(), "size": 4, "path": "d/a.txt"}
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(b'large').hexdigest()}\nsize 5\n"
    assert large["oid"] == hashlib.sha1(f"blob {len(pointer)}\0{pointer}".encode()).hexdigest()
    assert large["lfs"] == {"oid": hashlib.sha256(b"large").hexdigest(), "size": 5, "pointerSize": len(pointer)}
    assert (folder["type"], folder["size"], len(folder["oid"])) == ("directory", 0, 40)


def test_paths_info_limit_and_expansion(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """1,000 paths a request; ``expand`` adds the newest commit that touched the path."""
    many = [f"f{n}" for n in range(1001)]
    assert client.post(f"{API}/paths-info/main", data={"paths": many}).status_code == 413
    assert client.post(f"{API}/paths-info/main", data={"paths": many[:1000]}).json() == []
    first = hub.foreign_commit("local/data", {"d/a": "1"}, title="first")
    hub.foreign_commit("local/data", {"b": "1"})
    rows = client.post(f"{API}/paths-info/main", data={"paths": ["d/a", "d"], "expand": "true"}).json()
    assert [row["lastCommit"]["id"] for row in rows] == [first["id"], first["id"]]
    assert client.post(f"{API}/paths-info/none", data={"paths": "a"}).headers["X-Error-Code"] == "RevisionNotFound"


def test_tree_pages_and_folders(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Every row comes once over all pages; a folder is listed by its encoded path; an unknown one is 404."""
    hub.foreign_commit("local/data", {f"d/e/f{n:02}": "1" for n in range(23)})

    def all_rows(path: str, **query: str) -> list[str]:
        names, url = [], f"{API}/tree/main{path}?{httpx.QueryParams(query)}"
        while url:
            answer = client.get(url)
            names += [row["path"] for row in answer.json()]
            url = answer.links.get("next", {}).get("url", "")
        return names

    expected = sorted([".gitattributes", "d", "d/e", *[f"d/e/f{n:02}" for n in range(23)]])
    assert all_rows("", recursive="true", expand="false") == expected
    assert all_rows("", recursive="true", expand="true") == expected
    assert all_rows("") == [".gitattributes", "d"]
    assert all_rows("/d%2Fe") == expected[3:]
    assert all_rows("/d") == ["d/e"]
    missing = client.get(f"{API}/tree/main/none")
    assert (missing.status_code, missing.headers["X-Error-Code"]) == (404, "EntryNotFound")


def test_a_branch_made_of_a_commit_reads_and_writes_alone(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Commits to it do not move main, and its parent check is its own."""
    head = hub.head("local/data")
    client.post(f"{API}/branch/side", json={"startingPoint": head}).raise_for_status()
    assert commit(client, put("a"), revision="side", parentCommit=head).status_code == 200
    assert hub.head("local/data") == head
    assert commit(client, put("b"), parentCommit=head).status_code == 200
    assert commit(client, put("b"), revision="side", parentCommit=head).status_code == 412
