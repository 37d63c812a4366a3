"""The local Hub: a directory served over the Hugging Face Hub's HTTP API, with scripted faults.

For rehearsals, tests, benchmarks and users' own continuous integration; needs the extra ``hub``. ``serve`` runs it
until a signal, ``open_local_hub`` inside an asyncio program. ``docs/local-hub.md`` describes the directory,
the faults and the control calls.
"""

from .options import HubServeOptions, TokenGrant
from .problems import FaultScriptInvalid, HubHostRefused, HubRootUnusable
from .server import ServedHub, open_local_hub, serve

__all__ = [
    "FaultScriptInvalid",
    "HubHostRefused",
    "HubRootUnusable",
    "HubServeOptions",
    "ServedHub",
    "TokenGrant",
    "open_local_hub",
    "serve",
]
