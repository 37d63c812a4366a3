"""What a RepositoryActor is given: its ports, its limits, and the parts it shares with the other actors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..protocol.schedule import Backoff, CommitPace
from .byte_budget import ByteBudget
from .hashing_pool import HashFile
from .ledger import LedgerRef
from .ports import Clock, Hub, LocalFiles, Store
from .ref import ActorRef
from .stop_gate import InFlight, SettlementBoard, StopGate
from .warnings import WarnOnce

UPLOADED_COPIES_BYTES: Final = 128 * 1024 * 1024
"""Copies of bundle files in memory at once; a single larger one is let through alone."""


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Bounds of deliveries; the defaults are those of the settings."""

    lease_s: float = 120.0
    renew_every_s: float = 30.0
    idle_s: float = 30.0
    """A repository without work for this long stops its actor."""
    max_operations: int = 1000
    """Files of one commit."""
    max_inline_bytes: int = 50 * 1024 * 1024
    """Content inside one commit's body, before base64."""
    claimed_bundles: int = 16
    """Bundles of one repository that are prepared at once; their uploads share the Hub adapter's own cap."""
    conflict_rounds: int = 5
    """How often one attempt is rebuilt on a new head before it backs off."""
    settle_s: float = 180.0
    """How long one attempt to learn an unknown outcome may take before it backs off: well above the Hub's gateway."""
    credential_check_s: float = 5.0
    """How often a missing credential is looked for, while there is work."""
    held_lease_check_s: float = 1.0
    """How often a final commit asks again for a lease that another process holds."""


@dataclass(frozen=True, slots=True)
class DeliveryWorld:
    """Everything that delivering to repositories needs."""

    owner: str
    """A random token of this runtime; leases carry it."""
    store: Store
    ledger: LedgerRef
    hub: Hub
    files: LocalFiles
    hashing: ActorRef[HashFile]
    clock: Clock
    gate: StopGate
    board: SettlementBoard
    in_flight: InFlight
    warn: WarnOnce
    jitter: Callable[[], float]
    """A number from 0 to 1, random in use, fixed or seeded in tests."""
    pace: CommitPace = field(default_factory=CommitPace)
    backoff: Backoff = field(default_factory=Backoff)
    limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    memory: ByteBudget = field(default_factory=lambda: ByteBudget(UPLOADED_COPIES_BYTES))
    """What the copies hold that wait for their upload or are being uploaded, over all repositories."""


__all__ = ["DeliveryLimits", "DeliveryWorld"]
