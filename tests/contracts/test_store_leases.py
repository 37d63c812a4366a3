"""Leases, fences and clocks that jump (hand-over protocol, section 5.7; findings W22 to W24), on every adapter."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from conveyor.actors.store_operations import (
    AcquireLease,
    ClaimBundle,
    ClampTimes,
    CountFailure,
    LeaseRow,
    ListLeases,
    ReadAgenda,
    ReleaseLease,
    RenewLease,
    RetryBundle,
)
from conveyor.protocol.errors import LeaseLost
from conveyor.protocol.lease import LEASE_S, Lease, LeaseHeld
from conveyor.protocol.receipts import DeliveryCode
from conveyor.protocol.work import RepositoryAgenda
from conveyor.runtime.store import SqliteStore
from tests.contracts.store_cases import quick_directory
from tests.contracts.store_cases import rules_backend as anyio_backend
from tests.contracts.store_cases import rules_store as store
from tests.support.stores import NOW, REPOSITORY, bundle, land, run_files, take_lease, write

pytestmark = pytest.mark.anyio

__all__ = ["anyio_backend", "quick_directory", "store"]


def acquire(owner: str, now: float = NOW) -> AcquireLease:
    """Ask for the repository's lease."""
    return AcquireLease(REPOSITORY, owner, now, LEASE_S)


async def agenda(store: SqliteStore, now: float = NOW) -> RepositoryAgenda:
    """What the repository has to do."""
    return await store.query(ReadAgenda(REPOSITORY, now, 3600.0))


class TestGranting:
    """One owner at a time; every change of owner raises the fence."""

    async def test_only_one_owner_gets_it(self, store: SqliteStore) -> None:
        """The second is told who holds it and until when; the first may ask again."""
        first = await write(store, acquire("a"))
        assert first == Lease(REPOSITORY, "a", 1, NOW + LEASE_S)
        assert await write(store, acquire("b", NOW + 1)) == LeaseHeld("a", NOW + LEASE_S)
        assert await write(store, acquire("a", NOW + 2)) == Lease(REPOSITORY, "a", 1, NOW + 2 + LEASE_S)
        found = await agenda(store)
        assert (found.lease_owner, found.lease_expires_unix_s) == ("a", NOW + 2 + LEASE_S)

    async def test_one_that_ran_out_goes_to_the_next(self, store: SqliteStore) -> None:
        """At its end, not before; the former owner can neither renew nor release it (W23, N-RUN-12)."""
        old = await take_lease(store, owner="a")
        assert isinstance(await write(store, acquire("b", NOW + LEASE_S - 0.001)), LeaseHeld)
        new = await write(store, acquire("b", NOW + LEASE_S))
        assert isinstance(new, Lease)
        assert new.fence == old.fence + 1
        with pytest.raises(LeaseLost, match="not the current one"):
            await write(store, RenewLease(old, NOW + 1, LEASE_S))
        await write(store, ReleaseLease(old))
        assert (await agenda(store)).lease_owner == "b"

    async def test_renewing_prolongs_it(self, store: SqliteStore) -> None:
        """The fence stays; one that ran out is not renewed, even if nobody else took it."""
        lease = await take_lease(store)
        renewed = await write(store, RenewLease(lease, NOW + 100, LEASE_S))
        assert renewed == replace(lease, expires_unix_s=NOW + 100 + LEASE_S)
        with pytest.raises(LeaseLost, match="ran out"):
            await write(store, RenewLease(renewed, renewed.expires_unix_s, LEASE_S))

    async def test_a_released_one_is_free_at_once(self, store: SqliteStore) -> None:
        """The fence grows even for the same owner, so an effect from before the release is refused."""
        lease = await take_lease(store, owner="a")
        await write(store, ReleaseLease(lease))
        assert await store.query(ListLeases()) == ()
        again = await write(store, acquire("a"))
        assert isinstance(again, Lease)
        assert again.fence == lease.fence + 1
        with pytest.raises(LeaseLost):
            await write(store, RenewLease(lease, NOW, LEASE_S))

    async def test_operators_see_who_holds_what(self, store: SqliteStore) -> None:
        """Host, process, and since when; a renewal does not change that."""
        await take_lease(store, owner="a", repository="acme/b")
        lease = await take_lease(store, owner="a", repository="acme/a", now=NOW + 1)
        await write(store, RenewLease(lease, NOW + 30, LEASE_S))
        first, second = await store.query(ListLeases())
        assert first == LeaseRow("acme/a", "a", NOW + 1, NOW + 30 + LEASE_S, os.uname().nodename, os.getpid())
        assert (second.repository, second.since_unix_s) == ("acme/b", NOW)


class TestClocksThatJump:
    """W24: a clock once wrong blocks nobody for ever, and lets nobody in too early."""

    async def test_an_end_far_ahead_is_one_lease_away_at_most(self, store: SqliteStore) -> None:
        """Granted under a clock a day ahead: held for one whole lease from when it is next seen, then free."""
        await take_lease(store, owner="a", now=NOW + 86_400)
        assert await write(store, acquire("b")) == LeaseHeld("a", NOW + LEASE_S)
        assert await write(store, acquire("b", NOW + 60)) == LeaseHeld("a", NOW + LEASE_S)
        assert isinstance(await write(store, acquire("b", NOW + LEASE_S)), Lease)

    async def test_stored_times_ahead_are_brought_back_for_good(self, store: SqliteStore) -> None:
        """Last commit, budget, backoff, pause, due times and next attempts: each to within its own period."""
        ahead = NOW + 86_400
        lease = await take_lease(store, now=ahead)
        await write(store, run_files({"a": b"1"}, now=ahead))
        await land(store, lease, now=ahead)
        await write(store, run_files({"a": b"2"}, entry="{}", now=ahead, interval_s=40.0))
        handed_over = bundle(now=ahead)
        await write(store, handed_over)
        await write(store, ClaimBundle(lease, ahead))
        await write(
            store, RetryBundle(handed_over.handover_id, lease, DeliveryCode.UPLOAD_FAILED, ahead + 300, ahead + 9000)
        )
        await write(store, CountFailure(REPOSITORY, {}, DeliveryCode.UPLOAD_FAILED, ahead + 300))
        await write(store, ReleaseLease(lease))
        assert await write(store, ClampTimes(REPOSITORY, NOW, 300.0))
        found = await agenda(store)
        assert (found.last_commit_unix_s, found.commits_unix_s) == (NOW, (NOW,))
        assert (found.not_before_unix_s, found.pause_until_unix_s) == (NOW + 300, NOW + 3600)
        assert (found.run_files_due_unix_s, found.bundles_due_unix_s) == (NOW + 40, NOW + 300)
        assert not await write(store, ClampTimes(REPOSITORY, NOW, 300.0))
        assert await agenda(store) == found

    async def test_right_times_are_left_alone(self, store: SqliteStore) -> None:
        """A backoff, a due time or a lease within its period is nothing to clamp."""
        lease = await take_lease(store)
        await write(store, run_files({"a": b"1"}))
        await land(store, lease)
        await write(store, run_files({"a": b"2"}, interval_s=3600.0))
        await write(store, CountFailure(REPOSITORY, {}, DeliveryCode.UPLOAD_FAILED, NOW + 300))
        before = await agenda(store)
        assert not await write(store, ClampTimes(REPOSITORY, NOW, 300.0))
        assert await agenda(store) == before

    async def test_a_future_commit_makes_nothing_due_later_than_an_interval(self, store: SqliteStore) -> None:
        """A last commit written under another clock counts as now."""
        await write(store, run_files({"a": b"1"}))
        await land(store, await take_lease(store, now=NOW + 86_400), now=NOW + 86_400)
        await write(store, run_files({"a": b"2"}, interval_s=30.0))
        assert (await agenda(store)).run_files_due_unix_s == NOW + 30
