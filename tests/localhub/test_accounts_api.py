"""Accounts, repositories, refs and history over HTTP (hub API notes sections 2, 3, 9 and 11)."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from conveyor.runtime.localhub import TokenGrant
from tests.localhub.requests_of_a_client import plain
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

API = "/api/datasets/local/data"


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


def test_whoami_says_who_and_what_role(client: httpx.Client) -> None:
    """By default any ``hf_`` token is a writer."""
    answer = client.get("/api/whoami-v2")
    assert answer.status_code == 200
    assert answer.json()["name"] == "local"
    assert answer.json()["auth"]["accessToken"]["role"] == "write"


@pytest.mark.parametrize("header", ["Bearer wrong", "Basic hf_x", "hf_x"])
def test_a_bad_token_is_401_in_the_hubs_words(hub: LocalHubUnderTest, header: str) -> None:
    """The words that keep clients from taking it for a missing repository."""
    answer = plain.get(f"{hub.url}{API}", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["X-Error-Message"] == "Invalid credentials in Authorization header"
    assert "X-Error-Code" not in answer.headers


def test_without_a_token_public_content_can_be_read_and_nothing_written(hub: LocalHubUnderTest) -> None:
    """A missing token is 401 where one is needed, and for what is not there."""
    assert plain.get(f"{hub.url}{API}").status_code == 200
    for method, path in (
        ("GET", "/api/whoami-v2"),
        ("POST", "/api/repos/create"),
        ("POST", f"{API}/preupload/main"),
        ("POST", f"{API}/commit/main"),
        ("POST", "/datasets/local/data.git/info/lfs/objects/batch"),
        ("GET", f"{API}/auth-check/write"),
        ("GET", "/api/datasets/local/none"),
    ):
        answer = plain.request(method, f"{hub.url}{path}", json={} if method == "POST" else None)
        assert answer.status_code == 401, path
        assert answer.headers["X-Error-Message"] == "Invalid username or password."


TOKENS = (
    TokenGrant("hf_writer", "ann", organisations=("lab",)),
    TokenGrant("hf_reader", "ben", role="read"),
    TokenGrant("hf_fine", "cat", role="fineGrained", repositories=("lab/one", "lab/run-*")),
)


def test_tokens_with_roles(tmp_path: Path) -> None:
    """Readers get 403 for writing, fine-grained tokens write where they are named and do not see other private ones."""
    with running_local_hub(tmp_path / "hub", tokens=TOKENS, repositories=("lab/one", "lab/two")) as hub:
        body = {"name": "secret", "organization": "lab", "type": "dataset", "visibility": "private"}
        assert plain.post(f"{hub.url}/api/repos/create", json=body, headers=bearer("hf_writer")).status_code == 200

        def check(token: str, repo: str, *, write: bool = False) -> tuple[int, str | None]:
            path = f"/api/datasets/{repo}/auth-check" + ("/write" if write else "")
            answer = plain.get(hub.url + path, headers=bearer(token))
            return answer.status_code, answer.headers.get("X-Error-Code")

        assert check("hf_writer", "lab/secret", write=True) == (200, None)
        assert check("hf_reader", "lab/one") == (200, None)
        assert check("hf_reader", "lab/one", write=True) == (403, None)
        assert check("hf_fine", "lab/one", write=True) == (200, None)
        assert check("hf_fine", "lab/two") == (200, None)
        assert check("hf_fine", "lab/two", write=True) == (403, None)
        assert check("hf_fine", "lab/secret") == (404, "RepoNotFound")
        assert check("hf_fine", "lab/secret", write=True) == (404, "RepoNotFound")
        assert check("hf_unknown", "lab/one") == (401, None)
        refused = plain.post(f"{hub.url}/api/repos/create", json=body, headers=bearer("hf_reader"))
        assert refused.status_code == 403
        assert 'under the namespace "lab"' in refused.json()["error"]
        who = plain.get(f"{hub.url}/api/whoami-v2", headers=bearer("hf_fine")).json()
        scoped = who["auth"]["accessToken"]["fineGrained"]["scoped"]
        assert [item["entity"]["name"] for item in scoped] == ["lab/one", "lab/run-*"]
        assert "hf_fine" not in str(who)
        orgs = plain.get(f"{hub.url}/api/whoami-v2", headers=bearer("hf_writer")).json()["orgs"]
        assert orgs[0]["name"] == "lab"
    logged = (tmp_path / "hub" / "requests.jsonl").read_text()
    assert '"user":"cat"' in logged
    assert not [grant.token for grant in TOKENS if grant.token in logged]


def test_create_names_the_address_also_when_it_exists(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """409 carries ``url``, on which clients rely; the namespace defaults to the user's own."""
    body = {"name": "new", "organization": None, "type": "dataset"}
    first, second = client.post("/api/repos/create", json=body), client.post("/api/repos/create", json=body)
    assert (first.status_code, second.status_code) == (200, 409)
    assert first.json()["url"] == second.json()["url"] == f"{hub.url}/datasets/local/new"
    model = client.post("/api/repos/create", json={"name": "x/new"})
    assert model.json()["url"] == f"{hub.url}/x/new"
    assert client.post("/api/repos/create", json={"name": "a..b"}).status_code == 400
    assert client.post("/api/repos/create", json={"name": "ab", "type": "thing"}).status_code == 400


def test_delete_removes_a_repository(client: httpx.Client) -> None:
    """Afterwards it is not found, and can be made anew."""
    body = {"name": "data", "organization": "local", "type": "dataset"}
    assert client.request("DELETE", "/api/repos/delete", json=body).status_code == 200
    assert client.get(API).headers["X-Error-Code"] == "RepoNotFound"
    assert client.request("DELETE", "/api/repos/delete", json=body).status_code == 404
    assert client.post("/api/repos/create", json=body).status_code == 200
    assert client.get(API).status_code == 200


def test_create_missing_makes_a_repository_on_first_use(tmp_path: Path) -> None:
    """Only for a token that may write; without the option it stays missing."""
    tokens = (TokenGrant("hf_w", "w"), TokenGrant("hf_r", "r", role="read"))
    with running_local_hub(tmp_path / "hub", create_missing=True, tokens=tokens) as hub:
        url = f"{hub.url}/api/datasets/any/thing"
        assert plain.get(url, headers=bearer("hf_r")).status_code == 404
        assert plain.get(url).status_code == 401
        assert plain.get(url, headers=bearer("hf_w")).status_code == 200
        assert plain.get(url, headers=bearer("hf_r")).status_code == 200


def test_info_can_be_narrowed(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """``expand=sha`` gives the head alone; ``blobs`` adds ids and sizes with the field names of section 3."""
    record = hub.foreign_commit("local/data", {"a.txt": "1", "b.bin": "2"})
    assert client.get(API, params={"expand": "sha"}).json().keys() == {"_id", "id", "sha"}
    assert client.get(API, params={"expand": "sha"}).json()["sha"] == record["id"]
    siblings = {row["rfilename"]: row for row in client.get(API, params={"blobs": "true"}).json()["siblings"]}
    assert siblings["a.txt"]["size"] == 1
    assert siblings["a.txt"].keys() == {"rfilename", "size", "blobId"}
    assert siblings["b.bin"]["lfs"].keys() == {"sha256", "size", "pointerSize"}
    initial = client.get(f"{API}/commits/main").json()[-1]["id"]
    old = client.get(f"{API}/revision/{initial}").json()
    assert [row["rfilename"] for row in old["siblings"]] == [".gitattributes"]
    assert client.get(f"{API}/revision/none").headers["X-Error-Code"] == "RevisionNotFound"


def test_commits_are_paged_newest_first(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The ``Link`` is complete, query included, and the last page has none."""
    ids = [hub.foreign_commit("local/data", {"f": str(n)}, title=f"t{n}")["id"] for n in range(6)]
    first = client.get(f"{API}/commits/main")
    assert [row["title"] for row in first.json()] == ["t5", "t4", "t3", "t2", "t1"]
    assert first.json()[0]["id"] == ids[-1]
    assert first.json()[0]["authors"][0]["user"] == "another-writer"
    second = client.get(first.links["next"]["url"])
    assert [row["title"] for row in second.json()] == ["t0", "initial commit"]
    assert "next" not in second.links
    assert len(client.get(f"{API}/commits/main", params={"limit": "2"}).json()) == 2
    assert client.get(f"{API}/commits/main", params={"p": "x"}).status_code == 400


def test_branches_and_tags(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Existing names give 409; slashes in names travel encoded; a tag is no place to commit to."""
    head = hub.head("local/data")
    assert client.post(f"{API}/branch/work%2F1", json={}).status_code == 200
    assert client.post(f"{API}/branch/work%2F1", json={}).status_code == 409
    assert client.post(f"{API}/branch/x", json={"startingPoint": "none"}).status_code == 404
    assert client.post(f"{API}/tag/main", json={"tag": "v1"}).status_code == 200
    assert client.post(f"{API}/tag/main", json={"tag": "v1"}).status_code == 409
    for name in ("work%2F1", "v1", "refs%2Fheads%2Fmain", head, head[:8]):
        assert client.get(f"{API}/revision/{name}").json()["sha"] == head
    refs = client.get(f"{API}/refs").json()
    assert [row["name"] for row in refs["branches"]] == ["main", "work/1"]
    assert refs["tags"] == [{"name": "v1", "ref": "refs/tags/v1", "targetCommit": head}]
    line = '{"key":"header","value":{"summary":"s"}}'
    assert client.post(f"{API}/commit/v1", content=line).headers["X-Error-Code"] == "RevisionNotFound"
    assert client.delete(f"{API}/tag/v1").status_code == 200
    assert client.delete(f"{API}/tag/v1").status_code == 404
    assert client.delete(f"{API}/branch/work%2F1").status_code == 200
    assert client.delete(f"{API}/branch/main").status_code == 403


def test_squash_over_http(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The listing has one commit afterwards."""
    hub.foreign_commit("local/data", {"f": "1"})
    assert client.post(f"{API}/super-squash/main", json={"message": "one"}).status_code == 200
    assert [row["title"] for row in client.get(f"{API}/commits/main").json()] == ["one"]


@pytest.mark.parametrize(
    ("content", "status", "field"),
    [
        ("---\nlicense: mit\n---\n# x\n", 200, None),
        ("# x\n", 200, "warnings"),
        ("---\na: [\n---\n", 400, "errors"),
        ("---\n- a\n---\n", 400, "errors"),
    ],
)
def test_validate_yaml(client: httpx.Client, content: str, status: int, field: str | None) -> None:
    """Bad metadata is 400 with ``errors``, none is a warning."""
    answer = client.post("/api/validate-yaml", json={"content": content, "repoType": "dataset"})
    assert answer.status_code == status
    found: dict[str, Any] = answer.json()
    assert [name for name in ("errors", "warnings") if found[name]] == ([field] if field else [])


def test_answers_carry_id_time_and_quota(client: httpx.Client) -> None:
    """Every answer has an id of its own; API and resolve answers name their own quota."""
    first, second = client.get(API), client.get(API)
    assert first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    assert first.headers["Date"]
    assert first.headers["RateLimit"].startswith('"api";r=')
    assert first.headers["RateLimit-Policy"] == '"fixed window";"api";q=100000;w=300'
    content = client.get("/datasets/local/data/resolve/main/.gitattributes")
    assert content.headers["RateLimit"].startswith('"resolvers";r=')


def test_the_request_quota_ends_and_comes_back(tmp_path: Path) -> None:
    """429 with ``r=0`` for this token alone, until the window of 300 s is over."""
    with running_local_hub(tmp_path / "hub", api_quota=3) as hub:
        url = f"{hub.url}/api/whoami-v2"
        answers = [plain.get(url, headers=bearer("hf_a")) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert [answer.headers["RateLimit"].split(";")[1] for answer in answers] == ["r=2", "r=1", "r=0", "r=0"]
        assert plain.get(url, headers=bearer("hf_b")).status_code == 200
        hub.advance(300)
        assert plain.get(url, headers=bearer("hf_a")).status_code == 200


def test_an_unknown_address_is_404(client: httpx.Client) -> None:
    """Without an error code, so that no client takes it for a missing repository."""
    for path in ("/api/nothing", "/api/datasets/local/data/nothing", "/datasets/local", "/", "/api/datasets/only"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "X-Error-Code" not in answer.headers
    assert client.get("/api/agent-harnesses").json() == {}
