"""Taking an upload from the socket to a file, hashed on the way."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anyio.to_thread import run_sync

from .exchange import Exchange
from .problems import bad_request

_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """What arrived."""

    size_bytes: int
    hexdigest: str


async def receive_file(
    exchange: Exchange, path: Path, size_bytes: int, new_hash: "Callable[[], hashlib._Hash]"
) -> ReceivedFile:
    """Write the request's body to ``path``.

    Pieces are gathered to about a mebibyte before a thread hashes and writes them.

    Raises:
        HubRefusal: 400; the body has not the announced ``size_bytes``.
        starlette.requests.ClientDisconnect: the client went away in the middle.
    """
    announced = exchange.request.headers.get("content-length")
    if announced is not None and announced != str(size_bytes):
        raise bad_request(f"IncompleteBody: announced were {size_bytes} bytes, this request carries {announced}.")
    digest, total_bytes = new_hash(), 0
    with await run_sync(path.open, "wb") as file:

        def write(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        pieces: list[bytes] = []
        waiting_bytes = 0
        async for piece in exchange.request.stream():
            pieces.append(piece)
            waiting_bytes += len(piece)
            total_bytes += len(piece)
            if total_bytes > size_bytes:
                raise bad_request(f"EntityTooLarge: more than the announced {size_bytes} bytes arrived.")
            if waiting_bytes >= _BUFFER_BYTES:
                await run_sync(write, b"".join(pieces))
                pieces, waiting_bytes = [], 0
        await run_sync(write, b"".join(pieces))
        await run_sync(file.flush)
    if total_bytes != size_bytes:
        raise bad_request(f"IncompleteBody: announced were {size_bytes} bytes, {total_bytes} arrived.")
    return ReceivedFile(total_bytes, digest.hexdigest())
