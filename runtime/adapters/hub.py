"""The `Hub` port over HTTP: httpx for what is small, huggingface_hub for large objects (hub API notes, section 14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode, urljoin

import anyio
import httpx
import msgspec

from ...actors.port_errors import CredentialMissing
from ...actors.ports import CommitRequest, Progress, UploadSource
from ...protocol.digests import ContentDigests, digest_bytes
from ...protocol.errors import LocalProtocolError
from ...protocol.limits import MIB, PATHS_INFO_MAX_PATHS, PREUPLOAD_MAX_FILES
from ...protocol.outcome import HubError, Outcome, OutcomeKind
from ...protocol.receipts import WriteAccess
from ...protocol.work import HubCommit, PreuploadAnswer, PreuploadFile, RemoteFile, UploadMode
from . import hub_wire as wire
from .daemon_threads import run_in_daemon_thread
from .hub_access import may_write
from .hub_credentials import HubCredentials
from .hub_errors import Exchange
from .hub_exchange import AnswerTooLong, HubExchange, Request, open_client
from .hub_options import HubOptions
from .hub_upload import ObjectUploads
from .quiet_libraries import install_filter, quietly, remove_filter

MAX_LISTING_PAGES: Final = 20
"""How many pages of a branch's commits are read at most to find one of them."""
CLOSE_LIMIT_S: Final = 5.0
_README: Final = "README.md"


class HuggingFaceHub:
    """The Hugging Face Hub, dataset repositories, branch `main`. An async context manager; use it inside.

    It owns one HTTP client. Leaving the context closes the client and waits for no upload thread.

    Args:
        options: endpoint, limits and caps.
        credentials: where the token comes from; the process's environment and saved login by default.
    """

    def __init__(self, options: HubOptions | None = None, credentials: HubCredentials | None = None) -> None:
        self._options = options if options is not None else HubOptions()
        self._credentials = credentials if credentials is not None else HubCredentials()
        self._client: httpx.AsyncClient | None = None
        self._open_exchange: HubExchange | None = None
        self._uploads: ObjectUploads | None = None

    async def __aenter__(self) -> Self:
        # Reading the certificates takes a while.
        tls = await run_in_daemon_thread(httpx.create_ssl_context, name="conveyor-tls")
        self._client = open_client(self._options, tls)
        self._uploads = ObjectUploads(self._options, self._credentials)
        self._open_exchange = HubExchange(self._client, self._options, self._credentials)
        install_filter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client, self._open_exchange = self._client, None, None
        if client is None:
            return
        with quietly(), anyio.move_on_after(CLOSE_LIMIT_S, shield=True):
            await client.aclose()
        remove_filter()

    async def has_credential(self) -> bool:
        """Whether a token is found now."""
        return await self._credentials.find() is not None

    async def head(self, repository: str) -> str:
        """The commit id of `main`."""
        request = Request(
            "GET", wire.api_path(repository, f"/revision/{wire.BRANCH}"), Exchange.READ, query={"expand": "sha"}
        )
        answer = await self._exchange.send(request)
        return self._exchange.read(request, answer, wire.HeadAnswer).sha

    async def recent_commits(self, repository: str, *, back_to: str | None = None) -> Sequence[HubCommit]:
        """Commits of `main`, newest first: the first page, or as far as `back_to` within 20 pages."""
        exchange = self._exchange
        address: str | None = wire.api_path(repository, f"/commits/{wire.BRANCH}")
        commits: list[HubCommit] = []
        for _ in range(MAX_LISTING_PAGES if back_to is not None else 1):
            if address is None:
                break
            request = Request("GET", address, Exchange.READ)
            answer = await exchange.send(request)
            for row in exchange.read(request, answer, list[wire.CommitRow]):
                commits.append(row.to_commit())
                if row.id == back_to:
                    return commits
            link = wire.next_page(answer.headers.get("link", ""))
            following = urljoin(self._options.endpoint + "/", link) if link is not None else None
            address = following if following is not None and exchange.is_at_the_hub(following) else None
        return commits

    async def preupload(self, repository: str, files: Sequence[PreuploadFile]) -> Sequence[PreuploadAnswer]:
        """Ask how each file is to be sent, 256 at a time."""
        answers: list[PreuploadAnswer] = []
        for start in range(0, len(files), PREUPLOAD_MAX_FILES):
            group = list(files[start : start + PREUPLOAD_MAX_FILES])
            request = Request(
                "POST",
                wire.api_path(repository, f"/preupload/{wire.BRANCH}"),
                Exchange.PREUPLOAD,
                body=wire.preupload_body(group),
                content_type="application/json",
                paths=[file.path for file in group],
            )
            answer = await self._exchange.send(request)
            rows = {row.path: row for row in self._exchange.read(request, answer, wire.PreuploadAnswers).files}
            if any(file.path not in rows for file in group):
                raise HubError(Outcome(OutcomeKind.TRANSIENT, "MalformedAnswer", answer.status))
            answers += [rows[file.path].answer(file) for file in group]
        return answers

    async def upload_object(self, repository: str, path: str, source: UploadSource, progress: Progress) -> None:
        """Make the object of an LFS file present on the Hub. `progress` ends at its full size, sent or there already.

        Raises:
            HubError: TRANSIENT also when nothing moved for `stall_s`, or the local file cannot be read.
            ContentChanged: the bytes read were not the expected ones; none of them was sent under their name.
            CredentialMissing: there is no token.
        """
        if self._uploads is None or self._open_exchange is None:
            raise _not_open()
        await self._uploads.upload(repository, path, source, progress)

    async def commit(self, request: CommitRequest) -> str:
        """Commit all files or none, if the head is still the parent; gives the new commit id. Sent once."""
        body = wire.CommitBody(request)
        await self._check_card(request)
        message = Request(
            "POST",
            wire.api_path(request.repository, f"/commit/{wire.BRANCH}"),
            Exchange.COMMIT,
            body=body.stream,
            body_bytes=body.length_bytes,
            content_type="application/x-ndjson",
            paths=[file.path for file in request.files],
        )
        answer = await self._exchange.send(message)
        return self._exchange.read(message, answer, wire.CommitAnswer).commit_oid

    async def paths_info(self, repository: str, revision: str, paths: Sequence[str]) -> dict[str, RemoteFile]:
        """What is at these paths at that revision, asked for 500 at a time."""
        found: dict[str, RemoteFile] = {}
        for start in range(0, len(paths), PATHS_INFO_MAX_PATHS):
            group = paths[start : start + PATHS_INFO_MAX_PATHS]
            rows = await self._path_rows(repository, revision, group, expand=False)
            found |= {row.path: row.to_remote_file() for row in rows if row.type == "file"}
        return found

    async def last_commit(self, repository: str, revision: str, path: str) -> str | None:
        """The id of the commit that last changed a path, seen from that revision; None if the Hub does not say."""
        rows = await self._path_rows(repository, revision, [path], expand=True)
        return next((row.last_commit.id for row in rows if row.path == path and row.last_commit is not None), None)

    async def download(self, repository: str, revision: str, path: str, *, max_bytes: int) -> bytes | None:
        """A file's bytes, compared with the digest the Hub names; None only on the Hub's own word that it is absent.

        Raises:
            HubError: as the port says; TRANSIENT for bytes that are not what the Hub names, REFUSED_ITEM for a file of
                more than `max_bytes`.
        """
        address = wire.resolve_path(repository, revision, path)
        request = Request("GET", address, Exchange.READ, paths=(path,), follow=True, max_bytes=max_bytes)
        try:
            answer, secret = await self._exchange.ask(request)
        except AnswerTooLong:
            raise HubError(Outcome(OutcomeKind.REFUSED_ITEM, "FileTooLarge", paths=(path,))) from None
        if answer.status == 404 and answer.error_code == "EntryNotFound":
            return None
        if not 200 <= answer.status < 300:
            raise self._exchange.refusal(request, answer, secret)
        named, digests = wire.named_digest(answer.headers), await _digests(answer.body)
        if named not in (digests.git_oid, digests.sha256):
            error_type = "DigestMissing" if named is None else "DigestMismatch"
            raise HubError(Outcome(OutcomeKind.TRANSIENT, error_type, answer.status, request_id=answer.request_id))
        return answer.body

    async def write_access(self, repository: str) -> WriteAccess:
        """Whether the credential may write there. The one place that asks `whoami`, which is rate limited."""
        try:
            await self.head(repository)
        except CredentialMissing:
            return WriteAccess(credential="missing")
        except HubError as error:
            return WriteAccess(credential="present", reachable=False, error_type=error.outcome.error_type)
        can_write: bool | None = None
        try:
            answer = await self._exchange.send(Request("GET", "/api/whoami-v2", Exchange.READ))
            can_write = may_write(msgspec.json.decode(answer.body), repository)
            # A token that may write need not write here: its role says nothing of other owners' repositories.
            if can_write and await self._is_denied_writing(repository):
                can_write = False
        except CredentialMissing:
            return WriteAccess(credential="missing")
        except (HubError, msgspec.DecodeError):
            pass
        return WriteAccess(credential="present", reachable=True, can_write=can_write)

    def unfinished_threads(self, repository: str) -> int:
        """How many abandoned upload threads still work for this repository; also once the adapter is closed."""
        return self._uploads.unfinished_threads(repository) if self._uploads is not None else 0

    async def _path_rows(
        self, repository: str, revision: str, paths: Sequence[str], *, expand: bool
    ) -> Sequence[wire.PathRow]:
        form = [*(("paths", path) for path in paths), ("expand", "true" if expand else "false")]
        request = Request(
            "POST",
            wire.api_path(repository, f"/paths-info/{wire.revision_segment(revision)}"),
            Exchange.READ,
            body=urlencode(form).encode(),
            content_type="application/x-www-form-urlencoded",
        )
        answer = await self._exchange.send(request)
        return self._exchange.read(request, answer, list[wire.PathRow])

    async def _is_denied_writing(self, repository: str) -> bool:
        request = Request("GET", wire.api_path(repository, "/auth-check/write"), Exchange.READ)
        try:
            answer, _ = await self._exchange.ask(request)
        except HubError:
            return False
        return answer.status == 403

    async def _check_card(self, request: CommitRequest) -> None:
        """Have the metadata of README.md checked first, as the library does (hub API notes, section 5)."""
        card = next((file for file in request.files if file.path == _README and file.mode is UploadMode.REGULAR), None)
        if card is None:
            return
        content = request.contents.get(card.digests.sha256, b"").decode("utf-8", "replace")
        message = Request(
            "POST",
            "/api/validate-yaml",
            Exchange.PREUPLOAD,
            body=msgspec.json.encode({"content": content, "repoType": "dataset"}),
            content_type="application/json",
        )
        answer, secret = await self._exchange.ask(message)
        if 200 <= answer.status < 300:
            return
        outcome = self._exchange.refusal(message, answer, secret).outcome
        if outcome.kind is OutcomeKind.REFUSED_ITEM:
            outcome = replace(outcome, paths=(_README,))
        raise HubError(outcome)

    @property
    def _exchange(self) -> HubExchange:
        if self._open_exchange is None:
            raise _not_open()
        return self._open_exchange


async def _digests(content: bytes) -> ContentDigests:
    if len(content) <= MIB:
        return digest_bytes(content)
    return await run_in_daemon_thread(lambda: digest_bytes(content), name="conveyor-digest")


def _not_open() -> LocalProtocolError:
    return LocalProtocolError("the Hub adapter is not open: use it inside `async with`")


__all__ = ["HuggingFaceHub"]
