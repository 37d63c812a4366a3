"""`conveyor hub serve`: the local Hub as a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..exit_codes import ExitCode


def serve_hub(
    root: Annotated[Path, typer.Option(help="Directory that holds everything; made when missing")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one")] = 8770,
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    allow_other_hosts: Annotated[bool, typer.Option(help="Allow an address that is not loopback")] = False,
    repository: Annotated[
        list[str] | None, typer.Option(metavar="OWNER/NAME", help="Make this repository at the start; may be repeated")
    ] = None,
    create_missing: Annotated[bool, typer.Option(help="Make a repository when it is first named")] = False,
    tokens: Annotated[Path | None, typer.Option(help="JSON list of tokens; without it any hf_... token writes")] = None,
    faults: Annotated[Path | None, typer.Option(help="Fault script, JSON or TOML (docs/local-hub.md)")] = None,
    commits_per_hour: Annotated[int, typer.Option(min=0, help="Commit quota of a repository; 0 for none")] = 0,
) -> int:
    """Serve a local Hub that unmodified Hugging Face clients can use: set HF_ENDPOINT to the address it prints."""
    try:
        from ..localhub.__main__ import main
    except ImportError:
        sys.stderr.write(
            "conveyor: the local Hub needs starlette and uvicorn; next step: pip install 'conveyor[hub]'\n"
        )
        return ExitCode.BAD_USE
    arguments = ["--root", str(root), "--port", str(port), "--host", host, "--commits-per-hour", str(commits_per_hour)]
    arguments += ["--allow-other-hosts"] if allow_other_hosts else []
    arguments += ["--create-missing"] if create_missing else []
    arguments += ["--tokens", str(tokens)] if tokens else []
    arguments += ["--faults", str(faults)] if faults else []
    for name in repository or []:
        arguments += ["--repository", name]
    return main(arguments)


__all__ = ["serve_hub"]
