"""What the command prints: bars on a terminal, calm lines otherwise, typed JSON lines when asked.

Results go to standard output; progress and messages for people go to standard error. A stage shows a line when
something changed, at most one a second, and one every ten seconds while it only waits (N-CLI-04).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import rich.box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

LINE_EVERY_S: Final = 1.0
QUIET_LINE_EVERY_S: Final = 10.0


class _QuietlyClosing(Console):
    """Prints nothing more once its reader has gone; rich would end the process, with the work half done."""

    def on_broken_pipe(self) -> None:
        """Called by rich."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@dataclass(slots=True)
class _LastLine:
    at_s: float
    key: tuple[object, ...]


class Output:
    """Prints the progress and result of one command.

    A reader of standard output who goes away (`| head`) changes nothing for the work; the rest is not printed.

    Args:
        as_json: typed lines of JSON on standard output, nothing else.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = _QuietlyClosing()
        self._errors = Console(stderr=True)
        self._is_live = not as_json and self._errors.is_terminal
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._last_lines: dict[str, _LastLine] = {}
        self._has_reader = True

    def __enter__(self) -> Self:
        """Begin to show progress."""
        if self._is_live:
            self._progress = Progress(
                TextColumn("{task.description:<8}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[note]}", markup=False),
                TimeElapsedColumn(),
                console=self._errors,
                transient=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take the bars away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def progress(self, stage: str, done: float, total: float, note: str = "", **more: Any) -> None:
        """Show how far a stage is.

        Args:
            stage: its name.
            done: how much is done, of `total`.
            total: of how much.
            note: the rest of the line for people; a change of it alone is no reason for a new line.
            more: further fields of the JSON line.
        """
        if self._progress is not None:
            if stage not in self._bars:
                self._bars[stage] = self._progress.add_task(stage, total=total, note=note)
            self._progress.update(self._bars[stage], completed=done, total=total, note=note)
            return
        key, now = (done, total), time.monotonic()
        last = self._last_lines.get(stage)
        if last is not None and now - last.at_s < (LINE_EVERY_S if key != last.key else QUIET_LINE_EVERY_S):
            return
        self._last_lines[stage] = _LastLine(now, key)
        if self.as_json:
            self.record({"type": "progress", "stage": stage, "done": done, "total": total, **more})
        else:
            tell(f"{stage}: {done:.0f}/{total:.0f}{', ' if note else ''}{note}")

    def record(self, value: msgspec.Struct | Mapping[str, Any]) -> None:
        """Print one typed line of JSON; nothing without `--json`."""
        if self.as_json:
            with self._printing():
                sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
                sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print a line for people; nothing with `--json`."""
        if not self.as_json:
            with self._printing():
                self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print a table for people; nothing with `--json`."""
        if not self.as_json:
            with self._printing():
                self.console.print(table)

    @contextmanager
    def _printing(self) -> Iterator[None]:
        """Keep what is printed apart from the bars, which are on the same terminal."""
        if self._progress is not None:
            self._progress.stop()
        try:
            if self._has_reader:
                yield
                sys.stdout.flush()
        except BrokenPipeError:
            self._has_reader = False
        finally:
            if self._progress is not None:
                self._progress.start()


def tell(text: str) -> None:
    """Print a line for people to standard error, whoever reads it."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def plain_table(title: str, *columns: str) -> Table:
    """A table with these columns, the first to the left and the others to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return table


def human_bytes(size_bytes: float) -> str:
    """A size for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError("unreachable")


def human_time(duration_s: float) -> str:
    """A duration for people, in its largest two units."""
    whole = round(duration_s)
    for size_s, name, small_s, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size_s:
            return f"{whole // size_s} {name} {whole % size_s // small_s} {small}"
    return f"{whole} s"


def amount(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun: `1 file`, `3 files`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


__all__ = ["Output", "amount", "human_bytes", "human_time", "plain_table", "tell"]
