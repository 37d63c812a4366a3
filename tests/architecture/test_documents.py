"""What the documents say is what the tree has: commands, targets, exit statuses, names, links."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conveyor.runtime.exit_codes import ExitCode
from tests.architecture.rules import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of one language in a document."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def shell_lines() -> list[str]:
    """Every line of every shell block of the documents."""
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    return [line.strip() for text in texts for block in blocks(text, "sh") for line in block.splitlines()]


def test_every_make_target_in_the_documents_exists() -> None:
    """`make x` in a document names a target of the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {word for line in shell_lines() for word in re.findall(r"\bmake ([a-z]+)", line)}
    for path in DOCUMENTS:
        named |= set(re.findall(r"`make ([a-z]+)`", path.read_text(encoding="utf-8")))
    assert {"demo", "test", "check", "lock"} <= named
    assert named <= targets


def commands() -> list[str]:
    """The distinct sub-commands of `conveyor` that the documents use."""
    found = set()
    for line in shell_lines():
        match = re.match(r"(?:\S*/)?conveyor ([a-z]+(?: serve)?)\b", line)
        if match:
            found.add(match[1])
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_every_command_and_option_in_the_documents_exists(command: str) -> None:
    """`conveyor x --option` in a document is a command of this program with that option."""
    run = "import sys; from conveyor.runtime.cli import main; sys.argv[0] = 'conveyor'; main()"
    done = subprocess.run(
        [sys.executable, "-c", run, *command.split(), "--help"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
    )
    assert done.returncode == 0, done.stderr
    options = {
        option
        for line in shell_lines()
        if re.match(rf"(?:\S*/)?conveyor {command}\b", line)
        for option in re.findall(r"--[a-z][a-z-]*", line)
    }
    assert not {option for option in options if option not in done.stdout}


def test_the_readme_uses_each_command() -> None:
    """The README shows every command that it promises."""
    assert set(commands()) >= {"sweep", "deliver", "status", "drain", "hub serve"}


def test_the_exit_code_table_is_the_declaration() -> None:
    """The table in the README has exactly the statuses and meanings of `runtime/exit_codes.py`, in order (N-CLI-01)."""
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \| (.*) \|$", README, re.MULTILINE)
    assert rows == [(str(int(code)), code.name, code.meaning) for code in ExitCode]


def test_exit_codes_differ_and_keep_the_customs() -> None:
    """0 is success, 2 is what the command line library uses for bad use, 130 is SIGINT; all others are below 64."""
    assert (ExitCode.DELIVERED, ExitCode.BAD_USE, ExitCode.INTERRUPTED) == (0, 2, 130)
    assert len({int(code) for code in ExitCode}) == len(ExitCode.__members__)
    assert all(code < 64 or code is ExitCode.INTERRUPTED for code in ExitCode)


def test_what_only_a_person_can_end_decides_the_exit_code() -> None:
    """Paused comes before parked, parked before left over, and nothing left is success."""
    assert ExitCode.of_work(left_over=1, parked=1, paused=1) is ExitCode.PAUSED
    assert ExitCode.of_work(left_over=1, parked=1, paused=0) is ExitCode.PARKED
    assert ExitCode.of_work(left_over=1, parked=0, paused=0) is ExitCode.LEFT_OVER
    assert ExitCode.of_work(left_over=0, parked=0, paused=0) is ExitCode.DELIVERED


def test_the_names_in_the_readme_examples_exist() -> None:
    """Each Python block of the README compiles, and what it imports from Conveyor is there."""
    examples = blocks(README, "python")
    assert examples
    for example in examples:
        for node in ast.walk(compile(example, "README.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("conveyor"):
                module = importlib.import_module(node.module or "")
                assert {alias.name for alias in node.names} <= set(module.__all__)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Every relative link of a document names a file of the project."""
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_the_changelog_has_this_version() -> None:
    """The newest version in the changelog is the one in pyproject.toml."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == version
