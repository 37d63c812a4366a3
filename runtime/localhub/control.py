"""Control calls under ``/_control/``: faults, stalls, time, tokens, and what happened so far."""

from typing import Any

import msgspec
from anyio.to_thread import run_sync
from starlette.responses import Response

from .answers import json_answer
from .api_repos import json_object
from .exchange import Exchange
from .faults import parse_fault_script
from .foreign import commit_foreign
from .problems import FaultScriptInvalid, HubRefusal, bad_request
from .state import parse_repo_name


async def control(exchange: Exchange) -> Response:
    """Answer a control call; changes must be sent as JSON, which no foreign web page can do."""
    hub, method, what = exchange.hub, exchange.scope["method"], exchange.target.path
    if not hub.options.control:
        raise HubRefusal(404, "Control calls are switched off for this local Hub.")
    content_type = exchange.request.headers.get("content-type", "")
    if method == "POST" and not content_type.startswith("application/json"):
        raise bad_request("Control calls need Content-Type: application/json.")
    match (method, what):
        case ("GET", "faults"):
            return json_answer({**hub.faults.state(), "stalled": hub.stalls.waiting()})
        case ("POST", "faults"):
            try:
                script = parse_fault_script(await exchange.request.body(), source="the posted fault script")
            except FaultScriptInvalid as error:
                raise bad_request(str(error)) from error
            hub.faults.install(script)
            return json_answer(hub.faults.state())
        case ("DELETE", "faults"):
            hub.faults.clear()
            hub.access.restore()
            return json_answer({"released": hub.stalls.release()})
        case ("POST", "release"):
            rule = (await json_object(exchange)).get("rule")
            return json_answer({"released": hub.stalls.release(rule)})
        case ("POST", "clock"):
            seconds = (await json_object(exchange)).get("advance_s")
            if not isinstance(seconds, (int, float)) or seconds < 0:
                raise bad_request("advance_s must be a number of seconds of at least 0.")
            hub.state.clock_offset_s += float(seconds)
            return json_answer({"now_unix_ms": hub.state.now_unix_ms()})
        case ("POST", "tokens"):
            body = await json_object(exchange)
            if body.get("revoke") is True:
                hub.access.revoke()
            elif body.get("restore") is True:
                hub.access.restore()
            else:
                raise bad_request('Send {"revoke": true} or {"restore": true}.')
            return json_answer({})
        case ("GET", "log"):
            since = exchange.number_parameter("since", 0)
            return json_answer([line for line in list(hub.log) if line["n"] > since])
        case ("GET", "commits"):
            repo = exchange.request.query_params.get("repo")
            records = await run_sync(lambda: hub.state.commits(**({"repo": repo} if repo else {})))
            return json_answer(msgspec.to_builtins(records))
        case ("POST", "commits"):
            return await _foreign_commit(exchange, await json_object(exchange))
        case ("GET", "state"):
            repositories = [
                {"type": item.repo_type, "id": item.repo_id, "private": item.private, "refs": dict(item.refs)}
                for item in hub.state.repositories()
            ]
            return json_answer({"now_unix_ms": hub.state.now_unix_ms(), "repositories": repositories})
    raise HubRefusal(404, f"There is no control call {method} {what}. See docs/local-hub.md.")


async def _foreign_commit(exchange: Exchange, body: dict[str, Any]) -> Response:
    try:
        repo_type, repo_id = parse_repo_name(str(body.get("repo", "")))
        files = msgspec.convert(body.get("files"), dict[str, str] | None)
        delete = msgspec.convert(body.get("delete", []), list[str])
    except (ValueError, msgspec.ValidationError) as error:
        raise bad_request(f"A foreign commit needs repo, files (text by path) or delete (paths): {error}") from error
    state = exchange.hub.state
    repository = state.get(repo_type, repo_id)
    revision, title = str(body.get("revision", "main")), str(body.get("title", "Commit of another writer"))
    record = await run_sync(commit_foreign, state, repository, revision, title, files, delete)
    return json_answer(msgspec.to_builtins(record))
