"""Settings: one declaration, four places, each value with its source and its rule."""

from __future__ import annotations

import dataclasses
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

from conveyor.protocol.errors import ConveyorError
from conveyor.runtime.setting_spec import Kind, SettingSpec
from conveyor.runtime.settings import FILE_ENVIRONMENT, SETTINGS, Settings, SettingsError, default_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """An environment that names nothing but a state directory."""
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def write(path: Path, text: str) -> Path:
    """Write a settings file."""
    path.write_text(text, encoding="utf-8")
    return path


def test_every_field_is_declared_once_under_its_own_name() -> None:
    """Each public field carries a specification of the same name, with a help line, and a rule for every number."""
    public = [item.name for item in dataclasses.fields(Settings) if not item.name.startswith("_")]
    assert list(SETTINGS) == public
    for name, spec in SETTINGS.items():
        assert spec.name == name
        assert spec.help
        assert (spec.kind is Kind.CHOICE) == bool(spec.choices), name
        if spec.kind in {Kind.SECONDS, Kind.COUNT, Kind.BYTES}:
            assert spec.minimum is not None, name
            assert spec.maximum is not None, name


@pytest.mark.parametrize("name", SETTINGS)
def test_names_end_in_the_unit(name: str) -> None:
    """A number of seconds or bytes says so at the end of its name."""
    spec = SETTINGS[name]
    assert (spec.kind is Kind.SECONDS) == (name.endswith("_s") and not name.endswith("bytes_per_s"))
    assert (spec.kind is Kind.BYTES) == name.endswith(("_bytes", "_bytes_per_s"))


def test_defaults_are_the_documented_ones(state: dict[str, str], tmp_path: Path) -> None:
    """Without any source the values of the specification hold: 10 s, 120 s, 30 s, 2 to 300 s, 15 s."""
    settings = Settings.load(environ=state)
    assert settings.store_path == tmp_path / "state" / "conveyor" / "store.db"
    assert (settings.commit_interval_s, settings.commit_spacing_s) == (30.0, 10.0)
    assert (settings.lease_s, settings.lease_renew_s) == (120.0, 30.0)
    assert (settings.backoff_first_s, settings.backoff_max_s) == (2.0, 300.0)
    assert (settings.commits_per_hour, settings.commit_burst, settings.shutdown_s) == (100, 20, 15.0)
    assert settings.hub_answer_s > 60
    assert {settings.source(name) for name in SETTINGS} == {"default"}


def test_later_places_win_and_are_remembered(state: dict[str, str], tmp_path: Path) -> None:
    """Default, file, environment, argument: each beats the one before it, and the source says which it was."""
    file = write(tmp_path / "conveyor.toml", "idle_s = 1\nlease_s = 90\nshutdown_s = 20\n")
    environ = state | {"CONVEYOR_LEASE_S": "100", "CONVEYOR_SHUTDOWN_S": "30"}
    settings = Settings.load(file, environ, shutdown_s=40)
    assert (settings.idle_s, settings.lease_s, settings.shutdown_s) == (1.0, 100.0, 40.0)
    assert settings.source("commit_interval_s") == "default"
    assert settings.source("idle_s") == f"file {file}"
    assert settings.source("lease_s") == "environment CONVEYOR_LEASE_S"
    assert settings.source("shutdown_s") == "argument shutdown_s"


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """`load()` without an environment reads `os.environ`, at the call."""
    monkeypatch.setenv("CONVEYOR_HASH_THREADS", "3")
    assert Settings.load().hash_threads == 3
    assert Settings.load(environ={"HOME": os.environ.get("HOME", "")}).source("hash_threads") == "default"


def test_a_settings_file_is_found_through_the_environment(state: dict[str, str], tmp_path: Path) -> None:
    """`CONVEYOR_SETTINGS_FILE` names the file, and its relative paths start at its own directory."""
    file = write(tmp_path / "conveyor.toml", 'store_path = "here/store.db"\n')
    settings = Settings.load(environ=state | {FILE_ENVIRONMENT: str(file)})
    assert settings.store_path == tmp_path / "here" / "store.db"


def test_none_and_empty_variables_count_as_not_given(state: dict[str, str]) -> None:
    """An option that was not used (None) and an empty variable leave the value alone."""
    settings = Settings.load(environ=state | {"CONVEYOR_IDLE_S": ""}, idle_s=None)
    assert settings.source("idle_s") == "default"


def test_the_own_variable_beats_the_shared_one(state: dict[str, str]) -> None:
    """`HF_ENDPOINT` counts, `CONVEYOR_ENDPOINT` counts more; a trailing slash is dropped."""
    shared = {"HF_ENDPOINT": "http://127.0.0.1:8000/"}
    settings = Settings.load(environ=state | shared)
    assert (settings.endpoint, settings.source("endpoint")) == ("http://127.0.0.1:8000", "environment HF_ENDPOINT")
    own = Settings.load(environ=state | shared | {"CONVEYOR_ENDPOINT": "https://hub.example/hf"})
    assert (own.endpoint, own.source("endpoint")) == ("https://hub.example/hf", "environment CONVEYOR_ENDPOINT")


def test_bytes_may_be_written_with_a_multiple(state: dict[str, str]) -> None:
    """`256MiB`, `1 GiB` and plain digits are numbers of bytes."""
    for text, expected in (("256MiB", 256 * 1024**2), ("1 GiB", 1024**3), ("104857600", 100 * 1024**2)):
        assert Settings.load(environ=state | {"CONVEYOR_INTAKE_MEMORY_BYTES": text}).intake_memory_bytes == expected


@pytest.mark.parametrize("name", [name for name in SETTINGS if SETTINGS[name].minimum is not None])
def test_limits_are_inclusive_and_kept(name: str, state: dict[str, str]) -> None:
    """A number at its minimum or maximum is read, a step outside is refused with name, source, limits and next step."""
    spec = SETTINGS[name]
    assert spec.minimum is not None
    assert spec.maximum is not None
    for inside in (spec.minimum, spec.maximum):
        assert spec.read(inside if spec.kind is Kind.SECONDS else int(inside), "a test") == inside
    step = 0.01 if spec.kind is Kind.SECONDS else 1
    for outside in (spec.minimum - step, spec.maximum + step):
        with pytest.raises(SettingsError, match=f"setting {name} ") as caught:
            Settings.load(environ=state | {spec.environment: str(outside)})
        message = str(caught.value)
        assert f"environment {spec.environment}" in message
        assert spec.rule in message
        assert "Correct it there" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("idle_s", "soon"),
        ("idle_s", "nan"),
        ("idle_s", "inf"),
        ("idle_s", True),
        ("idle_s", [1]),
        ("idle_s", 10**400),
        ("commit_burst", "1.5"),
        ("commit_burst", 1.0),
        ("commit_burst", True),
        ("commit_burst", "-1"),
        ("commit_burst", "\u0661"),
        ("commit_max_bytes", "20MB"),
        ("commit_max_bytes", "9" * 5000),
        ("network_store", "SAFE"),
        ("network_store", 1),
        ("library_name", "two words"),
        ("library_name", ""),
        ("store_path", ""),
        ("store_path", "a\0b"),
        ("store_path", 3),
        ("endpoint", "huggingface.co"),
        ("endpoint", "ftp://huggingface.co"),
        ("endpoint", "https://"),
        ("endpoint", "https://hub.example:port"),
        ("endpoint", "https://hub.example/?a"),
        ("endpoint", "https://hub.example/#a"),
        ("endpoint", "https://hub.example/a b"),
    ],
)
def test_other_types_and_texts_are_refused(name: str, value: object, state: dict[str, str]) -> None:
    """A value of a wrong type or form is refused with the setting's name and the argument as its source."""
    given: dict[str, Any] = {name: value}
    with pytest.raises(SettingsError, match=rf"setting {name} \(from argument {name}\)") as caught:
        Settings.load(environ=state, **given)
    assert len(str(caught.value)) < 500


def test_a_credential_in_the_address_is_refused_and_never_shown(state: dict[str, str]) -> None:
    """An endpoint with user and password is refused without being repeated (N-SEC-01)."""
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ=state | {"HF_ENDPOINT": "https://me:hf_canary@hub.example"})
    assert "hf_canary" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"commits_per_hour": 20, "commit_burst": 20}, "commit_burst"),
        ({"lease_s": 89, "lease_renew_s": 30}, "lease_renew_s"),
        ({"backoff_first_s": 10, "backoff_max_s": 9}, "backoff_max_s"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    values: dict[str, Any], named: str, state: dict[str, str]
) -> None:
    """The hourly budget with its burst, the renewals of a lease and the back-off have a rule between two settings."""
    with pytest.raises(SettingsError, match=named):
        Settings.load(environ=state, **values)


def test_unknown_names_are_refused_with_the_nearest_one(state: dict[str, str], tmp_path: Path) -> None:
    """A misspelled key, argument or variable is refused; an unrelated variable with the prefix is left alone."""
    file = write(tmp_path / "conveyor.toml", "commit_interval = 5\n")
    with pytest.raises(SettingsError, match="Did you mean commit_interval_s"):
        Settings.load(file, state)
    with pytest.raises(SettingsError, match="Did you mean lease_s"):
        Settings.load(environ=state, leases=5)
    with pytest.raises(SettingsError, match="Did you mean CONVEYOR_COMMIT_INTERVAL_S"):
        Settings.load(environ=state | {"CONVEYOR_COMMIT_INTERVAL": "5"})
    Settings.load(environ=state | {"CONVEYOR_COLOUR_OF_THE_BELT": "blue"})


@pytest.mark.parametrize("content", [b"idle_s = ", b"\xff\xfe", b"[idle_s]\na = 1\n"])
def test_a_damaged_file_is_refused(content: bytes, state: dict[str, str], tmp_path: Path) -> None:
    """What is not TOML, not UTF-8 or of a wrong shape is refused and the file is named."""
    file = tmp_path / "conveyor.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"conveyor\.toml"):
        Settings.load(file, state)


def test_a_missing_file_is_refused(state: dict[str, str], tmp_path: Path) -> None:
    """A file that was asked for must exist; a directory is no file."""
    with pytest.raises(SettingsError, match="No such file"):
        Settings.load(tmp_path / "absent.toml", state)
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings.load(tmp_path, state)


def test_direct_construction_is_checked_too(tmp_path: Path) -> None:
    """`Settings(...)` keeps the same rules, counts its arguments as source, and cannot be changed afterwards."""
    settings = Settings(store_path=tmp_path / "a.db", idle_s=5)
    assert settings.source("idle_s") == "argument idle_s"
    assert settings.source("lease_s") == "default"
    with pytest.raises(SettingsError, match="from 10 to 3600 s"):
        Settings(store_path=tmp_path / "a.db", commit_spacing_s=9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.idle_s = 6  # type: ignore[misc]


def test_an_error_of_the_settings_has_a_code() -> None:
    """Programs can tell an unusable setting from other errors by its code."""
    assert issubclass(SettingsError, ConveyorError)
    assert SettingsError.code == "INVALID_SETTING"


def test_environment_and_flag_follow_from_the_name() -> None:
    """The three other names of a setting are derived, never declared twice."""
    spec = SettingSpec("commit_interval_s", Kind.SECONDS, "s", "help")
    assert (spec.environment, spec.flag) == ("CONVEYOR_COMMIT_INTERVAL_S", "--commit-interval-s")


def test_the_page_in_docs_is_the_declaration() -> None:
    """docs/settings.md is what `make docs` makes of the declaration."""
    made = runpy.run_path(str(ROOT / ".ci" / "settings_page.py"))["page"]()
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == made
    assert isinstance(default_of("hash_threads"), int)
