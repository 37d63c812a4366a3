"""Every setting of Conveyor, declared once.

Precedence, weakest first: the default, a settings file (TOML), the environment, an explicit argument (which is where a
command-line option ends up). Each value remembers which of them it came from. The hand-over protocol's own limits are
not settings; see `conveyor.protocol.limits`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import platformdirs

from ..protocol.limits import (
    HUB_COMMITS_PER_HOUR,
    HUB_INLINE_FILE_MAX_BYTES,
    MIB,
    MIN_COMMIT_SPACING_S,
    RUN_FILES_TOGETHER_MAX_BYTES,
)
from .setting_spec import SPEC_KEY, Kind, SettingsError, SettingSpec, byte_count, choice, count, declare, seconds

FILE_ENVIRONMENT: Final = "CONVEYOR_SETTINGS_FILE"
"""Names a settings file when no `file` argument does."""

DAY_S: Final = 86_400.0


def default_store_path(environ: Mapping[str, str] | None = None) -> Path:
    """`conveyor/store.db` in the user's state directory: `$XDG_STATE_HOME`, else what the platform uses.

    Raises:
        SettingsError: the user has no home directory and the path would depend on the working directory.
    """
    state = Path((os.environ if environ is None else environ).get("XDG_STATE_HOME", ""))
    path = state / "conveyor" if state.is_absolute() else platformdirs.user_state_path("conveyor", appauthor=False)
    if not path.is_absolute():
        raise SettingsError(
            "setting store_path (from the default) must be an absolute path, but this user has no home directory. "
            "Set CONVEYOR_STORE_PATH."
        )
    return path / "store.db"


def default_hash_threads() -> int:
    """As many as the machine has processors, from 2 to 8: beyond that the disk is the limit."""
    return max(2, min(8, os.cpu_count() or 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, checked. Names end in their unit; `docs/settings.md` lists default, limits and other names.

    Raises:
        SettingsError: a value breaks its rule, or two values contradict each other.
    """

    store_path: Path = declare(
        SettingSpec(
            "store_path",
            Kind.PATH,
            "",
            "the hand-over database; its directory is created if missing",
            default_text="`conveyor/store.db` in the user's state directory",
        ),
        factory=default_store_path,
    )
    network_store: str = choice(
        "network_store",
        ("refuse", "safe"),
        "a store on a network filesystem: refuse it with advice, or use it in the safe journal mode",
    )
    retention_s: float = seconds(
        "retention_s", 30 * DAY_S, 3600, 3650 * DAY_S, "how long rows of settled hand-overs are kept"
    )
    probe_interval_s: float = seconds(
        "probe_interval_s", 1.0, 0.05, 60, "between two looks for hand-overs that other processes put into the store"
    )

    intake_capacity: int = count(
        "intake_capacity", 256, 1, 65_536, "hand-overs that may wait for their answer; one more waits outside"
    )
    intake_memory_bytes: int = byte_count(
        "intake_memory_bytes",
        256 * MIB,
        RUN_FILES_TOGETHER_MAX_BYTES,
        1024 * 1024 * MIB,
        "bytes held in memory between reading files and storing them; more hand-overs wait",
    )
    hash_threads: int = declare(
        SettingSpec(
            "hash_threads",
            Kind.COUNT,
            "threads",
            "threads that read and hash files",
            1,
            256,
            default_text="the number of processors, from 2 to 8",
        ),
        factory=default_hash_threads,
    )
    idle_s: float = seconds(
        "idle_s", 30.0, 0.1, DAY_S, "how long the actor of a repository without work stays in memory"
    )

    commit_interval_s: float = seconds(
        "commit_interval_s", 30.0, 0, DAY_S, "run files that are not flushed wait this long after the last commit"
    )
    commit_spacing_s: float = seconds(
        "commit_spacing_s", 10.0, MIN_COMMIT_SPACING_S, 3600, "between two commits of this store to one repository"
    )
    commits_per_hour: int = count(
        "commits_per_hour",
        100,
        2,
        HUB_COMMITS_PER_HOUR,
        "commits to one repository in any hour, the burst included; the Hub itself allows 128",
        unit="commits",
    )
    commit_burst: int = count(
        "commit_burst",
        20,
        1,
        HUB_COMMITS_PER_HOUR - 1,
        "how many of them may follow one another at the spacing alone; the others are spread over the hour",
        unit="commits",
    )
    commit_max_operations: int = count(
        "commit_max_operations", 1000, 1, 25_000, "files of one commit; more are left to the next cycle", unit="files"
    )
    commit_max_bytes: int = byte_count(
        "commit_max_bytes",
        50 * MIB,
        HUB_INLINE_FILE_MAX_BYTES,
        1024 * MIB,
        "content inside one commit request, before base64 makes it a third longer; more is left to the next cycle",
    )

    lease_s: float = seconds(
        "lease_s", 120.0, 3, 3600, "how long a process may write to a repository without renewing its lease"
    )
    lease_renew_s: float = seconds(
        "lease_renew_s", 30.0, 1, 1200, "between two renewals of a lease; at most a third of lease_s"
    )
    backoff_first_s: float = seconds(
        "backoff_first_s", 2.0, 0.1, 300, "pause after the first failed attempt; it doubles with each further one"
    )
    backoff_max_s: float = seconds("backoff_max_s", 300.0, 0.1, DAY_S, "the longest pause between two attempts")
    shutdown_s: float = seconds("shutdown_s", 15.0, 1, 3600, "from the stop to the end of the last commit")

    endpoint: str = declare(
        SettingSpec("endpoint", Kind.URL, "", "the Hub's address", also_environment=("HF_ENDPOINT",)),
        "https://huggingface.co",
    )
    library_name: str = declare(
        SettingSpec(
            "library_name",
            Kind.TEXT,
            "",
            "the program's name in the user agent of every request",
            pattern="[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        ),
        "conveyor",
    )
    hub_connect_s: float = seconds("hub_connect_s", 10.0, 0.1, 600, "for a connection to the Hub to be made")
    hub_answer_s: float = seconds(
        "hub_answer_s", 90.0, 0.1, 3600, "for the Hub's answer; the Hub's gateway itself gives up after 60 s"
    )
    large_upload: str = choice(
        "large_upload", ("lfs", "xet"), "how large files are uploaded: plain LFS, or Xet where the Hub offers it"
    )
    upload_parallelism: int = count(
        "upload_parallelism", 4, 1, 64, "large files uploaded at the same time", unit="uploads"
    )
    upload_stall_s: float = seconds(
        "upload_stall_s", 60.0, 0.1, 3600, "without a byte sent before an upload is given up and tried again"
    )
    upload_bandwidth_bytes_per_s: int = byte_count(
        "upload_bandwidth_bytes_per_s",
        0,
        0,
        1024 * 1024 * MIB,
        "all large uploads together; 0 is no limit",
        unit="bytes/s",
    )

    log_format: str = choice("log_format", ("text", "json"), "log lines of the command: for people or for programs")
    log_level: str = declare(
        SettingSpec(
            "log_level",
            Kind.CHOICE,
            "",
            "the least important log lines that are shown",
            choices=("debug", "info", "warning", "error"),
        ),
        "info",
    )

    _sources: Mapping[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        sources = {}
        for name, spec in SETTINGS.items():
            value = spec.read(getattr(self, name), f"the argument {name}")
            object.__setattr__(self, name, value)
            sources[name] = "default" if value == default_of(name) else f"argument {name}"
        object.__setattr__(self, "_sources", sources)
        self._check_together()

    def source(self, name: str) -> str:
        """Where a value came from: `default`, `file PATH`, `environment VARIABLE` or `argument NAME`.

        Raises:
            KeyError: there is no such setting.
        """
        return self._sources[name]

    @classmethod
    def load(
        cls, file: str | Path | None = None, environ: Mapping[str, str] | None = None, **overrides: Any
    ) -> Settings:
        """Collect the settings from everywhere and check them.

        Args:
            file: a settings file (TOML, keys named like the settings), else the one `CONVEYOR_SETTINGS_FILE` names.
            environ: the environment to read; the process's own if it is None. Empty variables count as unset.
            overrides: explicit values, the strongest; None counts as not given.

        Raises:
            SettingsError: a file, name or value that cannot be used.
        """
        environ = os.environ if environ is None else environ
        given: dict[str, tuple[object, str]] = {}
        file = file or environ.get(FILE_ENVIRONMENT) or None
        if file is not None:
            given |= read_file(Path(os.path.expanduser(file)))
        given |= read_environment(environ)
        for name, value in overrides.items():
            if name not in SETTINGS:
                raise SettingsError(f"{name} (from an argument) is not a setting{did_you_mean(name, SETTINGS)}")
            if value is not None:
                given[name] = (value, f"argument {name}")
        if "store_path" not in given:
            given["store_path"] = (default_store_path(environ), "default")
        values = {name: SETTINGS[name].read(value, source) for name, (value, source) in given.items()}
        settings = cls(**values)
        sources = {name: given[name][1] if name in given else "default" for name in SETTINGS}
        object.__setattr__(settings, "_sources", sources)  # the constructor knows arguments only
        return settings

    def _check_together(self) -> None:
        """Check the rules that hold between two settings."""
        if self.commit_burst >= self.commits_per_hour:
            raise SettingsError(
                f"setting commit_burst ({self.commit_burst}) must be below commits_per_hour ({self.commits_per_hour}), "
                "because the burst is part of the hour. Lower commit_burst or raise commits_per_hour."
            )
        if self.lease_renew_s * 3 > self.lease_s:
            raise SettingsError(
                f"setting lease_renew_s ({self.lease_renew_s:g} s) must be at most a third of lease_s "
                f"({self.lease_s:g} s), so that two renewals may fail. Lower lease_renew_s or raise lease_s."
            )
        if self.backoff_first_s > self.backoff_max_s:
            raise SettingsError(
                f"setting backoff_first_s ({self.backoff_first_s:g} s) must be at most backoff_max_s "
                f"({self.backoff_max_s:g} s). Lower the first or raise the second."
            )


SETTINGS: Final[Mapping[str, SettingSpec]] = MappingProxyType(
    {item.name: item.metadata[SPEC_KEY] for item in fields(Settings) if SPEC_KEY in item.metadata}
)
"""The declaration of each setting, by name, in the order of `Settings`."""

_FIELDS: Final = {item.name: item for item in fields(Settings)}


def default_of(name: str) -> Any:
    """The default of a setting on this machine."""
    item = _FIELDS[name]
    return item.default_factory() if item.default_factory is not MISSING else item.default


def did_you_mean(name: str, known: Mapping[str, object]) -> str:
    """The end of a message about an unknown name: the nearest known one, or where the list is."""
    near = difflib.get_close_matches(name, known, n=1)
    return f". Did you mean {near[0]}?" if near else ". docs/settings.md lists all settings."


def read_file(file: Path) -> dict[str, tuple[object, str]]:
    """The values of a settings file with their source; relative paths start at the file's directory.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"settings file {file} cannot be read: {error.strerror}. Correct the path or the file's permissions."
        ) from error
    except ValueError as error:
        raise SettingsError(f"settings file {file} must be TOML in UTF-8: {error}. Correct the file.") from error
    given: dict[str, tuple[object, str]] = {}
    for key, value in document.items():
        if key not in SETTINGS:
            raise SettingsError(f"{key} (from file {file}) is not a setting{did_you_mean(key, SETTINGS)}")
        if SETTINGS[key].kind is Kind.PATH and isinstance(value, str) and value and not value.startswith("~"):
            value = str(file.absolute().parent / value)
        given[key] = (value, f"file {file}")
    return given


def read_environment(environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    """The values in the environment with their source.

    Raises:
        SettingsError: a variable's name is nearly that of a setting, so it is likely a misspelling.
    """
    given: dict[str, tuple[object, str]] = {}
    own = {spec.environment: spec for spec in SETTINGS.values()}
    for variable in environ:
        if variable.startswith("CONVEYOR_") and variable not in own and variable != FILE_ENVIRONMENT:
            # Other programs may use the prefix; only a near miss is worth a refusal.
            near = difflib.get_close_matches(variable, own, n=1, cutoff=0.93)
            if near:
                raise SettingsError(f"{variable} (from the environment) is not a setting. Did you mean {near[0]}?")
    for name, spec in SETTINGS.items():
        for variable in (spec.environment, *spec.also_environment):
            value = environ.get(variable, "").strip()
            if value:
                given[name] = (value, f"environment {variable}")
                break
    return given


__all__ = ["FILE_ENVIRONMENT", "SETTINGS", "Settings", "SettingsError"]
