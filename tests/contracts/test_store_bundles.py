"""Bundles from hand-over to their end (hand-over protocol, sections 4.4 and 5.6), on every adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conveyor.actors.store_operations import (
    AcquireLease,
    ClaimBundle,
    OpenAttempt,
    ReadAgenda,
    ReadBundleReceipt,
    RecordBundle,
    RecordObject,
    ReleaseBundle,
    ReleaseLease,
    RetryBundle,
    SettleBundle,
    SettleLanded,
    SettleNotLanded,
)
from conveyor.protocol.errors import LeaseLost, LocalProtocolError
from conveyor.protocol.lease import LEASE_S, Lease
from conveyor.protocol.receipts import BundleStatus, DeliveryCode
from conveyor.protocol.work import BundleWork
from conveyor.runtime.store import SqliteStore
from tests.contracts.store_cases import quick_directory
from tests.contracts.store_cases import rules_backend as anyio_backend
from tests.contracts.store_cases import rules_store as store
from tests.support.stores import (
    NOW,
    REPOSITORY,
    bundle,
    bundle_plan,
    incoming,
    kept,
    run_files,
    take_lease,
    totals,
    write,
)

pytestmark = pytest.mark.anyio

__all__ = ["anyio_backend", "quick_directory", "store"]

LARGE_BYTES = 40 * 1024 * 1024


async def claim(store: SqliteStore, lease: Lease, now: float = NOW) -> BundleWork:
    """Claim a bundle that must be there."""
    work = await write(store, ClaimBundle(lease, now))
    assert work is not None
    return work


async def settle(
    store: SqliteStore, lease: Lease, handed_over: RecordBundle, code: DeliveryCode, now: float = NOW
) -> None:
    """Claim a bundle and let it fail for good."""
    assert (await claim(store, lease, now)).handover_id == handed_over.handover_id
    await write(store, SettleBundle(handed_over.handover_id, lease, BundleStatus.FAILED, code, None, now))


class TestHandingOver:
    """A bundle is known by its content."""

    async def test_the_receipt_says_what_was_copied(self, store: SqliteStore) -> None:
        """Small files are kept, by name and sorted; the large one is not; a repeat answers the same."""
        handed_over = bundle(large_bytes=LARGE_BYTES)
        receipt = await write(store, handed_over)
        assert receipt.to_message() == {
            "handover_id": handed_over.handover_id,
            "status": "pending",
            "error_code": None,
            "revision": None,
            "attempts": 0,
            "repository": REPOSITORY,
            "prefix": "staged/b1",
            "copied_files": ["data.h5", "staged_manifest.json"],
        }
        assert await kept(store, [b"data", b"{}b1"]) == [b"data", b"{}b1"]
        assert await write(store, replace(handed_over, now_unix_s=NOW + 9)) == receipt
        assert await store.query(ReadBundleReceipt(handed_over.handover_id)) == receipt
        assert await store.query(ReadBundleReceipt("0" * 32)) is None
        status = await totals(store)
        assert (status.accepted, status.waiting, status.waiting_bytes) == (1, 1, LARGE_BYTES + 8)

    async def test_a_repeat_after_its_end_answers_the_end(self, store: SqliteStore) -> None:
        """Section 4.9: nothing is queued again, whatever the status; the copied files stay the same."""
        handed_over = bundle()
        await write(store, handed_over)
        lease = await take_lease(store)
        await settle(store, lease, handed_over, DeliveryCode.REMOTE_DIFFERS)
        again = await write(store, handed_over)
        assert (again.status, again.error_code, again.attempts) == (
            BundleStatus.FAILED,
            DeliveryCode.REMOTE_DIFFERS,
            1,
        )
        assert again.copied_files == ("data.h5", "staged_manifest.json")
        assert await write(store, ClaimBundle(lease, NOW)) is None
        assert await kept(store, [b"data"]) == []

    async def test_changed_bytes_may_be_restored(self, store: SqliteStore) -> None:
        """W16: a bundle that failed because its files had changed is queued again by a repeat that verifies."""
        handed_over = bundle(large_bytes=LARGE_BYTES)
        await write(store, handed_over)
        lease = await take_lease(store)
        await settle(store, lease, handed_over, DeliveryCode.PRESERVED_BYTES_CHANGED)
        assert (await totals(store)).parked == 1
        again = await write(store, replace(handed_over, now_unix_s=NOW + 5))
        assert (again.status, again.error_code, again.attempts) == (BundleStatus.PENDING, None, 1)
        assert (await totals(store)).parked == 0
        assert await kept(store, [b"data"]) == [b"data"]
        work = await claim(store, lease, NOW + 5)
        assert [(file.name, file.is_copied) for file in work.files] == [
            ("data.h5", True),
            ("staged_manifest.json", True),
            ("large.h5", False),
        ]

    async def test_bundles_share_bytes_with_run_files(self, store: SqliteStore) -> None:
        """A content is kept until the last who needs it is done."""
        handed_over = bundle(data=b"shared")
        await write(store, handed_over)
        await write(store, run_files({"a": b"shared"}))
        await settle(store, await take_lease(store), handed_over, DeliveryCode.REMOTE_DIFFERS)
        assert await kept(store, [b"shared"]) == [b"shared"]
        await write(store, run_files({"a": b"other"}))
        assert await kept(store, [b"shared"]) == []


class TestClaiming:
    """One at a time, the oldest of those due."""

    async def test_the_work_is_all_that_an_upload_needs(self, store: SqliteStore) -> None:
        """Files in the order handed over, with both digests of what was copied."""
        handed_over = bundle(large_bytes=LARGE_BYTES)
        await write(store, handed_over)
        work = await claim(store, await take_lease(store))
        assert (work.handover_id, work.folder, work.attempts) == (handed_over.handover_id, "staged/b1", 0)
        data, manifest, large = work.files
        assert (data.name, data.role, data.local_path) == ("data.h5", "dataset", "/data/b1/data.h5")
        assert data.git_oid == incoming("data.h5", b"data").digests.git_oid
        assert (manifest.is_copied, manifest.is_uploaded) == (True, False)
        assert (large.git_oid, large.is_copied, large.size_bytes) == (None, False, LARGE_BYTES)

    async def test_a_retried_one_goes_before_newer_ones(self, store: SqliteStore) -> None:
        """W20: among those due the one handed over first; one that is not due yet holds nobody up."""
        old, new = bundle("old", now=NOW), bundle("new", now=NOW + 1)
        lease = await take_lease(store)
        for handed_over in (new, old):
            await write(store, handed_over)
        assert (await claim(store, lease)).handover_id == old.handover_id
        await write(store, RetryBundle(old.handover_id, lease, DeliveryCode.UPLOAD_FAILED, NOW + 4))
        assert (await claim(store, lease, NOW + 3)).handover_id == new.handover_id
        await write(store, ReleaseBundle(new.handover_id, lease))
        assert (await claim(store, lease, NOW + 4)).handover_id == old.handover_id
        receipt = await store.query(ReadBundleReceipt(old.handover_id))
        assert receipt is not None
        assert (receipt.attempts, receipt.error_code) == (1, DeliveryCode.UPLOAD_FAILED)

    async def test_one_given_back_is_as_it_was(self, store: SqliteStore) -> None:
        """Section 6: status, attempts and next time unchanged; ReleaseLease gives back everything claimed under it."""
        handed_over = bundle()
        before = await write(store, handed_over)
        lease = await take_lease(store)
        await claim(store, lease)
        assert await write(store, ClaimBundle(lease, NOW)) is None
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).bundles_due_unix_s is None
        await write(store, ReleaseLease(lease))
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).bundles_due_unix_s == 0.0
        assert await store.query(ReadBundleReceipt(handed_over.handover_id)) == before
        assert (await claim(store, await take_lease(store, owner="other"))).attempts == 0

    async def test_a_lost_claim_records_nothing(self, store: SqliteStore) -> None:
        """W22, N-RUN-12: once another owner has the repository, the former one's results are refused."""
        handed_over = bundle()
        name = handed_over.handover_id
        await write(store, handed_over)
        old = await take_lease(store)
        await claim(store, old)
        late = NOW + LEASE_S
        assert (await store.query(ReadAgenda(REPOSITORY, late, 1.0))).bundles_due_unix_s == 0.0
        new = await write(store, AcquireLease(REPOSITORY, "other", late, LEASE_S))
        assert isinstance(new, Lease)
        await claim(store, new, late)
        for operation in (
            RecordObject(name, old, "data.h5", "0" * 40),
            RetryBundle(name, old, DeliveryCode.UPLOAD_FAILED, 0.0),
            SettleBundle(name, old, BundleStatus.FAILED, DeliveryCode.REMOTE_DIFFERS, None, NOW),
            ClaimBundle(old, NOW),
        ):
            with pytest.raises(LeaseLost):
                await write(store, operation)
        await write(store, ReleaseBundle(name, old))
        assert await write(store, ClaimBundle(new, late)) is None
        receipt = await write(store, handed_over)
        assert (receipt.status, receipt.attempts) == (BundleStatus.PENDING, 0)

    async def test_a_result_after_the_end_of_the_lease_is_refused(self, store: SqliteStore) -> None:
        """Even if nobody else took it: whoever claims it next finds out what landed."""
        handed_over = bundle()
        await write(store, handed_over)
        lease = await take_lease(store)
        await claim(store, lease)
        end = SettleBundle(handed_over.handover_id, lease, BundleStatus.ALREADY_STAGED, None, "c1", NOW + LEASE_S)
        with pytest.raises(LeaseLost, match="ran out"):
            await write(store, end)

    async def test_one_whose_commit_is_open_is_not_claimed_again(self, store: SqliteStore) -> None:
        """A new owner first has to find out what became of the recorded commit."""
        handed_over = bundle()
        await write(store, handed_over)
        old = await take_lease(store)
        await claim(store, old)
        attempt = bundle_plan(handed_over)
        await write(store, OpenAttempt(attempt, old, NOW))
        new = await write(store, AcquireLease(REPOSITORY, "other", NOW + LEASE_S, LEASE_S))
        assert isinstance(new, Lease)
        assert await write(store, ClaimBundle(new, NOW + LEASE_S)) is None
        await write(store, SettleNotLanded(attempt.delivery_id))
        assert (await claim(store, new, NOW + LEASE_S)).handover_id == handed_over.handover_id


class TestProgressAndEnd:
    """What is recorded on the way, and how it ends."""

    async def test_uploaded_objects_are_remembered(self, store: SqliteStore) -> None:
        """N-HUB-07: the next attempt, by any process, neither hashes nor sends them again."""
        handed_over = bundle(large_bytes=LARGE_BYTES)
        await write(store, handed_over)
        lease = await take_lease(store)
        await claim(store, lease)
        await write(store, RecordObject(handed_over.handover_id, lease, "large.h5", "a" * 40))
        await write(store, ReleaseLease(lease))
        work = await claim(store, await take_lease(store, owner="other"))
        assert [(file.is_uploaded, file.git_oid) for file in work.files if file.name == "large.h5"] == [
            (True, "a" * 40)
        ]

    async def test_a_landed_commit_settles_it(self, store: SqliteStore) -> None:
        """Status, revision and attempts; the copies are deleted; it is delivered once, however often it is told."""
        handed_over = bundle()
        await write(store, handed_over)
        lease = await take_lease(store)
        await claim(store, lease)
        attempt = bundle_plan(handed_over)
        await write(store, OpenAttempt(attempt, lease, NOW))
        assert await kept(store, [b"data"]) == [b"data"]
        for _ in range(2):
            await write(store, SettleLanded(attempt.delivery_id, "c" * 40, NOW + 1))
        receipt = await write(store, handed_over)
        assert (receipt.status, receipt.revision, receipt.attempts) == (BundleStatus.UPLOADED, "c" * 40, 1)
        assert await kept(store, [b"data", b"{}b1"]) == []
        status = await totals(store)
        assert (status.accepted, status.delivered, status.waiting) == (1, 1, 0)

    async def test_one_that_was_there_already(self, store: SqliteStore) -> None:
        """already_staged carries the revision, counts one attempt and no commit."""
        handed_over = bundle()
        await write(store, handed_over)
        lease = await take_lease(store)
        await claim(store, lease)
        end = SettleBundle(handed_over.handover_id, lease, BundleStatus.ALREADY_STAGED, None, "c1", NOW)
        await write(store, end)
        receipt = await write(store, handed_over)
        assert (receipt.status, receipt.revision, receipt.attempts) == (BundleStatus.ALREADY_STAGED, "c1", 1)
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).last_commit_unix_s is None
        assert (await totals(store)).delivered == 1
        with pytest.raises(LeaseLost):
            await write(store, end)

    async def test_only_a_landed_commit_makes_it_uploaded(self, store: SqliteStore) -> None:
        """SettleBundle takes the two other ends only."""
        lease = await take_lease(store)
        for status in (BundleStatus.UPLOADED, BundleStatus.PENDING):
            with pytest.raises(LocalProtocolError, match="already_staged or failed"):
                await write(store, SettleBundle("0" * 32, lease, status, None, None, NOW))

    async def test_a_429_holds_back_the_whole_repository(self, store: SqliteStore) -> None:
        """RetryBundle with a pause moves the agenda's pause; without one it is left."""
        handed_over = bundle()
        await write(store, handed_over)
        lease = await take_lease(store)
        for pause, expected in ((NOW + 60, NOW + 60), (0.0, NOW + 60)):
            await claim(store, lease)
            retry = RetryBundle(handed_over.handover_id, lease, DeliveryCode.UPLOAD_FAILED, 0.0, pause)
            await write(store, retry)
            assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).pause_until_unix_s == expected
