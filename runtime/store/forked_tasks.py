"""Leaving the tasks of a runtime behind in a forked child.

A child inherits the event loop with all that waits in it, but none of the threads that would wake it. When the child
leaves through that loop, the loop cancels every task and waits for each; ours would wait for ever, or touch what is the
parent's. So in the child they are taken out of the loop's books, and never run or finalised again (N-STO-06).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import selectors
from collections.abc import MutableSet
from typing import Any, Final

import anyio

from .threads import is_under_asyncio

_OURS: Final = __name__.partition(".")[0] + "."
_roots: Final[set[Any]] = set()
_held: Final[list[list[Any]]] = []


def belongs_here(root: object) -> None:
    """From now on leave this task, and all tasks below it, behind in a forked child."""
    _roots.add(root)


def has_ended(root: object) -> None:
    """The task is over."""
    _roots.discard(root)


def _before() -> None:
    """In the parent, where the event loop can still be asked for its tasks. Nothing here may disturb a fork."""
    found: list[Any] = []
    with contextlib.suppress(Exception):
        if _roots:
            found = _family_of_asyncio() if is_under_asyncio() else _family_of_trio()
    _held.append(found)


def _after_in_parent() -> None:
    _held.pop()


def _after_in_child() -> None:
    tasks = _held.pop()
    if tasks:
        with contextlib.suppress(Exception):
            _part_from_parent(tasks[0])
    _held.clear()
    _roots.clear()
    for task in tasks:
        # Never finalised, so that nobody warns about it and none of its `finally` runs.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
        with contextlib.suppress(Exception):
            if isinstance(task, asyncio.Task):
                asyncio._unregister_task(task)
                _leave_generators(getattr(task.get_loop(), "_asyncgens"))  # noqa: B009
            else:
                _leave_trio_task(task)


def _family_of_asyncio() -> list[Any]:
    """Tasks of the running loop, from the roots down."""
    parents = {task.id: task.parent_id for task in anyio.get_running_tasks()}
    roots = {id(root) for root in _roots}

    def is_ours(task_id: int | None) -> bool:
        while task_id is not None and task_id not in roots:
            task_id = parents.get(task_id)
        return task_id is not None

    return [task for task in asyncio.all_tasks() if task in _roots or is_ours(id(task))]


def _family_of_trio() -> list[Any]:
    import trio

    here = trio.lowlevel.current_root_task()
    assert here is not None
    inside = {task for nursery in here.child_nurseries for task in nursery.child_tasks}
    left = [root for root in _roots if root in inside]
    family: list[Any] = []
    while left:
        task = left.pop()
        family.append(task)
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return family


class _Abandoned:
    """Stands in for the coroutine of a task: whatever resumes it, it waits on, for good."""

    def send(self, value: object) -> object:
        """Wait on."""
        from trio._core._traps import WaitTaskRescheduled
        from trio.lowlevel import Abort

        return WaitTaskRescheduled(lambda _: Abort.FAILED)

    def throw(self, *error: object) -> object:
        """Wait on."""
        return self.send(None)


def _leave_trio_task(task: Any) -> None:
    """Trio has no public way to abandon a task; where its insides differ, the child is left as it was."""
    from trio._core._run import GLOBAL_RUN_CONTEXT

    runner: Any = GLOBAL_RUN_CONTEXT.runner
    task._abort_func = None  # a cancellation does not wake it any more
    _keep(task.coro)
    task.coro = _Abandoned()
    if task._next_send_fn is not None:
        # It is in the batch that runs right now, after the task that forked.
        task._next_send_fn = task.coro.send
    if task in runner.runq:
        runner.runq.remove(task)
    runner.tasks.discard(task)
    task.parent_nursery._children.discard(task)
    _leave_generators(runner.asyncgens.alive)


def _part_from_parent(task: Any) -> None:
    """Give the child's loop an epoll of its own: the inherited one is the parent's too, and the child, leaving, would
    take the parent's registrations out of it, so that no thread could wake the parent any more.
    """
    if isinstance(task, asyncio.Task):
        loop: Any = task.get_loop()
        old, new = loop._selector, selectors.DefaultSelector()
        for key in list(old.get_map().values()):
            if key.fileobj is not loop._ssock and key.fd != loop._ssock.fileno():
                new.register(key.fileobj, key.events, key.data)
        _keep(old)
        _keep(loop._ssock)
        _keep(loop._csock)
        loop._selector = new
        loop._internal_fds -= 1
        loop._make_self_pipe()
        return
    from trio._core._run import GLOBAL_RUN_CONTEXT

    manager: Any = GLOBAL_RUN_CONTEXT.runner.io_manager
    _keep(manager._epoll)
    manager._epoll = select.epoll()
    force = getattr(manager, "_force_wakeup", None)
    if force is not None:
        manager._epoll.register(force.wakeup_sock, select.EPOLLIN)
    for fd, waiters in list(manager._registered.items()):
        waiters.current_flags = 0
        manager._update_registrations(fd)


def _keep(inherited: object) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _is_ours(generator: Any) -> bool:
    frame = generator.ag_frame
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def _leave_generators(known: MutableSet[Any]) -> None:
    """An ending loop closes the generators that are still open, and so runs what they do at their end."""
    ours = [each for each in known if _is_ours(each)]
    for each in ours:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        known.discard(each)


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

__all__ = ["belongs_here", "has_ended"]
