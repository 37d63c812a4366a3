"""What the rules that fired do to a request: before it is handled, instead of it, and to its answer."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from anyio.to_thread import run_sync
from starlette.responses import Response

from . import faults as f
from .answers import json_answer, refusal_answer
from .exchange import ConnectionDropped, Exchange
from .foreign import commit_foreign
from .problems import HubRefusal
from .quota import commit_quota_words, rate_limit_headers

Handle = Callable[[Exchange], Awaitable[Response]]


async def request_paths(exchange: Exchange) -> tuple[str, ...]:
    """The paths (or LFS object ids) that a request names, read from its body where they are there."""
    target = exchange.target
    try:
        if target.kind == "paths-info" and "json" not in exchange.request.headers.get("content-type", ""):
            pairs = parse_qsl((await exchange.request.body()).decode("utf-8", "replace"))
            return tuple(value for key, value in pairs if key.startswith("paths"))
        if target.kind == "commit":
            lines = [line for line in (await exchange.request.body()).split(b"\n") if line.strip()]
            values = [msgspec.json.decode(line)["value"] for line in lines]
            return tuple(value["path"] for value in values if "path" in value)
        if target.kind in {"preupload", "paths-info", "lfs-batch", "lfs-verify"}:
            body: dict[str, Any] = msgspec.json.decode(await exchange.request.body())
            if target.kind == "lfs-verify":
                return (str(body["oid"]),)
            rows = body.get("files") or body.get("objects") or body.get("paths") or []
            return tuple(row if isinstance(row, str) else str(row.get("path") or row.get("oid")) for row in rows)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return ()
    return (target.path,) if target.path else ()


async def select_rules(exchange: Exchange) -> list[f.Rule]:
    """The rules that fire for this request."""
    target, rules = exchange.target, exchange.hub.faults
    paths = await request_paths(exchange) if rules.wants_paths(target.kind) else None
    facts = f.RequestFacts(exchange.scope["method"], target.kind, target.repo_id, target.revision, paths)
    fired = rules.select(facts)
    exchange.fired.extend(rule.name for rule in fired)
    return fired


async def run_with_faults(exchange: Exchange, fired: list[f.Rule], handle: Handle) -> Response:
    """Handle a request under the rules that fired; their actions take effect in script order.

    Raises:
        ConnectionDropped: the client gets no answer.
    """
    hub = exchange.hub
    instead: Response | None = None
    after: list[f.Action] = []
    for action in (action for rule in fired for action in rule.actions()):
        match action:
            case f.Delay(before_s=before_s, hold_s=hold_s):
                await hub.stalls.pause(before_s)
                exchange.hold_s += hold_s
                after.append(action)
            case f.ForeignCommit():
                await _foreign(exchange, action)
            case f.RevokeToken():
                if exchange.identity is not None:
                    hub.access.revoke(exchange.identity.key)
                    exchange.identity = None
                    instead = instead or refusal_answer(HubRefusal(401, "Invalid credentials in Authorization header"))
            case f.Lag(commits=commits):
                exchange.lag_commits = commits
            case f.ExpireGrant(after_s=after_s):
                exchange.url_ttl_s = after_s
            case f.DropBefore(reset=reset):
                raise ConnectionDropped(reset=reset)
            case f.StallRequest(after_bytes=after_bytes):
                exchange.stall_request_after = after_bytes
            case f.StallAnswer(after_bytes=after_bytes):
                exchange.stall_answer_after = after_bytes
            case f.HoldSlot():
                exchange.hold_slot = True
            case f.Truncate(after_bytes=cut):
                exchange.truncate_after, exchange.truncate_half = cut, cut is None
            case f.Corrupt(at_byte=at_byte):
                exchange.corrupt_at = at_byte
            case f.Status():
                instead = instead or _status_answer(action)
            case f.RateLimit():
                instead = instead or _rate_limit_answer(exchange, action)
            case _:
                after.append(action)
    answer = instead if instead is not None else await handle(exchange)
    for action in after:
        match action:
            case f.Delay(after_s=after_s):
                await hub.stalls.pause(after_s)
            case f.LandThenStatus():
                answer = _status_answer(action)
            case f.LandThenDrop(reset=reset):
                raise ConnectionDropped(reset=reset)
    return answer


async def _foreign(exchange: Exchange, action: f.ForeignCommit) -> None:
    target, hub = exchange.target, exchange.hub
    if target.repo_type is None or target.repo_id is None:
        return
    repository = hub.state.find(target.repo_type, target.repo_id)
    if repository is not None:
        revision = target.revision or "main"
        await run_sync(commit_foreign, hub.state, repository, revision, action.title, action.files, action.delete)


def _status_answer(action: f.Status | f.LandThenStatus) -> Response:
    if isinstance(action.body, str):
        answer = Response(action.body, action.status, media_type="text/plain")
    else:
        body = action.body or {"error": action.error_message or f"Scripted answer with status {action.status}."}
        answer = json_answer(body, status=action.status)
    if action.error_code is not None:
        answer.headers["X-Error-Code"] = action.error_code
    if action.error_message is not None:
        answer.headers["X-Error-Message"] = action.error_message
    if action.retry_after_s is not None:
        answer.headers["Retry-After"] = str(action.retry_after_s)
    for name, value in action.headers.items():
        answer.headers[name] = value
    return answer


def _rate_limit_answer(exchange: Exchange, action: f.RateLimit) -> Response:
    headers = {} if action.retry_after_s is None else {"Retry-After": str(action.retry_after_s)}
    if action.scope == "commits":
        return refusal_answer(HubRefusal(429, commit_quota_words(128), headers=headers))
    rate_class = exchange.target.rate_class or "api"
    exchange.answer_headers.pop("RateLimit", None)
    exchange.answer_headers.pop("RateLimit-Policy", None)
    headers |= rate_limit_headers(rate_class, 0, action.reset_s, 1000)
    return refusal_answer(HubRefusal(429, "We had to rate limit you.", headers=headers))
