"""What each scripted fault does on the wire, and whether the request took effect (hub API notes sections 5, 6, 12)."""

import hashlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.localhub.requests_of_a_client import API, batch, body_of, commit, header, plain, put, put_lfs, upload
from tests.support.local_hub import TOKEN, LocalHubUnderTest, running_local_hub

TEXT = "/datasets/local/data/resolve/main/a.txt"
IDENTITY = {"Accept-Encoding": "identity"}


def landed(hub: LocalHubUnderTest) -> int:
    """Commits of clients that landed."""
    return len(hub.commits("local/data"))


def test_status_instead_of_doing_it(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Nothing lands; code, words and headers are those of the script; the next request is untouched."""
    action = {
        "do": "status",
        "status": 503,
        "error_code": "X",
        "error_message": "be patient",
        "retry_after_s": 7,
        "headers": {"X-More": "1"},
    }
    hub.fault("busy", action, kind="commit", times=1)
    answer = commit(client, put("a"))
    assert answer.status_code == 503
    assert answer.json() == {"error": "be patient"}
    headers = [answer.headers[name] for name in ("X-Error-Code", "X-Error-Message", "Retry-After", "X-More")]
    assert headers == ["X", "be patient", "7", "1"]
    assert landed(hub) == 0
    assert commit(client, put("a")).status_code == 200
    assert hub.fired("busy") == 1


@pytest.mark.parametrize(("body", "content"), [("gone", b"gone"), ({"a": 1}, b'{"a":1}')])
def test_status_with_a_body(hub: LocalHubUnderTest, client: httpx.Client, body: object, content: bytes) -> None:
    """Text or JSON, as the script says."""
    hub.fault("f", {"do": "status", "status": 500, "body": body})
    assert client.get(API).content == content


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(("do", "lands"), [("drop_before", 0), ("land_then_drop", 1)])
def test_a_lost_answer(hub: LocalHubUnderTest, client: httpx.Client, do: str, lands: int, reset: bool) -> None:
    """The connection ends without an answer; whether the commit landed is the whole difference (N-HUB-03)."""
    hub.fault("lost", {"do": do, "reset": reset}, kind="commit", times=1)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        commit(client, put("a"))
    assert landed(hub) == lands
    (row,) = hub.wait_logged("commit")
    assert (row["outcome"], row["status"], row["faults"]) == ("dropped", 0, ["lost"])
    assert commit(client, put("b")).status_code == 200


@pytest.mark.parametrize("status", [500, 504])
def test_an_error_after_landing(hub: LocalHubUnderTest, client: httpx.Client, status: int) -> None:
    """The answer says failed, the commit is there."""
    hub.fault("liar", {"do": "land_then_status", "status": status}, kind="commit", times=1)
    assert commit(client, put("a")).status_code == status
    assert landed(hub) == 1


def test_a_lost_answer_of_an_upload(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Not only commits: the object is there though its PUT seemed to fail."""
    hub.fault("lost", {"do": "land_then_drop"}, kind="lfs-put")
    (row,) = batch(client, b"abc")
    with pytest.raises(httpx.TransportError):
        plain.put(row["actions"]["upload"]["href"], content=b"abc")
    assert "actions" not in batch(client, b"abc")[0]


def test_rate_limits(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """API quota: ``r=0`` and the reset time. Commit quota: the Hub's words, with requests left."""
    hub.fault("api", {"do": "rate_limit", "reset_s": 42}, kind="tree", times=1)
    api = client.get(f"{API}/tree/main")
    assert api.status_code == 429
    assert api.headers.get_list("RateLimit") == ['"api";r=0;t=42']
    assert "Retry-After" not in api.headers
    hub.fault("commits", {"do": "rate_limit", "scope": "commits", "retry_after_s": 5}, kind="commit", times=1)
    limited = commit(client, put("a"))
    assert limited.status_code == 429
    assert "rate limit for repository commits (128 per hour)" in limited.json()["error"]
    assert limited.headers["Retry-After"] == "5"
    assert "r=0" not in limited.headers["RateLimit"]
    assert landed(hub) == 0


@pytest.mark.parametrize(("cut", "received"), [(3, 3), (0, 0), (None, 5)])
def test_a_truncated_body(hub: LocalHubUnderTest, client: httpx.Client, cut: int | None, received: int) -> None:
    """The announced length is true, the bytes end early."""
    commit(client, put("a.txt", b"0123456789")).raise_for_status()
    hub.fault("cut", {"do": "truncate", "after_bytes": cut}, kind="resolve")
    got: list[bytes] = []

    def read_all(answer: httpx.Response) -> None:
        for chunk in answer.iter_raw():
            got.append(chunk)

    with client.stream("GET", TEXT, headers=IDENTITY) as answer:
        assert answer.headers["Content-Length"] == "10"
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            read_all(answer)
    assert b"".join(got) == b"0123456789"[:received]


def test_a_truncated_commit_answer(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """A 200 whose body cannot be read: landed, and the client does not know."""
    hub.fault("cut", {"do": "truncate"}, kind="commit")
    with pytest.raises(httpx.RemoteProtocolError):
        commit(client, put("a"))
    assert landed(hub) == 1


def test_a_corrupt_download(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """One byte differs, the length does not; also through the redirect to storage."""
    commit(client, put("a.txt", b"0123456789")).raise_for_status()
    upload(client, b"large-content")
    commit(client, put_lfs("b.bin", b"large-content")).raise_for_status()
    hub.fault("flip", {"do": "corrupt", "at_byte": 4}, kind=["resolve", "download"])
    assert client.get(TEXT, headers=IDENTITY).content == b"0123" + bytes([ord("4") ^ 0xFF]) + b"56789"
    large = client.get("/datasets/local/data/resolve/main/b.bin", follow_redirects=True).content
    assert len(large) == 13
    assert [n for n in range(13) if large[n] != b"large-content"[n]] == [4]


def test_a_foreign_commit_moves_the_head_first(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The client's parent is stale by the time its commit is handled (N-HUB-02)."""
    parent = hub.head("local/data")
    files = {"theirs.txt": "1", "theirs.bin": "2"}
    hub.fault("rival", {"do": "foreign_commit", "files": files, "title": "rival"}, kind="commit", times=1)
    assert commit(client, put("a"), parentCommit=parent).status_code == 412
    (rival,) = hub.commits("local/data", origin="foreign")
    assert (rival["title"], rival["author"], rival["parent"]) == ("rival", "another-writer", parent)
    assert [(change["path"], change["lfs"]) for change in rival["changes"]] == [
        ("theirs.txt", False),
        ("theirs.bin", True),
    ]
    assert commit(client, put("a"), parentCommit=rival["id"]).status_code == 200


def test_a_foreign_commit_may_delete_or_be_generated(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Generated ones differ each time, so that each moves the tree."""
    commit(client, put("a")).raise_for_status()
    hub.fault("rival", {"do": "foreign_commit", "delete": ["a"]}, kind="tree", times=1)
    assert "a" not in [row["path"] for row in client.get(f"{API}/tree/main").json()]
    hub.clear_faults()
    hub.fault("rival", {"do": "foreign_commit"}, kind="repo-info")
    heads = {client.get(API).json()["sha"] for _ in range(3)}
    trees = {row["tree"] for row in hub.commits("local/data", origin="foreign")}
    assert (len(heads), len(trees)) == (3, 4)


def test_reads_by_name_may_lag(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Listing, tree, info, paths and content are those before the commit; by its id it is there (section 12)."""
    before = hub.head("local/data")
    landed_id = commit(client, put("a.txt", b"new")).json()["commitOid"]
    kinds = ["commits", "tree", "repo-info", "paths-info", "resolve", "preupload"]
    hub.fault("lag", {"do": "lag"}, kind=kinds)
    assert [row["id"] for row in client.get(f"{API}/commits/main").json()] == [before]
    assert client.get(API).json()["sha"] == before
    assert [row["path"] for row in client.get(f"{API}/tree/main").json()] == [".gitattributes"]
    assert client.post(f"{API}/paths-info/main", data={"paths": ["a.txt"]}).json() == []
    assert client.head(TEXT).status_code == 404
    files = [{"path": "a.txt", "size": 3, "sample": ""}]
    assert "oid" not in client.post(f"{API}/preupload/main", json={"files": files}).json()["files"][0]
    assert client.get(f"{API}/commits/{landed_id}").json()[0]["id"] == landed_id
    assert client.get(TEXT.replace("main", landed_id)).content == b"new"
    assert commit(client, put("b"), parentCommit=before).status_code == 412
    hub.fault("lag", {"do": "lag", "commits": 99}, kind=kinds)
    assert [row["id"] for row in client.get(f"{API}/commits/main").json()] == [before]


def test_expired_grants(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The batch answer looks good, the PUT is 403; the next batch answer is good again."""
    hub.fault("late", {"do": "expire_grant"}, kind="lfs-batch", times=1)
    (row,) = batch(client, b"abc")
    assert plain.put(row["actions"]["upload"]["href"], content=b"abc").status_code == 403
    (row,) = batch(client, b"abc")
    assert plain.put(row["actions"]["upload"]["href"], content=b"abc").status_code == 200


def test_a_revoked_token(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """From this request on it is 401, for this token alone, until faults are cleared (N-HUB-13)."""
    hub.fault("revoked", {"do": "revoke_token"}, kind="commit", times=1)
    assert commit(client, put("a")).status_code == 401
    assert client.get("/api/whoami-v2").status_code == 401
    other = {"Authorization": "Bearer hf_other"}
    assert plain.get(f"{hub.url}/api/whoami-v2", headers=other).status_code == 200
    assert landed(hub) == 0
    hub.clear_faults()
    assert client.get("/api/whoami-v2").status_code == 200
    hub.revoke_tokens()
    assert plain.get(f"{hub.url}/api/whoami-v2", headers=other).status_code == 401


def test_a_path_can_be_refused(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """A rule finds paths inside bodies: the bad item is refused wherever it is named, others go on (N-HUB-05)."""
    refuse = {"do": "status", "status": 400, "error_message": "bad.txt is refused"}
    hub.fault("bad", refuse, path="*bad.txt", kind=["commit", "preupload", "paths-info"])
    assert commit(client, put("good"), put("x/bad.txt")).json() == {"error": "bad.txt is refused"}
    assert commit(client, put("good")).status_code == 200
    files = [{"path": "bad.txt", "size": 1, "sample": ""}]
    assert client.post(f"{API}/preupload/main", json={"files": files}).status_code == 400
    assert client.post(f"{API}/paths-info/main", data={"paths": ["bad.txt"]}).status_code == 400
    assert client.post(f"{API}/paths-info/main", json={"paths": ["ok.txt"]}).status_code == 200
    digest = hashlib.sha256(b"abc").hexdigest()
    hub.fault("object", {"do": "status", "status": 500}, path=digest, kind=["lfs-batch", "lfs-put"])
    with pytest.raises(httpx.HTTPStatusError):
        batch(client, b"abc")
    assert batch(client, b"abx")[0]["actions"]


def test_actions_of_a_rule_go_in_order(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """A rival commit, then the own one lands, then its answer is lost."""
    actions = [{"do": "foreign_commit"}, {"do": "land_then_drop"}]
    hub.fault("both", actions, kind="commit", times=1)
    with pytest.raises(httpx.TransportError):
        commit(client, put("a"))
    origins = [row["origin"] for row in hub.commits("local/data", origin=None)]
    assert origins == ["system", "foreign", "client"]


def test_a_delay_is_waited_before_and_after(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The answer comes late, the commit lands in between; the log has the duration."""
    hub.fault("slow", {"do": "delay", "before_s": 0.02, "after_s": 0.02, "hold_s": 0.02}, kind="commit")
    assert commit(client, put("a")).status_code == 200
    assert hub.wait_logged("commit")[0]["duration_ms"] >= 60


def test_a_held_commit_lands_after_its_client_left(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """A client that gives up waiting may see its commit appear later (hub API notes section 12)."""
    hub.fault("late", {"do": "hold_slot"}, kind="commit", times=1)
    with pytest.raises(httpx.ReadTimeout):
        client.post(f"{API}/commit/main", content=body_of(header(), put("a")), timeout=0.2)
    hub.wait_stalled("late")
    assert landed(hub) == 0
    assert commit(client, put("b")).status_code == 409
    assert hub.release("late") == 1
    assert hub.wait_logged("commit", 2)[-1]["outcome"] == "disconnected"
    assert landed(hub) == 1


def test_a_stalled_upload_goes_on_when_released(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The Hub stops reading in the middle of the body; released, it takes the rest."""
    content = bytes(8 * 1024 * 1024)
    with running_local_hub(hub.root.parent / "other", repositories=("local/data",)) as other:
        other.fault("stall", {"do": "stall_request", "after_bytes": 100_000}, kind="lfs-put")
        with httpx.Client(base_url=other.url, headers={"Authorization": f"Bearer {TOKEN}"}) as writer:
            (row,) = batch(writer, content)
            with ThreadPoolExecutor() as pool:
                sending = pool.submit(plain.put, row["actions"]["upload"]["href"], content=content, timeout=30)
                other.wait_stalled("stall")
                assert not sending.done()
                assert "actions" in batch(writer, content)[0]
                other.release()
                assert sending.result().status_code == 200
            assert "actions" not in batch(writer, content)[0]


@pytest.mark.parametrize("after_bytes", [0, 4])
def test_a_stalled_answer(hub: LocalHubUnderTest, client: httpx.Client, after_bytes: int) -> None:
    """The commit landed, the answer stops (0: before its status line) and comes complete when released."""
    hub.fault("stall", {"do": "stall_answer", "after_bytes": after_bytes}, kind="commit")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(commit, client, put("a"))
        hub.wait_stalled("stall")
        assert landed(hub) == 1
        assert not waiting.done()
        hub.clear_faults()
        assert waiting.result().json()["commitOid"] == hub.head("local/data")


def test_a_stall_ends_when_its_client_leaves(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Nobody has to release it; the log says that the connection was dropped."""
    hub.fault("stall", {"do": "stall_answer"}, kind="commit")
    with pytest.raises(httpx.ReadTimeout):
        client.post(f"{API}/commit/main", content=body_of(header(), put("a")), timeout=0.1)
    assert hub.wait_logged("commit")[0]["outcome"] == "dropped"
    assert hub.stalled() == []


STALLS: list[dict[str, Any]] = [
    {"do": "stall_request"},
    {"do": "stall_answer"},
    {"do": "stall_answer", "after_bytes": 3},
    {"do": "hold_slot"},
    {"do": "delay", "before_s": 3600},
    {"do": "delay", "after_s": 3600},
]


@pytest.mark.parametrize("action", STALLS, ids=str)
def test_stalls_do_not_hold_up_shutdown(tmp_path: Path, action: dict[str, Any]) -> None:
    """The Hub ends at once; the client sees its connection reset; the directory is whole."""
    finish: Callable[[], httpx.Response]
    with ThreadPoolExecutor() as pool:
        with running_local_hub(tmp_path / "hub", repositories=("local/data",), shutdown_grace_s=600.0) as hub:
            hub.fault("stall", action, kind="commit")
            client = httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
            finish = pool.submit(commit, client, put("a")).result
            while not hub.fired("stall"):
                pass
        with pytest.raises(httpx.TransportError):
            finish()
        client.close()
    with running_local_hub(tmp_path / "hub") as again:
        assert len(again.commits("local/data")) in {0, 1}


def test_a_client_that_leaves_in_the_middle_of_its_body(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Half a commit is no commit, half an object no object; nothing is left in the directory for it."""
    host, port = hub.url.removeprefix("http://").split(":")
    (row,) = batch(client, b"abcdef")
    paths = [f"{API}/commit/main", row["actions"]["upload"]["href"].removeprefix(hub.url)]
    for method, path in zip(("POST", "PUT"), paths, strict=True):
        with socket.create_connection((host, int(port))) as raw:
            token = f"Authorization: Bearer {TOKEN}\r\n" if method == "POST" else ""
            raw.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{token}Content-Length: 6\r\n\r\nabc".encode())
    assert hub.wait_logged("commit")[0]["outcome"] == "disconnected"
    assert hub.wait_logged("lfs-put")[0]["outcome"] == "disconnected"
    assert landed(hub) == 0
    assert "actions" in batch(client, b"abcdef")[0]
    assert list((hub.root / "repos" / "datasets" / "local" / "data" / "tmp").iterdir()) == []
