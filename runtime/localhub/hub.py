"""The local Hub as an ASGI application: from a request to its target, through the fault rules, to its answer."""

import contextlib
import itertools
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from . import api_content, api_repos, api_storage
from .access import Access
from .answers import refusal_answer
from .control import control
from .exchange import ConnectionDropped, Exchange, Stalls
from .fault_actions import Handle, run_with_faults, select_rules
from .faults import Faults, load_fault_script
from .journal import JsonLines
from .options import HubServeOptions
from .problems import HubRefusal
from .quota import Quotas
from .repository import Repository
from .state import HubState, parse_repo_name
from .targets import STORAGE_KINDS, Kind, find_target

_LOG_ROWS = 100_000
_log = logging.getLogger("conveyor.localhub")

_HANDLES: dict[Kind, Handle] = {
    "whoami": api_repos.whoami,
    "agent-harnesses": api_repos.agent_harnesses,
    "validate-yaml": api_repos.validate_yaml,
    "repo-create": api_repos.create,
    "repo-delete": api_repos.delete,
    "repo-info": api_repos.info,
    "auth-check": api_repos.auth_check,
    "refs": api_repos.refs,
    "branch-create": api_repos.branch_create,
    "branch-delete": api_repos.branch_delete,
    "tag-create": api_repos.tag_create,
    "tag-delete": api_repos.tag_delete,
    "super-squash": api_repos.super_squash,
    "commits": api_repos.commits,
    "preupload": api_content.preupload,
    "commit": api_content.commit,
    "paths-info": api_content.paths_info,
    "tree": api_content.tree,
    "resolve": api_storage.resolve,
    "lfs-batch": api_storage.lfs_batch,
    "lfs-verify": api_storage.lfs_verify,
    "lfs-put": api_storage.lfs_put,
    "lfs-part": api_storage.lfs_part,
    "lfs-complete": api_storage.lfs_complete,
    "download": api_storage.download,
    "control": control,
}


class _NumberedRow(msgspec.Struct):
    n: int


class LocalHub:
    """All of one local Hub but its sockets. Blocks while it opens its directory; close it when done.

    Raises:
        HubRootUnusable: the directory cannot be served.
        FaultScriptInvalid: the fault script of the options cannot be used.
    """

    def __init__(self, options: HubServeOptions, *, now_unix_ms: Callable[[], int] | None = None) -> None:
        self.options = options
        self.faults = Faults()
        if options.faults is not None:
            self.faults.install(load_fault_script(options.faults))
        self.state = HubState(options.root, sync=options.sync, now_unix_ms=now_unix_ms)
        try:
            self._request_log = JsonLines(options.root / "requests.jsonl", sync=False)
            for name in options.repositories:
                self.state.create(*parse_repo_name(name))
        except BaseException:
            self.state.close()
            raise
        self.access = Access(options)
        self.quotas = Quotas(options, self.state.now_unix_ms)
        self.stalls = Stalls()
        self.log: deque[dict[str, Any]] = deque(maxlen=_LOG_ROWS)
        self._numbers = itertools.count(self._last_number() + 1)
        self._busy: set[Repository] = set()

    def _last_number(self) -> int:
        decoder = msgspec.json.Decoder(_NumberedRow)
        with self._request_log.path.open("rb") as lines:
            logged = max((decoder.decode(line).n for line in lines), default=0)
        return max([logged, *(record.request or 0 for record in self.state.commits())])

    def take_commit_slot(self, repository: Repository) -> bool:
        """Whether the repository's one commit slot was free; it is the caller's then."""
        if repository in self._busy:
            return False
        self._busy.add(repository)
        return True

    def free_commit_slot(self, repository: Repository) -> None:
        """Give the slot back."""
        self._busy.discard(repository)

    def close(self) -> None:
        """End stalls and close the files. Requests still running fail."""
        self.stalls.close()
        self.state.close()
        self._request_log.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"The local Hub speaks HTTP alone, not {scope['type']}.")
        target = find_target(scope["method"], scope["raw_path"].decode("ascii"))
        number = next(self._numbers) if target.kind != "control" else 0
        exchange = Exchange(self, scope, receive, send, target, number, f"Root=1-{uuid.uuid4().hex}")
        exchange.answer_headers = {"X-Request-Id": exchange.request_id, "Date": formatdate(usegmt=True)}
        started_s, outcome = time.monotonic(), "failed"
        try:
            answer = await self._answer(exchange)
            await answer(scope, exchange.receive, exchange.send)
            outcome = "answered" if exchange.answer_complete else "disconnected"
        except ConnectionDropped as dropped:
            outcome = "dropped"
            await exchange.close_connection(reset=dropped.reset)
        except ClientDisconnect:
            outcome = "disconnected"
        except Exception:
            if self.stalls.closing:
                outcome = "dropped"
                await exchange.close_connection(reset=True)
                return
            _log.exception("The local Hub failed on %s %s", scope["method"], scope["path"])
            raise
        finally:
            if number:
                self._note(exchange, outcome, time.monotonic() - started_s)

    async def _answer(self, exchange: Exchange) -> Response:
        fired = [] if exchange.target.kind == "control" else await select_rules(exchange)
        try:
            if exchange.target.kind not in STORAGE_KINDS:
                exchange.identity = self.access.identify(exchange.request.headers.get("authorization"))
            rate_class = exchange.target.rate_class
            if rate_class is not None:
                key = exchange.identity.key if exchange.identity else "anonymous"
                exchange.answer_headers |= self.quotas.count(rate_class, key)
        except HubRefusal as refusal:
            refused = refusal_answer(refusal)

            async def refuse(_: Exchange) -> Response:
                return refused

            return await run_with_faults(exchange, fired, refuse)
        return await run_with_faults(exchange, fired, _handle)

    def _note(self, exchange: Exchange, outcome: str, duration_s: float) -> None:
        target, now = exchange.target, self.state.now_unix_ms()
        row = {
            "n": exchange.number,
            "time_unix_ms": now,
            "duration_ms": round(duration_s * 1000, 1),
            "method": exchange.scope["method"],
            "path": exchange.scope["raw_path"].decode("ascii"),
            "kind": target.kind,
            "repo_type": target.repo_type,
            "repo": target.repo_id,
            "status": exchange.status,
            "outcome": outcome,
            "bytes_in": exchange.received_bytes,
            "bytes_out": exchange.sent_bytes,
            "user": exchange.identity.user if exchange.identity else None,
            "user_agent": exchange.request.headers.get("user-agent"),
            "authorized": "authorization" in exchange.request.headers,
            "faults": exchange.fired,
            "commit": exchange.commit_id,
            "request_id": exchange.request_id,
        }
        self.log.append(row)
        # One small append without sync is not worth a thread, and a full disk must not spoil an answer that was given.
        with contextlib.suppress(OSError):
            self._request_log.append(row)


async def _handle(exchange: Exchange) -> Response:
    handle = _HANDLES.get(exchange.target.kind)
    if handle is None:
        return refusal_answer(HubRefusal(404, "Sorry, we can't find the page you are looking for."))
    try:
        return await handle(exchange)
    except HubRefusal as refusal:
        return refusal_answer(refusal)
    except OSError as error:
        message = f"The local Hub cannot use its directory {exchange.hub.options.root}: {error.strerror or error}"
        return refusal_answer(HubRefusal(500, message))
