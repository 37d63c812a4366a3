"""What the command prints: bars on a terminal, calm lines otherwise, typed JSON lines when asked.

Results go to standard output; progress of people goes to standard error. At most one line a second, and only on a
change (N-CLI-04).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

LINE_EVERY_S = 1.0


class Output:
    """Prints the progress and result of one command.

    Args:
        as_json: typed lines of JSON on standard output, nothing else.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = Console()
        self._errors = Console(stderr=True)
        self._is_live = not as_json and self._errors.is_terminal
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._last_lines: dict[str, str] = {}
        self._last_at = float("-inf")

    def __enter__(self) -> Self:
        """Begin to show progress."""
        if self._is_live:
            self._progress = Progress(
                TextColumn("{task.description:<10}"),
                BarColumn(),
                TextColumn("{task.completed:>6.0f}/{task.total:<6.0f}"),
                TextColumn("{task.fields[note]}"),
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
        """Show how far a stage is: `done` of `total`, and a short note."""
        if self._progress is not None:
            if stage not in self._bars:
                self._bars[stage] = self._progress.add_task(stage, total=total, note=note)
            self._progress.update(self._bars[stage], completed=done, total=total, note=note)
            return
        line = f"{stage}: {done:.0f}/{total:.0f}{', ' if note else ''}{note}"
        now = time.monotonic()
        if line == self._last_lines.get(stage) or (now - self._last_at < LINE_EVERY_S and done < total):
            return
        self._last_lines[stage], self._last_at = line, now
        if self.as_json:
            self.record({"type": "progress", "stage": stage, "done": done, "total": total, **more})
        else:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def record(self, value: msgspec.Struct | Mapping[str, Any]) -> None:
        """Print one typed line of JSON; nothing without `--json`."""
        if self.as_json:
            sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print a line for people; nothing with `--json`."""
        if not self.as_json:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def table(self, table: Table) -> None:
        """Print a table for people; nothing with `--json`."""
        if not self.as_json:
            self.console.print(table)


def plain_table(title: str, *columns: str) -> Table:
    """A table with these columns, the first to the left and the others to the right."""
    table = Table(title=title, title_justify="left")
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


__all__ = ["Output", "human_bytes", "plain_table"]
