"""The `conveyor` command. `main` is its entry point; each command has a file of its own."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with a documented status (`conveyor.runtime.exit_codes`)."""
    # The command shows its own progress; the library's bars would be drawn between its lines.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        from .commands import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    try:
        sys.stdout.flush()
    except OSError:
        # Whoever read it has gone; the interpreter would complain about that once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


__all__ = ["main"]
