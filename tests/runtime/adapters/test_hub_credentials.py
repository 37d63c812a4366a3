"""Where the token is found (hand-over protocol, section 5.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from conveyor.actors.port_errors import CredentialMissing
from conveyor.runtime.adapters.hub_credentials import HubCredentials

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


def save(path: Path, token: str = "hf_saved\n") -> None:
    """Log in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(token)


async def test_order(tmp_path: Path) -> None:
    """HF_TOKEN, then HUGGINGFACE_TOKEN, then the saved login; blanks are stripped, empty ones do not count."""
    save(tmp_path / ".cache" / "huggingface" / "token")
    environ = {"HF_TOKEN": " hf_one\n", "HUGGINGFACE_TOKEN": "hf_two"}
    credentials = HubCredentials(environ, tmp_path)
    assert await credentials.find() == "hf_one"
    environ["HF_TOKEN"] = "  \n"
    assert await credentials.find() == "hf_two"
    del environ["HUGGINGFACE_TOKEN"]
    assert await credentials.find() == "hf_saved"


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, ".cache/huggingface/token"),
        ({"XDG_CACHE_HOME": "{home}/xdg"}, "xdg/huggingface/token"),
        ({"HF_HOME": "{home}/hub"}, "hub/token"),
        ({"HF_HOME": "{home}/hub", "HF_TOKEN_PATH": "{home}/my-token"}, "my-token"),
        ({"HF_TOKEN_PATH": "~/my-token"}, "my-token"),
    ],
)
async def test_places_of_the_saved_login(tmp_path: Path, environ: dict[str, str], place: str) -> None:
    """HF_TOKEN_PATH, else $HF_HOME/token, else below the cache directory."""
    credentials = HubCredentials({name: value.format(home=tmp_path) for name, value in environ.items()}, tmp_path)
    assert await credentials.find() is None
    save(tmp_path / place)
    assert await credentials.find() == "hf_saved"


async def test_login_and_logout_are_noticed(tmp_path: Path) -> None:
    """Each search looks again (finding W21)."""
    credentials = HubCredentials({"HF_HOME": str(tmp_path)})
    with pytest.raises(CredentialMissing, match="HF_TOKEN"):
        await credentials.require()
    save(tmp_path / "token")
    assert await credentials.require() == "hf_saved"
    save(tmp_path / "token", "hf_other")
    assert await credentials.require() == "hf_other"
    (tmp_path / "token").unlink()
    assert await credentials.find() is None


async def test_unreadable_login(tmp_path: Path) -> None:
    """A login file that is a directory or no text is no login."""
    (tmp_path / "token").mkdir()
    assert await HubCredentials({"HF_HOME": str(tmp_path)}).find() is None
    (tmp_path / "other").write_bytes(b"\xff\xfe")
    assert await HubCredentials({"HF_TOKEN_PATH": str(tmp_path / "other")}).find() is None


async def test_process_environment_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment given, the process's own is read, at each search."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    credentials = HubCredentials()
    assert await credentials.find() is None
    save(tmp_path / "token")
    assert await credentials.find() == "hf_saved"
    monkeypatch.setenv("HF_TOKEN", "hf_environment")
    assert await credentials.find() == "hf_environment"
