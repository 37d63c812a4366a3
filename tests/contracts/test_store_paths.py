"""What hand-overs of run files do to the records (hand-over protocol, section 5.4), row by row, on every adapter."""

from __future__ import annotations

import pytest

from conveyor.actors.store_operations import (
    AreSettled,
    CommittedFile,
    FlushEverything,
    ReadAgenda,
    ReadCommitted,
    ReadContents,
    ReadSamples,
    SettleLanded,
    SettleNotLanded,
)
from conveyor.protocol.work import RepositoryAgenda
from conveyor.runtime.store import SqliteStore
from tests.contracts.store_cases import quick_directory
from tests.contracts.store_cases import rules_backend as anyio_backend
from tests.contracts.store_cases import rules_store as store
from tests.support.stores import (
    NOW,
    REPOSITORY,
    kept,
    land,
    open_commit,
    pending,
    receipt,
    run_files,
    sha256,
    take_lease,
    totals,
    write,
)

pytestmark = pytest.mark.anyio

__all__ = ["anyio_backend", "quick_directory", "store"]

X, Y, Z = b"content x", b"content y", b"content z"


async def agenda(store: SqliteStore, now: float = NOW) -> RepositoryAgenda:
    """What the repository has to do."""
    return await store.query(ReadAgenda(REPOSITORY, now, 3600.0))


async def due(store: SqliteStore) -> float | None:
    """When the next run-file commit is due."""
    return (await agenda(store)).run_files_due_unix_s


async def settled(store: SqliteStore, path: str, version: int) -> bool:
    """Whether a version, or a newer one, is on the Hub."""
    return await store.query(AreSettled(REPOSITORY, "r1", ((path, version),)))


class TestThePathTable:
    """One row each: the state before, the digest handed over, the effect."""

    async def test_an_unknown_path_is_stored_and_due_at_once(self, store: SqliteStore) -> None:
        """The first unforced hand-over to a repository is due at once, its bytes are in the store."""
        recorded = await write(store, run_files({"a": X}))
        assert recorded.versions == (("a", 1),)
        assert recorded.receipt.pending_files == 1
        assert await due(store) == NOW
        assert await kept(store, [X]) == [X]
        (found,) = (await pending(store)).paths
        assert (found.path, found.run_id, found.version) == ("a", "r1", 1)
        assert (found.digests.sha256, found.due_unix_s) == (sha256(X), NOW)

    async def test_committed_bytes_with_nothing_pending_stay_settled(self, store: SqliteStore) -> None:
        """They are not committed again, and their bytes are not kept."""
        await write(store, run_files({"a": X}))
        await land(store, await take_lease(store))
        recorded = await write(store, run_files({"a": X}))
        assert recorded.versions == (("a", 2),)
        assert recorded.receipt.pending_files == 0
        assert await pending(store) == type(await pending(store))((), ())
        assert await settled(store, "a", 2)
        assert await kept(store, [X]) == []

    async def test_committed_bytes_end_other_pending_ones(self, store: SqliteStore) -> None:
        """Handing the committed bytes over again takes back newer ones that no commit carries yet."""
        await write(store, run_files({"a": X}))
        await land(store, await take_lease(store))
        await write(store, run_files({"a": Y}))
        assert (await write(store, run_files({"a": X}))).receipt.pending_files == 0
        assert await settled(store, "a", 3)
        assert await kept(store, [X, Y]) == []
        assert (await totals(store)).superseded == 1

    async def test_pending_bytes_again_change_nothing(self, store: SqliteStore) -> None:
        """The due time stays, even if the new one is earlier; no new version is made."""
        await write(store, run_files({"a": Z}))
        await land(store, await take_lease(store))
        await write(store, run_files({"a": X}, interval_s=100.0))
        recorded = await write(store, run_files({"a": X}, interval_s=1.0, now=NOW + 1))
        assert recorded.versions == (("a", 2),)
        assert await due(store) == NOW + 100
        assert (await totals(store)).accepted == 2

    async def test_other_bytes_replace_pending_ones(self, store: SqliteStore) -> None:
        """Only the newest are kept; due is the earlier of both (N-HUB-10)."""
        await write(store, run_files({"a": Z}))
        await land(store, await take_lease(store))
        await write(store, run_files({"a": X}, interval_s=10.0))
        recorded = await write(store, run_files({"a": Y}, interval_s=500.0))
        assert recorded.versions == (("a", 3),)
        assert await due(store) == NOW + 10
        assert await kept(store, [X, Y]) == [Y]
        await write(store, run_files({"a": Z + Z}, interval_s=2.0))
        assert await due(store) == NOW + 2

    async def test_a_new_digest_makes_a_settled_path_pending(self, store: SqliteStore) -> None:
        """It is due one interval after the last commit of any kind."""
        await write(store, run_files({"a": X}))
        await land(store, await take_lease(store), now=NOW + 3)
        await write(store, run_files({"a": Y}, now=NOW + 5, interval_s=30.0))
        assert await due(store) == NOW + 33
        assert not await settled(store, "a", 2)
        assert await settled(store, "a", 1)


class TestFlush:
    """Flush hastens all that the run has pending, and nothing of others."""

    async def test_it_is_due_now_with_everything_of_its_run(self, store: SqliteStore) -> None:
        """Paths and entry of the run are due at once; those of other runs keep their time."""
        await write(store, run_files({"a": X}))
        await land(store, await take_lease(store))
        await write(store, run_files({"a": Y}, entry='{"run_id": "r1"}'))
        await write(store, run_files({"b": Y}, run_id="r2"))
        recorded = await write(store, run_files(flush=True, now=NOW + 1))
        assert recorded.receipt.pending_files == 2
        assert recorded.versions == ()
        found = {path.path: path.due_unix_s for path in (await pending(store)).paths}
        assert found == {"a": NOW + 1, "b": NOW + 30}
        assert await due(store) == NOW + 1

    async def test_everything_at_once(self, store: SqliteStore) -> None:
        """FlushEverything makes all runs of all repositories due, and counts the repositories."""
        for repository in ("acme/a", "acme/b", "acme/c"):
            await write(store, run_files({"a": X}, repository=repository))
            await land(store, await take_lease(store, repository=repository))
        await write(store, run_files({"a": Y}, repository="acme/a"))
        await write(store, run_files(entry='{"run_id": "r1"}', repository="acme/b"))
        assert await write(store, FlushEverything(NOW + 2)) == 2
        for repository in ("acme/a", "acme/b"):
            found = await store.query(ReadAgenda(repository, NOW, 3600.0))
            assert found.run_files_due_unix_s == NOW + 2

    async def test_it_outlives_a_commit_under_way(self, store: SqliteStore) -> None:
        """W6: a flush of the committed bytes during a commit of others is remembered with the path."""
        await write(store, run_files({"a": X}))
        lease = await take_lease(store)
        await land(store, lease)
        await write(store, run_files({"a": Y}, interval_s=3600.0))
        attempt = await open_commit(store, lease)
        await write(store, run_files({"a": X}, flush=True, now=NOW + 1))
        await write(store, SettleLanded(attempt.delivery_id, "c2", NOW + 2))
        assert (await pending(store)).paths[0].digests.sha256 == sha256(X)
        assert await due(store) == NOW + 1

    async def test_a_run_without_anything_may_flush(self, store: SqliteStore) -> None:
        """A hand-over of nothing by an unknown run is recorded with zeros."""
        recorded = await write(store, run_files(flush=True, run_id="new"))
        assert recorded.receipt.to_message() == {
            "status": "recorded",
            "repository": REPOSITORY,
            "run_id": "new",
            "pending_files": 0,
            "files_attempted": 0,
            "files_committed": 0,
            "commit_attempts": 0,
            "commits": 0,
            "last_error_code": None,
            "last_commit": None,
        }


class TestDuringACommit:
    """While a commit's outcome is unknown, what it carries is in flight."""

    async def test_unforced_bytes_wait_a_whole_interval(self, store: SqliteStore) -> None:
        """W5: bytes handed over during a commit are due one interval after it landed."""
        await write(store, run_files({"a": X}, interval_s=50.0))
        attempt = await open_commit(store, await take_lease(store))
        await write(store, run_files({"a": Y}, interval_s=50.0, now=NOW + 1))
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW + 4))
        assert await due(store) == NOW + 54
        assert await settled(store, "a", 1)
        assert not await settled(store, "a", 2)

    async def test_committed_bytes_prove_nothing(self, store: SqliteStore) -> None:
        """W3: X is committed, Y in flight, X handed over: X is committed after Y if Y landed."""
        lease = await take_lease(store)
        await write(store, run_files({"a": X}))
        await land(store, lease)
        await write(store, run_files({"a": Y}))
        attempt = await open_commit(store, lease)
        assert (await write(store, run_files({"a": X}))).receipt.pending_files == 1
        assert await kept(store, [X, Y]) == [X, Y]
        await write(store, SettleLanded(attempt.delivery_id, "c2", NOW + 1))
        (found,) = (await pending(store)).paths
        assert (found.digests.sha256, found.version) == (sha256(X), 3)
        assert await kept(store, [X, Y]) == [X]

    async def test_committed_bytes_are_settled_if_the_others_did_not_land(self, store: SqliteStore) -> None:
        """W3, the other end: the commit can never land, so the Hub still holds X and nothing is left to do."""
        lease = await take_lease(store)
        await write(store, run_files({"a": X}))
        await land(store, lease)
        await write(store, run_files({"a": Y}))
        attempt = await open_commit(store, lease)
        await write(store, run_files({"a": X}))
        await write(store, SettleNotLanded(attempt.delivery_id))
        assert (await pending(store)).paths == ()
        assert (await receipt(store)).pending_files == 0
        assert await settled(store, "a", 3)
        assert await kept(store, [X, Y]) == []
        assert (await totals(store)).delivered == 2

    async def test_the_newest_bytes_are_never_dropped(self, store: SqliteStore) -> None:
        """N-HUB-10: three checkpoints and five versions of one file during a commit: all three and the fifth wait."""
        await write(store, run_files({"first": X}))
        attempt = await open_commit(store, await take_lease(store))
        for number in range(1, 6):
            files = {"latest.json": b"%d" % number}
            if number <= 3:
                files[f"ckpt-{number}"] = X
            await write(store, run_files(files))
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        found = {path.path: (path.version, path.digests.sha256) for path in (await pending(store)).paths}
        assert found == {
            "ckpt-1": (1, sha256(X)),
            "ckpt-2": (1, sha256(X)),
            "ckpt-3": (1, sha256(X)),
            "latest.json": (5, sha256(b"5")),
        }

    async def test_equal_bytes_handed_over_meanwhile_are_settled_with_them(self, store: SqliteStore) -> None:
        """What landed is what is newest, so nobody waits for anything more."""
        await write(store, run_files({"a": X}))
        attempt = await open_commit(store, await take_lease(store))
        await write(store, run_files({"a": Y}))
        recorded = await write(store, run_files({"a": X}))
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        assert await store.query(AreSettled(REPOSITORY, "r1", recorded.versions))
        assert (await pending(store)).paths == ()


class TestSharedPaths:
    """W27: hand-overs are kept for each run, bytes for each path."""

    async def test_a_run_waits_for_what_it_handed_over(self, store: SqliteStore) -> None:
        """Another run's newer bytes do not end the first run's waiting; landing them does."""
        await write(store, run_files({"latest_staging.json": X}, run_id="r1"))
        await write(store, run_files({"latest_staging.json": Y}, run_id="r2"))
        assert (await receipt(store, "r1")).pending_files == 1
        assert (await receipt(store, "r2")).pending_files == 1
        await land(store, await take_lease(store))
        assert (await receipt(store, "r1")).pending_files == 0
        assert (await receipt(store, "r2")).pending_files == 0

    async def test_the_counters_belong_to_the_run_whose_bytes_went(self, store: SqliteStore) -> None:
        """The path's last run counts the file; the other only knows that its path is settled."""
        await write(store, run_files({"shared": X}, run_id="r1"))
        await write(store, run_files({"shared": Y}, run_id="r2"))
        await land(store, await take_lease(store))
        assert (await receipt(store, "r1")).commits == 0
        assert (await receipt(store, "r2")).commits == 1

    async def test_a_flush_hastens_bytes_that_replaced_its_own(self, store: SqliteStore) -> None:
        """A run's flush covers every path it waits for, whoever handed the path over last."""
        await write(store, run_files({"z": Z}))
        await land(store, await take_lease(store))
        await write(store, run_files({"shared": X}, run_id="r1"))
        await write(store, run_files({"shared": Y}, run_id="r2"))
        await write(store, run_files(run_id="r1", flush=True, now=NOW + 1))
        assert await due(store) == NOW + 1

    async def test_alternating_runs_keep_one_row_each(self, store: SqliteStore) -> None:
        """Two runs that take turns at one path both wait for their newest version, in one transaction or in many."""
        for _ in range(2):
            await store.transact(
                [run_files({"shared": bytes([number])}, run_id=f"r{number % 2}") for number in range(4)]
            )
        assert (await receipt(store, "r0")).pending_files == 1
        assert (await receipt(store, "r1")).pending_files == 1
        (found,) = (await pending(store)).paths
        assert (found.version, found.run_id) == (8, "r1")
        assert (await totals(store)).superseded == 7

    async def test_what_a_run_committed_is_listed(self, store: SqliteStore) -> None:
        """Every path that the run handed over, with the digest committed last; others' paths are not."""
        await write(store, run_files({"a": X, "b": Y}, run_id="r1"))
        await write(store, run_files({"c": Z}, run_id="r2"))
        assert await store.query(ReadCommitted(REPOSITORY, "r1")) == ()
        await land(store, await take_lease(store))
        await write(store, run_files({"b": Z}, run_id="r1"))
        expected = (CommittedFile("a", sha256(X)), CommittedFile("b", sha256(Y)))
        assert await store.query(ReadCommitted(REPOSITORY, "r1")) == expected


class TestEntries:
    """The run's entry for runs.json."""

    async def test_an_entry_is_pending_until_its_text_landed(self, store: SqliteStore) -> None:
        """It counts as one pending file, and is settled only if its text is still the one that was sent."""
        recorded = await write(store, run_files(entry='{"run_id": "r1"}'))
        assert (recorded.has_entry, recorded.entry_version) == (True, 1)
        assert recorded.receipt.pending_files == 1
        attempt = await open_commit(store, await take_lease(store), index=b"index 1")
        later = await write(store, run_files(entry='{"run_id": "r1", "n": 2}', interval_s=60.0))
        assert await kept(store, [b"index 1"]) == [b"index 1"]
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW + 1))
        assert await kept(store, [b"index 1"]) == []
        assert (await pending(store)).entries[0].text == '{"run_id": "r1", "n": 2}'
        assert await due(store) == NOW + 61
        assert await store.query(AreSettled(REPOSITORY, "r1", (), entry_version=recorded.entry_version))
        assert not await store.query(AreSettled(REPOSITORY, "r1", (), entry_version=later.entry_version))

    async def test_the_committed_text_again_does_nothing(self, store: SqliteStore) -> None:
        """A text equal to the committed one stays settled; another one becomes pending."""
        text = '{"run_id": "r1"}'
        await write(store, run_files(entry=text))
        attempt = await open_commit(store, await take_lease(store), index=b"index")
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        assert (await write(store, run_files(entry=text))).receipt.pending_files == 0
        assert await store.query(AreSettled(REPOSITORY, "r1", (), entry_text=text))
        assert (await write(store, run_files(entry='{"run_id": "r1" }'))).receipt.pending_files == 1
        assert not await store.query(AreSettled(REPOSITORY, "r1", (), entry_text='{"run_id": "r1" }'))

    async def test_any_text_while_one_is_pending_stays_pending(self, store: SqliteStore) -> None:
        """Even the committed one: the pending one may be in a commit; due is the earlier of both."""
        await write(store, run_files(entry="1"))
        lease = await take_lease(store)
        attempt = await open_commit(store, lease, index=b"index")
        await write(store, SettleLanded(attempt.delivery_id, "c1", NOW))
        await write(store, run_files(entry="2", interval_s=90.0))
        await write(store, run_files(entry="1", interval_s=20.0))
        assert await due(store) == NOW + 20
        await write(store, run_files(entry="1", interval_s=10.0))
        assert await due(store) == NOW + 10
        assert (await receipt(store)).pending_files == 1
        assert (await totals(store)).superseded == 1


class TestContents:
    """Bytes are kept while something needs them, and once."""

    async def test_equal_bytes_are_kept_once_for_all_who_need_them(self, store: SqliteStore) -> None:
        """Bytes that one path no longer needs stay for the other."""
        await write(store, run_files({"a": X, "b": X}))
        await write(store, run_files({"a": Y}))
        assert await kept(store, [X, Y]) == [X, Y]
        await write(store, run_files({"b": Y}))
        assert await kept(store, [X, Y]) == [Y]

    async def test_bytes_in_flight_are_kept_after_they_were_replaced(self, store: SqliteStore) -> None:
        """What a recorded commit carries can be sent again after a crash, until its outcome is known."""
        await write(store, run_files({"a": X}))
        attempt = await open_commit(store, await take_lease(store))
        await write(store, run_files({"a": Y}))
        assert await kept(store, [X, Y]) == [X, Y]
        await write(store, SettleNotLanded(attempt.delivery_id))
        assert await kept(store, [X, Y]) == [Y]

    async def test_samples_are_the_first_bytes(self, store: SqliteStore) -> None:
        """Of large and small contents, binary ones too; unknown digests are left out."""
        large = bytes(range(256)) * 4
        await write(store, run_files({"a": large, "b": b"\0", "empty": b""}))
        wanted = (sha256(large), sha256(b"\0"), sha256(b""), "0" * 64)
        found = await store.query(ReadSamples(wanted, 300))
        assert found == {wanted[0]: large[:300], wanted[1]: b"\0", wanted[2]: b""}
        assert "0" * 64 not in await store.query(ReadContents(wanted))

    async def test_thousands_of_paths_at_once(self, store: SqliteStore) -> None:
        """More paths than one statement may name are taken, read and committed all the same."""
        files = {f"f{number:05}": b"%d" % number for number in range(1500)}
        recorded = await write(store, run_files(files))
        assert recorded.receipt.pending_files == 1500
        lease = await take_lease(store)
        await land(store, lease)
        assert await store.query(AreSettled(REPOSITORY, "r1", recorded.versions))
        assert await kept(store, list(files.values())) == []
