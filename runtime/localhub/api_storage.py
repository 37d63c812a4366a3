"""LFS uploads and downloads: batch, signed storage addresses, parts, verify, resolve (hub API notes sections 6, 8)."""

import hashlib
import hmac
import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from anyio.to_thread import run_sync
from starlette.responses import Response

from .answers import file_answer, gzip_answer, json_answer
from .api_repos import json_object
from .exchange import Exchange
from .objects import RepoObjects
from .problems import HubRefusal, bad_request, entry_not_found, forbidden, too_large
from .receiving import receive_file
from .repository import Repository

BATCH_LIMIT = 256
LFS_TYPE = {"Content-Type": "application/vnd.git-lfs+json"}
_GZIP_FROM_BYTES = 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


async def lfs_batch(exchange: Exchange) -> Response:
    """``POST /{type}s/{id}.git/info/lfs/objects/batch``: where to send what is missing."""
    repository = await exchange.writable()
    body = await json_object(exchange)
    objects = body.get("objects")
    if body.get("operation") != "upload" or body.get("hash_algo", "sha256") != "sha256":
        raise bad_request("Only uploads with hash_algo sha256 are served here; download through resolve.")
    if not isinstance(objects, list):
        raise bad_request("objects must be a list of {oid, size}.")
    if len(objects) > BATCH_LIMIT:
        raise too_large(f"At most {BATCH_LIMIT} objects a request; {len(objects)} were given.")
    transfers = body.get("transfers") or ["basic"]
    rows = [await run_sync(_upload_row, exchange, repository, item, transfers) for item in objects]
    chosen = "multipart" if any("chunk_size" in _upload_header(row) for row in rows) else "basic"
    return json_answer({"transfer": chosen, "objects": rows}, headers=LFS_TYPE)


def _upload_header(row: dict[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = row.get("actions", {}).get("upload", {}).get("header", {})
    return header


def _upload_row(exchange: Exchange, repository: Repository, item: Any, transfers: list[str]) -> dict[str, Any]:
    oid, size = (item.get("oid"), item.get("size")) if isinstance(item, dict) else (None, None)
    if not isinstance(oid, str) or not isinstance(size, int):
        raise bad_request("Each object needs oid and size.")
    row: dict[str, Any] = {"oid": oid, "size": size, "authenticated": True}
    if not _SHA256.fullmatch(oid) or size <= 0:
        message = "Invalid object: oid must be 64 hex digits and size at least 1 byte; empty files go inline."
        return row | {"error": {"code": 422, "message": message}}
    if repository.objects.lfs_size(oid) == size:
        return row
    options = exchange.hub.options
    upload: dict[str, Any] = {}
    if size >= options.multipart_from_bytes and "multipart" in transfers:
        part_bytes = options.multipart_part_bytes
        header = {"chunk_size": str(part_bytes)}
        for number in range(1, -(-size // part_bytes) + 1):
            part_size = min(part_bytes, size - (number - 1) * part_bytes)
            header[str(number)] = signed_url(exchange, "part", f"{oid}/{number}", {"size": str(part_size)})
        upload = {"href": signed_url(exchange, "complete", oid, {"size": str(size)}), "header": header}
    else:
        upload = {"href": signed_url(exchange, "object", oid, {"size": str(size)})}
    verify = urlsplit(str(exchange.request.url))._replace(query="").geturl().removesuffix("batch") + "verify"
    return row | {"actions": {"upload": upload, "verify": {"href": verify}}}


def signed_url(exchange: Exchange, action: str, path: str, query: dict[str, str], *, download: bool = False) -> str:
    """A storage address that is valid without a token until it expires."""
    hub, target = exchange.hub, exchange.target
    ttl_s = hub.options.upload_url_ttl_s if exchange.url_ttl_s is None else exchange.url_ttl_s
    expires = hub.state.now_unix_ms() + round(ttl_s * 1000)
    location = f"/_storage/{action}/{target.repo_type}s/{target.repo_id}/{path}"
    pairs = urlencode({**query, "expires": str(expires)})
    method = "GET" if download else "POST" if action == "complete" else "PUT"
    signature = _signature(hub.state.secret, method, location, pairs)
    base = _other_name(exchange.base_url) if download and hub.options.separate_storage else exchange.base_url
    return f"{base}{location}?{pairs}&signature={signature}"


def _signature(secret: bytes, method: str, location: str, pairs: str) -> str:
    return hmac.new(secret, f"{method} {location}?{pairs}".encode(), hashlib.sha256).hexdigest()


def _other_name(base_url: str) -> str:
    parts = urlsplit(base_url)
    other = {"127.0.0.1": "localhost", "localhost": "127.0.0.1"}.get(parts.hostname or "")
    if other is None:
        return base_url
    return parts._replace(netloc=f"{other}:{parts.port}" if parts.port else other).geturl()


def _granted(exchange: Exchange) -> dict[str, str]:
    """The query of a signed address.

    Raises:
        HubRefusal: 403; the signature is wrong or too old.
    """
    hub = exchange.hub
    pairs, _, signature = exchange.scope["query_string"].decode("ascii", "replace").rpartition("&signature=")
    method = "GET" if exchange.scope["method"] == "HEAD" else exchange.scope["method"]
    expected = _signature(hub.state.secret, method, exchange.scope["raw_path"].decode("ascii"), pairs)
    query = dict(parse_qsl(pairs))
    if not hmac.compare_digest(signature, expected):
        raise forbidden("SignatureDoesNotMatch: this storage address was not given out by this Hub.")
    if hub.state.now_unix_ms() >= int(query["expires"]):
        raise forbidden("AccessDenied: Request has expired. Ask the LFS batch endpoint or resolve for a new address.")
    return query


def _upload_place(exchange: Exchange) -> tuple[RepoObjects, str, dict[str, str]]:
    query = _granted(exchange)
    if "authorization" in exchange.request.headers:
        # As storage behind pre-signed addresses does: a token sent along would have leaked to it.
        raise bad_request("InvalidArgument: Only one auth mechanism allowed; send no Authorization header to storage.")
    assert exchange.target.repo_type is not None
    assert exchange.target.repo_id is not None
    repository = exchange.hub.state.get(exchange.target.repo_type, exchange.target.repo_id)
    return repository.objects, exchange.target.path, query


async def lfs_put(exchange: Exchange) -> Response:
    """``PUT`` of a whole LFS object: kept only if size and sha256 are the announced ones."""
    objects, oid, query = _upload_place(exchange)
    temporary = objects.temporary()
    try:
        received = await receive_file(exchange, temporary, int(query["size"]), hashlib.sha256)
        if received.hexdigest != oid:
            raise bad_request(f"BadDigest: the content has sha256 {received.hexdigest}; announced was {oid}.")
        await run_sync(objects.settle, temporary, objects.lfs_path(oid))
    finally:
        await run_sync(lambda: temporary.unlink(missing_ok=True))
    return Response(b"", headers={"ETag": f'"{oid}"'})


async def lfs_part(exchange: Exchange) -> Response:
    """``PUT`` of one part of a multipart upload; its ``ETag`` is named again on completion."""
    objects, path, query = _upload_place(exchange)
    oid, _, number = path.partition("/")
    temporary = objects.temporary()
    try:
        received = await receive_file(exchange, temporary, int(query["size"]), _md5)
        await run_sync(objects.settle, temporary, objects.part_path(oid, int(number)))
    finally:
        await run_sync(lambda: temporary.unlink(missing_ok=True))
    return Response(b"", headers={"ETag": f'"{received.hexdigest}"'})


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)


async def lfs_complete(exchange: Exchange) -> Response:
    """``POST`` that joins the parts of a multipart upload."""
    objects, oid, query = _upload_place(exchange)
    body = await json_object(exchange)
    parts = body.get("parts")
    if not isinstance(parts, list) or body.get("oid", oid) != oid:
        raise bad_request("A completion needs the oid and parts: [{partNumber, etag}].")
    etags = [str(part.get("etag", "")) for part in parts if isinstance(part, dict)]
    numbers = [part.get("partNumber") for part in parts if isinstance(part, dict)]
    if numbers != list(range(1, len(parts) + 1)):
        raise bad_request("InvalidPartOrder: parts must be numbered from 1 without gaps.")
    await run_sync(objects.join_parts, oid, int(query["size"]), etags)
    return json_answer({"oid": oid, "success": True}, headers=LFS_TYPE)


async def lfs_verify(exchange: Exchange) -> Response:
    """``POST .../objects/verify``: 404 when the object is not there in the announced size."""
    repository = await exchange.writable()
    body = await json_object(exchange)
    oid, size = body.get("oid"), body.get("size")
    if not isinstance(oid, str) or not _SHA256.fullmatch(oid):
        raise bad_request("Verify needs oid and size.")
    if await run_sync(repository.objects.lfs_size, oid) != size:
        raise HubRefusal(404, f"Object {oid} of {size} bytes is not there. Upload it again.")
    return json_answer({"oid": oid, "size": size}, headers=LFS_TYPE)


async def resolve(exchange: Exchange) -> Response:
    """``HEAD|GET .../resolve/{rev}/{path}``: content of regular files, a redirect to storage for LFS."""
    repository = await exchange.readable()
    commit = exchange.commit_read(repository)
    entry = (await run_sync(repository.tree, commit)).get(exchange.target.path)
    if entry is None:
        raise entry_not_found(commit=commit)
    name = entry.path.rpartition("/")[2]
    disposition = f"inline; filename*=UTF-8''{quote(name)}; filename=\"{quote(name)}\";"
    headers = {"X-Repo-Commit": commit, "Content-Disposition": disposition}
    method, request = exchange.scope["method"], exchange.request
    if entry.lfs:
        query = {"commit": commit, "name": name}
        location = signed_url(exchange, "object", entry.sha256, query, download=True)
        linked = {"X-Linked-Size": str(entry.size), "X-Linked-ETag": f'"{entry.sha256}"'}
        text = f"Found. Redirecting to {location}".encode()
        redirect = {**headers, **linked, "Location": location, "ETag": f'"{entry.oid}"', "Vary": "Accept"}
        return Response(b"" if method == "HEAD" else text, 302, redirect, "text/plain; charset=utf-8")
    path = repository.objects.blob_path(entry.oid)
    encodings = request.headers.get("accept-encoding", "")
    wants_gzip = exchange.hub.options.gzip_text and "gzip" in encodings and "range" not in request.headers
    if wants_gzip and entry.size >= _GZIP_FROM_BYTES:
        content = await run_sync(path.read_bytes)
        if b"\0" not in content:
            return await gzip_answer(content, entry.oid, method=method, headers=headers)
    range_header = request.headers.get("range")
    return await file_answer(path, entry.size, entry.oid, method=method, range_header=range_header, headers=headers)


async def download(exchange: Exchange) -> Response:
    """``HEAD|GET`` of an LFS object by the signed address that resolve gave."""
    query = _granted(exchange)
    assert exchange.target.repo_type is not None
    assert exchange.target.repo_id is not None
    repository = exchange.hub.state.get(exchange.target.repo_type, exchange.target.repo_id)
    oid = exchange.target.path
    size = await run_sync(repository.objects.lfs_size, oid)
    if size is None:
        raise HubRefusal(404, "NoSuchKey: the object does not exist.")
    headers = {"X-Repo-Commit": query["commit"], "X-Linked-Size": str(size), "X-Linked-ETag": f'"{oid}"'}
    headers["Content-Disposition"] = f"inline; filename*=UTF-8''{quote(query['name'])};"
    return await file_answer(
        repository.objects.lfs_path(oid),
        size,
        oid,
        method=exchange.scope["method"],
        range_header=exchange.request.headers.get("range"),
        headers=headers,
    )
