"""The requests of the Hub's protocol, written out by hand, so that tests can send any one of them alone."""

import base64
import hashlib
import json
from typing import Any

import httpx

API = "/api/datasets/local/data"
# Without certificates to load, and without connections kept beyond an answer.
plain = httpx.Client(verify=False, timeout=20, limits=httpx.Limits(max_keepalive_connections=0))
LFS = "/datasets/local/data.git/info/lfs/objects"


def header(summary: str = "s", **more: str) -> dict[str, Any]:
    """The first line of a commit."""
    return {"key": "header", "value": {"summary": summary, "description": "", **more}}


def put(path: str, content: bytes = b"x") -> dict[str, Any]:
    """A line with an inline file."""
    value = {"path": path, "encoding": "base64", "content": base64.b64encode(content).decode()}
    return {"key": "file", "value": value}


def put_lfs(path: str, content: bytes) -> dict[str, Any]:
    """A line with a file that was uploaded before."""
    digest = hashlib.sha256(content).hexdigest()
    return {"key": "lfsFile", "value": {"path": path, "algo": "sha256", "oid": digest, "size": len(content)}}


def remove(path: str) -> dict[str, Any]:
    """A line that deletes a file."""
    return {"key": "deletedFile", "value": {"path": path}}


def body_of(*lines: dict[str, Any]) -> bytes:
    """The NDJSON body of a commit."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def commit(client: httpx.Client, *lines: dict[str, Any], revision: str = "main", **head: str) -> httpx.Response:
    """Post a commit; a header line is put in front."""
    return client.post(
        f"{API}/commit/{revision}",
        content=body_of(header(**head), *lines),
        headers={"Content-Type": "application/x-ndjson"},
    )


def batch(client: httpx.Client, *contents: bytes) -> list[dict[str, Any]]:
    """Ask where to send LFS objects."""
    objects = [{"oid": hashlib.sha256(content).hexdigest(), "size": len(content)} for content in contents]
    request = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": objects, "hash_algo": "sha256"}
    answer = client.post(f"{LFS}/batch", json=request)
    answer.raise_for_status()
    rows: list[dict[str, Any]] = answer.json()["objects"]
    return rows


def upload(client: httpx.Client, content: bytes) -> None:
    """Upload one LFS object in one piece."""
    (row,) = batch(client, content)
    plain.put(row["actions"]["upload"]["href"], content=content).raise_for_status()
