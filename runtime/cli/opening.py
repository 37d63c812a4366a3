"""Opening a runtime for a command: the store that is asked for, the Hub that is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ..adapters.assembly import open_adapters
from ..adapters.hub_credentials import HubCredentials
from ..app import Conveyor, open_conveyor
from ..settings import Settings
from ..sweep.hub_process import local_hub_process
from ..sweep.run import LOCAL_TOKEN


@asynccontextmanager
async def opened(settings: Settings, local_hub: Path | None) -> AsyncIterator[Conveyor]:
    """Open a runtime, with a local Hub beside it if one is asked for.

    A local Hub is given a token of its own, never the user's.
    """
    async with AsyncExitStack() as stack:
        credentials = HubCredentials()
        if local_hub is not None:
            endpoint = await stack.enter_async_context(local_hub_process(local_hub, options=["--create-missing"]))
            settings = replace(settings, endpoint=endpoint)
            credentials = HubCredentials(environ={"HF_TOKEN": LOCAL_TOKEN})
        adapters = await stack.enter_async_context(open_adapters(settings, credentials))
        yield await stack.enter_async_context(open_conveyor(settings, adapters=adapters))


__all__ = ["opened"]
