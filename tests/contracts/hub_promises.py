"""The promises of the `Hub` port, for every adapter: `test_hub_contract.py` holds each of them to all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from conveyor.actors.port_errors import ContentChanged, CredentialMissing
from conveyor.actors.ports import BytesSource, CommitRequest, FileSource, Hub
from conveyor.protocol.commit_text import find_delivery_id
from conveyor.protocol.digests import digest_bytes
from conveyor.protocol.outcome import HubError, Outcome, OutcomeKind
from conveyor.protocol.work import PreuploadFile, UploadMode
from conveyor.runtime.adapters.memory_hub_faults import HubCall
from tests.support.hub_arenas import (
    LOST_ANSWERS,
    LOST_REQUESTS,
    HubArena,
    commit_request,
    wait_until,
)

LOST_READS = ("request dropped", "request reset", "500 instead", "408 instead", *LOST_ANSWERS, "429")
LARGE = bytes(range(256)) * 8192  # 2 MiB


async def outcome_of(awaitable: Any) -> Outcome:
    """The outcome of a call that has to fail with one."""
    with pytest.raises(HubError) as caught:
        await awaitable
    return caught.value.outcome


async def deliver(hub: Hub, request: CommitRequest) -> str:
    """Send a commit until it is known to have landed, by the rule of the hub API notes, section 12."""
    delivery = find_delivery_id(request.body)
    for _ in range(1000):
        try:
            return await hub.commit(request)
        except HubError as error:
            if error.outcome.kind not in (OutcomeKind.UNKNOWN, OutcomeKind.CONFLICT):
                raise
        commits = await hub.recent_commits(request.repository, back_to=request.parent)
        mine = [commit.commit_id for commit in commits if find_delivery_id(commit.body) == delivery]
        if mine:
            assert len(mine) == 1
            return mine[0]
        assert commits[0].commit_id == request.parent, "nobody else writes here"
    raise AssertionError("no end")


class HubPromises:
    """What every adapter of the port keeps."""

    async def test_head_is_the_newest_commit(self, hub: Hub, arena: HubArena) -> None:
        """A new repository has one commit, which head and listing agree on."""
        commits = await hub.recent_commits(arena.repository)
        assert await hub.head(arena.repository) == commits[0].commit_id
        assert len(commits) == 1

    async def test_commit_is_found_again(self, hub: Hub, arena: HubArena) -> None:
        """What was committed shows in the listing with its title and body, in the tree and in its bytes (N-HUB-06)."""
        head = await hub.head(arena.repository)
        request = commit_request(arena.repository, head, {"runs/a.txt": b"alpha\n", "empty.txt": b""})
        commit = await hub.commit(request)
        assert await hub.head(arena.repository) == commit
        newest = (await hub.recent_commits(arena.repository))[0]
        assert (newest.commit_id, newest.title) == (commit, request.title)
        assert find_delivery_id(newest.body) == "d" * 32
        assert newest.unix_s is not None
        found = await hub.paths_info(arena.repository, commit, ["runs/a.txt", "empty.txt", "runs", "absent.txt"])
        assert set(found) == {"runs/a.txt", "empty.txt"}
        assert found["runs/a.txt"].holds(digest_bytes(b"alpha\n"))
        assert found["empty.txt"].holds(digest_bytes(b""))
        assert await hub.download(arena.repository, commit, "runs/a.txt", max_bytes=6) == b"alpha\n"
        assert await hub.last_commit(arena.repository, commit, "runs/a.txt") == commit
        assert arena.landed() == [commit]

    async def test_listing_reaches_back(self, hub: Hub, arena: HubArena) -> None:
        """`back_to` ends the listing with that commit, itself included, also when it lies pages back."""
        first = await hub.head(arena.repository)
        for number in range(60):
            arena.foreign_commit({"foreign.txt": b"%d" % number})
        assert len(await hub.recent_commits(arena.repository)) == 50
        commits = await hub.recent_commits(arena.repository, back_to=first)
        assert commits[-1].commit_id == first
        assert len(commits) == 61
        assert len(await hub.recent_commits(arena.repository, back_to=commits[3].commit_id)) == 4

    async def test_older_revision_is_exact(self, hub: Hub, arena: HubArena) -> None:
        """A commit id names a fixed tree, whatever came after."""
        head = await hub.head(arena.repository)
        first = await hub.commit(commit_request(arena.repository, head, {"a.txt": b"one"}))
        second = await hub.commit(commit_request(arena.repository, first, {"a.txt": b"two"}, delivery="e" * 32))
        assert await hub.download(arena.repository, first, "a.txt", max_bytes=100) == b"one"
        assert await hub.download(arena.repository, second, "a.txt", max_bytes=100) == b"two"
        assert await hub.last_commit(arena.repository, second, "a.txt") == second
        assert await hub.last_commit(arena.repository, head, "a.txt") is None

    @pytest.mark.parametrize("kind", ["bytes", "file"])
    async def test_large_object(self, hub: Hub, arena: HubArena, tmp_path: Path, kind: str) -> None:
        """An uploaded object is invisible until a commit names it; progress adds up to its size."""
        head = await hub.head(arena.repository)
        content = LARGE + kind.encode()
        digests = digest_bytes(content)
        (tmp_path / "x.bin").write_bytes(content)
        source = BytesSource(digests, content) if kind == "bytes" else FileSource(digests, str(tmp_path / "x.bin"))
        seen: list[int] = []
        await hub.upload_object(arena.repository, "x.bin", source, seen.append)
        assert sum(seen) == len(content)
        assert len(seen) > 1
        assert await hub.head(arena.repository) == head
        commit = await hub.commit(commit_request(arena.repository, head, {}, {"x.bin": content}))
        found = (await hub.paths_info(arena.repository, commit, ["x.bin"]))["x.bin"]
        assert found.sha256 == digests.sha256
        assert found.holds(digests)
        assert await hub.download(arena.repository, commit, "x.bin", max_bytes=len(content)) == content
        # Again: it is there already, and progress still ends at the full size.
        seen.clear()
        await hub.upload_object(arena.repository, "x.bin", source, seen.append)
        assert sum(seen) == len(content)
        assert hub.unfinished_threads(arena.repository) == 0

    async def test_preupload_answers_in_order(self, hub: Hub, arena: HubArena) -> None:
        """More files than one request takes are answered in their order, with what is there now."""
        head = await hub.head(arena.repository)
        await hub.upload_object(arena.repository, "x.bin", BytesSource(digest_bytes(b"x"), b"x"), lambda _: None)
        await hub.commit(commit_request(arena.repository, head, {"a.txt": b"a"}, {"x.bin": b"x"}))
        files = [PreuploadFile(f"f{number}.txt", 1, b"1") for number in range(300)]
        files += [
            PreuploadFile("a.txt", 1, b"a"),
            PreuploadFile("x.bin", 1, b"x"),
            PreuploadFile("empty.bin", 0, b""),
            PreuploadFile("huge.txt", 20 * 1024 * 1024, b"t" * 512),
        ]
        answers = await hub.preupload(arena.repository, files)
        assert [answer.path for answer in answers] == [file.path for file in files]
        regular, lfs = UploadMode.REGULAR, UploadMode.LFS
        assert [answer.mode for answer in answers[-5:]] == [regular, regular, lfs, regular, lfs]
        assert answers[-4].remote_oid == digest_bytes(b"a").git_oid
        assert answers[-3].remote_oid == digest_bytes(b"x").sha256
        assert answers[0].remote_oid is None
        assert not any(answer.is_ignored for answer in answers)

    async def test_many_paths(self, hub: Hub, arena: HubArena) -> None:
        """Any number of paths can be asked for, with any characters."""
        head = await hub.head(arena.repository)
        names = ["d/first.txt", "d/ünï & more+%20.txt", "d/last.txt"]
        commit = await hub.commit(commit_request(arena.repository, head, {name: name.encode() for name in names}))
        asked = [names[0], *(f"absent/{number}.txt" for number in range(1100)), *names[1:]]
        found = await hub.paths_info(arena.repository, commit, asked)
        assert set(found) == set(names)
        assert all(found[name].holds(digest_bytes(name.encode())) for name in names)
        assert await hub.download(arena.repository, commit, names[1], max_bytes=100) == names[1].encode()

    async def test_moved_head_is_a_conflict(self, hub: Hub, arena: HubArena) -> None:
        """A commit on an old parent lands nothing, and the other writer's files stay (N-HUB-02)."""
        head = await hub.head(arena.repository)
        foreign = arena.foreign_commit({"theirs.txt": b"theirs"})
        outcome = await outcome_of(hub.commit(commit_request(arena.repository, head, {"theirs.txt": b"mine"})))
        assert (outcome.kind, outcome.same_parent) == (OutcomeKind.CONFLICT, False)
        assert await hub.head(arena.repository) == foreign
        assert arena.landed() == []

    async def test_busy_repository_is_a_conflict_with_the_same_parent(self, hub: Hub, arena: HubArena) -> None:
        """409: another commit is under way, and the same request may land later."""
        arena.misfortune("409", HubCall.COMMIT)
        request = commit_request(arena.repository, await hub.head(arena.repository), {"a.txt": b"a"})
        outcome = await outcome_of(hub.commit(request))
        assert (outcome.kind, outcome.same_parent, outcome.status) == (OutcomeKind.CONFLICT, True, 409)
        assert arena.landed() == []
        commit = await hub.commit(request)
        assert arena.landed() == [commit]

    async def test_rate_limit_says_how_long(self, hub: Hub, arena: HubArena) -> None:
        """429 is transient, landed nothing, and carries the time to wait."""
        arena.misfortune("429", HubCall.COMMIT)
        request = commit_request(arena.repository, await hub.head(arena.repository), {"a.txt": b"a"})
        outcome = await outcome_of(hub.commit(request))
        assert (outcome.kind, outcome.status, outcome.retry_after_s) == (OutcomeKind.TRANSIENT, 429, 120.0)
        assert arena.landed() == []

    async def test_refused_path_is_named(self, hub: Hub, arena: HubArena) -> None:
        """A path that the Hub refuses is named, and nothing of its commit lands (finding W7)."""
        arena.misfortune("400", HubCall.COMMIT, path="bad.txt")
        head = await hub.head(arena.repository)
        outcome = await outcome_of(
            hub.commit(commit_request(arena.repository, head, {"good.txt": b"1", "bad.txt": b"2", "bad.txt2": b"3"}))
        )
        assert (outcome.kind, outcome.paths) == (OutcomeKind.REFUSED_ITEM, ("bad.txt",))
        assert arena.landed() == []
        await hub.commit(commit_request(arena.repository, head, {"good.txt": b"1"}))

    async def test_object_never_uploaded(self, hub: Hub, arena: HubArena) -> None:
        """A commit that names an object which is not there is refused, whole."""
        head = await hub.head(arena.repository)
        outcome = await outcome_of(
            hub.commit(commit_request(arena.repository, head, {"a.txt": b"a"}, {"x.bin": b"never sent"}))
        )
        assert outcome.kind is OutcomeKind.REFUSED_ITEM
        assert arena.landed() == []

    async def test_missing_repository(self, hub: Hub) -> None:
        """No method takes a repository that does not exist for an empty one."""
        name = "acme/absent"
        calls = [
            hub.head(name),
            hub.recent_commits(name),
            hub.preupload(name, [PreuploadFile("a.txt", 1, b"a")]),
            hub.commit(commit_request(name, "0" * 40, {"a.txt": b"a"})),
            hub.paths_info(name, "main", ["a.txt"]),
            hub.last_commit(name, "main", "a.txt"),
            hub.download(name, "main", "a.txt", max_bytes=10),
        ]
        for call in calls:
            assert (await outcome_of(call)).kind is OutcomeKind.REFUSED_REPOSITORY
        access = await hub.write_access(name)
        assert (access.credential, access.reachable, access.can_write) == ("present", False, None)
        assert access.error_type == "RepositoryNotFoundError"

    async def test_missing_revision(self, hub: Hub, arena: HubArena) -> None:
        """A revision that does not exist is no absent file."""
        for call in (
            hub.paths_info(arena.repository, "f" * 40, ["a.txt"]),
            hub.download(arena.repository, "f" * 40, "a.txt", max_bytes=10),
        ):
            outcome = await outcome_of(call)
            assert (outcome.kind, outcome.error_type) == (
                OutcomeKind.REFUSED_REPOSITORY,
                "RevisionNotFoundError",
            )

    async def test_no_credential(self, hub: Hub, arena: HubArena) -> None:
        """Without a token nothing is asked; one that appears is used at once (finding W21)."""
        head = await hub.head(arena.repository)
        arena.use_credential("missing")
        assert not await hub.has_credential()
        for call in (
            hub.head(arena.repository),
            hub.commit(commit_request(arena.repository, head, {"a.txt": b"a"})),
            hub.upload_object(arena.repository, "x.bin", BytesSource(digest_bytes(b"x"), b"x"), lambda _: None),
        ):
            with pytest.raises(CredentialMissing):
                await call
        access = await hub.write_access(arena.repository)
        assert (access.credential, access.reachable, access.can_write, access.error_type) == (
            "missing",
            None,
            None,
            None,
        )
        arena.use_credential("write")
        assert await hub.has_credential()
        assert await hub.head(arena.repository) == head

    async def test_revoked_credential(self, hub: Hub, arena: HubArena) -> None:
        """A token that is refused needs a person; nothing lands (N-HUB-04)."""
        request = commit_request(arena.repository, await hub.head(arena.repository), {"a.txt": b"a"})
        arena.use_credential("revoked")
        for call in (
            hub.head(arena.repository),
            hub.commit(request),
            hub.upload_object(arena.repository, "x.bin", BytesSource(digest_bytes(b"x"), b"x"), lambda _: None),
        ):
            outcome = await outcome_of(call)
            assert (outcome.kind, outcome.status) == (OutcomeKind.NEEDS_PERSON, 401)
        assert arena.landed() == []

    async def test_credential_that_may_only_read(self, hub: Hub, arena: HubArena) -> None:
        """A token without the right to write reads, and its commit needs a person (hand-over protocol, section 4.6)."""
        assert (await hub.write_access(arena.repository)).can_write is True
        head = await hub.head(arena.repository)
        arena.use_credential("read")
        outcome = await outcome_of(hub.commit(commit_request(arena.repository, head, {"a.txt": b"a"})))
        assert (outcome.kind, outcome.status) == (OutcomeKind.NEEDS_PERSON, 403)
        assert await hub.head(arena.repository) == head
        access = await hub.write_access(arena.repository)
        assert (access.credential, access.reachable, access.can_write) == ("present", True, False)

    @pytest.mark.parametrize("what", LOST_ANSWERS)
    async def test_lost_answer_never_lands_twice(self, hub: Hub, arena: HubArena, what: str) -> None:
        """A commit that landed without an answer is unknown, is found by its delivery id, and cannot land again."""
        head = await hub.head(arena.repository)
        request = commit_request(arena.repository, head, {"a.txt": b"a"})
        arena.misfortune(what, HubCall.COMMIT)
        assert (await outcome_of(hub.commit(request))).kind is OutcomeKind.UNKNOWN
        commits = await hub.recent_commits(arena.repository, back_to=head)
        assert [find_delivery_id(commit.body) for commit in commits] == ["d" * 32, None]
        assert (await outcome_of(hub.commit(request))).kind is OutcomeKind.CONFLICT
        assert await deliver(hub, request) == commits[0].commit_id
        assert arena.landed() == [commits[0].commit_id]

    @pytest.mark.parametrize("what", LOST_REQUESTS)
    async def test_lost_request_is_sent_again(self, hub: Hub, arena: HubArena, what: str) -> None:
        """A commit that never arrived is unknown too; the same request lands once when sent again (N-HUB-03)."""
        head = await hub.head(arena.repository)
        request = commit_request(arena.repository, head, {"a.txt": b"a"})
        arena.misfortune(what, HubCall.COMMIT)
        assert (await outcome_of(hub.commit(request))).kind is OutcomeKind.UNKNOWN
        assert (await hub.recent_commits(arena.repository, back_to=head))[0].commit_id == head
        commit = await deliver(hub, request)
        arena.settle()
        assert await hub.head(arena.repository) == commit
        assert arena.landed() == [commit]

    async def test_commit_that_lands_late(self, hub: Hub, arena: HubArena) -> None:
        """A request that the Hub still works on after the adapter gave up lands once, whoever is first."""
        head = await hub.head(arena.repository)
        request = commit_request(arena.repository, head, {"a.txt": b"a"})
        arena.misfortune("lands late", HubCall.COMMIT)
        assert (await outcome_of(hub.commit(request))).kind is OutcomeKind.UNKNOWN
        assert await hub.head(arena.repository) == head
        arena.settle()
        commit = await deliver(hub, request)
        assert await hub.head(arena.repository) == commit
        assert arena.landed() == [commit]

    @pytest.mark.parametrize("what", LOST_READS)
    async def test_reads_are_never_unknown(self, hub: Hub, arena: HubArena, what: str) -> None:
        """A read that gets no answer has failed, and nothing more (hand-over protocol, section 8)."""
        head = await hub.head(arena.repository)
        reads: dict[HubCall, Callable[[], Awaitable[object]]] = {
            HubCall.HEAD: lambda: hub.head(arena.repository),
            HubCall.RECENT_COMMITS: lambda: hub.recent_commits(arena.repository),
            HubCall.PREUPLOAD: lambda: hub.preupload(arena.repository, [PreuploadFile("a.txt", 1, b"a")]),
            HubCall.PATHS_INFO: lambda: hub.paths_info(arena.repository, head, [".gitattributes"]),
            HubCall.DOWNLOAD: lambda: hub.download(arena.repository, head, ".gitattributes", max_bytes=10**6),
        }
        for call, read in reads.items():
            arena.misfortune(what, call)
            assert (await outcome_of(read())).kind is OutcomeKind.TRANSIENT
            arena.settle()
            await read()

    async def test_corrupt_download(self, hub: Hub, arena: HubArena) -> None:
        """Bytes that are not what the Hub names are never given out."""
        head = await hub.head(arena.repository)
        commit = await hub.commit(commit_request(arena.repository, head, {"a.txt": b"alpha"}))
        arena.misfortune("corrupt", HubCall.DOWNLOAD)
        outcome = await outcome_of(hub.download(arena.repository, commit, "a.txt", max_bytes=100))
        assert (outcome.kind, outcome.error_type) == (OutcomeKind.TRANSIENT, "DigestMismatch")
        assert await hub.download(arena.repository, commit, "a.txt", max_bytes=100) == b"alpha"

    async def test_download_bounds(self, hub: Hub, arena: HubArena) -> None:
        """An absent file is None; one with more bytes than asked for is refused."""
        head = await hub.head(arena.repository)
        commit = await hub.commit(commit_request(arena.repository, head, {"a.txt": b"alpha"}))
        assert await hub.download(arena.repository, commit, "b.txt", max_bytes=100) is None
        outcome = await outcome_of(hub.download(arena.repository, commit, "a.txt", max_bytes=4))
        assert (outcome.kind, outcome.paths) == (OutcomeKind.REFUSED_ITEM, ("a.txt",))

    async def test_stalled_upload_is_abandoned(self, hub: Hub, arena: HubArena) -> None:
        """A transfer that stands still is given up without waiting for it, and the next try may succeed (N-HUB-14)."""
        content = LARGE + b"stall"
        source = BytesSource(digest_bytes(content), content)
        arena.misfortune("stall", HubCall.UPLOAD)
        outcome = await outcome_of(hub.upload_object(arena.repository, "x.bin", source, lambda _: None))
        assert (outcome.kind, outcome.error_type) == (OutcomeKind.TRANSIENT, "TransferStalled")
        arena.settle()
        await hub.upload_object(arena.repository, "x.bin", source, lambda _: None)
        await wait_until(lambda: hub.unfinished_threads(arena.repository) == 0)

    async def test_changed_content_is_not_uploaded(self, hub: Hub, arena: HubArena, tmp_path: Path) -> None:
        """A file that is not what was handed over is refused, and its object is not there afterwards (N-HUB-06)."""
        head = await hub.head(arena.repository)
        path = tmp_path / "x.bin"
        for changed in (b"what was handed 0ver", b"shorter"):
            path.write_bytes(changed)
            source = FileSource(digest_bytes(b"what was handed over"), str(path))
            with pytest.raises(ContentChanged):
                await hub.upload_object(arena.repository, "x.bin", source, lambda _: None)
        outcome = await outcome_of(
            hub.commit(commit_request(arena.repository, head, {}, {"x.bin": b"what was handed over"}))
        )
        assert outcome.kind is OutcomeKind.REFUSED_ITEM

    async def test_missing_local_file(self, hub: Hub, arena: HubArena, tmp_path: Path) -> None:
        """A file that cannot be read now fails this attempt only."""
        source = FileSource(digest_bytes(b"x"), str(tmp_path / "absent.bin"))
        outcome = await outcome_of(hub.upload_object(arena.repository, "x.bin", source, lambda _: None))
        assert (outcome.kind, outcome.error_type) == (OutcomeKind.TRANSIENT, "FileNotFoundError")

    async def test_cancelled_before_it_is_sent(self, hub: Hub, arena: HubArena) -> None:
        """A cancelled scope starts no remote change."""
        request = commit_request(arena.repository, await hub.head(arena.repository), {"a.txt": b"a"})
        with anyio.CancelScope() as scope:
            scope.cancel()
            await hub.commit(request)
        assert scope.cancelled_caught
        assert arena.landed() == []
