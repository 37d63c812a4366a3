"""Large objects: huggingface_hub sends them from daemon threads, which are watched and can be left behind (N-HUB-14).

What such a thread may still do after it was abandoned is harmless: an uploaded object that no commit names is invisible
(hub API notes, sections 6 and 9).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import anyio

from ...actors.port_errors import ContentChanged, CredentialMissing
from ...actors.ports import BytesSource, FileSource, Progress, UploadSource
from ...protocol.errors import LocalProtocolError
from ...protocol.outcome import HubError, Outcome, OutcomeKind
from .daemon_threads import ThreadCall, run_in_daemon_thread
from .hub_credentials import HubCredentials
from .hub_errors import Exchange, outcome_of_failure
from .hub_library_errors import outcome_of_library_error
from .hub_options import HubOptions
from .hub_transfer import BandwidthCap, TransferFile, TransferWatch
from .hub_wire import BRANCH
from .quiet_libraries import quietly

XET_SLOWEST_BYTES_PER_S: Final = 256 * 1024
"""Xet shows no progress, so its limit is one for the whole transfer, at this rate."""
ABANDONED_PER_SLOT: Final = 4
"""So many abandoned threads that will not end are borne for each transfer allowed; then none is started."""
IMPORT_LIMIT_S: Final = 120.0


class ObjectUploads:
    """Makes objects present on the Hub. To be made inside the event loop.

    Args:
        options: limits, caps and the protocol.
        credentials: where the token comes from.
    """

    def __init__(self, options: HubOptions, credentials: HubCredentials) -> None:
        self._options = options
        self._credentials = credentials
        self._slots = anyio.Semaphore(options.upload_parallelism)
        self._bandwidth = BandwidthCap(options.bandwidth_bytes_per_s)
        self._is_imported = False
        self._left: dict[str, list[ThreadCall[None]]] = {}
        self._count = 0

    async def upload(self, repository: str, path: str, source: UploadSource, progress: Progress) -> None:
        """As the port says. Waits for a slot first."""
        async with self._slots:
            await self._import_library()
            for may_try_again in (True, False):
                token = await self._credentials.find()
                if token is None:
                    raise CredentialMissing(
                        "no Hugging Face token was found: set HF_TOKEN or log in with `hf auth login`"
                    )
                try:
                    await self._transfer(repository, path, source, progress, token)
                except HubError as error:
                    # A short-lived token may have run out on the way (N-HUB-13).
                    if error.outcome.status != 401 or not may_try_again:
                        raise
                else:
                    return

    def unfinished_threads(self, repository: str) -> int:
        """How many abandoned threads of this repository still run."""
        calls = [call for call in self._left.pop(repository, []) if call.is_alive]
        if calls:
            self._left[repository] = calls
        return len(calls)

    async def _import_library(self) -> None:
        """The first import takes a second or more: not on the event loop, and not while a stall is watched for."""
        if self._is_imported:
            return
        with anyio.move_on_after(IMPORT_LIMIT_S):
            await run_in_daemon_thread(_import_huggingface_hub, name="conveyor-import")
            self._is_imported = True
            return
        raise HubError(Outcome(OutcomeKind.TRANSIENT, "ImportTimeout"))

    async def _transfer(self, repository: str, path: str, source: UploadSource, progress: Progress, token: str) -> None:
        if sum(map(self.unfinished_threads, list(self._left))) >= ABANDONED_PER_SLOT * self._options.upload_parallelism:
            raise HubError(Outcome(OutcomeKind.TRANSIENT, "TooManyStuckTransfers"))
        watch = TransferWatch(self._bandwidth, progress)
        limit_s = self._options.stall_s
        if self._options.large_upload == "xet":
            limit_s += source.digests.size_bytes / XET_SLOWEST_BYTES_PER_S
        self._count += 1
        call = ThreadCall(
            lambda: self._send(repository, path, source, watch, token), name=f"conveyor-upload-{self._count}"
        )
        try:
            await _wait_while_it_moves(call, watch, limit_s)
        finally:
            if not call.is_finished:
                watch.abandon()
                self._left.setdefault(repository, []).append(call)
        try:
            return call.result()
        except LocalProtocolError:
            raise
        except Exception as error:
            failure = _failure(error, path, token)
        # Raised outside the handler: the library's exceptions hold addresses and tokens, and must not come along.
        raise failure

    def _send(self, repository: str, path: str, source: UploadSource, watch: TransferWatch, token: str) -> None:
        """In the thread: hash, compare, send. The library asks preupload and the LFS batch endpoint by itself."""
        from huggingface_hub import CommitOperationAdd, HfApi

        options = self._options
        by_lfs = options.large_upload == "lfs" or not _has_xet()
        api = HfApi(
            endpoint=options.endpoint,
            token=token,
            library_name=options.library_name,
            library_version=options.library_version,
        )
        with quietly(), TransferFile(source, watch) as file:
            # An operation given as an open binary file goes by plain LFS, one given as a path or as bytes by Xet.
            # Without Xet a path would go by LFS too, but with a progress bar in the host's standard error.
            content = file if by_lfs else _as_the_library_likes_it(source)
            operation = CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)  # type: ignore[arg-type]
            if by_lfs:
                _compare(operation.upload_info.sha256.hex(), operation.upload_info.size, source)
                file.start_sending()
            api.preupload_lfs_files(
                repo_id=repository, additions=[operation], repo_type="dataset", revision=BRANCH, free_memory=False
            )
            # Xet hashes what it sends while it sends it: a changed content got a name of its own there, not ours.
            _compare(operation.upload_info.sha256.hex(), operation.upload_info.size, source)
        watch.reached(source.digests.size_bytes)


async def _wait_while_it_moves(call: ThreadCall[None], watch: TransferWatch, limit_s: float) -> None:
    """Wait for the end of a transfer. Raises HubError, TRANSIENT, once nothing has moved for so long (N-HUB-14)."""
    while True:
        with anyio.move_on_after(max(0.001, limit_s - watch.idle_s)):
            await call.wait_finished()
        if call.is_finished:
            return
        if watch.idle_s >= limit_s:
            raise HubError(outcome_of_failure("TransferStalled", Exchange.UPLOAD))


def _has_xet() -> bool:
    """Whether the library would use Xet: its extension is there and was not switched off when the library started."""
    from huggingface_hub import constants

    return not constants.HF_HUB_DISABLE_XET and find_spec("hf_xet") is not None


def _as_the_library_likes_it(source: UploadSource) -> str | bytes:
    match source:
        case BytesSource():
            return source.content
        case FileSource():
            return source.local_path
        case _:
            raise LocalProtocolError(f"an upload takes BytesSource or FileSource, not {type(source).__name__}")


def _compare(sha256: str, size_bytes: int, source: UploadSource) -> None:
    if (sha256, size_bytes) != (source.digests.sha256, source.digests.size_bytes):
        raise ContentChanged("the file's bytes are not those that were handed over: it was changed; hand it over again")


def _failure(error: Exception, path: str, token: str) -> ContentChanged | HubError:
    """What a transfer that raised came to. The library wraps what a file object raises."""
    below: BaseException | None = error
    for _ in range(8):
        if isinstance(below, ContentChanged):
            return ContentChanged(str(below))
        below = below.__cause__ or below.__context__ if below is not None else None
    return HubError(outcome_of_library_error(error, path, secrets=(token,)))


def _import_huggingface_hub() -> None:
    with quietly():
        from huggingface_hub import CommitOperationAdd, HfApi

        del CommitOperationAdd, HfApi


__all__ = ["ObjectUploads"]
