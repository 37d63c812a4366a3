"""Reading everything back through huggingface_hub and comparing hashes: what a person would do who trusts nobody."""

from __future__ import annotations

import hashlib
import importlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...protocol.errors import ConveyorError

READERS = 8


@dataclass(frozen=True, slots=True)
class Verification:
    """What reading back came to."""

    files: int
    size_bytes: int
    missing: tuple[str, ...]
    """`OWNER/NAME: path` of files that are not there."""
    different: tuple[str, ...]
    """`OWNER/NAME: path` of files with other bytes."""

    @property
    def is_good(self) -> bool:
        """Every expected file is there with the expected bytes."""
        return not self.missing and not self.different


class ReadBackFailed(ConveyorError):
    """The Hub could not be read to the end, so nothing is known to be wrong and nothing is known to be right."""

    code: ClassVar[str] = "READ_BACK_FAILED"


def verify(
    expected: Mapping[str, Mapping[str, str]],
    *,
    endpoint: str,
    token: str | None,
    cache: Path,
    on_file: Callable[[], None] = lambda: None,
) -> Verification:
    """Download every expected file with huggingface_hub's own client, and compare its SHA-256.

    Blocks; call it in a thread. Each repository is read at one revision.

    Args:
        expected: by repository and path, the SHA-256.
        endpoint: the Hub.
        token: the credential; None for none.
        cache: a directory for the downloads; removed afterwards.
        on_file: called after each file, from several threads.

    Raises:
        ReadBackFailed: the Hub could not be read.
    """
    try:
        with _without_bars():
            return _verify(expected, endpoint, token, cache, on_file)
    except Exception as error:
        # Whatever the client library raised: its text may hold addresses with credentials, its kind does not.
        raise ReadBackFailed(
            f"the repositories at {endpoint} could not be read back: {type(error).__name__}; what was handed over is "
            "delivered or kept in the store. Next step: read them back later, or run the sweep again"
        ) from error


@contextmanager
def _without_bars() -> Iterator[None]:
    """The client library draws a bar for each file on a terminal; hundreds of them cost more than the reading."""
    # By name: the library lists these in its documentation, but not for type checkers.
    utils: Any = importlib.import_module("huggingface_hub.utils")
    if utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def _verify(
    expected: Mapping[str, Mapping[str, str]],
    endpoint: str,
    token: str | None,
    cache: Path,
    on_file: Callable[[], None],
) -> Verification:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    api = HfApi(endpoint=endpoint, token=token or False)
    heads = {repository: api.dataset_info(repository).sha for repository in expected}

    def read(item: tuple[str, str, str]) -> tuple[str, str | None, int]:
        repository, path, sha256 = item
        name = f"{repository}: {path}"
        try:
            local = api.hf_hub_download(
                repository, path, repo_type="dataset", revision=heads[repository], cache_dir=str(cache)
            )
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            return name, None, 0
        finally:
            on_file()
        content = Path(local).read_bytes()
        return name, "same" if hashlib.sha256(content).hexdigest() == sha256 else "different", len(content)

    items = [
        (repository, path, sha256) for repository, paths in expected.items() for path, sha256 in sorted(paths.items())
    ]
    try:
        with ThreadPoolExecutor(READERS) as readers:
            results = list(readers.map(read, items))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    return Verification(
        files=len(results),
        size_bytes=sum(size_bytes for _, _, size_bytes in results),
        missing=tuple(name for name, state, _ in results if state is None),
        different=tuple(name for name, state, _ in results if state == "different"),
    )


__all__ = ["ReadBackFailed", "Verification", "verify"]
