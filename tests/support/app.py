"""A runtime for tests: real SQLite, a local Hub on loopback, a token in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conveyor.runtime import Conveyor, RunFile, RunFilesTicket, Settings, StageRunFiles

TOKEN = "hf_canary"
REPOSITORY = "lab/app"
NOBODY = "http://127.0.0.1:9"
"""An address where nobody listens."""


def app_settings(place: Path, endpoint: str = NOBODY, **more: Any) -> Settings:
    """Settings for a store in this place."""
    return Settings.load(environ={}, store_path=place / "state" / "store.db", endpoint=endpoint, **more)


def run_file_request(
    place: Path, name: str, content: str, *, run_id: str = "run", flush: bool = False
) -> StageRunFiles:
    """Write a file and ask for its hand-over."""
    file = place / name
    file.write_text(content)
    return StageRunFiles(REPOSITORY, run_id, (RunFile(name, file),), flush=flush)


async def hand_over(conveyor: Conveyor, place: Path, name: str = "a.txt", content: str = "1") -> RunFilesTicket:
    """Hand a file over, and remove it once it is durable."""
    ticket = await conveyor.stage_run_files(run_file_request(place, name, content, flush=True))
    await ticket.wait_durable()
    (place / name).unlink()
    return ticket


__all__ = ["NOBODY", "REPOSITORY", "TOKEN", "app_settings", "hand_over", "run_file_request"]
