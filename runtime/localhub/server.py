"""The local Hub on real sockets: start, readiness, and an end that no stalled connection can hold up."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .hub import LocalHub
from .options import HubServeOptions, require_allowed_host

_BACKLOG = 512


class _HubConnection(H11Protocol):
    """A client's connection that tells the application about itself, so that a fault rule can close it."""

    lost: asyncio.Event

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.lost = asyncio.Event()
        self.app_state = {"connection": self}
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


@contextlib.asynccontextmanager
async def open_local_hub(options: HubServeOptions) -> AsyncIterator["ServedHub"]:
    """Serve a local Hub while the block runs; needs asyncio. It accepts connections when the block begins.

    At the end running requests get ``shutdown_grace_s``; stalled ones and idle connections are closed at once.

    Raises:
        HubHostRefused: the host is not loopback.
        HubRootUnusable, FaultScriptInvalid: see ``LocalHub``.
        OSError: the port is taken.
    """
    require_allowed_host(options)
    listener = _listen(options)
    try:
        hub = await asyncio.to_thread(LocalHub, options)
    except BaseException:
        listener.close()
        raise
    config = Config(
        hub, http="h11", ws="none", lifespan="off", log_config=None, access_log=False, timeout_keep_alive=75
    )
    config.load()
    connections = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _HubConnection(config=config, server_state=connections, app_state={}), sock=listener, backlog=_BACKLOG
    )
    try:
        yield ServedHub(hub, listener.getsockname()[1])
    finally:
        server.close()
        hub.stalls.close()
        await _end_connections(connections, options.shutdown_grace_s)
        await asyncio.to_thread(hub.close)


class ServedHub:
    """A Hub that is being served."""

    def __init__(self, hub: LocalHub, port: int) -> None:
        self.hub = hub
        self.port = port
        host = hub.options.host
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _listen(options: HubServeOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


async def _end_connections(state: ServerState, grace_s: float) -> None:
    for connection in list(state.connections):
        # A connection that broke HTTP's rules cannot be closed by them; it is aborted below.
        with contextlib.suppress(h11.LocalProtocolError):
            connection.shutdown()
    if state.tasks:
        await asyncio.wait(list(state.tasks), timeout=grace_s)
    for connection in list(state.connections):
        transport: Any = connection.transport
        transport.abort()
    for task in list(state.tasks):
        task.cancel()
    if state.tasks:
        await asyncio.wait(list(state.tasks))
    while state.connections:
        # Each aborted transport reports its end in one of the next turns of the loop.
        await asyncio.sleep(0)


def serve(
    options: HubServeOptions,
    *,
    on_ready: Callable[[str], None] | None = None,
    until_stdin_closes: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT (or, if wanted, the end of standard input). Blocks; call in the main thread.

    ``on_ready`` gets the address once connections are accepted. With ``until_stdin_closes`` a dead parent process,
    whose end of the pipe closes, never leaves the server behind.

    Raises:
        HubHostRefused, HubRootUnusable, FaultScriptInvalid, OSError: see ``open_local_hub``.
    """
    asyncio.run(_serve(options, on_ready, until_stdin_closes))


async def _serve(options: HubServeOptions, on_ready: Callable[[str], None] | None, until_stdin_closes: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with open_local_hub(options) as served:
            if until_stdin_closes:
                threading.Thread(target=_watch_stdin, args=(loop, stop), daemon=True).start()
            if on_ready is not None:
                on_ready(served.url)
            await stop.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # The raw descriptor: a thread blocked in sys.stdin would hold its lock at interpreter exit.
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(stop.set)
