"""A local Hub for each test, and an HTTP client that holds a writing token."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.local_hub import TOKEN, LocalHubUnderTest, running_local_hub

REPO = "local/data"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A Hub that holds the dataset ``local/data`` and pages and parts that are small enough to meet in tests."""
    with running_local_hub(
        tmp_path / "hub",
        repositories=(REPO,),
        multipart_from_bytes=100_000,
        multipart_part_bytes=40_000,
        tree_page=10,
        tree_page_expanded=3,
        commits_page=5,
    ) as running:
        yield running


@pytest.fixture
def client(hub: LocalHubUnderTest) -> Iterator[httpx.Client]:
    """A client with a writing token; it follows no redirect by itself."""
    with httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {TOKEN}"}, verify=False) as open_client:
        yield open_client
