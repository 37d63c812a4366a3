"""What goes over the wire, to the byte."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor.actors.ports import CommitRequest
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.errors import LocalProtocolError
from conveyor.protocol.work import AttemptFile, PreuploadFile, UploadMode
from conveyor.runtime.adapters import hub_wire as wire
from conveyor.runtime.adapters.hub_access import may_write


def request_for(*files: tuple[str, bytes, UploadMode]) -> CommitRequest:
    """A commit of these files."""
    attempt = tuple(AttemptFile(path, digest_bytes(content), mode) for path, content, mode in files)
    contents = {digest_bytes(content).sha256: content for _, content, mode in files if mode is UploadMode.REGULAR}
    return CommitRequest("acme/data", "p" * 40, "Title", "Body\n\nConveyor-Delivery: x", attempt, contents)


def test_commit_body() -> None:
    """Header first, then one line a file, in order (hub API notes, section 5)."""
    body = wire.CommitBody(
        request_for(
            ("é.txt", b"hello", UploadMode.REGULAR),
            ("x.bin", b"object", UploadMode.LFS),
            ("empty.bin", b"", UploadMode.LFS),
        )
    )
    content = b"".join(body.pieces())
    sha256 = digest_bytes(b"object").sha256
    assert content.decode().splitlines() == [
        '{"key":"header","value":{"summary":"Title","description":"Body\\n\\nConveyor-Delivery: x",'
        f'"parentCommit":"{"p" * 40}"' + "}}",
        '{"key":"file","value":{"content":"aGVsbG8=","path":"é.txt","encoding":"base64"}}',
        '{"key":"lfsFile","value":{"path":"x.bin","algo":"sha256","oid":"' + sha256 + '","size":6}}',
        '{"key":"file","value":{"content":"","path":"empty.bin","encoding":"base64"}}',
    ]
    assert content.endswith(b"\n")
    assert body.length_bytes == len(content)


@given(st.lists(st.binary(max_size=900_000).map(lambda seed: seed * 3), max_size=3))
def test_body_is_cut_into_pieces(contents: list[bytes]) -> None:
    """However a body is cut, it is as long as announced and holds the files' bytes."""
    files = [(f"f{number}.txt", content, UploadMode.REGULAR) for number, content in enumerate(contents)]
    body = wire.CommitBody(request_for(*files))
    pieces = list(body.pieces())
    assert sum(map(len, pieces)) == body.length_bytes
    assert all(len(piece) < 1_000_000 for piece in pieces)
    lines = [json.loads(line) for line in b"".join(pieces).splitlines()][1:]
    assert [base64.b64decode(line["value"]["content"]) for line in lines] == contents


def test_inline_bytes_must_be_there() -> None:
    """A request without a file's bytes is our own mistake, and is not sent."""
    request = request_for(("a.txt", b"hello", UploadMode.REGULAR))
    for contents in ({}, {digest_bytes(b"hello").sha256: b"hell"}):
        broken = CommitRequest(request.repository, request.parent, "T", "B", request.files, contents)
        with pytest.raises(LocalProtocolError, match=r"a\.txt"):
            wire.CommitBody(broken)


def test_addresses() -> None:
    """A revision is one segment; a path keeps its slashes (hub API notes, section 1)."""
    assert wire.api_path("acme/data", "/commits/main") == "/api/datasets/acme/data/commits/main"
    assert wire.revision_segment("refs/pr/3") == "refs%2Fpr%2F3"
    assert wire.resolve_path("acme/data", "main", "a b/c#?.txt") == "/datasets/acme/data/resolve/main/a%20b/c%23%3F.txt"


def test_preupload_body() -> None:
    """Path, size and the first bytes (hub API notes, section 4)."""
    body = json.loads(wire.preupload_body([PreuploadFile("a.txt", 700, b"hello")]))
    assert body == {"files": [{"path": "a.txt", "sample": "aGVsbG8=", "size": 700}]}


def test_preupload_rows() -> None:
    """More fields may come; an empty file goes inline whatever the Hub says."""
    content = b'{"files":[{"path":"a.bin","uploadMode":"lfs","shouldIgnore":true,"oid":"1","new":[]}],"more":1}'
    row = msgspec.json.decode(content, type=wire.PreuploadAnswers).files[0]
    assert row.answer(PreuploadFile("a.bin", 3, b"abc")).mode is UploadMode.LFS
    assert row.answer(PreuploadFile("a.bin", 3, b"abc")).is_ignored
    assert row.answer(PreuploadFile("a.bin", 0, b"")).mode is UploadMode.REGULAR


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2026-12-01T15:00:00.000Z", 1796137200.0),
        ("2026-12-01T15:00:00", 1796137200.0),
        ("2026-12-01T16:00:00+01:00", 1796137200.0),
        ("yesterday", None),
        (None, None),
    ],
)
def test_dates(date: str | None, expected: float | None) -> None:
    """A commit's date is read, or left out."""
    assert wire.unix_s_of(date) == expected


def test_next_page() -> None:
    """The next page is the address that the `Link` header calls next."""
    assert wire.next_page('<https://h/a?p=1>; rel="next"') == "https://h/a?p=1"
    assert wire.next_page('<https://h/0>; rel="prev", <https://h/2>; rel="next"') == "https://h/2"
    assert wire.next_page('<https://h/0>; rel="prev"') is None
    assert wire.next_page("") is None


def test_named_digest() -> None:
    """The linked ETag comes first; quotes and the weak mark are no part of it (hub API notes, section 8)."""
    assert wire.named_digest({"etag": f'W/"{"a" * 40}"'}) == "a" * 40
    assert wire.named_digest({"etag": f'"{"a" * 40}"', "x-linked-etag": f'"{"B" * 64}"'}) == "b" * 64
    assert wire.named_digest({"etag": '"opaque-1"'}) is None


def fine_grained(**rights: object) -> dict[str, object]:
    """A description of a fine-grained token."""
    return {"auth": {"accessToken": {"role": "fineGrained", "fineGrained": rights}}}


def scope(kind: str, name: str, *permissions: str) -> dict[str, object]:
    """One scope of a fine-grained token."""
    return {"entity": {"type": kind, "name": name}, "permissions": list(permissions)}


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ({"auth": {"accessToken": {"role": "write"}}}, True),
        ({"auth": {"accessToken": {"role": "read"}}}, False),
        ({"auth": {"accessToken": {"role": "other"}}}, None),
        ({"name": "x"}, None),
        ("nonsense", None),
        (fine_grained(**{"global": ["repo.write"]}), True),
        (fine_grained(scoped=[scope("dataset", "acme/data", "repo.write")]), True),
        (fine_grained(scoped=[scope("org", "acme", "repo.content.read", "repo.write")]), True),
        (fine_grained(scoped=[scope("user", "acme", "repo.write")]), True),
        (fine_grained(scoped=[scope("dataset", "acme/other", "repo.write")]), False),
        (fine_grained(scoped=[scope("model", "acme/data", "repo.write")]), False),
        (fine_grained(scoped=[scope("org", "acme", "repo.content.read")]), False),
        (fine_grained(scoped=[scope("org", "other", "repo.write")], **{"global": ["discussion.write"]}), False),
        (fine_grained(), False),
    ],
)
def test_may_write(account: object, expected: bool | None) -> None:
    """The token's description is read by the table of the hand-over protocol, section 4.6."""
    assert may_write(account, "acme/data") is expected
