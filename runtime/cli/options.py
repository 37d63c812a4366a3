"""Options that several commands share; each names its setting, whose environment variable the help shows too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...actors.port_errors import StoreUnusable
from ..settings import Settings
from .running import BadUse

StoreOption = Annotated[
    Path | None,
    typer.Option("--store", help="The store's database file [env: CONVEYOR_STORE_PATH]", show_default=False),
]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", help="The Hub's address [env: HF_ENDPOINT]", show_default=False)
]
SettingsFileOption = Annotated[
    Path | None,
    typer.Option("--settings", help="A settings file, TOML [env: CONVEYOR_SETTINGS_FILE]", show_default=False),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting by name; may be repeated", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Typed lines of JSON on standard output")]
LocalHubOption = Annotated[
    Path | None,
    typer.Option(
        "--local-hub",
        metavar="DIR",
        help="Deliver to a local Hub that keeps its repositories in DIR and runs as long as the command",
        show_default=False,
    ),
]
WithinOption = Annotated[
    float | None,
    typer.Option("--within", metavar="SECONDS", min=0.0, help="Stop waiting after so long", show_default=False),
]


def load_settings(
    file: Path | None, *, store: Path | None = None, endpoint: str | None = None, named: list[str] | None = None
) -> Settings:
    """Load the settings, with the flags of the command line as the strongest source.

    Raises:
        BadUse: a `--set` is not NAME=VALUE.
        SettingsError: a value is not usable.
    """
    overrides: dict[str, Any] = {}
    for text in named or []:
        name, mark, value = text.partition("=")
        if not mark:
            raise BadUse(f"--set {text!r} is not NAME=VALUE, for example --set commit_interval_s=60")
        overrides[name.strip()] = value
    if store is not None:
        overrides["store_path"] = store.absolute()
    if endpoint is not None:
        overrides["endpoint"] = endpoint
    return Settings.load(file, **overrides)


def check_named_store(settings: Settings) -> None:
    """A store that was named and is not there is a mistake in the name; only the default one may be missing.

    Raises:
        StoreUnusable: it was named, and is not there.
    """
    source = settings.source("store_path")
    if source != "default" and not settings.store_path.exists():
        raise StoreUnusable(
            f"there is no store at {settings.store_path} (from {source}); check the path: a hand-over would make one"
        )


__all__ = [
    "EndpointOption",
    "JsonOption",
    "LocalHubOption",
    "SetOption",
    "SettingsFileOption",
    "StoreOption",
    "WithinOption",
    "check_named_store",
    "load_settings",
]
