"""Prints docs/settings.md from the declaration of the settings (`make docs`); a test compares the two."""

from __future__ import annotations

import sys

from conveyor.runtime.setting_spec import SettingSpec
from conveyor.runtime.settings import FILE_ENVIRONMENT, SETTINGS, default_of

HEAD = f"""# Settings

This page is made from the declaration in `runtime/settings.py` by `make docs`; do not edit it.

A value comes from the strongest place that has one, weakest first:

1. the default;
2. a settings file: TOML, one line `name = value` for each setting, no tables. It is the file given to
   `Settings.load(file=...)`, else the one that the environment variable `{FILE_ENVIRONMENT}` names. A relative path
   in it starts at the file's own directory;
3. the environment variable `CONVEYOR_` and the name in capitals, for example `CONVEYOR_COMMIT_INTERVAL_S=60`. An empty
   variable counts as unset;
4. an explicit argument, `Settings.load(commit_interval_s=60)`; where a command offers the setting as an option, it is
   `--` and the name with hyphens, for example `--commit-interval-s 60`.

`settings.source("commit_interval_s")` says which one it was. A value that breaks its rule, an unknown name in a file
and a misspelled variable are refused with a `SettingsError` before anything starts. Numbers of bytes may be written as
`64MiB` in files and variables. No setting holds a token: credentials come from `HF_TOKEN`, `HUGGINGFACE_TOKEN` or the
saved login.

Rules between settings: `commit_burst` is below `commits_per_hour`, which it is part of; `lease_renew_s` is at most a
third of `lease_s`; `backoff_first_s` is at most `backoff_max_s`.

| name | default | must be | decides |
| --- | --- | --- | --- |
"""


def row(spec: SettingSpec) -> str:
    """One line of the table."""
    default = spec.default_text or f"`{spec.shown(default_of(spec.name))}`"
    also = "".join(f" (also `{variable}`)" for variable in spec.also_environment)
    return f"| `{spec.name}`{also} | {default} | {spec.rule.replace('|', chr(92) + '|')} | {spec.help} |\n"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(row(spec) for spec in SETTINGS.values())


if __name__ == "__main__":
    sys.stdout.write(page())
