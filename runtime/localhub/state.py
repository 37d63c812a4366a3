"""The Hub's repositories on disk: one journal is the truth, objects lie beside it, memory is rebuilt at start."""

import fcntl
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .journal import JsonLines
from .landing import CommitDraft, Put, land
from .objects import RepoObjects
from .patterns import default_gitattributes
from .problems import HubRootUnusable, bad_request, repo_not_found
from .records import REPO_TYPES, CommitRecord, Record, RefMoved, RepoCreated, RepoDeleted, RepoType
from .repository import Repository

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")


class _RootFile(msgspec.Struct):
    format: int
    secret: str


class HubState:
    """All repositories below one root directory. Methods block on files: call them in threads.

    Raises:
        HubRootUnusable: the directory is served already, was written by a newer version, or is damaged.
    """

    def __init__(self, root: Path, *, sync: bool = True, now_unix_ms: Callable[[], int] | None = None) -> None:
        self.root = root
        self.sync = sync
        self.clock_offset_s = 0.0
        self._now_unix_ms = now_unix_ms or (lambda: time.time_ns() // 1_000_000)
        self._lock = threading.RLock()
        self._repositories: dict[tuple[RepoType, str], Repository] = {}
        root.mkdir(parents=True, exist_ok=True)
        self._guard = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise HubRootUnusable(
                    f"{root} is being served by another local Hub. Stop that one, or give --root another directory."
                ) from error
            self.secret = self._read_root_file()
            self.journal = JsonLines(root / "commits.jsonl", sync=sync)
            self._replay()
        except BaseException:
            os.close(self._guard)
            raise

    def _read_root_file(self) -> bytes:
        path = self.root / "hub.json"
        if not path.exists():
            foreign = [entry.name for entry in self.root.iterdir() if entry.name != "lock"]
            if foreign:
                raise HubRootUnusable(
                    f"{self.root} is not empty and is not a local Hub's directory (no hub.json; found {foreign[0]}). "
                    "Give --root an empty or new directory; nothing was changed."
                )
            content = _RootFile(format=FORMAT, secret=secrets.token_hex(32))
            draft = self.root / "hub.json.new"
            draft.touch(mode=0o600)
            draft.write_bytes(msgspec.json.encode(content))
            draft.replace(path)
        try:
            content = msgspec.json.decode(path.read_bytes(), type=_RootFile)
        except msgspec.DecodeError as error:
            raise HubRootUnusable(
                f"{path} cannot be read ({error}). Restore it, or serve an empty directory."
            ) from error
        if content.format > FORMAT:
            raise HubRootUnusable(
                f"{path} has format {content.format}, this version knows up to {FORMAT}. "
                "Use a newer version of conveyor."
            )
        return bytes.fromhex(content.secret)

    def _replay(self) -> None:
        decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
        gone: set[tuple[RepoType, str]] = set()
        with self.journal.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    record = decoder.decode(line)
                    self._apply(record)
                except (msgspec.DecodeError, KeyError) as error:
                    raise HubRootUnusable(
                        f"{self.journal.path}: line {number} is not a record this version knows ({error})."
                    ) from error
                if isinstance(record, RepoDeleted):
                    gone.add((record.repo_type, record.repo))
        for key in gone - self._repositories.keys():
            # Killed between the record and the removal of the content, perhaps.
            shutil.rmtree(self._folder(*key), ignore_errors=True)
        for repository in self._repositories.values():
            repository.objects.prepare()
            if not repository.refs:
                # Killed between the birth record and the initial commit.
                self._land_initial_commit(repository)

    def _apply(self, record: Record) -> None:
        key = (record.repo_type, record.repo)
        match record:
            case RepoCreated():
                self._repositories[key] = Repository(
                    record.repo_type,
                    record.repo,
                    RepoObjects(self._folder(*key), sync=self.sync),
                    private=record.private,
                    created_unix_ms=record.time_unix_ms,
                )
            case RepoDeleted():
                self._repositories.pop(key, None)
            case _:
                self._repositories[key].apply(record)

    def _folder(self, repo_type: RepoType, repo_id: str) -> Path:
        return self.root / "repos" / f"{repo_type}s" / repo_id

    def now_unix_ms(self) -> int:
        """The Hub's time: the machine's, moved by what control calls added."""
        return self._now_unix_ms() + round(self.clock_offset_s * 1000)

    def record(self, *records: Record) -> None:
        """Make records durable, then visible."""
        self.journal.append(*records)
        for record in records:
            self._apply(record)

    def repositories(self) -> list[Repository]:
        """All repositories, by type and name."""
        with self._lock:
            return [self._repositories[key] for key in sorted(self._repositories)]

    def find(self, repo_type: RepoType, repo_id: str) -> Repository | None:
        """The repository, or None."""
        return self._repositories.get((repo_type, repo_id))

    def get(self, repo_type: RepoType, repo_id: str) -> Repository:
        """The repository.

        Raises:
            HubRefusal: 404 ``RepoNotFound``.
        """
        repository = self.find(repo_type, repo_id)
        if repository is None:
            raise repo_not_found()
        return repository

    def create(self, repo_type: RepoType, repo_id: str, *, private: bool = False) -> tuple[Repository, bool]:
        """The repository and whether this call made it.

        Raises:
            HubRefusal: 400; the name breaks the Hub's rules.
        """
        names = repo_id.split("/")
        if (
            len(names) != 2
            or not all(_NAME.fullmatch(name) for name in names)
            or ".." in repo_id
            or "--" in repo_id
            or repo_id.endswith((".git", ".ipynb", ".", "-"))
        ):
            raise bad_request(
                f"Invalid repo name: {repo_id}. It must be NAMESPACE/NAME, each of at most 96 letters, digits, '-', "
                "'_' or '.', without '--' and '..', and not ending in '-', '.', '.git' or '.ipynb'."
            )
        with self._lock:
            existing = self.find(repo_type, repo_id)
            if existing is not None:
                return existing, False
            # The objects of a deleted namesake, or of a birth whose record was cut, are nobody's.
            shutil.rmtree(self._folder(repo_type, repo_id), ignore_errors=True)
            self.record(RepoCreated(repo_type, repo_id, private, self.now_unix_ms()))
            repository = self.get(repo_type, repo_id)
            repository.objects.prepare()
            self._land_initial_commit(repository)
            return repository, True

    def _land_initial_commit(self, repository: Repository) -> None:
        put = Put(".gitattributes", default_gitattributes(repository.repo_type))
        draft = CommitDraft("refs/heads/main", None, "initial commit", "", "system", (put,), origin="system")
        land(self, repository, draft)

    def delete(self, repo_type: RepoType, repo_id: str) -> None:
        """Remove a repository and its content.

        Raises:
            HubRefusal: 404 ``RepoNotFound``.
        """
        with self._lock:
            repository = self.get(repo_type, repo_id)
            with repository.lock:
                self.record(RepoDeleted(repo_type, repo_id, self.now_unix_ms()))
                repository.deleted = True
            shutil.rmtree(repository.objects.folder, ignore_errors=True)

    def move_ref(self, repository: Repository, ref: str, target: str | None) -> None:
        """Make, move or (target None) remove a branch or tag."""
        record = RefMoved(repository.repo_type, repository.repo_id, ref, target, self.now_unix_ms())
        with repository.lock:
            repository.require_alive()
            self.record(record)

    def commits(self, **wanted: Any) -> list[CommitRecord]:
        """All landed commits of repositories that exist, by time; ``repo=``, ``origin=`` and so on select."""
        found = [record for repository in self.repositories() for record in list(repository.commits.values())]
        found.sort(key=lambda record: record.time_unix_ms)
        return [record for record in found if all(getattr(record, key) == value for key, value in wanted.items())]

    def close(self) -> None:
        """Close the journal once no commit is landing, and give the directory free."""
        self.journal.close()
        os.close(self._guard)


def parse_repo_name(text: str) -> tuple[RepoType, str]:
    """``ns/name`` or ``TYPE:ns/name`` (also ``TYPEs/ns/name``); the default type is dataset.

    Raises:
        ValueError: the type is unknown.
    """
    head, colon, rest = text.partition(":")
    if colon:
        for repo_type in REPO_TYPES:
            if head in {repo_type, f"{repo_type}s"}:
                return repo_type, rest
        raise ValueError(f"{text}: {head} is no repository type; use dataset, model or space.")
    for repo_type in REPO_TYPES:
        if text.count("/") == 2 and text.startswith(f"{repo_type}s/"):
            return repo_type, text.partition("/")[2]
    return "dataset", text
