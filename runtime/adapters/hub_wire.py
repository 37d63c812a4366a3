"""The Hub's formats: addresses, the body of a commit, what is read from answers (hub API notes, sections 3 to 8)."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ...actors.ports import CommitRequest
from ...protocol.errors import LocalProtocolError
from ...protocol.work import AttemptFile, HubCommit, PreuploadAnswer, PreuploadFile, RemoteFile, UploadMode

BRANCH: Final = "main"
_ENCODED_AT_ONCE_BYTES: Final = 192 * 1024
"""A multiple of 3, so that the pieces of a file's base64 text join without padding between them."""


def api_path(repository: str, rest: str) -> str:
    """The path of an API address about a dataset repository."""
    return f"/api/datasets/{quote(repository, safe='/')}{rest}"


def revision_segment(revision: str) -> str:
    """A revision as one path segment."""
    return quote(revision, safe="")


def resolve_path(repository: str, revision: str, path: str) -> str:
    """The path of the address that gives a file's bytes."""
    return f"/datasets/{quote(repository, safe='/')}/resolve/{revision_segment(revision)}/{quote(path, safe='/')}"


class HeadAnswer(msgspec.Struct):
    """`expand=sha`."""

    sha: str


class CommitRow(msgspec.Struct):
    """One commit of a listing; `message` is the description."""

    id: str
    title: str = ""
    message: str | None = None
    date: str | None = None

    def to_commit(self) -> HubCommit:
        """The row as a value of the protocol."""
        return HubCommit(self.id, self.title, self.message or "", unix_s_of(self.date))


class PreuploadRow(msgspec.Struct, rename="camel"):
    """What preupload says of one file."""

    path: str
    upload_mode: UploadMode
    should_ignore: bool | None = None
    oid: str | None = None

    def answer(self, file: PreuploadFile) -> PreuploadAnswer:
        """The row as a value of the protocol; an empty file goes inline whatever the Hub says (section 4)."""
        mode = self.upload_mode if file.size_bytes else UploadMode.REGULAR
        return PreuploadAnswer(file.path, mode, bool(self.should_ignore), self.oid)


class PreuploadAnswers(msgspec.Struct):
    """The whole answer of preupload."""

    files: list[PreuploadRow]


class CommitAnswer(msgspec.Struct, rename={"commit_oid": "commitOid"}):
    """The answer to a commit that landed."""

    commit_oid: str


class LfsRow(msgspec.Struct):
    """The LFS part of a file's row."""

    oid: str
    size: int


class LastCommit(msgspec.Struct):
    """The commit that last changed a file."""

    id: str


class PathRow(msgspec.Struct, rename={"last_commit": "lastCommit"}):
    """One row of paths-info; the last commit only where it was asked for."""

    type: str
    path: str
    oid: str
    size: int = 0
    lfs: LfsRow | None = None
    last_commit: LastCommit | None = None

    def to_remote_file(self) -> RemoteFile:
        """The row as a value of the protocol."""
        if self.lfs is None:
            return RemoteFile(self.path, self.size, self.oid, None)
        return RemoteFile(self.path, self.lfs.size, self.oid, self.lfs.oid)


def preupload_body(files: list[PreuploadFile]) -> bytes:
    """What preupload is asked."""
    rows = [
        {"path": file.path, "sample": base64.b64encode(file.sample).decode(), "size": file.size_bytes} for file in files
    ]
    return msgspec.json.encode({"files": rows})


class CommitBody:
    """The NDJSON body of a commit, produced piece by piece, so that 64 MiB of files are never held twice.

    Args:
        request: the commit.

    Raises:
        LocalProtocolError: the request does not bring the bytes of a file that goes inline.
    """

    def __init__(self, request: CommitRequest) -> None:
        value: dict[str, Any] = {"summary": request.title, "description": request.body, "parentCommit": request.parent}
        self._header = _line({"key": "header", "value": value})
        self._files = [(file, _inline_content(request, file)) for file in request.files]
        self.length_bytes = len(self._header) + sum(_line_bytes(file, content) for file, content in self._files)

    def pieces(self) -> Iterator[bytes]:
        """The body from its beginning, in pieces of bounded size."""
        gathered = bytearray(self._header)
        for file, content in self._files:
            if content is None:
                gathered += _lfs_line(file)
            else:
                start, end = _inline_frame(file)
                gathered += start
                for offset in range(0, len(content), _ENCODED_AT_ONCE_BYTES):
                    gathered += base64.b64encode(content[offset : offset + _ENCODED_AT_ONCE_BYTES])
                    if len(gathered) >= _ENCODED_AT_ONCE_BYTES:
                        yield bytes(gathered)
                        gathered.clear()
                gathered += end
            if len(gathered) >= _ENCODED_AT_ONCE_BYTES:
                yield bytes(gathered)
                gathered.clear()
        if gathered:
            yield bytes(gathered)

    async def stream(self) -> AsyncIterator[bytes]:
        """The same for an asynchronous client."""
        for piece in self.pieces():
            yield piece


def _inline_content(request: CommitRequest, file: AttemptFile) -> memoryview | None:
    """The bytes of a file that goes inline; None for one that the commit names as an object. Empty files go inline."""
    if file.digests.size_bytes == 0:
        return memoryview(b"")
    if file.mode is UploadMode.LFS:
        return None
    content = request.contents.get(file.digests.sha256)
    if content is None or len(content) != file.digests.size_bytes:
        raise LocalProtocolError(f"the commit does not bring the bytes of {file.path}: give them in `contents`")
    return memoryview(content)


def _inline_frame(file: AttemptFile) -> tuple[bytes, bytes]:
    line = _line({"key": "file", "value": {"content": "", "path": file.path, "encoding": "base64"}})
    cut = line.index(b'"content":"') + len(b'"content":"')
    return line[:cut], line[cut:]


def _lfs_line(file: AttemptFile) -> bytes:
    value = {"path": file.path, "algo": "sha256", "oid": file.digests.sha256, "size": file.digests.size_bytes}
    return _line({"key": "lfsFile", "value": value})


def _line_bytes(file: AttemptFile, content: memoryview | None) -> int:
    if content is None:
        return len(_lfs_line(file))
    return sum(map(len, _inline_frame(file))) + (len(content) + 2) // 3 * 4


def _line(item: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(item) + b"\n"


def unix_s_of(date: str | None) -> float | None:
    """A commit's date in seconds since the epoch; None if the Hub gave none that can be read."""
    if date is None:
        return None
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


_NEXT_LINK = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?', re.IGNORECASE)


def next_page(link_header: str) -> str | None:
    """The address of the next page in a `Link` header."""
    found = _NEXT_LINK.search(link_header)
    return found.group(1) if found else None


def named_digest(headers: Mapping[str, str]) -> str | None:
    """The digest of a file's content that a `resolve` answer names: a git blob id or a SHA-256, in lower case."""
    for name in ("x-linked-etag", "etag"):
        value = headers.get(name, "").strip().removeprefix("W/").strip('"').lower()
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", value):
            return value
    return None


__all__ = [
    "BRANCH",
    "CommitAnswer",
    "CommitBody",
    "CommitRow",
    "HeadAnswer",
    "PathRow",
    "PreuploadAnswers",
    "PreuploadRow",
    "api_path",
    "named_digest",
    "next_page",
    "preupload_body",
    "resolve_path",
    "revision_segment",
    "unix_s_of",
]
