"""The walls of the house hold, and the tests that watch them fail when somebody breaks one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.rules import LAYERS, ROOT


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the tree, to plant a breach in."""
    copy = tmp_path / "house"
    skip = shutil.ignore_patterns("__pycache__")
    for folder in (*LAYERS, "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=skip)
    for name in ("pyproject.toml", "constraints.txt", "README.md"):
        shutil.copyfile(ROOT / name, copy / name)
    return copy


def append(path: Path, text: str) -> None:
    """Write text at the end of a file, which is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


class TestThisTree:
    """What is true of the tree as it stands."""

    def test_imports_run_one_way(self, tmp_path: Path) -> None:
        """runtime -> actors -> protocol, and neither of the inner two imports what reaches the world."""
        assert rules.broken_contracts(ROOT, tmp_path / "links") == []

    @pytest.mark.parametrize(
        "rule",
        [
            rules.impure_code,
            rules.second_copies,
            rules.unlisted_packages,
            rules.unlisted_data,
            rules.real_sleeps,
            rules.leaked_text,
            rules.loose_constraints,
            rules.long_files,
        ],
    )
    def test_nothing_breaks_the_rule(self, rule: Callable[[Path], list[str]]) -> None:
        """No file of the tree breaks it; the rule's own words say what it is."""
        assert rule(ROOT) == []

    def test_every_layer_and_test_folder_is_looked_at(self) -> None:
        """The rules find files to judge in each folder, so that an empty answer means something."""
        for folder in (*LAYERS, "tests"):
            assert list(rules.python_files(ROOT, folder)), folder


class TestPlanted:
    """Each wall's check fails when the breach it is there for is planted in a copy."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("file", "line", "named"),
        [
            (
                "protocol/limits.py",
                "from ..runtime import settings as _planted",
                "runtime -> actors -> protocol BROKEN",
            ),
            ("protocol/limits.py", "from ..actors import ports as _planted", "runtime -> actors -> protocol BROKEN"),
            ("actors/ports.py", "from ..runtime import settings as _planted", "runtime -> actors -> protocol BROKEN"),
            ("protocol/limits.py", "import time as _planted", "conveyor.protocol is not allowed to import time"),
            ("protocol/limits.py", "import anyio as _planted", "conveyor.protocol is not allowed to import anyio"),
            ("actors/ports.py", "import sqlite3 as _planted", "conveyor.actors is not allowed to import sqlite3"),
        ],
    )
    def test_a_forbidden_import_is_found(self, house: Path, tmp_path: Path, file: str, line: str, named: str) -> None:
        """An upward import, a clock in protocol/ and a database in actors/ break their contract by name."""
        append(house / file, f"\n{line}\n")
        assert any(named in found for found in rules.broken_contracts(house, tmp_path / "links"))

    @pytest.mark.parametrize(
        ("rule", "file", "text"),
        [
            (rules.impure_code, "protocol/planted.py", "async def planted() -> None: ...\n"),
            (rules.impure_code, "protocol/planted.py", "import datetime\nNOW = datetime.datetime.now()\n"),
            (rules.impure_code, "actors/planted.py", "from datetime import datetime\nNOW = datetime.now()\n"),
            (rules.impure_code, "actors/planted.py", "TEXT = open('planted').read()\n"),
            (rules.second_copies, "runtime/planted.py", "import protocol.limits\n"),
            (rules.second_copies, "tests/planted.py", "from actors import ports\n"),
            (rules.unlisted_packages, "runtime/planted/__init__.py", ""),
            (rules.unlisted_packages, "protocol/deep/planted/__init__.py", ""),
            (rules.unlisted_packages, "actors/planted/module.py", ""),
            (rules.unlisted_data, "runtime/store/planted.sql", "select 1"),
            (rules.real_sleeps, "tests/planted.py", "import time\ntime.sleep(0)\n"),
            (rules.real_sleeps, "tests/test_planted.py", "import asyncio\nasync def f(): await asyncio.sleep(0.1)\n"),
            (rules.real_sleeps, "tests/planted.py", "from anyio import sleep as nap\nasync def f(): await nap(1)\n"),
            (rules.real_sleeps, "tests/planted.py", "# virtual time: no\nimport time\ntime.sleep(1)\n"),
            (
                rules.real_sleeps,
                "tests/test_planted.py",
                "@pytest.mark.real_time\nasync def test_it() -> None:\n    await anyio.sleep(1)\n",
            ),
            (rules.real_sleeps, "tests/test_planted.py", "async def f(real_time_backend): await anyio.sleep(1)\n"),
            (
                rules.real_sleeps,
                "tests/test_planted.py",
                "pytestmark = [pytest.mark.real_time]\nclass TestIt:\n    async def f(self): await trio.sleep(1)\n",
            ),
            (rules.real_sleeps, "tests/test_planted.py", "async def f(): await anyio.sleep(1)\nanyio.run(f)\n"),
            (rules.leaked_text, "docs/planted.md", "See /ro" + "ot/notes.\n"),
            (rules.leaked_text, "runtime/planted.py", "# TO" + "DO later\n"),
            (rules.loose_constraints, "constraints.txt", "planted @ file:///wheels/planted.whl\n"),
            (rules.loose_constraints, "constraints.txt", "planted==1.0+cpu\n"),
            (rules.long_files, "runtime/planted.py", "\n" * (rules.MAX_LINES + 1)),
        ],
    )
    def test_a_breach_is_found(self, house: Path, rule: Callable[[Path], list[str]], file: str, text: str) -> None:
        """The rule says nothing more about the copy than about the tree, until the breach is there."""
        before = rule(house)
        append(house / file, text)
        assert len(rule(house)) > len(before)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("planted.py", "async def f() -> None:\n    await anyio.sleep(0)\n"),
            ("planted.py", "async def f() -> None:\n    await asyncio.sleep(0)\n"),
            ("planted.py", "# virtual time: the clock jumps\nasync def f() -> None:\n    await anyio.sleep(9)\n"),
            ("test_planted.py", "async def test_it() -> None:\n    await anyio.sleep(3600)\n"),
        ],
    )
    def test_giving_way_and_virtual_time_are_no_sleep(self, house: Path, name: str, text: str) -> None:
        """`sleep(0)` only lets other tasks run, and in virtual time an hour passes at once."""
        append(house / "tests" / name, text)
        assert not [line for line in rules.real_sleeps(house) if "planted" in line]
