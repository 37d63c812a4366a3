"""Preupload, commit, paths-info and tree (hub API notes sections 4, 5 and 8)."""

import base64
import binascii
import re
from typing import Any
from urllib.parse import parse_qsl

from anyio.to_thread import run_sync
from starlette.responses import Response

from .answers import json_answer
from .api_repos import json_object, repo_url
from .commit_body import CommitBody, checked_path, parse_commit_body
from .exchange import Exchange
from .landing import CommitDraft, land
from .patterns import ignored, lfs_by_attributes
from .problems import HubRefusal, bad_request, entry_not_found, too_large
from .records import CommitRecord, FileEntry
from .repository import Repository

PREUPLOAD_LIMIT = 256
PATHS_LIMIT = 1000
IN_PROGRESS = "Another commit operation is in progress for this repository. Please retry later."


async def preupload(exchange: Exchange) -> Response:
    """``POST .../preupload/{rev}``: inline or LFS, by attributes, size and sample."""
    repository = await exchange.writable()
    body = await json_object(exchange)
    commit = exchange.commit_read(repository)
    files, git_ignore = body.get("files"), body.get("gitIgnore")
    if not isinstance(files, list) or len(files) > PREUPLOAD_LIMIT:
        raise bad_request(f"files must be a list of at most {PREUPLOAD_LIMIT} entries; ask in several requests.")
    return json_answer({"files": await run_sync(_judge, exchange, repository, commit, files, git_ignore)})


def _judge(
    exchange: Exchange, repository: Repository, commit: str, files: list[Any], git_ignore: object
) -> list[dict[str, Any]]:
    attributes = repository.text_at(commit, ".gitattributes")
    ignore_text = git_ignore if isinstance(git_ignore, str) else repository.text_at(commit, ".gitignore")
    tree = repository.tree(commit)
    rows = []
    for item in files:
        if not isinstance(item, dict) or not isinstance(item.get("size"), int):
            raise bad_request("Each entry of files needs path, size and sample.")
        path = checked_path(item.get("path"))
        try:
            sample = base64.b64decode(str(item.get("sample", "")), validate=True)
        except (binascii.Error, ValueError) as error:
            raise bad_request(f"The sample of {path} is not base64.") from error
        large = item["size"] > exchange.hub.options.regular_limit_bytes
        lfs = lfs_by_attributes(attributes, path) or large or _binary(sample)
        row: dict[str, Any] = {
            "path": path,
            "uploadMode": "lfs" if lfs else "regular",
            "shouldIgnore": ignored(ignore_text, path),
        }
        if path in tree:
            row["oid"] = tree[path].content_oid
        rows.append(row)
    return rows


def _binary(sample: bytes) -> bool:
    if b"\0" in sample:
        return True
    try:
        # The sample may end within a character of up to four bytes.
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(sample) - 3 or error.reason != "unexpected end of data"
    return False


async def commit(exchange: Exchange) -> Response:
    """``POST .../commit/{rev}``: all lines land in one commit, or none."""
    hub, request = exchange.hub, exchange.request
    repository = await exchange.writable()
    create_pr = request.query_params.get("create_pr", "") in {"1", "true"}
    revision = exchange.target.revision or "main"
    base = repository.resolve(revision)
    ref = _next_pull_request(repository) if create_pr else repository.ref_for_commit(revision)
    limit = hub.options.commit_body_limit_bytes
    pieces, size_bytes = [], 0
    async for piece in request.stream():
        size_bytes += len(piece)
        if size_bytes > limit:
            raise too_large(f"The commit is larger than {limit} bytes. Split it into several commits.")
        pieces.append(piece)
    body = await run_sync(_parse, pieces, hub.options.inline_limit_bytes)
    if not hub.take_commit_slot(repository):
        raise HubRefusal(409, IN_PROGRESS)
    try:
        await hub.stalls.pause(exchange.hold_s)
        if exchange.hold_slot:
            await hub.stalls.wait(exchange.fired, None)
        hub.quotas.require_commit_left(repository)
        draft = CommitDraft(
            ref,
            body.parent,
            body.title,
            body.description,
            exchange.identity.user if exchange.identity else "",
            body.operations,
            request=exchange.number,
            base=base if create_pr else None,
        )
        record = await run_sync(lambda: land(hub.state, repository, draft, folder_limit=hub.options.folder_limit))
    finally:
        hub.free_commit_slot(repository)
    exchange.commit_id = record.id
    url = repo_url(exchange, repository.repo_type, repository.repo_id)
    answer = {"success": True, "commitOid": record.id, "commitUrl": f"{url}/commit/{record.id}", "hookOutput": ""}
    if create_pr:
        answer["pullRequestUrl"] = f"{url}/discussions/{ref.rpartition('/')[2]}"
    return json_answer(answer)


def _parse(pieces: list[bytes], inline_limit_bytes: int) -> CommitBody:
    return parse_commit_body(b"".join(pieces), inline_limit_bytes=inline_limit_bytes)


def _next_pull_request(repository: Repository) -> str:
    numbers = [int(ref.rpartition("/")[2]) for ref in repository.refs if re.fullmatch(r"refs/pr/\d+", ref)]
    return f"refs/pr/{max(numbers, default=0) + 1}"


async def paths_info(exchange: Exchange) -> Response:
    """``POST .../paths-info/{rev}``: form or JSON; unknown paths are left out."""
    repository = await exchange.readable()
    commit_id = exchange.commit_read(repository)
    paths, expand = await requested_paths(exchange)
    if len(paths) > PATHS_LIMIT:
        raise too_large(f"At most {PATHS_LIMIT} paths a request; {len(paths)} were asked for.")
    return json_answer(await run_sync(_path_rows, repository, commit_id, paths, expand))


async def requested_paths(exchange: Exchange) -> tuple[list[str], bool]:
    """The paths and the expand flag of a paths-info request."""
    if exchange.request.headers.get("content-type", "").startswith("application/json"):
        body = await json_object(exchange)
        paths = body.get("paths", [])
        paths = [paths] if isinstance(paths, str) else paths
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise bad_request("paths must be a list of texts.")
        return paths, body.get("expand") is True
    text = (await exchange.request.body()).decode("utf-8", "replace")
    pairs = parse_qsl(text, keep_blank_values=True)
    expand = any(key == "expand" and value.lower() in {"true", "1"} for key, value in pairs)
    return [value for key, value in pairs if key in {"paths", "paths[]"}], expand


def _path_rows(repository: Repository, commit_id: str, paths: list[str], expand: bool) -> list[dict[str, Any]]:
    tree = repository.tree(commit_id)
    folders: dict[str, str] | None = None
    rows = []
    for path in dict.fromkeys(paths):
        clean = path.strip("/")
        if clean in tree:
            rows.append(_file_row(tree[clean]))
            continue
        folders = repository.folders(commit_id) if folders is None else folders
        if clean and clean in folders:
            rows.append(_folder_row(clean, folders[clean]))
    return _expanded(repository, commit_id, rows) if expand else rows


def _file_row(entry: FileEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "file", "oid": entry.oid, "size": entry.size, "path": entry.path}
    if entry.lfs:
        row["lfs"] = {"oid": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
    return row


def _folder_row(path: str, oid: str) -> dict[str, Any]:
    return {"type": "directory", "oid": oid, "size": 0, "path": path}


def _expanded(repository: Repository, commit_id: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    newest: dict[str, CommitRecord] = repository.last_commits(commit_id, {row["path"] for row in rows})
    for row in rows:
        record = newest[row["path"]]
        row["lastCommit"] = {"id": record.id, "title": record.title, "date": record.time}
        if row["type"] == "file":
            scan = {"status": "unscanned"}
            row["securityFileStatus"] = {"status": "unscanned", "avScan": scan, "pickleImportScan": scan}
    return rows


async def tree(exchange: Exchange) -> Response:
    """``GET .../tree/{rev}[/{path}]``: files and folders, paged."""
    repository = await exchange.readable()
    commit_id = exchange.commit_read(repository)
    query, options = exchange.request.query_params, exchange.hub.options
    expand = query.get("expand", "").lower() in {"true", "1"}
    recursive = query.get("recursive", "").lower() in {"true", "1"}
    most = options.tree_page_expanded if expand else options.tree_page
    limit = min(exchange.number_parameter("limit", most), most) or 1
    cursor = query.get("cursor", "")
    rows, last = await run_sync(
        _tree_rows, repository, commit_id, exchange.target.path.strip("/"), recursive, cursor, limit
    )
    if expand:
        rows = await run_sync(_expanded, repository, commit_id, rows)
    headers = {"X-Repo-Commit": commit_id}
    if last:
        headers["Link"] = exchange.next_link(cursor=last)
    return json_answer(rows, headers=headers)


def _tree_rows(
    repository: Repository, commit_id: str, folder: str, recursive: bool, cursor: str, limit: int
) -> tuple[list[dict[str, Any]], str]:
    files, folders = repository.tree(commit_id), repository.folders(commit_id)
    if folder and folder not in folders:
        raise entry_not_found(f"{folder} does not exist on this revision", commit=commit_id)
    prefix = f"{folder}/" if folder else ""
    names = [
        path
        for path in {*files, *folders} - {""}
        if path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :]) and path > cursor
    ]
    names.sort()
    page = names[:limit]
    rows = [_file_row(files[path]) if path in files else _folder_row(path, folders[path]) for path in page]
    return rows, page[-1] if len(names) > limit else ""
