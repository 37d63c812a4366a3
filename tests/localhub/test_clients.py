"""The unmodified huggingface_hub clients work against the local Hub."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.localhub import client_scenario as scenario
from tests.support import client_venvs
from tests.support.local_hub import LocalHubUnderTest

SCENARIO = Path(scenario.__file__)


@pytest.mark.slow
@pytest.mark.parametrize("version", client_venvs.VERSIONS)
def test_a_user_of_the_client_library_finds_a_hub(version: str, hub: LocalHubUnderTest, tmp_path: Path) -> None:
    """Everything a user does ends as on the Hub, with bytes, ids and error classes (hub API notes sections 3 to 9)."""
    if not client_venvs.is_complete(version):
        pytest.fail(f"The environment of huggingface_hub {version} is missing. Make it with: {client_venvs.COMMAND}")
    python = client_venvs.client_python(version)
    finished = subprocess.run(
        [python, SCENARIO, tmp_path / "downloads"],
        env=hub.hub_env(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout)
    assert found["version"] == version
    _check_writes(found, hub)
    _check_reads(found)
    assert set(found["errors"].values()) == {"as promised"}
    assert found["bad token"] == ["HfHubHTTPError", 401]
    assert found["no token"] == ["HfHubHTTPError", 401]


def _check_writes(found: dict[str, object], hub: LocalHubUnderTest) -> None:
    assert found["created"] == found["created again"] == f"{hub.url}/datasets/{scenario.REPO}"
    assert found["exists"] == ["HfHubHTTPError", 409]
    assert found["user"] == "local"
    assert found["moved"] == ["HfHubHTTPError", 412]
    assert found["delete gone"] == ["RemoteEntryNotFoundError", 404]
    landed = hub.commits(scenario.REPO)
    titles = ["Upload logs/run.csv", "Upload data/small.bin", "Upload data/l.bin", "many", "Delete many/f000.txt"]
    assert [commit["title"].replace(" with huggingface_hub", "") for commit in landed] == [
        *titles,
        "no many",
        "Upload README.md",
    ]
    assert len(hub.requests("lfs-put")) == 1
    assert len(hub.requests("lfs-part")) == 4
    assert len(hub.requests("lfs-complete")) == 1
    storage = [row for kind in ("lfs-put", "lfs-part", "lfs-complete", "download") for row in hub.requests(kind)]
    assert not [row for row in storage if row["authorized"]]


def _check_reads(found: dict[str, object]) -> None:
    files = [".gitattributes", "README.md", "data/l.bin", "data/small.bin", "empty.bin", "logs/run.csv"]
    assert found["tree"] == sorted([*files, "data", "logs"])
    assert found["many tree"] == 300
    assert found["infos"] == ["data", "data/l.bin", "logs/run.csv"]
    large_sha256 = hashlib.sha256(scenario.LARGE_BINARY).hexdigest()
    assert found["lfs"] == [len(scenario.LARGE_BINARY), large_sha256, len(scenario.LARGE_BINARY)]
    blob = hashlib.sha1(b"blob %d\0" % len(scenario.TEXT) + scenario.TEXT).hexdigest()
    assert found["regular"] == [len(scenario.TEXT), blob, True]
    assert found["message of many"] == "id: d-1"
    assert found["digests"] == {
        "logs/run.csv": hashlib.sha256(scenario.TEXT).hexdigest(),
        "data/small.bin": hashlib.sha256(scenario.SMALL_BINARY).hexdigest(),
        "data/l.bin": large_sha256,
    }
    assert found["snapshot"] == files
    assert found["at many"] == hashlib.sha256(b"7\n").hexdigest()
    assert found["exists?"] == [True, False, False]
    assert found["head"] == [True]
    siblings = found["siblings"]
    assert isinstance(siblings, dict)
    assert siblings["data/l.bin"] == len(scenario.LARGE_BINARY)
    assert found["refs"] == [["main", "work/1"], ["v1"]]


def test_a_missing_environment_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment counts only once it was made to its end."""
    monkeypatch.setattr(client_venvs, "ROOT", tmp_path)
    assert not client_venvs.is_complete("2.4.0")
    client_venvs.client_python("2.4.0").parent.mkdir(parents=True)
    client_venvs.client_python("2.4.0").touch()
    assert not client_venvs.is_complete("2.4.0")
