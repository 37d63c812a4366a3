"""Where the token comes from: environment, then the saved login; searched anew at each call.

The order is the hand-over protocol's, section 5.1. The login file is read here and not through huggingface_hub, which
fixes its paths when it is imported, so that a login while the runtime works takes effect (N-HUB-13). Only a saved login
that can be refreshed, one made in a browser, is left to huggingface_hub, because its token soon expires.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio

from ...actors.port_errors import CredentialMissing
from .daemon_threads import run_in_daemon_thread
from .quiet_libraries import quietly

ENVIRONMENT_NAMES: Final = ("HF_TOKEN", "HUGGINGFACE_TOKEN")
SEARCH_LIMIT_S: Final = 30.0
"""The login file may lie on a filesystem that does not answer, and a refresh goes over the network."""


class HubCredentials:
    """Finds the token to use now. It is kept nowhere.

    Args:
        environ: the environment to look in; the process's own by default.
        home: the home directory, for the default place of the saved login; the user's own by default.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, home: Path | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._home = home
        self._is_own_environment = environ is None and home is None

    async def find(self) -> str | None:
        """The token, without surrounding blanks, or None if there is none or the search took too long."""
        for name in ENVIRONMENT_NAMES:
            token = self._environ.get(name, "").strip()
            if token:
                return token
        with anyio.move_on_after(SEARCH_LIMIT_S):
            return await run_in_daemon_thread(self._find_login, name="conveyor-credential")
        return None

    async def require(self) -> str:
        """The token. Raises CredentialMissing if there is none."""
        token = await self.find()
        if token is None:
            raise CredentialMissing(
                "no Hugging Face token was found: set HF_TOKEN or log in with `hf auth login`; "
                "what was handed over stays queued until then"
            )
        return token

    def login_file(self) -> Path:
        """Where a login is saved: `HF_TOKEN_PATH`, else `$HF_HOME/token`, else below the cache directory."""
        home = str(self._home) if self._home is not None else os.path.expanduser("~")
        cache = self._environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
        hub_home = self._environ.get("HF_HOME") or os.path.join(cache, "huggingface")
        path = self._environ.get("HF_TOKEN_PATH") or os.path.join(hub_home, "token")
        if path == "~" or path.startswith("~/"):
            path = home + path[1:]
        return Path(os.path.expandvars(path) if self._is_own_environment else path)

    def _find_login(self) -> str | None:
        path = self.login_file()
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if token and self._is_own_environment and _can_be_refreshed(path.with_name("stored_tokens")):
            return _refreshed() or token
        return token or None


def _can_be_refreshed(stored_tokens: Path) -> bool:
    try:
        return "refresh_token" in stored_tokens.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _refreshed() -> str | None:
    with quietly():
        from huggingface_hub import get_token

        try:
            return get_token()
        except Exception:
            # Whatever kept it from refreshing, the saved token may still serve; if not, the Hub says so.
            return None


__all__ = ["ENVIRONMENT_NAMES", "HubCredentials"]
