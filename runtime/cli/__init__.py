"""The `conveyor` command. `main` is its entry point; each command has a file of its own."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with a documented status (`conveyor.runtime.exit_codes`)."""
    from .commands import run

    sys.exit(run(sys.argv[1:]))


__all__ = ["main"]
