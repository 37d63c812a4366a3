"""Which process an open store belongs to, and keeping a forked child's hands off it (N-STO-06).

A forked child inherits the open connections as plain objects. If it ever finalised one, SQLite would roll back or
checkpoint on behalf of the parent, behind its back. So each connection is pinned: one reference is taken that nothing
gives back but a close in the process that opened it. A child ends without ever closing what it inherited.
"""

from __future__ import annotations

import ctypes
import os

from ...actors.port_errors import UsedAfterFork


class ProcessGuard:
    """Remembers the process that made an object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is still that process."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Refuse use in any other process.

        Raises:
            UsedAfterFork: this is a forked child.
        """
        if not self.is_here:
            raise UsedAfterFork(
                f"this store was opened by process {self._pid} and cannot be used or closed in its forked child "
                f"{os.getpid()}; open another store in the child"
            )


class Pin:
    """Keeps an object, and all that it refers to, from being finalised, at interpreter exit too, until released."""

    def __init__(self, pinned: object) -> None:
        self._pinned: object | None = pinned
        self._guard = ProcessGuard()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pinned))

    def release(self) -> None:
        """Give the reference back; does nothing the second time, nor in a forked child."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None and self._guard.is_here:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(pinned))


__all__ = ["Pin", "ProcessGuard"]
