"""Accounts, repositories, refs and history (hub API notes section 3)."""

from typing import Any
from urllib.parse import quote

import msgspec
import yaml  # type: ignore[import-untyped]
from anyio.to_thread import run_sync
from starlette.responses import Response

from .answers import json_answer
from .exchange import Exchange
from .landing import squash
from .problems import HubRefusal, bad_request, forbidden, repo_not_found, revision_not_found, unauthorised
from .records import REPO_TYPES, RepoType, iso_time
from .repository import Repository


async def json_object(exchange: Exchange) -> dict[str, Any]:
    """The request's JSON object.

    Raises:
        HubRefusal: 400; it is something else.
    """
    body = await exchange.request.body()
    try:
        value = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"The body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("The body must be a JSON object.")
    return value


def repo_url(exchange: Exchange, repo_type: RepoType, repo_id: str) -> str:
    """The address of a repository's page."""
    prefix = "" if repo_type == "model" else f"{repo_type}s/"
    return f"{exchange.base_url}/{prefix}{repo_id}"


async def whoami(exchange: Exchange) -> Response:
    """``GET /api/whoami-v2``."""
    if exchange.identity is None:
        raise unauthorised()
    return json_answer(exchange.identity.whoami())


async def agent_harnesses(exchange: Exchange) -> Response:
    """``GET /api/agent-harnesses``: nothing is known, which every client takes."""
    return json_answer({})


async def validate_yaml(exchange: Exchange) -> Response:
    """``POST /api/validate-yaml``: the metadata block of a README must be a YAML mapping."""
    content = str((await json_object(exchange)).get("content", ""))
    lines = content.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---" or "---" not in [line.rstrip() for line in lines[1:]]:
        return json_answer({"errors": [], "warnings": [{"message": "empty or missing yaml metadata in repo card"}]})
    end = next(number for number, line in enumerate(lines[1:], start=1) if line.rstrip() == "---")
    message = ""
    try:
        metadata = yaml.safe_load("\n".join(lines[1:end]))
        if metadata is not None and not isinstance(metadata, dict):
            message = "YAML metadata should be an object"
    except yaml.YAMLError as error:
        message = f"Invalid YAML: {error}"
    if message:
        return json_answer({"errors": [{"message": message}], "warnings": [], "error": message}, status=400)
    return json_answer({"errors": [], "warnings": []})


def _named_repository(exchange: Exchange, body: dict[str, Any]) -> tuple[RepoType, str]:
    repo_type, name = body.get("type") or "model", body.get("name")
    if repo_type not in REPO_TYPES or not isinstance(name, str):
        raise bad_request("A repository needs a name and a type of model, dataset or space.")
    if "/" in name:
        return repo_type, name
    if exchange.identity is None:
        raise unauthorised()
    return repo_type, f"{body.get('organization') or exchange.identity.user}/{name}"


async def create(exchange: Exchange) -> Response:
    """``POST /api/repos/create``: 409 with the address when it exists."""
    body = await json_object(exchange)
    if exchange.identity is None:
        raise unauthorised()
    repo_type, repo_id = _named_repository(exchange, body)
    if not exchange.identity.may_write(repo_id):
        namespace = repo_id.partition("/")[0]
        raise forbidden(f'You don\'t have the rights to create a {repo_type} under the namespace "{namespace}"')
    private = body.get("visibility") == "private" or bool(body.get("private"))
    state = exchange.hub.state
    repository, made = await run_sync(lambda: state.create(repo_type, repo_id, private=private))
    url = repo_url(exchange, repo_type, repository.repo_id)
    if not made:
        message = f"You already created this {repo_type} repo: {repo_id}"
        return json_answer({"error": message, "url": url}, status=409, headers={"X-Error-Message": message})
    return json_answer({"url": url, "name": repository.repo_id, "id": repository.repo_id})


async def delete(exchange: Exchange) -> Response:
    """``DELETE /api/repos/delete``."""
    repo_type, repo_id = _named_repository(exchange, await json_object(exchange))
    state = exchange.hub.state
    if state.find(repo_type, repo_id) is None and exchange.identity is not None:
        raise repo_not_found()
    exchange.hub.access.writable(state, exchange.identity, repo_type, repo_id)
    await run_sync(state.delete, repo_type, repo_id)
    return Response("OK")


async def auth_check(exchange: Exchange) -> Response:
    """``GET .../auth-check[/write]``."""
    if exchange.target.path == "write":
        await exchange.writable()
    elif exchange.target.path:
        raise HubRefusal(404, "Sorry, we can't find the page you are looking for.")
    else:
        await exchange.readable()
    return Response("OK")


async def info(exchange: Exchange) -> Response:
    """``GET /api/{type}s/{id}[/revision/{rev}]`` with ``blobs`` and ``expand``."""
    repository = await exchange.readable()
    commit = exchange.commit_read(repository)
    query = exchange.request.query_params
    blobs = query.get("blobs", "").lower() in {"true", "1"}
    answer = await run_sync(_info, repository, commit, blobs)
    wanted = [*query.getlist("expand"), *query.getlist("expand[]")]
    if wanted:
        answer = {key: value for key, value in answer.items() if key in {"id", "_id", *wanted}}
    return json_answer(answer)


def _info(repository: Repository, commit: str, blobs: bool) -> dict[str, Any]:
    files = [entry for _, entry in sorted(repository.tree(commit).items())]
    siblings: list[dict[str, Any]] = [{"rfilename": entry.path} for entry in files]
    if blobs:
        for row, entry in zip(siblings, files, strict=True):
            row |= {"size": entry.size, "blobId": entry.oid}
            if entry.lfs:
                row["lfs"] = {"sha256": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
    namespace = repository.repo_id.partition("/")[0]
    answer: dict[str, Any] = {
        "_id": repository.commits[commit].id[:24],
        "id": repository.repo_id,
        "author": namespace,
        "sha": commit,
        "createdAt": iso_time(repository.created_unix_ms),
        "lastModified": repository.commits[commit].time,
        "private": repository.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "usedStorage": sum(entry.size for entry in files),
        "siblings": siblings,
    }
    if repository.repo_type == "model":
        answer["modelId"] = repository.repo_id
    return answer


async def refs(exchange: Exchange) -> Response:
    """``GET .../refs``."""
    repository = await exchange.readable()
    found: dict[str, list[dict[str, str]]] = {"branches": [], "converts": [], "tags": [], "pullRequests": []}
    places = {"refs/heads/": "branches", "refs/tags/": "tags", "refs/convert/": "converts", "refs/pr/": "pullRequests"}
    for ref, commit in sorted(repository.refs.items()):
        for prefix, place in places.items():
            if ref.startswith(prefix):
                found[place].append({"name": ref.removeprefix(prefix), "ref": ref, "targetCommit": commit})
    if exchange.request.query_params.get("include_prs", "") not in {"1", "true"}:
        del found["pullRequests"]
    return json_answer(found)


async def commits(exchange: Exchange) -> Response:
    """``GET .../commits/{rev}``: newest first, paged."""
    repository = await exchange.readable()
    commit = exchange.commit_read(repository)
    page = exchange.number_parameter("p", 0)
    limit = min(exchange.number_parameter("limit", exchange.hub.options.commits_page), 1000) or 1
    history = list(repository.history(commit))
    rows: list[dict[str, Any]] = [
        {
            "id": record.id,
            "title": record.title,
            "message": record.description,
            "authors": [{"user": record.author, "avatar": ""}],
            "date": record.time,
        }
        for record in history[page * limit : (page + 1) * limit]
    ]
    if exchange.request.query_params.get("expand[]") == "formatted":
        for row in rows:
            row["formatted"] = {"title": row["title"], "message": row["message"]}
    headers = {"X-Total-Count": str(len(history))}
    if (page + 1) * limit < len(history):
        headers["Link"] = exchange.next_link(p=str(page + 1))
    return json_answer(rows, headers=headers)


async def branch_create(exchange: Exchange) -> Response:
    """``POST .../branch/{name}``: 409 when it exists."""
    repository = await exchange.writable()
    body = await json_object(exchange)
    name = exchange.target.revision or ""
    ref = f"refs/heads/{name}"
    if ref in repository.refs:
        raise HubRefusal(409, f"Reference already exists: {ref}")
    commit = repository.resolve(str(body.get("startingPoint") or "main"))
    await run_sync(exchange.hub.state.move_ref, repository, ref, commit)
    return json_answer({"name": name, "ref": ref, "targetCommit": commit})


async def branch_delete(exchange: Exchange) -> Response:
    """``DELETE .../branch/{name}``; main stays."""
    repository = await exchange.writable()
    name = exchange.target.revision or ""
    if name == "main":
        raise forbidden("The main branch cannot be deleted.")
    return await _drop_ref(exchange, repository, f"refs/heads/{name}")


async def tag_create(exchange: Exchange) -> Response:
    """``POST .../tag/{rev}``: 409 when it exists."""
    repository = await exchange.writable()
    name = (await json_object(exchange)).get("tag")
    if not isinstance(name, str) or not name:
        raise bad_request("A tag needs a name: the field tag.")
    ref = f"refs/tags/{name}"
    if ref in repository.refs:
        raise HubRefusal(409, f"Tag reference already exists: {ref}")
    commit = repository.resolve(exchange.target.revision or "main")
    await run_sync(exchange.hub.state.move_ref, repository, ref, commit)
    return json_answer({"name": name, "ref": ref, "targetCommit": commit})


async def tag_delete(exchange: Exchange) -> Response:
    """``DELETE .../tag/{name}``."""
    repository = await exchange.writable()
    return await _drop_ref(exchange, repository, f"refs/tags/{exchange.target.revision}")


async def _drop_ref(exchange: Exchange, repository: Repository, ref: str) -> Response:
    if ref not in repository.refs:
        raise revision_not_found(ref)
    await run_sync(exchange.hub.state.move_ref, repository, ref, None)
    return Response("OK")


async def super_squash(exchange: Exchange) -> Response:
    """``POST .../super-squash/{branch}``: one commit with the same files replaces the history."""
    repository = await exchange.writable()
    body = await json_object(exchange)
    ref = repository.ref_for_commit(exchange.target.revision or "main")
    title = str(body.get("message") or f"Super-squash branch '{quote(ref)}'")
    author = exchange.identity.user if exchange.identity else ""
    record = await run_sync(squash, exchange.hub.state, repository, ref, title, author)
    return json_answer({"commitId": record.id})
