"""Answers in the Hub's form: JSON bodies, error headers, files with ranges."""

import gzip
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from anyio.to_thread import run_sync
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .problems import HubRefusal

_CHUNK_BYTES = 256 * 1024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def json_answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")


def refusal_answer(refusal: HubRefusal) -> Response:
    """The answer to a refused request, with the headers by which clients choose an exception class."""
    headers = dict(refusal.headers)
    if refusal.error_code:
        headers["X-Error-Code"] = refusal.error_code
    headers["X-Error-Message"] = " ".join(refusal.message.split()).encode("ascii", "replace").decode()
    return json_answer({"error": refusal.message}, status=refusal.status, headers=headers)


def wanted_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """First and last byte asked for, None for the whole.

    Raises:
        HubRefusal: 416; the range begins past the end.
    """
    found = _RANGE.fullmatch((header or "").replace(" ", ""))
    if not found or found.group(0) == "bytes=-":
        return None
    first, last = found.groups()
    if not first:
        start, end = max(0, size_bytes - int(last)), size_bytes - 1
    else:
        start, end = int(first), min(int(last) if last else size_bytes - 1, size_bytes - 1)
    if start >= size_bytes or end < start:
        raise HubRefusal(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{size_bytes}"})
    return start, end


async def file_answer(
    path: Path, size_bytes: int, etag: str, *, method: str, range_header: str | None, headers: Mapping[str, str]
) -> Response:
    """A file, or the range of it that was asked for; for HEAD the headers alone.

    Raises:
        HubRefusal: 416.
    """
    part = wanted_range(range_header, size_bytes)
    start, end = part or (0, size_bytes - 1)
    answer_headers = {
        **headers,
        "ETag": f'"{etag}"',
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - start + 1),
        "Content-Type": "application/octet-stream",
    }
    if part:
        answer_headers["Content-Range"] = f"bytes {start}-{end}/{size_bytes}"
    status = 206 if part else 200
    if method == "HEAD":
        return Response(None, status, answer_headers)
    return FileAnswer(path, start, end - start + 1, status, answer_headers)


class FileAnswer(Response):
    """A part of a file, read in threads piece by piece while the client takes it."""

    def __init__(self, path: Path, start: int, length_bytes: int, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(None, status, dict(headers))
        self._path = path
        self._start = start
        self._length_bytes = length_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Not a generator: a drop in the middle must close the file now, not when memory is tidied."""
        descriptor = await run_sync(os.open, self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            position, end = self._start, self._start + self._length_bytes
            while position < end:
                piece = await run_sync(os.pread, descriptor, min(_CHUNK_BYTES, end - position), position)
                if not piece:
                    raise OSError(f"{self._path} became shorter while it was read")
                position += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": position < end})
            if self._length_bytes == 0:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            os.close(descriptor)


async def gzip_answer(content: bytes, etag: str, *, method: str, headers: Mapping[str, str]) -> Response:
    """Compressed text without a length, as the Hub serves it; the ETag becomes weak."""
    answer_headers = {
        **headers,
        "ETag": f'W/"{etag}"',
        "Content-Encoding": "gzip",
        "Vary": "Accept-Encoding",
        "Content-Type": "text/plain; charset=utf-8",
    }
    packed = b"" if method == "HEAD" else await run_sync(gzip.compress, content)
    answer = Response(packed, 200, answer_headers)
    del answer.headers["Content-Length"]
    return answer
