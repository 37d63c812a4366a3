"""LFS uploads, resolve and downloads over HTTP (hub API notes sections 6 and 8)."""

import hashlib
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.localhub.requests_of_a_client import LFS, batch, commit, plain, put, put_lfs, upload
from tests.support.local_hub import LocalHubUnderTest

LARGE = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(3400))  # 108,800 bytes: three parts


def test_basic_upload_and_verify(client: httpx.Client) -> None:
    """An object is asked for once; its PUT needs no token; then it is known and can be committed."""
    (row,) = batch(client, b"abc")
    assert "header" not in row["actions"]["upload"]
    assert plain.put(row["actions"]["upload"]["href"], content=b"abc").status_code == 200
    assert client.post(row["actions"]["verify"]["href"], json={"oid": row["oid"], "size": 3}).status_code == 200
    (again,) = batch(client, b"abc")
    assert "actions" not in again
    assert commit(client, put_lfs("a.bin", b"abc")).status_code == 200


def test_multipart_upload(client: httpx.Client) -> None:
    """Parts by number with an ETag each, joined on completion, then the whole is there byte for byte."""
    (row,) = batch(client, LARGE)
    upload_action = row["actions"]["upload"]
    links = dict(upload_action["header"])
    size = int(links.pop("chunk_size"))
    assert sorted(links) == ["1", "2", "3"]
    parts: list[dict[str, Any]] = []
    for number in ("2", "1", "3"):
        start = (int(number) - 1) * size
        etag = plain.put(links[number], content=LARGE[start : start + size]).headers["ETag"]
        parts.append({"partNumber": int(number), "etag": etag})
    parts.sort(key=lambda part: part["partNumber"])
    done = {"oid": row["oid"], "parts": parts}
    assert plain.post(upload_action["href"], json={**done, "parts": parts[:2]}).status_code == 400
    assert plain.post(upload_action["href"], json={**done, "parts": parts[::-1]}).status_code == 400
    wrong = [{**parts[0], "etag": '"0"'}, *parts[1:]]
    assert plain.post(upload_action["href"], json={**done, "parts": wrong}).status_code == 400
    assert plain.post(upload_action["href"], json=done).status_code == 200
    assert plain.post(upload_action["href"], json=done).status_code == 200
    commit(client, put_lfs("l.bin", LARGE)).raise_for_status()
    answer = client.get("/datasets/local/data/resolve/main/l.bin", follow_redirects=True)
    assert answer.content == LARGE


def test_completion_without_a_part_is_refused(client: httpx.Client) -> None:
    """The missing part is named."""
    (row,) = batch(client, LARGE)
    parts = [{"partNumber": n, "etag": "x"} for n in (1, 2, 3)]
    answer = plain.post(row["actions"]["upload"]["href"], json={"oid": row["oid"], "parts": parts})
    assert answer.status_code == 400
    assert "part 1 is missing" in answer.json()["error"]


def test_content_that_is_not_the_announced_one_is_not_kept(client: httpx.Client) -> None:
    """Another digest, too little and too much are refused, and the object stays unknown."""
    (row,) = batch(client, b"abc")
    href = row["actions"]["upload"]["href"]
    assert "BadDigest" in plain.put(href, content=b"abx").json()["error"]
    assert "IncompleteBody" in plain.put(href, content=b"ab").json()["error"]
    assert "EntityTooLarge" in plain.put(href, content=iter([b"ab", b"cd"])).json()["error"]
    assert "IncompleteBody" in plain.put(href, content=iter([b"ab"])).json()["error"]
    assert client.post(row["actions"]["verify"]["href"], json={"oid": row["oid"], "size": 3}).status_code == 404
    refused = commit(client, put_lfs("a.bin", b"abc"))
    assert refused.status_code == 400
    assert "LFS pointer pointed to a file that does not exist" in refused.json()["error"]
    assert "a.bin" in refused.json()["error"]


def test_a_token_at_storage_is_refused(client: httpx.Client) -> None:
    """As pre-signed storage does: a client that sends its token there leaks it."""
    (row,) = batch(client, b"abc")
    answer = client.put(row["actions"]["upload"]["href"], content=b"abc")
    assert answer.status_code == 400
    assert "Only one auth mechanism" in answer.json()["error"]


def test_storage_addresses_expire_and_cannot_be_forged(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Another object, another method or a later time do not pass."""
    first, second = batch(client, b"abc", b"defg")
    href = first["actions"]["upload"]["href"]
    forged = href.replace(first["oid"], second["oid"])
    assert "SignatureDoesNotMatch" in plain.put(forged, content=b"defg").json()["error"]
    assert plain.get(href).status_code == 403
    assert plain.put(href.partition("?")[0], content=b"abc").status_code == 403
    hub.advance(3600)
    expired = plain.put(href, content=b"abc")
    assert (expired.status_code, "expired" in expired.json()["error"]) == (403, True)


def test_bad_objects_are_answered_one_by_one(client: httpx.Client) -> None:
    """An empty object has an error of its own; the others go on."""
    good = {"oid": hashlib.sha256(b"a").hexdigest(), "size": 1}
    empty = {"oid": hashlib.sha256(b"").hexdigest(), "size": 0}
    request = {"operation": "upload", "transfers": ["basic"], "objects": [good, empty], "hash_algo": "sha256"}
    rows = client.post(f"{LFS}/batch", json=request).json()["objects"]
    assert "actions" in rows[0]
    assert rows[1]["error"]["code"] == 422


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"operation": "download"}, 400),
        ({"objects": "x"}, 400),
        ({"objects": [{}]}, 400),
        ({"objects": [{"oid": "0" * 64, "size": 1}] * 257}, 413),
    ],
)
def test_malformed_batches(client: httpx.Client, change: dict[str, object], status: int) -> None:
    """Only uploads, only lists, at most 256 objects."""
    request = {"operation": "upload", "objects": [], "hash_algo": "sha256", **change}
    assert client.post(f"{LFS}/batch", json=request).status_code == status


def test_lfs_objects_belong_to_a_repository(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """What was uploaded to one cannot be committed to another."""
    upload(client, b"abc")
    client.post("/api/repos/create", json={"name": "local/other", "type": "dataset"}).raise_for_status()
    lines = (
        b'{"key":"header","value":{"summary":"s"}}\n{"key":"lfsFile","value":{"path":"a","algo":"sha256","oid":"%s"}}'
    )
    body = lines % hashlib.sha256(b"abc").hexdigest().encode()
    assert client.post("/api/datasets/local/other/commit/main", content=body).status_code == 400
    assert client.post("/api/datasets/local/data/commit/main", content=body).status_code == 200


TEXT = "/datasets/local/data/resolve/main/d/a.txt"


def test_resolve_of_a_regular_file(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Content, ETag, commit and length; HEAD tells the same without the content."""
    commit(client, put("d/a.txt", b"0123456789")).raise_for_status()
    answer = client.get(TEXT, headers={"Accept-Encoding": "identity"})
    assert answer.content == b"0123456789"
    assert answer.headers["ETag"] == f'"{hashlib.sha1(b"blob 10" + bytes(1) + b"0123456789").hexdigest()}"'
    assert answer.headers["X-Repo-Commit"] == hub.head("local/data")
    head = client.head(TEXT, headers={"Accept-Encoding": "identity"})
    assert head.content == b""
    assert {k: v for k, v in head.headers.items() if k in {"etag", "content-length", "x-repo-commit"}} == {
        "etag": answer.headers["ETag"],
        "content-length": "10",
        "x-repo-commit": answer.headers["X-Repo-Commit"],
    }


@pytest.mark.parametrize(
    ("wanted", "status", "content", "content_range"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-2", 206, b"89", "bytes 8-9/10"),
        ("bytes=4-400", 206, b"456789", "bytes 4-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("lines=1-2", 200, b"0123456789", None),
    ],
)
def test_ranges(
    client: httpx.Client, wanted: str, status: int, content: bytes | None, content_range: str | None
) -> None:
    """206 with the part, 416 past the end, other units are ignored."""
    commit(client, put("d/a.txt", b"0123456789")).raise_for_status()
    answer = client.get(TEXT, headers={"Range": wanted})
    assert answer.status_code == status
    assert answer.headers.get("Content-Range") == content_range
    if content is not None:
        assert answer.content == content


def test_text_is_compressed_for_those_who_accept_it(client: httpx.Client) -> None:
    """No length and a weak ETag then; ``identity`` gives both true."""
    content = b"line\n" * 1000
    commit(client, put("d/a.txt", content)).raise_for_status()
    packed = client.get(TEXT)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Length" not in packed.headers
    assert packed.headers["ETag"].startswith('W/"')
    assert packed.content == content
    assert "Content-Length" not in client.head(TEXT).headers
    plain = client.get(TEXT, headers={"Accept-Encoding": "identity"})
    assert plain.headers["Content-Length"] == "5000"
    assert f"W/{plain.headers['ETag']}" == packed.headers["ETag"]


def test_resolve_of_an_lfs_file_redirects_to_another_host(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """The redirect carries digest, size and commit; storage gives the content, ranges too, without a token."""
    upload(client, b"0123456789")
    commit(client, put_lfs("b.bin", b"0123456789")).raise_for_status()
    redirect = client.head("/datasets/local/data/resolve/main/b.bin")
    assert redirect.status_code == 302
    assert redirect.headers["X-Linked-ETag"] == f'"{hashlib.sha256(b"0123456789").hexdigest()}"'
    assert redirect.headers["X-Linked-Size"] == "10"
    assert redirect.headers["X-Repo-Commit"] == hub.head("local/data")
    location = redirect.headers["Location"]
    assert urlsplit(location).hostname == "localhost"
    assert plain.get(location).content == b"0123456789"
    assert plain.head(location).headers["Content-Length"] == "10"
    assert plain.get(location, headers={"Range": "bytes=8-"}).content == b"89"
    client.get("/datasets/local/data/resolve/main/b.bin", follow_redirects=True).raise_for_status()
    assert not any(row["authorized"] for row in hub.requests("download"))
    hub.advance(3600)
    assert plain.get(location).status_code == 403


def test_resolve_of_what_is_not_there(hub: LocalHubUnderTest, client: httpx.Client) -> None:
    """Entry, revision and repository have a code each; a missing entry names the commit."""
    missing = client.head("/datasets/local/data/resolve/main/none")
    assert (missing.status_code, missing.headers["X-Error-Code"]) == (404, "EntryNotFound")
    assert missing.headers["X-Repo-Commit"] == hub.head("local/data")
    assert client.head("/datasets/local/data/resolve/none/x").headers["X-Error-Code"] == "RevisionNotFound"
    assert client.head("/datasets/local/none/resolve/main/x").headers["X-Error-Code"] == "RepoNotFound"


def test_models_resolve_without_a_prefix(client: httpx.Client) -> None:
    """And an old commit keeps answering with the old bytes."""
    client.post("/api/repos/create", json={"name": "local/net"}).raise_for_status()
    answer = client.get("/local/net/resolve/main/.gitattributes", headers={"Accept-Encoding": "identity"})
    assert b"*.bin filter=lfs" in answer.content
    old = commit(client, put("a", b"old")).json()["commitOid"]
    commit(client, put("a", b"new")).raise_for_status()
    assert client.get(f"/datasets/local/data/resolve/{old}/a").content == b"old"
    assert client.get("/datasets/local/data/resolve/main/a").content == b"new"


def test_an_empty_file_can_be_read(client: httpx.Client) -> None:
    """No bytes, length 0; a range of nothing cannot be satisfied."""
    commit(client, put("d/a.txt", b"")).raise_for_status()
    answer = client.get(TEXT)
    assert (answer.content, answer.headers["Content-Length"]) == (b"", "0")
    assert client.get(TEXT, headers={"Range": "bytes=0-"}).status_code == 416


def test_a_large_file_comes_in_many_pieces(client: httpx.Client) -> None:
    """Every byte in order, also from the middle."""
    content = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(40_000))
    upload_in_parts(client, content)
    commit(client, put_lfs("l.bin", content)).raise_for_status()
    url = client.head("/datasets/local/data/resolve/main/l.bin").headers["Location"]
    assert plain.get(url).content == content
    assert plain.get(url, headers={"Range": "bytes=300000-"}).content == content[300_000:]


def upload_in_parts(client: httpx.Client, content: bytes) -> None:
    """A multipart upload as a client does it."""
    (row,) = batch(client, content)
    links = dict(row["actions"]["upload"]["header"])
    size = int(links.pop("chunk_size"))
    parts = []
    for number in range(1, len(links) + 1):
        piece = content[(number - 1) * size : number * size]
        parts.append({"partNumber": number, "etag": plain.put(links[str(number)], content=piece).headers["ETag"]})
    done = {"oid": row["oid"], "parts": parts}
    plain.post(row["actions"]["upload"]["href"], json=done).raise_for_status()
