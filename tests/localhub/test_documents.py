"""``docs/local-hub.md`` says what the code does."""

import re
from pathlib import Path
from typing import get_args

import msgspec

from conveyor.runtime.localhub import faults
from conveyor.runtime.localhub.__main__ import _parser as parser_of_the_module
from conveyor.runtime.localhub.targets import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "local-hub.md").read_text()
ACTIONS = {action.__struct_config__.tag: action for action in get_args(faults.Action)}


def test_the_example_script_is_a_fault_script() -> None:
    """It can be copied and used."""
    (script,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    parsed = faults.parse_fault_script(script.encode(), source="docs", toml=True)
    assert [rule.name for rule in parsed.rules] == ["lost answer", "rough network", "a rival, then silence"]


def test_every_kind_is_named() -> None:
    """All kinds but the control calls, which no rule takes, and no others."""
    row = next(line for line in PAGE.splitlines() if line.startswith("| `kind`"))
    assert set(re.findall(r"`([a-z0-9-]+)`", row)) - {"kind"} == set(KINDS) - {"control"}


def test_every_action_is_named_with_its_fields() -> None:
    """And no action or field that does not exist."""
    rows = {
        cells[1].strip(" `"): cells[3]
        for cells in (line.split("|") for line in PAGE.partition("| `do` |")[2].partition("## ")[0].splitlines())
        if len(cells) > 4 and cells[1].startswith(" `")
    }
    assert rows.keys() == ACTIONS.keys()
    for name, action in ACTIONS.items():
        fields = {field.name for field in msgspec.structs.fields(action)}
        named = set(re.findall(r"`([a-z_]+)`", rows[name])) - ({"api", "commits"} if name == "rate_limit" else set())
        assert named == (set() if rows[name].strip() == "the same" else fields), name


def test_every_option_is_one() -> None:
    """Options in the text exist."""
    known = set(parser_of_the_module()._option_string_actions)
    named = set(re.findall(r"(--[a-z][a-z-]+)", PAGE))
    assert named
    assert named <= known
