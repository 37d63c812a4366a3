"""Whether the Hub holds what was committed for a run (hand-over protocol, section 4.3; findings W27 and W28)."""

from __future__ import annotations

import pytest

from conveyor.protocol.outcome import Outcome, OutcomeKind
from conveyor.protocol.receipts import ReadBack, ReadBackStatus
from conveyor.runtime.adapters.memory_hub_faults import Fault, FaultEffect, HubCall
from tests.support.delivery import REPOSITORY, open_rig

pytestmark = pytest.mark.anyio

DOWN = Outcome(OutcomeKind.TRANSIENT, "ConnectError")


async def test_a_changed_or_deleted_file_is_a_mismatch_and_all_are_read_at_one_revision() -> None:
    """Finding W28: absent is a mismatch; one revision is pinned for all of them."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        files = {name: name.encode() for name in ("a", "b", "c")}
        await (await rig.hand_over(conveyor, files)).wait_delivered()
        passed = await conveyor.read_back_run_files(REPOSITORY, "r1")
        assert passed == ReadBack(status=ReadBackStatus.PASSED, files=3)
        rig.hub.foreign_commit(REPOSITORY, {"runs/r1/b": b"changed"})
        rig.hub._repositories[REPOSITORY].head.tree.pop("runs/r1/c")  # type: ignore[attr-defined]
        failed = await conveyor.read_back_run_files(REPOSITORY, "r1")
        assert (failed.status, failed.mismatched_paths) == (ReadBackStatus.FAILED, ("runs/r1/b", "runs/r1/c"))


async def test_it_is_pending_while_anything_of_the_run_is() -> None:
    """Section 4.3: no comparison before everything of the run is committed."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1"})).wait_delivered()
        await rig.hand_over(conveyor, {"a": b"2"}, interval_s=3600)
        assert (await conveyor.read_back_run_files(REPOSITORY, "r1")).status is ReadBackStatus.PENDING


async def test_it_is_never_passed_without_a_committed_file() -> None:
    """Finding W27: a run that has committed nothing of its own does not pass."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        answer = await conveyor.read_back_run_files(REPOSITORY, "unknown")
        assert (answer.status, answer.error_code) == (ReadBackStatus.FAILED, "NO_COMMITTED_FILES")


async def test_a_hub_that_does_not_answer_and_a_missing_credential_are_named() -> None:
    """Section 4.3: `REPOSITORY_UNAVAILABLE` and `CREDENTIAL_MISSING`; an invalid name is refused."""
    async with open_rig() as rig, rig.conveyor() as conveyor:
        await (await rig.hand_over(conveyor, {"a": b"1", "b": b"2"})).wait_delivered()
        rig.hub.fault(Fault(HubCall.DOWNLOAD, FaultEffect.REFUSE, outcome=DOWN))
        assert (await conveyor.read_back_run_files(REPOSITORY, "r1")).error_code == "REPOSITORY_UNAVAILABLE"
        rig.hub.credential = "missing"
        assert (await conveyor.read_back_run_files(REPOSITORY, "r1")).error_code == "CREDENTIAL_MISSING"
        assert (await conveyor.read_back_run_files("no repository", "r1")).status is ReadBackStatus.REFUSED
