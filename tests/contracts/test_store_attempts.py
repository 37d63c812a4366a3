"""Recorded commits and what became of them (hand-over protocol, 5.5; hub API notes, section 12), on every adapter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conveyor.actors.store_operations import (
    AcquireLease,
    AreSettled,
    CountFailure,
    NoteMissingCredential,
    OpenAttempt,
    PlanOutdated,
    ReadAgenda,
    ReadOpenAttempt,
    ReadStatus,
    SettleLanded,
    SettleNotLanded,
    SettleUnchanged,
)
from conveyor.protocol.errors import LeaseLost, LocalProtocolError
from conveyor.protocol.receipts import DeliveryCode
from conveyor.protocol.work import UploadMode
from conveyor.runtime.store import SqliteStore
from tests.contracts.store_cases import quick_directory
from tests.contracts.store_cases import rules_backend as anyio_backend
from tests.contracts.store_cases import rules_store as store
from tests.support.stores import (
    NOW,
    REPOSITORY,
    bundle,
    bundle_plan,
    kept,
    land,
    open_commit,
    pending,
    plan,
    receipt,
    run_files,
    sha256,
    take_lease,
    totals,
    write,
)

pytestmark = pytest.mark.anyio

__all__ = ["anyio_backend", "quick_directory", "store"]


class TestOpening:
    """A commit is recorded whole before it is sent."""

    async def test_it_is_read_back_as_it_was_recorded(self, store: SqliteStore) -> None:
        """Files, modes, entries and text, in their order, so that another process can send the same again."""
        await write(store, run_files({"z": b"1", "a": b"2"}, entry='{"run_id": "r1"}'))
        attempt = await open_commit(store, await take_lease(store), index=b"[]")
        assert await store.query(ReadOpenAttempt(REPOSITORY)) == attempt
        assert [file.path for file in attempt.files] == ["a", "z", "runs.json"]
        assert await kept(store, [b"[]"]) == [b"[]"]
        assert (await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))).has_open_attempt
        assert await store.query(ReadOpenAttempt("acme/other")) is None

    async def test_recording_it_twice_is_once(self, store: SqliteStore) -> None:
        """The same attempt again changes nothing; another one is refused while the first is open."""
        await write(store, run_files({"a": b"1"}))
        lease = await take_lease(store)
        attempt = await open_commit(store, lease)
        await write(store, OpenAttempt(attempt, lease, NOW))
        with pytest.raises(LocalProtocolError, match="not known yet"):
            await write(store, OpenAttempt(replace(attempt, parent="p1"), lease, NOW))
        assert await store.query(ReadOpenAttempt(REPOSITORY)) == attempt

    async def test_it_needs_the_current_lease(self, store: SqliteStore) -> None:
        """W22: with a lease that ran out, or that another owner took, nothing is recorded."""
        await write(store, run_files({"a": b"1"}))
        lease = await take_lease(store)
        attempt = plan(await pending(store))
        with pytest.raises(LeaseLost, match="ran out"):
            await write(store, OpenAttempt(attempt, lease, lease.expires_unix_s))
        await write(store, AcquireLease(REPOSITORY, "other", lease.expires_unix_s, 120.0))
        with pytest.raises(LeaseLost, match="not the current one"):
            await write(store, OpenAttempt(attempt, lease, NOW))
        with pytest.raises(LocalProtocolError, match="under the lease of acme/other"):
            await write(store, OpenAttempt(attempt, await take_lease(store, repository="acme/other"), NOW))
        assert await store.query(ReadOpenAttempt(REPOSITORY)) is None

    async def test_an_older_version_never_goes_over_a_settled_one(self, store: SqliteStore) -> None:
        """N-HUB-12: bytes came back to the committed ones after the plan was made; the plan is refused."""
        lease = await take_lease(store)
        await write(store, run_files({"a": b"X"}))
        await land(store, lease)
        await write(store, run_files({"a": b"Y"}))
        outdated = plan(await pending(store))
        await write(store, run_files({"a": b"X"}))
        with pytest.raises(PlanOutdated, match="plan the commit again"):
            await write(store, OpenAttempt(outdated, lease, NOW))

    async def test_replaced_bytes_have_to_be_given(self, store: SqliteStore) -> None:
        """An inline file whose bytes were replaced since the plan needs them with the attempt, and keeps them."""
        await write(store, run_files({"a": b"X"}))
        lease = await take_lease(store)
        attempt = plan(await pending(store))
        await write(store, run_files({"a": b"Y"}))
        with pytest.raises(PlanOutdated, match="no longer kept"):
            await write(store, OpenAttempt(attempt, lease, NOW))
        await write(store, OpenAttempt(attempt, lease, NOW, contents={sha256(b"X"): b"X"}))
        assert await kept(store, [b"X", b"Y"]) == [b"X", b"Y"]
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        assert await store.query(AreSettled(REPOSITORY, "r1", (("a", 1),)))
        assert await kept(store, [b"X", b"Y"]) == [b"Y"]

    async def test_an_uploaded_object_needs_no_bytes(self, store: SqliteStore) -> None:
        """A file that goes as LFS is on the Hub already; only its name is sent again."""
        await write(store, run_files({"a": b"X"}))
        lease = await take_lease(store)
        attempt = plan(await pending(store), mode=UploadMode.LFS)
        await write(store, run_files({"a": b"Y"}))
        await write(store, OpenAttempt(attempt, lease, NOW))
        assert await kept(store, [b"X"]) == []

    async def test_bytes_that_were_never_handed_over_are_a_defect(self, store: SqliteStore) -> None:
        """A version that does not exist, or other bytes under a known version, are refused."""
        await write(store, run_files({"a": b"X"}))
        lease = await take_lease(store)
        attempt = plan(await pending(store))
        (file,) = attempt.files
        for wrong in (
            replace(file, version=2),
            replace(file, path="b"),
            replace(file, digests=replace(file.digests, sha256="0" * 64)),
        ):
            with pytest.raises(LocalProtocolError):
                await write(store, OpenAttempt(replace(attempt, files=(wrong,)), lease, NOW))


class TestCounters:
    """Receipts of runs (section 4.1)."""

    async def test_a_landed_commit_counts_for_each_of_its_runs(self, store: SqliteStore) -> None:
        """Files of each run, one attempt and one commit each; the entry counts in no files_ counter."""
        await write(store, run_files({"a": b"1", "b": b"2"}, run_id="r1"))
        await write(store, run_files({"c": b"3"}, run_id="r2", entry="{}"))
        await write(store, run_files(run_id="r3", entry="{}"))
        attempt = await open_commit(store, await take_lease(store), index=b"index")
        await write(store, SettleLanded(attempt.delivery_id, "f" * 40, NOW))
        figures = []
        for run_id in ("r1", "r2", "r3"):
            found = await receipt(store, run_id)
            assert (found.pending_files, found.last_error_code, found.last_commit) == (0, None, "f" * 40)
            figures.append((found.files_attempted, found.files_committed, found.commit_attempts, found.commits))
        assert figures == [(2, 2, 1, 1), (1, 1, 1, 1), (0, 0, 1, 1)]

    async def test_a_failed_attempt_counts_once(self, store: SqliteStore) -> None:
        """The attempt's code shows until something lands; what it carried is pending as before."""
        await write(store, run_files({"a": b"1"}))
        lease = await take_lease(store)
        attempt = await open_commit(store, lease)
        for _ in range(2):
            await write(store, SettleNotLanded(attempt.delivery_id, DeliveryCode.UPLOAD_FAILED))
        found = await receipt(store)
        assert (found.files_attempted, found.files_committed, found.commit_attempts, found.commits) == (1, 0, 1, 0)
        assert (found.pending_files, found.last_error_code) == (1, DeliveryCode.UPLOAD_FAILED)
        await land(store, lease)
        found = await receipt(store)
        assert (found.files_attempted, found.commit_attempts, found.last_error_code) == (2, 2, None)

    async def test_a_conflict_counts_nothing(self, store: SqliteStore) -> None:
        """N-HUB-02: re-planning after a lost race is the same attempt, with the same delivery id."""
        await write(store, run_files({"a": b"1"}))
        lease = await take_lease(store)
        first = await open_commit(store, lease, parent="p0")
        await write(store, SettleNotLanded(first.delivery_id))
        assert (await receipt(store)).commit_attempts == 0
        second = await open_commit(store, lease, parent="p1")
        assert second.delivery_id == first.delivery_id
        await write(store, SettleLanded(second.delivery_id, "c1", NOW))
        assert (await receipt(store)).commit_attempts == 1

    async def test_a_late_word_on_an_older_attempt_leaves_the_newer_one(self, store: SqliteStore) -> None:
        """A process that was held up cannot take away what another planned with the same content on a newer head."""
        await write(store, run_files({"a": b"1"}))
        lease = await take_lease(store)
        first = await open_commit(store, lease, parent="p0")
        await write(store, SettleNotLanded(first.delivery_id, parent="p0"))
        second = await open_commit(store, lease, parent="p1")
        await write(store, SettleNotLanded(first.delivery_id, DeliveryCode.UPLOAD_FAILED, parent="p0"))
        assert (await store.query(ReadOpenAttempt(REPOSITORY))) == second
        await write(store, SettleNotLanded(second.delivery_id, parent="p1"))
        assert (await store.query(ReadOpenAttempt(REPOSITORY))) is None

    async def test_a_failure_before_anything_was_recorded(self, store: SqliteStore) -> None:
        """CountFailure moves counters, failures in a row, backoff and, for a 429, the pause of everything."""
        await write(store, run_files({"a": b"1"}, entry="{}"))
        failure = CountFailure(REPOSITORY, {"r1": 1}, DeliveryCode.UPLOAD_FAILED, NOW + 2)
        await write(store, failure)
        await write(store, replace(failure, not_before_unix_s=NOW + 4, pause_until_unix_s=NOW + 60))
        found = await receipt(store)
        assert (found.files_attempted, found.commit_attempts, found.commits) == (2, 2, 0)
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))
        assert (agenda.failures, agenda.not_before_unix_s, agenda.pause_until_unix_s) == (2, NOW + 4, NOW + 60)
        await land(store, await take_lease(store))
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))
        assert (agenda.failures, agenda.not_before_unix_s) == (0, 0.0)

    async def test_a_missing_credential_is_no_attempt(self, store: SqliteStore) -> None:
        """W21: every pending run and bundle shows it; no counter and no backoff moves."""
        await write(store, run_files({"z": b"0"}, run_id="done"))
        await land(store, await take_lease(store))
        await write(store, run_files({"a": b"1"}, run_id="files"))
        await write(store, run_files(run_id="entry", entry="{}"))
        handed_over = bundle()
        await write(store, handed_over)
        await write(store, NoteMissingCredential(REPOSITORY))
        for run_id in ("files", "entry"):
            found = await receipt(store, run_id)
            assert (found.commit_attempts, found.last_error_code) == (0, DeliveryCode.CREDENTIAL_MISSING)
        assert (await receipt(store, "done")).last_error_code is None
        again = await write(store, handed_over)
        assert (again.attempts, again.error_code) == (0, DeliveryCode.CREDENTIAL_MISSING)
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW, 1.0))
        assert (agenda.failures, agenda.not_before_unix_s, agenda.bundles_due_unix_s) == (0, 0.0, 0.0)


class TestLanding:
    """A landed commit is a fact."""

    async def test_it_starts_the_spacing_and_uses_the_budget(self, store: SqliteStore) -> None:
        """Commits are listed oldest first, as far back as asked; the last one is remembered for good."""
        lease = await take_lease(store)
        for number in range(3):
            await write(store, run_files({"a": b"%d" % number}))
            await land(store, lease, commit_id=f"c{number}", now=NOW + number)
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW + 3, 2.0))
        assert agenda.commits_unix_s == (NOW + 1, NOW + 2)
        assert agenda.last_commit_unix_s == NOW + 2
        assert agenda.is_idle
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW + 9000, 1.0))
        assert (agenda.commits_unix_s, agenda.last_commit_unix_s) == ((), NOW + 2)

    async def test_telling_it_twice_is_once(self, store: SqliteStore) -> None:
        """Settling is idempotent: counters, totals and budget move once (N-HUB-15)."""
        await write(store, run_files({"a": b"1"}))
        attempt = await land(store, await take_lease(store))
        before = await totals(store)
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW + 9))
        await write(store, SettleLanded("0" * 32, "c9", NOW + 9))
        await write(store, SettleNotLanded("0" * 32, DeliveryCode.UPLOAD_FAILED))
        assert await totals(store) == before
        assert (await receipt(store)).commits == 1

    async def test_a_lost_lease_does_not_matter(self, store: SqliteStore) -> None:
        """W22: the loser's landed commit is recorded all the same, whoever holds the lease by now."""
        await write(store, run_files({"a": b"1"}))
        attempt = await open_commit(store, await take_lease(store))
        await write(store, AcquireLease(REPOSITORY, "other", NOW + 121, 120.0))
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW + 122))
        assert (await receipt(store)).commits == 1
        assert (await pending(store)).paths == ()

    async def test_an_empty_commit_counts_as_none(self, store: SqliteStore) -> None:
        """W48: the Hub held everything already; it is settled, but nothing was committed."""
        await write(store, run_files({"a": b"1"}, interval_s=50.0))
        attempt = await open_commit(store, await take_lease(store))
        await write(store, SettleLanded(attempt.delivery_id, "head", NOW, is_new_commit=False))
        found = await receipt(store)
        assert (found.pending_files, found.commits, found.commit_attempts, found.last_commit) == (0, 0, 0, None)
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW, 3600.0))
        assert (agenda.commits_unix_s, agenda.last_commit_unix_s, agenda.has_open_attempt) == ((), None, False)
        assert (await totals(store)).delivered == 1

    async def test_bundles_neither_obey_nor_end_the_backoff_of_run_files(self, store: SqliteStore) -> None:
        """Section 5.5: a landed bundle starts the spacing, but the failures in a row stay."""
        handed_over = bundle()
        await write(store, handed_over)
        await write(store, CountFailure(REPOSITORY, {}, DeliveryCode.UPLOAD_FAILED, NOW + 300))
        lease = await take_lease(store)
        attempt = bundle_plan(handed_over)
        await write(store, OpenAttempt(attempt, lease, NOW))
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        agenda = await store.query(ReadAgenda(REPOSITORY, NOW, 3600.0))
        assert (agenda.failures, agenda.not_before_unix_s) == (1, NOW + 300)
        assert agenda.last_commit_unix_s == NOW
        assert (await write(store, handed_over)).revision == "c1"


class TestUnchanged:
    """What the Hub already holds is settled without a commit (W48)."""

    async def test_it_is_settled_and_counts_nothing(self, store: SqliteStore) -> None:
        """The path is settled at the version compared; receipts show no commit."""
        await write(store, run_files({"a": b"1", "b": b"2"}))
        lease = await take_lease(store)
        files = plan(await pending(store)).files
        await write(store, SettleUnchanged(REPOSITORY, lease, files[:1], "head", NOW))
        assert [path.path for path in (await pending(store)).paths] == ["b"]
        found = await receipt(store)
        assert (found.pending_files, found.commits, found.commit_attempts) == (1, 0, 0)
        assert await kept(store, [b"1", b"2"]) == [b"2"]
        assert (await totals(store)).delivered == 1

    async def test_newer_bytes_stay_pending_at_their_time(self, store: SqliteStore) -> None:
        """The version compared is settled; bytes handed over meanwhile keep their due time."""
        lease = await take_lease(store)
        await write(store, run_files({"z": b"0"}))
        await land(store, lease)
        await write(store, run_files({"a": b"1"}, interval_s=7.0))
        files = plan(await pending(store)).files
        await write(store, run_files({"a": b"2"}, interval_s=500.0))
        await write(store, SettleUnchanged(REPOSITORY, lease, files, "head", NOW + 1))
        (found,) = (await pending(store)).paths
        assert (found.version, found.due_unix_s) == (2, NOW + 7)
        assert await store.query(AreSettled(REPOSITORY, "r1", (("a", 1),)))

    async def test_it_proves_nothing_of_what_is_in_flight(self, store: SqliteStore) -> None:
        """W3: a path inside an open commit is left alone; and without the lease nothing is recorded."""
        await write(store, run_files({"a": b"1"}))
        lease = await take_lease(store)
        attempt = await open_commit(store, lease)
        await write(store, SettleUnchanged(REPOSITORY, lease, attempt.files, "head", NOW))
        assert len((await pending(store)).paths) == 1
        with pytest.raises(LeaseLost):
            await write(store, SettleUnchanged(REPOSITORY, lease, attempt.files, "head", NOW + 500))


async def test_the_same_content_has_the_same_identity_in_a_copy(store: SqliteStore) -> None:
    """N-HUB-15: a delivery is known by store, target and versions, whatever head it is planned on."""
    await write(store, run_files({"a": b"1"}))
    lease = await take_lease(store)
    first = plan(await pending(store), parent="p0")
    second = plan(await pending(store), parent="p1")
    assert first.delivery_id == second.delivery_id
    await write(store, OpenAttempt(second, lease, NOW))
    status = await store.query(ReadStatus(NOW, 1.0))
    assert status.store_id == store.store_id
