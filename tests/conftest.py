"""The ground rules of every test: both event loops, virtual time, a clean environment, no network."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.virtual_time import Backend, real_time_backend_options, virtual_time_backend

_SCRUBBED = ("HF_TOKEN", "HUGGINGFACE_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HOME", "HF_ENDPOINT", "HF_HUB_CACHE")
_SCRUBBED_PREFIXES = ("CONVEYOR_", "XDG_")


def _scrub_environment() -> None:
    for name in tuple(os.environ):
        if name in _SCRUBBED or name.startswith(_SCRUBBED_PREFIXES):
            del os.environ[name]
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


# At import, not in a fixture: huggingface_hub reads its environment once, when a test module first imports it.
_scrub_environment()


# Time limits of single examples measure the machine, not the code; the same seed gives the same examples.
settings.register_profile(
    "conveyor", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("conveyor")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks that choose a loop and a clock; tests/support says what they mean."""
    config.addinivalue_line("markers", "real_time: run on real clocks, for adapters with threads, sockets or databases")
    config.addinivalue_line("markers", "asyncio_only(reason): run on asyncio alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the trio half of tests that are for asyncio alone."""
    left_out = {item for item in items if item.get_closest_marker("asyncio_only") and _backend_of(item) == "trio"}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _backend_of(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("anyio_backend")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """Both loops, in virtual time unless the test asks for real time."""
    name: str = request.param
    if request.node.get_closest_marker("real_time") or "real_time_backend" in request.fixturenames:
        return real_time_backend_options(name)
    return virtual_time_backend(name)


@pytest.fixture
def real_time_backend(anyio_backend: Backend) -> Backend:
    """Real clocks for the test that uses this fixture."""
    return anyio_backend


class NetworkRefused(RuntimeError):
    """A test tried to leave this machine. Not an OSError, so that no retry can mistake it for weather."""


def _refuse_unless_local(sock_family: int, address: Any) -> None:
    if sock_family == getattr(socket, "AF_UNIX", None):
        return
    host = address[0] if isinstance(address, tuple) else address
    _refuse_unless_loopback(host)


def _refuse_unless_loopback(host: Any) -> None:
    text = host.decode() if isinstance(host, bytes) else host
    if text in (None, "", "localhost"):
        return
    try:
        if ip_address(str(text).partition("%")[0]).is_loopback:
            return
    except ValueError:
        pass
    raise NetworkRefused(f"tests stay on this machine, but one tried to reach {text!r}: use a server on 127.0.0.1")


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Refuse every connection and name look-up that is neither loopback nor a Unix socket."""
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex
    real_getaddrinfo = socket.getaddrinfo

    def connect(self: socket.socket, address: Any) -> None:
        _refuse_unless_local(self.family, address)
        real_connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_unless_local(self.family, address)
        return real_connect_ex(self, address)

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        # A bind to all addresses is no connection; everything else that needs a look-up would ask the network.
        if host not in ("0.0.0.0", "::"):
            _refuse_unless_loopback(host)
        return real_getaddrinfo(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket.socket, "connect_ex", connect_ex)
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield
