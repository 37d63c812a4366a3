"""The runtime: the composition root and every adapter. Programs that embed Conveyor import from here.

```python
from conveyor.runtime import RunFile, StageRunFiles, open_conveyor

async with open_conveyor() as conveyor:
    ticket = await conveyor.stage_run_files(StageRunFiles("acme/outputs", "run-1", (RunFile("a.json", path),)))
    await ticket.wait_delivered(within_s=60)
```
"""

from __future__ import annotations

from ..actors.port_errors import (
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreUnusable,
    UsedAfterFork,
)
from ..actors.shutdown import LeftOver, PhaseReport, ShutdownPhase, ShutdownReport
from ..protocol.errors import ConveyorError
from ..protocol.receipts import (
    BundleReceipt,
    BundleStatus,
    DeliveryCode,
    ReadBack,
    ReadBackStatus,
    RunFilesReceipt,
    RunFilesStatus,
    WriteAccess,
)
from ..protocol.requests import BundleFile, RefusalCode, RunFile, StageDatasetBundle, StageRunFiles
from .app import Conveyor, ConveyorNotClosed, ConveyorNotOpen, open_conveyor
from .exit_codes import ExitCode
from .setting_spec import SettingsError
from .settings import Settings
from .status import Status
from .tickets import BundleTicket, NotAccepted, NotDelivered, RunFilesTicket

__all__ = [
    # running
    "Conveyor",
    "Settings",
    "open_conveyor",
    # handing over
    "BundleFile",
    "BundleTicket",
    "RunFile",
    "RunFilesTicket",
    "StageDatasetBundle",
    "StageRunFiles",
    # what comes back
    "BundleReceipt",
    "BundleStatus",
    "DeliveryCode",
    "ExitCode",
    "LeftOver",
    "PhaseReport",
    "ReadBack",
    "ReadBackStatus",
    "RefusalCode",
    "RunFilesReceipt",
    "RunFilesStatus",
    "ShutdownPhase",
    "ShutdownReport",
    "Status",
    "WriteAccess",
    # errors
    "ConveyorError",
    "ConveyorNotClosed",
    "ConveyorNotOpen",
    "NotAccepted",
    "NotDelivered",
    "SettingsError",
    "StoreBusy",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnusable",
    "UsedAfterFork",
]
