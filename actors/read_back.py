"""Whether the Hub holds what was committed for a run (hand-over protocol, section 4.3)."""

from __future__ import annotations

import hashlib
from typing import Final

import anyio

from ..protocol.errors import InvalidValue
from ..protocol.identifiers import check_identifier, check_repository
from ..protocol.limits import RUN_FILE_MAX_BYTES
from ..protocol.outcome import HubError
from ..protocol.receipts import DeliveryCode, ReadBack, ReadBackStatus
from ..protocol.requests import RefusalCode
from .port_errors import CredentialMissing
from .ports import Hub, Store
from .store_operations import CommittedFile, ReadCommitted, ReadRunReceipt

NO_COMMITTED_FILES: Final = "NO_COMMITTED_FILES"
_CONCURRENT: Final = 4


async def read_back_run_files(store: Store, hub: Hub, repository: object, run_id: object) -> ReadBack:
    """Compare the bytes at `main`'s head with the digests committed last, all at one revision (finding W28).

    It is never `passed` without a committed file. A file that is absent is a mismatch.

    Raises:
        StoreError: the store could not say.
    """
    try:
        repository = check_repository(repository)
        run_id = check_identifier(run_id, name="run_id")
    except InvalidValue:
        return ReadBack(status=ReadBackStatus.REFUSED, error_code=RefusalCode.INVALID_REQUEST)
    receipt = await store.query(ReadRunReceipt(repository, run_id))
    if receipt.pending_files:
        return ReadBack(status=ReadBackStatus.PENDING)
    committed = await store.query(ReadCommitted(repository, run_id))
    if not committed:
        return ReadBack(status=ReadBackStatus.FAILED, error_code=NO_COMMITTED_FILES)
    if not await hub.has_credential():
        return ReadBack(status=ReadBackStatus.FAILED, error_code=DeliveryCode.CREDENTIAL_MISSING)
    try:
        mismatched = await _mismatched(hub, repository, committed)
    except CredentialMissing:
        return ReadBack(status=ReadBackStatus.FAILED, error_code=DeliveryCode.CREDENTIAL_MISSING)
    except HubError:
        return ReadBack(
            status=ReadBackStatus.FAILED, files=len(committed), error_code=DeliveryCode.REPOSITORY_UNAVAILABLE
        )
    status = ReadBackStatus.FAILED if mismatched else ReadBackStatus.PASSED
    return ReadBack(status=status, files=len(committed), mismatched_paths=mismatched)


async def _mismatched(hub: Hub, repository: str, committed: tuple[CommittedFile, ...]) -> tuple[str, ...]:
    head = await hub.head(repository)
    mismatched: list[str] = []
    failures: list[Exception] = []
    slots = anyio.CapacityLimiter(_CONCURRENT)

    async def compare(file: CommittedFile) -> None:
        async with slots:
            try:
                content = await hub.download(repository, head, file.path, max_bytes=RUN_FILE_MAX_BYTES)
            except (HubError, CredentialMissing) as error:
                failures.append(error)
                tasks.cancel_scope.cancel("a download failed")
                return
        if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
            mismatched.append(file.path)

    async with anyio.create_task_group() as tasks:
        for file in committed:
            tasks.start_soon(compare, file)
    if failures:
        raise failures[0]
    return tuple(sorted(mismatched))


__all__ = ["NO_COMMITTED_FILES", "read_back_run_files"]
