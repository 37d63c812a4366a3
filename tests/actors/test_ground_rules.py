"""The ground rules of the suite hold: a clean environment and no way out of this machine."""

from __future__ import annotations

import os
import socket

import anyio
import pytest


def test_the_environment_is_scrubbed() -> None:
    """No credential, home or setting of the developer reaches a test; telemetry is off."""
    for name in ("HF_TOKEN", "HUGGINGFACE_TOKEN", "HF_HOME", "HF_ENDPOINT"):
        assert name not in os.environ
    assert not [name for name in os.environ if name.startswith(("CONVEYOR_", "XDG_"))]
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"


@pytest.mark.parametrize("address", ["192.0.2.1", "huggingface.co", "8.8.8.8"])
def test_connections_off_this_machine_are_refused(address: str) -> None:
    """connect, connect_ex and name look-ups refuse what is not loopback, with an error that is no OSError."""
    with socket.socket() as sock:
        for attempt in (sock.connect, sock.connect_ex):
            with pytest.raises(RuntimeError, match="tests stay on this machine"):
                attempt((address, 443))
    with pytest.raises(RuntimeError, match="tests stay on this machine"):
        socket.getaddrinfo(address, 443)


def test_loopback_is_allowed() -> None:
    """A server on 127.0.0.1 can be reached, by number and by name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with socket.create_connection((host, port), timeout=5):
                pass


@pytest.mark.anyio
@pytest.mark.real_time
async def test_async_connections_off_this_machine_are_refused() -> None:
    """The event loops' own connects are refused as well; anyio wraps what its parallel attempts raise in a group."""
    with pytest.raises(ExceptionGroup) as caught:
        await anyio.connect_tcp("192.0.2.1", 443)
    assert "tests stay on this machine" in str(caught.value.exceptions[0])
