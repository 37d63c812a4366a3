"""Status, agenda, parked paths and retention, on every adapter."""

from __future__ import annotations

import pytest

from conveyor.actors.store_operations import (
    AreSettled,
    ClaimBundle,
    ListOpenRepositories,
    ListParked,
    ParkedPath,
    ParkPaths,
    PauseRepository,
    Prune,
    ReadAgenda,
    ReadBundleReceipt,
    ReadCommitted,
    RetryParked,
    SettleBundle,
    SettleLanded,
)
from conveyor.protocol.errors import LeaseLost
from conveyor.protocol.receipts import BundleStatus, DeliveryCode
from conveyor.runtime.store import SqliteStore
from tests.contracts.store_cases import quick_directory
from tests.contracts.store_cases import rules_backend as anyio_backend
from tests.contracts.store_cases import rules_store as store
from tests.support.stores import (
    NOW,
    REPOSITORY,
    bundle,
    kept,
    land,
    open_commit,
    pending,
    receipt,
    run_files,
    take_lease,
    totals,
    write,
)

pytestmark = pytest.mark.anyio

__all__ = ["anyio_backend", "quick_directory", "store"]

CODE = DeliveryCode.UPLOAD_FAILED


class TestStatus:
    """One consistent reading of everything."""

    async def test_a_new_store_has_nothing(self, store: SqliteStore) -> None:
        """Zeros, and an agenda of nothing for a repository never heard of."""
        status = await totals(store)
        assert (status.accepted, status.waiting_bytes, status.repositories, status.known_repositories) == (0, 0, (), 0)
        agenda = await store.query(ReadAgenda("acme/unknown", NOW, 3600.0))
        assert agenda.is_idle
        assert (agenda.last_commit_unix_s, agenda.lease_owner) == (None, None)
        assert await store.query(ListOpenRepositories()) == ()

    async def test_it_lists_what_is_open_or_leased(self, store: SqliteStore) -> None:
        """By name, with numbers, bytes and the oldest hand-over; an idle repository is only counted."""
        await write(store, run_files({"a": b"12345"}, repository="acme/files", now=NOW + 1))
        await write(store, run_files(entry="{}", repository="acme/entries"))
        await write(store, bundle(repository="acme/bundles"))
        await write(store, run_files({"a": b"1"}, repository="acme/idle"))
        lease = await take_lease(store, repository="acme/idle")
        await land(store, lease)
        await take_lease(store, repository="acme/leased")
        await write(store, PauseRepository("acme/files", "403", NOW))
        status = await totals(store)
        shown = {one.agenda.repository: one for one in status.repositories}
        assert list(shown) == ["acme/bundles", "acme/entries", "acme/files", "acme/idle", "acme/leased"]
        files = shown["acme/files"]
        assert (files.agenda.pending_paths, files.pending_bytes, files.oldest_pending_unix_s) == (1, 5, NOW + 1)
        assert files.agenda.paused_reason == "403"
        assert (shown["acme/entries"].agenda.pending_entries, shown["acme/entries"].pending_bytes) == (1, 2)
        assert shown["acme/bundles"].agenda.pending_bundles == 1
        assert (shown["acme/idle"].commits, shown["acme/idle"].oldest_pending_unix_s) == (1, None)
        assert (status.known_repositories, status.waiting, status.delivered) == (5, 3, 1)
        assert await store.query(ListOpenRepositories()) == ("acme/bundles", "acme/entries", "acme/files")
        await write(store, PauseRepository("acme/files", None, NOW))
        assert (await store.query(ReadAgenda("acme/files", NOW, 1.0))).paused_reason is None

    async def test_totals_add_up_through_a_whole_history(self, store: SqliteStore) -> None:
        """N-UX-03: accepted = delivered + superseded + waiting + parked after every step."""
        lease = await take_lease(store)
        for number in range(4):
            await write(store, run_files({"a": b"%d" % number, "b": b"same"}, entry=f"{number}"))
            await totals(store)
            attempt = await open_commit(store, lease, index=b"%d" % number)
            await write(store, run_files({"a": b"newer", "c": b"%d" % number}, run_id="r2"))
            await totals(store)
            await write(store, SettleLanded(attempt.delivery_id, f"c{number}", NOW))
            await totals(store)
        status = await totals(store)
        assert (status.accepted, status.waiting) == (20, 2)
        assert status.superseded + status.delivered == 18

    async def test_an_unknown_commit_keeps_its_repository_open(self, store: SqliteStore) -> None:
        """Even when nothing is pending any more, somebody has to find out."""
        await write(store, run_files({"a": b"1"}))
        attempt = await open_commit(store, await take_lease(store))
        assert await store.query(ListOpenRepositories()) == (REPOSITORY,)
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        assert await store.query(ListOpenRepositories()) == ()


class TestParking:
    """W7, N-HUB-05: one path that the Hub never takes holds up no others."""

    async def test_a_parked_path_is_out_of_the_way(self, store: SqliteStore) -> None:
        """It is listed with its reason, its bytes are kept, its run shows the code; the rest goes on."""
        await write(store, run_files({"bad": b"1", "good": b"2"}))
        lease = await take_lease(store)
        park = ParkPaths(REPOSITORY, lease, (("bad", 1), ("unknown", 1)), CODE, "the Hub refuses this path", NOW)
        assert await write(store, park) == 1
        assert [path.path for path in (await pending(store)).paths] == ["good"]
        expected = ParkedPath(REPOSITORY, "bad", "r1", 1, CODE, "the Hub refuses this path")
        assert await store.query(ListParked()) == (expected,)
        assert await store.query(ListParked("acme/other")) == ()
        found = await receipt(store)
        assert (found.pending_files, found.last_error_code) == (1, CODE)
        assert not await store.query(AreSettled(REPOSITORY, "r1", (("bad", 1),)))
        assert await kept(store, [b"1"]) == [b"1"]
        assert (await totals(store)).parked == 1
        assert await write(store, park) == 0

    async def test_only_what_is_newest_and_not_in_flight_is_parked(self, store: SqliteStore) -> None:
        """Newer bytes deserve a try of their own; without the lease nothing is set aside."""
        await write(store, run_files({"a": b"1", "b": b"1"}))
        lease = await take_lease(store)
        await write(store, run_files({"a": b"2"}))
        assert await write(store, ParkPaths(REPOSITORY, lease, (("a", 1),), CODE, "x", NOW)) == 0
        await open_commit(store, lease)
        assert await write(store, ParkPaths(REPOSITORY, lease, (("a", 2), ("b", 1)), CODE, "x", NOW)) == 0
        with pytest.raises(LeaseLost):
            await write(store, ParkPaths(REPOSITORY, lease, (("a", 2),), CODE, "x", NOW + 500))

    @pytest.mark.parametrize("content", [b"1", b"2"], ids=["the same bytes", "other bytes"])
    async def test_handing_over_again_brings_it_back(self, store: SqliteStore, content: bytes) -> None:
        """A new version is pending; the one set aside was replaced."""
        await write(store, run_files({"bad": b"1"}))
        lease = await take_lease(store)
        await write(store, ParkPaths(REPOSITORY, lease, (("bad", 1),), CODE, "x", NOW))
        again = await write(store, run_files({"bad": content}))
        assert again.versions == (("bad", 2),)
        assert again.receipt.pending_files == 1
        assert await store.query(ListParked()) == ()
        status = await totals(store)
        assert (status.parked, status.superseded, status.waiting) == (0, 1, 1)
        await land(store, lease)
        assert await store.query(AreSettled(REPOSITORY, "r1", (("bad", 1),)))

    async def test_the_committed_bytes_end_it(self, store: SqliteStore) -> None:
        """Handing over what the Hub holds settles the path at once."""
        await write(store, run_files({"a": b"good"}))
        lease = await take_lease(store)
        await land(store, lease)
        await write(store, run_files({"a": b"bad"}))
        await write(store, ParkPaths(REPOSITORY, lease, (("a", 2),), CODE, "x", NOW))
        assert (await write(store, run_files({"a": b"good"}))).receipt.pending_files == 0
        assert await kept(store, [b"good", b"bad"]) == []
        status = await totals(store)
        assert (status.parked, status.delivered, status.superseded) == (0, 2, 1)

    async def test_they_can_be_tried_again(self, store: SqliteStore) -> None:
        """RetryParked makes every parked path of the repository pending and due now."""
        await write(store, run_files({"a": b"1", "b": b"2"}))
        lease = await take_lease(store)
        await write(store, ParkPaths(REPOSITORY, lease, (("a", 1), ("b", 1)), CODE, "x", NOW))
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).is_idle
        assert await write(store, RetryParked(REPOSITORY, NOW + 9)) == 2
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).run_files_due_unix_s == NOW + 9
        assert (await receipt(store)).pending_files == 2
        await land(store, lease)
        assert (await totals(store)).delivered == 2


class TestRetention:
    """W25: the store grows with open work, not with history."""

    async def test_settled_rows_go_open_ones_stay(self, store: SqliteStore) -> None:
        """Old settled paths, runs and bundles are deleted; anything pending, parked, unknown or newer is not."""
        lease = await take_lease(store)
        done = bundle("done")
        await write(store, run_files({"old": b"1"}, run_id="old"))
        await land(store, lease, now=NOW)
        await write(store, done)
        await write(store, ClaimBundle(lease, NOW))
        end = SettleBundle(done.handover_id, lease, BundleStatus.FAILED, DeliveryCode.REMOTE_DIFFERS, None, NOW)
        await write(store, end)
        await write(store, run_files({"parked": b"1", "waiting": b"1"}, run_id="open"))
        await write(store, ParkPaths(REPOSITORY, lease, (("parked", 1),), CODE, "x", NOW))
        open_bundle = bundle("open")
        await write(store, open_bundle)
        before = await totals(store)
        assert await write(store, Prune(NOW)) == 0
        assert await write(store, Prune(NOW + 1)) == 3
        assert await write(store, Prune(NOW + 1)) == 0
        assert await store.query(ReadBundleReceipt(done.handover_id)) is None
        assert await store.query(ReadBundleReceipt(open_bundle.handover_id)) is not None
        assert await store.query(ReadCommitted(REPOSITORY, "old")) == ()
        assert (await receipt(store, "open")).pending_files == 1
        assert len(await store.query(ListParked())) == 1
        assert await totals(store) == before
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 3600.0))).commits_unix_s == (NOW,)

    async def test_what_was_settled_stays_settled(self, store: SqliteStore) -> None:
        """A ticket for a forgotten path is answered: only settled paths are ever forgotten."""
        recorded = await write(store, run_files({"a": b"1"}))
        await land(store, await take_lease(store))
        await write(store, Prune(NOW + 1))
        assert await store.query(AreSettled(REPOSITORY, "r1", recorded.versions))
        assert not await store.query(AreSettled(REPOSITORY, "r1", (("a", 2),)))

    async def test_versions_rise_over_forgetting(self, store: SqliteStore) -> None:
        """N-HUB-12: a forgotten path that comes back gets a version above its old ones."""
        for number in range(3):
            await write(store, run_files({"a": b"%d" % number}))
        await land(store, await take_lease(store))
        await write(store, Prune(NOW + 1))
        recorded = await write(store, run_files({"a": b"2"}))
        assert recorded.versions == (("a", 4),)
        assert not await store.query(AreSettled(REPOSITORY, "r1", recorded.versions))
        await land(store, await take_lease(store))
        assert await store.query(AreSettled(REPOSITORY, "r1", recorded.versions))

    async def test_it_goes_in_small_steps(self, store: SqliteStore) -> None:
        """No transaction deletes more rows of a kind than asked."""
        await write(store, run_files({f"f{number}": b"%d" % number for number in range(10)}))
        await land(store, await take_lease(store))
        steps = [await write(store, Prune(NOW + 1, limit_rows=4)) for _ in range(4)]
        assert steps == [4, 4, 3, 0]
