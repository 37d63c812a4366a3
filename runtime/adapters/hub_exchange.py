"""One request to the Hub: credential, time limits, redirects, and the answer judged.

All that is small goes through one `httpx.AsyncClient`. Nothing is repeated here, except that a 401 is answered with a
freshly read credential once (N-HUB-13); it is a refusal, so nothing can have landed.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import anyio
import httpx
import msgspec

from ...protocol.limits import MIB
from ...protocol.outcome import HubError, Outcome, OutcomeKind
from .hub_credentials import HubCredentials
from .hub_errors import Answer, Exchange, outcome_of_answer, outcome_of_failure, outcome_of_unreadable
from .hub_options import HubOptions
from .quiet_libraries import quietly

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 64 * MIB
"""A longer answer is not read to its end."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_REDIRECTS: Final = 5
SLOWEST_BYTES_PER_S: Final = 64 * 1024
"""A body is given this much more time for its length, on top of the time for an answer."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Request:
    """One request, which can be sent again."""

    method: str
    address: str
    """A path at the endpoint, or a whole address."""
    exchange: Exchange
    body: bytes | Callable[[], AsyncIterator[bytes]] | None = None
    body_bytes: int = 0
    content_type: str | None = None
    query: Mapping[str, str] | None = None
    paths: Sequence[str] = ()
    """The repository paths that it is about."""
    follow: bool = False
    """Whether redirects are followed: only for a file's bytes, which lie in another storage."""
    max_bytes: int = MAX_ANSWER_BYTES


class AnswerTooLong(Exception):
    """The body has more bytes than the request allows."""


class HubExchange:
    """Sends requests to one Hub.

    Args:
        client: the client; the exchange does not close it.
        options: endpoint and limits.
        credentials: where the token comes from.
    """

    def __init__(self, client: httpx.AsyncClient, options: HubOptions, credentials: HubCredentials) -> None:
        self._client = client
        self._options = options
        self._credentials = credentials

    async def send(self, request: Request) -> Answer:
        """Send it and give the answer, a success.

        Raises:
            HubError: anything but a success.
            CredentialMissing: there is no token.
        """
        answer, secret = await self.ask(request)
        if not 200 <= answer.status < 300:
            raise self.refusal(request, answer, secret)
        return answer

    async def ask(self, request: Request) -> tuple[Answer, str]:
        """Send it and give the answer whatever its status, with the token that was used.

        Raises:
            HubError: no whole answer came.
            CredentialMissing: there is no token.
            AnswerTooLong: as the request says.
        """
        token = await self._credentials.require()
        answer = await self._ask_once(request, token)
        if answer.status == 401:
            token = await self._credentials.require()
            answer = await self._ask_once(request, token)
        return answer, token

    def refusal(self, request: Request, answer: Answer, secret: str) -> HubError:
        """The answer as an error."""
        return HubError(outcome_of_answer(answer, request.exchange, paths=request.paths, secrets=(secret,)))

    def read(self, request: Request, answer: Answer, kind: type[T]) -> T:
        """The body of a success as a typed value.

        Raises:
            HubError: it cannot be read: UNKNOWN for a commit, TRANSIENT otherwise.
        """
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise HubError(outcome_of_unreadable(answer, request.exchange)) from None

    def is_at_the_hub(self, address: str) -> bool:
        """Whether a whole address has the endpoint's origin: only there the credential is shown."""
        return _origin(address) == _origin(self._options.endpoint)

    async def _ask_once(self, request: Request, token: str) -> Answer:
        failure: str
        limit_s = self._options.connect_s + self._options.answer_s + request.body_bytes / SLOWEST_BYTES_PER_S
        try:
            with quietly(), anyio.fail_after(limit_s):
                return await self._follow(request, token)
        except TimeoutError:
            failure = "ReadTimeout"
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            failure = type(error).__name__
        # Raised here and not in the handlers: the library's exception holds the request, the token with it.
        raise HubError(outcome_of_failure(failure, request.exchange))

    async def _follow(self, request: Request, token: str) -> Answer:
        address = urljoin(self._options.endpoint + "/", request.address)
        named: dict[str, str] = {}
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._exchange(request, address, token)
            # What the Hub itself says of the file counts; the storage behind it has digests of its own kind.
            if self.is_at_the_hub(address):
                names = ("etag", "x-linked-etag", "x-linked-size", "x-repo-commit", "x-request-id")
                named |= {name: answer.headers[name] for name in names if name in answer.headers}
            location = answer.headers.get("location")
            if not (request.follow and answer.status in _REDIRECTS and location):
                return Answer(answer.status, {**answer.headers, **named}, answer.body, answer.is_https)
            address = urljoin(address, location)
        raise HubError(Outcome(OutcomeKind.TRANSIENT, "TooManyRedirects"))

    async def _exchange(self, request: Request, address: str, token: str) -> Answer:
        headers = {"user-agent": self._options.user_agent, "accept-encoding": "identity"}
        if self.is_at_the_hub(address):
            headers["authorization"] = f"Bearer {token}"
        if request.content_type is not None:
            headers["content-type"] = request.content_type
        content: bytes | AsyncIterator[bytes] | None
        if callable(request.body):
            content = request.body()
            headers["content-length"] = str(request.body_bytes)
        else:
            content = request.body
        async with self._client.stream(
            request.method, address, headers=headers, params=_params(request.query), content=content
        ) as response:
            has_body = not (request.follow and response.status_code in _REDIRECTS)
            limit = request.max_bytes if response.is_success else MAX_ERROR_BYTES
            body = await _read(response, limit) if has_body else b""
            lower = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, lower, body, address.startswith("https://"))


def open_client(options: HubOptions, tls: ssl.SSLContext) -> httpx.AsyncClient:
    """A client with the options' limits. It follows no redirect by itself."""
    return httpx.AsyncClient(
        verify=tls,
        timeout=httpx.Timeout(options.answer_s, connect=options.connect_s, pool=options.connect_s),
        limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
        follow_redirects=False,
    )


async def _read(response: httpx.Response, max_bytes: int) -> bytes:
    """The body, or of a refusal its beginning.

    Raises:
        AnswerTooLong: a success has a longer body.
    """
    body, is_cut = bytearray(), False
    if response.is_success and _announced_bytes(response) > max_bytes:
        raise AnswerTooLong
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > max_bytes and not is_cut:
                # Leaving the loop would leave httpx's generators unfinished; with the response closed they end.
                is_cut = True
                await response.aclose()
    except (httpx.HTTPError, httpx.StreamError):
        if not is_cut:
            raise
    if is_cut and response.is_success:
        raise AnswerTooLong
    return bytes(body)


def _announced_bytes(response: httpx.Response) -> int:
    length = response.headers.get("content-length", "")
    return int(length) if length.isdigit() else 0


def _params(query: Mapping[str, str] | None) -> Any:
    # httpx drops the query that an address has already if it is given an empty one.
    return query if query else None


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(scheme)


__all__ = ["AnswerTooLong", "HubExchange", "Request", "open_client"]
