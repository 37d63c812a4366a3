"""Reading the NDJSON body of a commit (hub API notes section 5)."""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from .landing import Operation, Put, PutLfs, Remove, RemoveFolder
from .problems import bad_request

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARENT = re.compile(r"[0-9a-f]{5,40}")


@dataclass(frozen=True, slots=True)
class CommitBody:
    """A commit request in typed form."""

    title: str
    description: str
    parent: str | None
    operations: tuple[Operation, ...]


def checked_path(path: object) -> str:
    """A path inside a repository.

    Raises:
        HubRefusal: 400; empty, absolute, or with a segment that is empty, ``.``, ``..``, ``.git`` or too long.
    """
    if not isinstance(path, str) or not path:
        raise bad_request("Invalid path: a path must be a text that is not empty.")
    for segment in path.split("/"):
        if segment in {"", ".", ".."} or segment.lower() == ".git" or len(segment.encode()) > 255:
            raise bad_request(
                f"Invalid path: {path}. Use a relative path whose segments are not empty, '.', '..' or '.git' and have "
                "at most 255 bytes."
            )
    if any(ord(char) < 32 or char in "\\\x7f" for char in path):
        raise bad_request(f"Invalid path: {path!r}. Backslashes and control characters are not allowed.")
    return path


def parse_commit_body(body: bytes, *, inline_limit_bytes: int) -> CommitBody:
    """Read header and operations.

    Raises:
        HubRefusal: 400, naming the line and what is wrong with it.
    """
    header: dict[str, Any] | None = None
    operations: list[Operation] = []
    for number, line in enumerate(body.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            item = msgspec.json.decode(line)
            key, value = item["key"], item["value"]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise bad_request(f"Line {number} of the commit is not a JSON object with key and value.") from error
        if not isinstance(value, dict):
            raise bad_request(f"Line {number} of the commit: value must be an object.")
        if header is None:
            if key != "header":
                raise bad_request("The first line of a commit must have the key header.")
            header = value
        else:
            operations.append(_operation(number, key, value, inline_limit_bytes))
    if header is None:
        raise bad_request("A commit needs a header line.")
    title, description, parent = header.get("summary"), header.get("description") or "", header.get("parentCommit")
    if not isinstance(title, str) or not title.strip():
        raise bad_request("A commit needs a summary that is not empty.")
    if not isinstance(description, str):
        raise bad_request("The description of a commit must be a text.")
    if parent is not None and (not isinstance(parent, str) or not _PARENT.fullmatch(parent)):
        raise bad_request("parentCommit must be 5 to 40 hex digits.")
    # As git does: the first line is the title, what follows opens the description.
    first, _, more = title.partition("\n")
    description = "\n\n".join(part for part in (more.strip("\n"), description) if part)
    return CommitBody(first, description, parent, tuple(operations))


def _operation(number: int, key: object, value: dict[str, Any], inline_limit_bytes: int) -> Operation:
    match key:
        case "file":
            path = checked_path(value.get("path"))
            content = value.get("content")
            if not isinstance(content, str):
                raise bad_request(f"Line {number} of the commit ({path}): content must be a text.")
            if value.get("encoding") == "base64":
                try:
                    data = base64.b64decode(content, validate=True)
                except binascii.Error as error:
                    raise bad_request(f"Line {number} of the commit ({path}): content is not base64.") from error
            else:
                data = content.encode()
            if len(data) > inline_limit_bytes:
                raise bad_request(
                    f"The file {path} has {len(data)} bytes; files above {inline_limit_bytes} bytes must be uploaded "
                    "with LFS."
                )
            return Put(path, data)
        case "lfsFile":
            path = checked_path(value.get("path"))
            oid, size = value.get("oid"), value.get("size")
            if value.get("algo") != "sha256" or not isinstance(oid, str) or not _SHA256.fullmatch(oid):
                raise bad_request(f"Line {number} of the commit ({path}): algo must be sha256 and oid 64 hex digits.")
            if size is not None and (not isinstance(size, int) or size < 0):
                raise bad_request(f"Line {number} of the commit ({path}): size must be a number of bytes.")
            return PutLfs(path, oid, size)
        case "deletedFile":
            return Remove(checked_path(value.get("path")))
        case "deletedFolder":
            folder = value.get("path")
            return RemoveFolder(checked_path(folder.rstrip("/") if isinstance(folder, str) else folder))
    raise bad_request(f"Line {number} of the commit: unknown key {key!r}.")
