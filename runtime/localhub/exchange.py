"""One request on its way through the Hub, and what the fault rules do to it on the way."""

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from .access import Identity
from .problems import bad_request, repo_not_found
from .records import RepoType
from .repository import Repository
from .targets import Target

if TYPE_CHECKING:
    from .hub import LocalHub


class ConnectionDropped(Exception):
    """The connection is to be closed without (the rest of) an answer."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__("dropped on purpose")
        self.reset = reset


@dataclass(slots=True)
class Exchange:
    """A request, its target, and the faults laid upon it."""

    hub: "LocalHub"
    scope: Scope
    inner_receive: Receive
    inner_send: Send
    target: Target
    number: int
    request_id: str
    request: Request = field(init=False)
    identity: Identity | None = None
    fired: list[str] = field(default_factory=list)
    answer_headers: dict[str, str] = field(default_factory=dict)
    status: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    hold_s: float = 0.0
    hold_slot: bool = False
    lag_commits: int = 0
    url_ttl_s: float | None = None
    stall_request_after: int | None = None
    stall_answer_after: int | None = None
    truncate_after: int | None = None
    truncate_half: bool = False
    corrupt_at: int | None = None
    commit_id: str | None = None
    answer_complete: bool = False

    def __post_init__(self) -> None:
        self.request = Request(self.scope, self.receive)

    @property
    def lost(self) -> asyncio.Event | None:
        """Set once the client's connection is gone; None in-process, where there is none."""
        connection: Any = self.scope.get("state", {}).get("connection")
        return None if connection is None else connection.lost

    @property
    def base_url(self) -> str:
        """Scheme, host and port by which the client reached the Hub."""
        return f"{self.scope['scheme']}://{self.request.headers.get('host', 'localhost')}"

    def number_parameter(self, name: str, default: int) -> int:
        """A whole number of the query, the default when it is missing.

        Raises:
            HubRefusal: 400; it is not a number or negative.
        """
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if not text.isdecimal():
            raise bad_request(f"{name} must be a number of at least 0.")
        return int(text)

    def next_link(self, **changed: str) -> str:
        """The ``Link`` header of a page that is not the last: this address with other query parameters."""
        pairs = [pair for pair in self.request.query_params.multi_items() if pair[0] not in changed]
        path = self.scope["raw_path"].decode("ascii")
        return f'<{self.base_url}{path}?{urlencode([*pairs, *changed.items()])}>; rel="next"'

    async def readable(self) -> Repository:
        """The repository that the address names, if the token may read it.

        Raises:
            HubRefusal: 401, 404.
        """
        repo_type, repo_id = self._repo_name()
        return await run_sync(self.hub.access.readable, self.hub.state, self.identity, repo_type, repo_id)

    async def writable(self) -> Repository:
        """The repository that the address names, if the token may write to it.

        Raises:
            HubRefusal: 401, 403, 404.
        """
        repo_type, repo_id = self._repo_name()
        return await run_sync(self.hub.access.writable, self.hub.state, self.identity, repo_type, repo_id)

    def commit_read(self, repository: Repository) -> str:
        """The commit that a read is answered from: what the revision stands for, or stood for when reads lag.

        Raises:
            HubRefusal: 404 ``RevisionNotFound``.
        """
        revision = self.target.revision or "main"
        commit = repository.resolve(revision)
        if commit.startswith(revision):
            return commit  # a commit id is exact
        return [record.id for record in islice(repository.history(commit), self.lag_commits + 1)][-1]

    def _repo_name(self) -> tuple[RepoType, str]:
        if self.target.repo_type is None or self.target.repo_id is None:
            raise repo_not_found()
        return self.target.repo_type, self.target.repo_id

    async def receive(self) -> Message:
        """The next piece of the request; stops here when a rule says so."""
        if self.stall_request_after is not None and self.received_bytes >= self.stall_request_after:
            self.stall_request_after = None
            await self.hub.stalls.wait(self.fired, self.lost)
        message = await self.inner_receive()
        if message["type"] == "http.request":
            self.received_bytes += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """Send a piece of the answer, damaged, cut or held back as the rules say.

        Raises:
            ClientDisconnect: nobody is there to take it.
            ConnectionDropped: a rule cuts the answer here.
        """
        if self.lost is not None and self.lost.is_set():
            raise ClientDisconnect
        if message["type"] == "http.response.start":
            if self.stall_answer_after == 0:
                await self._stall_answer()
            self.status = message["status"]
            headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in self.answer_headers.items()]
            message = {**message, "headers": [*message.get("headers", []), *headers]}
            await self.inner_send(message)
            return
        if message["type"] != "http.response.body":
            await self.inner_send(message)
            return
        await self._send_body(message.get("body", b""), message.get("more_body", False))

    async def _send_body(self, body: bytes, more_body: bool) -> None:
        start = self.sent_bytes
        if self.corrupt_at is not None and start <= self.corrupt_at < start + len(body):
            offset = self.corrupt_at - start
            body = body[:offset] + bytes([body[offset] ^ 0xFF]) + body[offset + 1 :]
        if self.truncate_half:
            self.truncate_half = False
            self.truncate_after = start + len(body) // 2
        if self.truncate_after is not None and start + len(body) >= self.truncate_after:
            await self._write(body[: self.truncate_after - start], more_body=True)
            raise ConnectionDropped
        stall_after = self.stall_answer_after
        if stall_after is not None and start + len(body) >= stall_after:
            await self._write(body[: stall_after - start], more_body=True)
            body = body[stall_after - start :]
            await self._stall_answer()
        await self._write(body, more_body=more_body)

    async def _stall_answer(self) -> None:
        self.stall_answer_after = None
        await self.hub.stalls.wait(self.fired, self.lost)

    async def _write(self, body: bytes, *, more_body: bool) -> None:
        self.sent_bytes += len(body)
        self.answer_complete = not more_body and not (self.lost is not None and self.lost.is_set())
        await self.inner_send({"type": "http.response.body", "body": body, "more_body": more_body})

    async def close_connection(self, *, reset: bool) -> None:
        """Close the client's connection now, and wait until the server knows that it is closed.

        Raises:
            ConnectionResetError: the Hub runs in-process without sockets.
        """
        connection: Any = self.scope.get("state", {}).get("connection")
        if connection is None:
            raise ConnectionResetError("The local Hub closed the connection on purpose.")
        if reset:
            connection.transport.abort()
        else:
            connection.transport.close()
        await connection.lost.wait()


class Stalls:
    """Requests that stand still until someone releases them or the Hub closes."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, tuple[str, ...]] = {}
        self._closing = asyncio.Event()

    @property
    def closing(self) -> bool:
        """Whether the Hub is shutting down."""
        return self._closing.is_set()

    def waiting(self) -> list[str]:
        """Names of the rules whose requests stand still now."""
        return [name for names in self._waiting.values() for name in names]

    async def wait(self, rules: list[str], lost: asyncio.Event | None) -> None:
        """Stand still until released; ``lost`` is set when the client's connection is gone.

        Raises:
            ConnectionDropped: the Hub is closing, or the client left.
        """
        gate = asyncio.Event()
        if not self.closing:
            self._waiting[gate] = tuple(rules)
            waits = [asyncio.ensure_future(event.wait()) for event in (gate, lost) if event is not None]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                self._waiting.pop(gate, None)
        if self.closing or (lost is not None and lost.is_set()):
            raise ConnectionDropped(reset=True)

    async def pause(self, seconds: float) -> None:
        """Wait so long, cut short by the Hub's closing.

        Raises:
            ConnectionDropped: the Hub is closing.
        """
        if seconds > 0:
            try:
                await asyncio.wait_for(self._closing.wait(), seconds)
            except TimeoutError:
                return
            raise ConnectionDropped(reset=True)

    def release(self, rule: str | None = None) -> int:
        """Let the requests of a rule (all by default) go on; returns how many."""
        gates = [gate for gate, names in self._waiting.items() if rule is None or rule in names]
        for gate in gates:
            gate.set()
        return len(gates)

    def close(self) -> None:
        """End all waits; their connections are closed."""
        self._closing.set()
        self.release()
