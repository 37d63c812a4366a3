"""Single requests, over a transport that does what it is told: credentials, redirects, limits, and secrets."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.errors import LocalProtocolError
from conveyor.protocol.outcome import HubError, OutcomeKind
from conveyor.protocol.work import PreuploadFile
from conveyor.runtime.adapters import hub as hub_module
from conveyor.runtime.adapters.hub import HuggingFaceHub
from conveyor.runtime.adapters.hub_credentials import HubCredentials
from conveyor.runtime.adapters.hub_options import HubOptions
from conveyor.runtime.adapters.quiet_libraries import LOGGER_NAMES
from tests.support.hub_arenas import commit_request

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

CANARY = "hf_canary_0123456789abcdef"
OPTIONS = HubOptions(endpoint="http://hub.test", answer_s=5.0)
Answers = Callable[[httpx.Request], httpx.Response]


class Wire:
    """Stands in for the network; keeps what was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Answers, options: HubOptions = OPTIONS) -> None:
        self.requests: list[httpx.Request] = []
        self.environ = {"HF_TOKEN": CANARY}

        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return answers(request)

        def open_client(options: HubOptions, tls: object) -> httpx.AsyncClient:
            return httpx.AsyncClient(transport=httpx.MockTransport(answer), follow_redirects=False)

        monkeypatch.setattr(hub_module, "open_client", open_client)
        self.hub = HuggingFaceHub(options, HubCredentials(self.environ, Path("/nonexistent")))


async def failure(awaitable: Any) -> HubError:
    """The error of a call that has to fail."""
    with pytest.raises(HubError) as caught:
        await awaitable
    return caught.value


async def test_token_goes_to_the_hub_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect to storage is followed without the token; within the Hub with it (N-SEC-01)."""

    def answers(request: httpx.Request) -> httpx.Response:
        match request.url.host, request.url.path:
            case "hub.test", "/datasets/acme/data/resolve/main/x.bin":
                return httpx.Response(307, headers={"location": "/datasets/acme/renamed/resolve/main/x.bin"})
            case "hub.test", _:
                linked = {"x-linked-etag": f'"{digest_bytes(b"content").sha256}"'}
                return httpx.Response(302, headers={"location": "https://cdn.test/y?Signature=s", **linked})
            case _:
                return httpx.Response(200, content=b"content", headers={"etag": '"of-the-storage"'})

    wire = Wire(monkeypatch, answers)
    async with wire.hub as hub:
        assert await hub.download("acme/data", "main", "x.bin", max_bytes=7) == b"content"
    assert [request.headers.get("authorization") for request in wire.requests] == [
        f"Bearer {CANARY}",
        f"Bearer {CANARY}",
        None,
    ]
    assert {request.headers["accept-encoding"] for request in wire.requests} == {"identity"}


async def test_redirects_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A circle is left."""
    wire = Wire(monkeypatch, lambda request: httpx.Response(302, headers={"location": str(request.url)}))
    async with wire.hub as hub:
        error = await failure(hub.download("acme/data", "main", "x.bin", max_bytes=7))
    assert (error.outcome.kind, error.outcome.error_type) == (OutcomeKind.TRANSIENT, "TooManyRedirects")


async def test_api_redirects_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository that was renamed is reported, not silently written to under its new name."""
    wire = Wire(monkeypatch, lambda _: httpx.Response(307, headers={"location": "/api/datasets/acme/new"}))
    async with wire.hub as hub:
        error = await failure(hub.head("acme/data"))
    assert (error.outcome.kind, error.outcome.error_type) == (OutcomeKind.REFUSED_REPOSITORY, "RepositoryMoved")
    assert len(wire.requests) == 1


async def test_next_page_of_another_origin_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that points elsewhere ends there."""
    page = [{"id": "a" * 40, "title": "t", "message": "", "date": None}]
    headers = {"link": '<https://elsewhere.test/next>; rel="next"'}
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, json=page, headers=headers))
    async with wire.hub as hub:
        assert len(await hub.recent_commits("acme/data", back_to="b" * 40)) == 1
    assert len(wire.requests) == 1


async def test_listing_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is never found does not make the listing endless."""
    page = [{"id": "a" * 40, "title": "t", "message": "", "date": None}]
    wire = Wire(monkeypatch, lambda r: httpx.Response(200, json=page, headers={"link": f'<{r.url}>; rel="next"'}))
    async with wire.hub as hub:
        assert len(await hub.recent_commits("acme/data", back_to="b" * 40)) == hub_module.MAX_LISTING_PAGES


async def test_401_uses_the_new_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second try carries the token that is found then; a third is not made (N-HUB-13)."""

    def answers(request: httpx.Request) -> httpx.Response:
        wire.environ["HF_TOKEN"] = "hf_fresh"
        is_fresh = request.headers["authorization"] == "Bearer hf_fresh"
        return httpx.Response(200, json={"sha": "c" * 40}) if is_fresh else httpx.Response(401)

    wire = Wire(monkeypatch, answers)
    async with wire.hub as hub:
        assert await hub.head("acme/data") == "c" * 40
    wire = Wire(monkeypatch, lambda _: httpx.Response(401))
    async with wire.hub as hub:
        assert (await failure(hub.head("acme/data"))).outcome.kind is OutcomeKind.NEEDS_PERSON
    assert len(wire.requests) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b'{"commitOid": 5}', b"<html>", b"\xff"])
async def test_unreadable_commit_answer(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """A success without a commit id is unknown (hub API notes, section 12)."""
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, content=content))
    async with wire.hub as hub:
        error = await failure(hub.commit(commit_request("acme/data", "p" * 40, {"a.txt": b"a"})))
    assert error.outcome.kind is OutcomeKind.UNKNOWN


async def test_unreadable_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Malformed answers to reads fail the attempt, and no more."""
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, content=b'{"files": [], "odd": 1}'))
    async with wire.hub as hub:
        for call in (
            hub.head("acme/data"),
            hub.recent_commits("acme/data"),
            hub.paths_info("acme/data", "main", ["a.txt"]),
            hub.preupload("acme/data", [PreuploadFile("a.txt", 1, b"a")]),
        ):
            assert (await failure(call)).outcome.error_type == "MalformedAnswer"


@pytest.mark.parametrize("name", ["ReadTimeout", "WriteError", "RemoteProtocolError", "ConnectError", "PoolTimeout"])
async def test_transport_errors(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What the transport raises becomes an outcome under its own name, and drags nothing along."""

    def answers(request: httpx.Request) -> httpx.Response:
        raise getattr(httpx, name)(f"text with {CANARY}", request=request)

    wire = Wire(monkeypatch, answers)
    async with wire.hub as hub:
        error = await failure(hub.commit(commit_request("acme/data", "p" * 40, {"a.txt": b"a"})))
    is_sent = name not in ("ConnectError", "PoolTimeout")
    assert error.outcome.kind is (OutcomeKind.UNKNOWN if is_sent else OutcomeKind.TRANSIENT)
    assert error.outcome.error_type == name
    assert error.__context__ is None
    assert error.__cause__ is None


class Dribble(httpx.AsyncByteStream):
    """A body that never ends, or ends in an error."""

    def __init__(self, pieces: int, error: Exception | None = None) -> None:
        self.pieces = pieces
        self.error = error
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.pieces):
            if self.is_closed:
                raise httpx.ReadError("closed")
            await anyio.sleep(0)
            yield b"x" * 1000
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None:
        """Close it."""
        self.is_closed = True


async def test_download_that_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated file is never given out."""
    error = httpx.RemoteProtocolError("peer closed connection")
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, stream=Dribble(3, error), headers={"etag": f'"{"a" * 40}"'}))
    async with wire.hub as hub:
        outcome = (await failure(hub.download("acme/data", "main", "x.txt", max_bytes=10**6))).outcome
    assert (outcome.kind, outcome.error_type) == (OutcomeKind.TRANSIENT, "RemoteProtocolError")


async def test_download_without_a_length_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than `max_bytes` and one piece is read of a file that does not say how long it is."""
    body = Dribble(10**6)
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, stream=body))
    async with wire.hub as hub:
        outcome = (await failure(hub.download("acme/data", "main", "x.txt", max_bytes=5000))).outcome
    assert (outcome.kind, outcome.error_type) == (OutcomeKind.REFUSED_ITEM, "FileTooLarge")
    assert body.is_closed


async def test_long_error_page_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning of an error's text is enough."""
    wire = Wire(monkeypatch, lambda _: httpx.Response(502, stream=Dribble(10**6)))
    async with wire.hub as hub:
        assert (await failure(hub.head("acme/data"))).outcome.status == 502


async def test_dribbling_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes byte by byte is given up, although no single wait is long."""
    options = HubOptions(endpoint="http://hub.test", connect_s=0.05, answer_s=0.05)
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, stream=Dribble(10**9)), options)
    async with wire.hub as hub:
        error = await failure(hub.commit(commit_request("acme/data", "p" * 40, {"a.txt": b"a"})))
    assert (error.outcome.kind, error.outcome.error_type) == (OutcomeKind.UNKNOWN, "ReadTimeout")


async def test_absent_only_on_the_hubs_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare 404 is no proof that a file is absent (hand-over protocol, section 8)."""
    wire = Wire(monkeypatch, lambda _: httpx.Response(404))
    async with wire.hub as hub:
        outcome = (await failure(hub.download("acme/data", "main", "runs.json", max_bytes=10))).outcome
    assert outcome.kind is OutcomeKind.TRANSIENT


async def test_file_without_a_digest_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that nothing vouches for are not given out."""
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, content=b"x"))
    async with wire.hub as hub:
        outcome = (await failure(hub.download("acme/data", "main", "a.txt", max_bytes=10))).outcome
    assert (outcome.kind, outcome.error_type) == (OutcomeKind.TRANSIENT, "DigestMissing")


@pytest.mark.parametrize("whoami", [500, 401, 200])
async def test_write_access_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch, whoami: int) -> None:
    """A failing or empty `whoami` leaves it open (hand-over protocol, section 4.6)."""

    def answers(request: httpx.Request) -> httpx.Response:
        is_whoami = request.url.path == "/api/whoami-v2"
        return httpx.Response(whoami, content=b"{") if is_whoami else httpx.Response(200, json={"sha": "c" * 40})

    wire = Wire(monkeypatch, answers)
    async with wire.hub as hub:
        access = await hub.write_access("acme/data")
    assert (access.reachable, access.can_write) == (True, None)


async def test_write_access_to_another_owners_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may write in general is asked about this repository too."""

    def answers(request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/api/whoami-v2":
                return httpx.Response(200, json={"auth": {"accessToken": {"role": "write"}}})
            case "/api/datasets/acme/data/auth-check/write":
                return httpx.Response(403)
            case _:
                return httpx.Response(200, json={"sha": "c" * 40})

    wire = Wire(monkeypatch, answers)
    async with wire.hub as hub:
        assert (await hub.write_access("acme/data")).can_write is False


async def test_secrets_stay_inside(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the Hub echoes, no token and no address gets into texts, outcomes or logs (N-SEC-01)."""
    caplog.set_level(logging.DEBUG)
    for name in LOGGER_NAMES:
        caplog.set_level(logging.DEBUG, logger=name)
    words = f"Token {CANARY} at https://hub.test/secret-place?X-Amz-Signature=beef is wrong"
    wire = Wire(monkeypatch, lambda _: httpx.Response(400, json={"error": words}, headers={"x-error-message": words}))
    async with wire.hub as hub:
        error = await failure(hub.commit(commit_request("acme/data", "p" * 40, {"a.txt": b"a"})))
    shown = f"{error!r} {error} {error.outcome} {caplog.text}"
    for secret in (CANARY, "hub.test", "secret-place", "beef"):
        assert secret not in shown
    assert error.outcome.server_text == "Token [credential] at [address] is wrong"


async def test_the_hosts_own_log_lines_pass(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Only our own exchanges are silent, and the filter is gone once the adapter is closed."""
    caplog.set_level(logging.INFO, logger="httpx")
    wire = Wire(monkeypatch, lambda _: httpx.Response(200, json={"sha": "c" * 40}))
    async with wire.hub as hub:
        async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(204))) as client:
            await client.get("http://host.test/its-own")
        await hub.head("acme/data")
        assert logging.getLogger("httpx").filters
    assert [record.getMessage() for record in caplog.records if record.name == "httpx"] == [
        'HTTP Request: GET http://host.test/its-own "HTTP/1.1 204 No Content"'
    ]
    assert not logging.getLogger("httpx").filters


async def test_closed_adapter_says_so() -> None:
    """Use outside of its context is our own mistake."""
    hub = HuggingFaceHub(OPTIONS, HubCredentials({"HF_TOKEN": CANARY}))
    with pytest.raises(LocalProtocolError, match="not open"):
        await hub.head("acme/data")
    async with hub:
        pass
    with pytest.raises(LocalProtocolError, match="not open"):
        await hub.head("acme/data")


@pytest.mark.parametrize(
    "wrong",
    [
        {"connect_s": 0},
        {"answer_s": -1},
        {"stall_s": 0},
        {"upload_parallelism": 0},
        {"bandwidth_bytes_per_s": 0},
        {"large_upload": "ftp"},
        {"endpoint": "huggingface.co"},
    ],
)
def test_options_are_checked(wrong: dict[str, Any]) -> None:
    """A value that cannot work is refused, by name."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        HubOptions(**wrong)


def test_endpoint_loses_its_slash() -> None:
    """As the library does it (hub API notes, section 1)."""
    assert HubOptions(endpoint="http://h:1/").endpoint == "http://h:1"
