"""The command line's tree: which commands there are and what they are called."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from ..exit_codes import ExitCode
from . import deliver, drain, hub, status, sweep
from .running import explain

app = typer.Typer(
    name="conveyor",
    help="Deliver the outputs of builds and sweeps to Hugging Face repositories, each thing once, whatever crashes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
hub_app = typer.Typer(help="The local Hub: for rehearsals, tests and benchmarks.", no_args_is_help=True)
app.command("sweep")(sweep.sweep)
app.command("deliver")(deliver.deliver)
app.command("status")(status.status)
app.command("drain")(drain.drain)
hub_app.command("serve")(hub.serve_hub)
app.add_typer(hub_app, name="hub")


# typer brings a parser of its own along, or uses the click that is installed; this is its class in either case.
_UsageError: Final[type[Exception]] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"conveyor {version('conveyor')}\n")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Deliver the outputs of builds and sweeps to Hugging Face repositories, each thing once, whatever crashes."""


def run(arguments: list[str]) -> int:
    """Run the command line; gives the exit status. Every error is one line; a traceback needs debug logging."""
    try:
        result = typer.main.get_command(app).main(args=arguments, prog_name="conveyor", standalone_mode=False)
        return int(result) if isinstance(result, int) else ExitCode.DELIVERED
    except _UsageError as error:
        shown: Any = error
        shown.show()
        return ExitCode.BAD_USE
    except (typer.Abort, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    except Exception as error:
        return explain(error, as_json="--json" in arguments)


__all__ = ["app", "run"]
