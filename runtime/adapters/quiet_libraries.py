"""Keeps the HTTP libraries' log lines about our exchanges out of the host program's logs.

httpx logs each address at INFO, pre-signed storage addresses among them, which are secrets; httpcore logs headers at
DEBUG; huggingface_hub prints addresses with each retry, and a line about Xet with each upload (finding W37, N-SEC-01).
The usual switches are global and would silence the host's own use of these libraries too. So a filter stands on their
loggers that drops a record only if it is logged from within one of our own exchanges, which a context variable marks;
it follows the task, and each thread is started with a copy. No level, handler or propagation is touched, and the filter
is taken away when the last adapter closes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final

_is_inside: ContextVar[bool] = ContextVar("conveyor_inside_hub_exchange", default=False)

_HTTP_PARTS: Final = ("connection", "http11", "http2", "proxy", "socks")
_LIBRARY_PARTS: Final = (
    "_commit_api",
    "_oauth",
    "file_download",
    "hf_api",
    "lfs",
    "utils._auth",
    "utils._detect_agent",
    "utils._fixes",
    "utils._http",
    "utils._telemetry",
    "utils._xet",
    "utils._xet_progress_reporting",
    "utils.logging",
)
# A logger's filter sees only what is logged on that very logger, so each is named.
LOGGER_NAMES: Final = (
    "httpx",
    "httpx2",
    *(f"{library}.{part}" for library in ("httpcore", "httpcore2") for part in _HTTP_PARTS),
    "huggingface_hub",
    *(f"huggingface_hub.{part}" for part in _LIBRARY_PARTS),
)


class _DropOurs(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _is_inside.get()


_drop_ours = _DropOurs()
_lock = Lock()
_users = 0


def install_filter() -> None:
    """Put the filter in place, once however many adapters ask for it."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for name in LOGGER_NAMES:
                logging.getLogger(name).addFilter(_drop_ours)


def remove_filter() -> None:
    """Give up one installation; the last one takes the filter away."""
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            for name in LOGGER_NAMES:
                logging.getLogger(name).removeFilter(_drop_ours)


@contextmanager
def quietly() -> Iterator[None]:
    """Mark what runs in this block, in this task or thread, as an exchange of ours."""
    token = _is_inside.set(True)
    try:
        yield
    finally:
        _is_inside.reset(token)


__all__ = ["LOGGER_NAMES", "install_filter", "quietly", "remove_filter"]
