"""Answers in the Hub's form: JSON bodies, error headers, files with ranges."""

import gzip
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response, StreamingResponse

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
    return StreamingResponse(_read(path, start, end - start + 1), status, answer_headers)


async def _read(path: Path, start: int, length: int) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        await file.seek(start)
        while length > 0 and (chunk := await file.read(min(_CHUNK_BYTES, length))):
            length -= len(chunk)
            yield chunk


async def gzip_answer(content: bytes, etag: str, *, method: str, headers: Mapping[str, str]) -> Response:
    """Compressed text without a length, as the Hub serves it; the ETag becomes weak."""
    answer_headers = {
        **headers,
        "ETag": f'W/"{etag}"',
        "Content-Encoding": "gzip",
        "Vary": "Accept-Encoding",
        "Content-Type": "text/plain; charset=utf-8",
    }
    if method == "HEAD":
        return StreamingResponse(_pieces(()), 200, answer_headers)
    packed = await anyio.to_thread.run_sync(gzip.compress, content)
    return StreamingResponse(_pieces((packed,)), 200, answer_headers)


async def _pieces(pieces: tuple[bytes, ...]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
