"""The adapter under both supported lines of huggingface_hub, in a process that shows what leaks and what lingers.

The clients' environments hold nothing but huggingface_hub and what it needs. A link to that one package, put before
everything else on the path, lets the tests' own interpreter run the adapter on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import client_venvs
from tests.support.local_hub import LocalHubUnderTest, running_local_hub

SCENARIO = Path(__file__).parents[2] / "support" / "hub_adapter_scenario.py"
TOKEN = "hf_canary_of_the_adapter"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalHubUnderTest]:
    """A local Hub with one repository."""
    with running_local_hub(tmp_path / "hub", repositories=("acme/data",)) as server:
        yield server


def library_folder(version: str, folder: Path) -> Path:
    """A folder that holds one version of huggingface_hub and nothing else."""
    if not client_venvs.is_complete(version):
        pytest.fail(f"The environment of huggingface_hub {version} is missing. Make it with: {client_venvs.COMMAND}")
    packages = next((client_venvs.ROOT / f"hub-{version}" / "lib").glob("python3.*/site-packages"))
    folder.mkdir()
    (folder / "huggingface_hub").symlink_to(packages / "huggingface_hub")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("version", client_venvs.VERSIONS)
def test_scenario(server: LocalHubUnderTest, tmp_path: Path, version: str, backend: str) -> None:
    """Objects arrive, misfortunes are told, nothing of a token or an address is printed (W37, N-SEC-01), and a stuck
    transfer keeps neither the adapter from closing nor the process from ending (N-HUB-14).
    """
    home = tmp_path / "home"
    home.mkdir()
    environment = server.hub_env(home, token=TOKEN)
    del environment["HF_HUB_DISABLE_PROGRESS_BARS"]
    has_xet = backend == "trio"
    if has_xet:
        # The library then says with each upload that it does not use it.
        del environment["HF_HUB_DISABLE_XET"]
    environment["PYTHONPATH"] = str(library_folder(version, tmp_path / "library"))
    command = [sys.executable, str(SCENARIO), server.url, "acme/data", str(home), backend]
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    errors = ended.stderr.decode()
    assert ended.returncode == 0, errors
    assert json.loads(ended.stdout) == {
        "version": version,
        "mode": "lfs",
        "progress_bytes": 256 * 4096,
        "delivered": True,
        "changed": "CONTENT_CHANGED",
        "refused": "needs_person",
        "stalled": "TransferStalled",
        "unfinished_threads": 1,
    }
    assert server.fired("retried") == 1
    for leak in (TOKEN, "/lfs/", "signature", "127.0.0.1", "localhost", "x.bin", "Retrying", "Xet"):
        assert leak not in errors, leak
    assert len(server.commits("acme/data")) == (1 if has_xet else 2)
    assert {row["authorized"] for row in server.requests("lfs-put")} == {False}
