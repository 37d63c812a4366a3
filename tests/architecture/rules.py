"""The rules of the house, each a plain function of a tree: it returns what breaks it, one line each, or nothing.

The tests run them on this tree, and on copies of it with a planted breach.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LAYERS: Final = ("protocol", "actors", "runtime")
MAX_LINES: Final = 400
"""A file holds one idea; longer ones hold several."""

NOT_OURS: Final = {"build", "dist", "__pycache__", "conveyor-demo", "conveyor-sweep"}
"""Directories that hold what tools made; hidden ones are left out too."""


def python_files(root: Path, *folders: str) -> Iterator[Path]:
    """Every Python file under the given folders of a tree, in order."""
    for folder in folders:
        paths = sorted((root / folder).rglob("*.py"))
        yield from (path for path in paths if not NOT_OURS & set(path.relative_to(root).parts))


def text_files(root: Path) -> Iterator[Path]:
    """Every text file of a tree that belongs to the project: what git keeps, or would keep."""
    for directory, folders, names in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in NOT_OURS and not name.endswith(".egg-info") and (name == ".ci" or not name.startswith("."))
        )
        for name in sorted(names):
            path = Path(directory, name)
            if not path.is_symlink() and not name.endswith((".pyc", ".gz", ".db", ".sqlite3", ".png")):
                yield path


def tree_of(path: Path) -> ast.Module:
    """A parsed file. Nobody changes it."""
    return parsed(path.read_text(encoding="utf-8"))


@cache  # a copy of the tree has nearly the same texts
def parsed(text: str) -> ast.Module:
    """A parsed text."""
    return ast.parse(text)


def project(root: Path) -> dict[str, object]:
    """The tree's pyproject.toml, its setuptools table."""
    table: dict[str, object] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    return table


def broken_contracts(root: Path, links: Path) -> list[str]:
    """What import-linter says against the contracts in pyproject.toml.

    Args:
        root: the tree to check.
        links: an empty directory for links that make the tree's folders importable as `conveyor.*`.
    """
    namespace = links / "conveyor"
    namespace.mkdir(parents=True)
    for layer in LAYERS:
        (namespace / layer).symlink_to(root / layer, target_is_directory=True)
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(links)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0 and "0 broken" in done.stdout:
        return []
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


LINT: Final = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def impure_code(root: Path) -> list[str]:
    """Async code in protocol/, and in protocol/ and actors/ every call that reads a clock or opens a file.

    Imports are the contracts' part; this finds what needs no forbidden import.
    """
    found = []
    for path in python_files(root, "protocol", "actors"):
        pure = path.relative_to(root).parts[0] == "protocol"
        for node in ast.walk(tree_of(path)):
            if pure and isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                found.append(f"{path.relative_to(root)}:{node.lineno}: async code")
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if re.search(r"\b(datetime|date)\.(now|utcnow|today)$", name):
                    found.append(f"{path.relative_to(root)}:{node.lineno}: reads the clock: {name}()")
                if name in {"open", "anyio.open_file", "anyio.Path", "input", "print", "__import__"}:
                    found.append(f"{path.relative_to(root)}:{node.lineno}: reaches outside: {name}()")
    return found


def second_copies(root: Path) -> list[str]:
    """Imports of `protocol`, `actors` or `runtime` by their bare names: from the repository's top they would work,
    and load every class a second time.
    """
    found = []
    for path in python_files(root, *LAYERS, "tests", "benchmarks", "examples"):
        for node in ast.walk(tree_of(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                if name.split(".")[0] in LAYERS:
                    found.append(f"{path.relative_to(root)}: says {name}, must say conveyor.{name}")
    return found


def unlisted_packages(root: Path) -> list[str]:
    """Sub-packages on disk that pyproject.toml does not list, and the reverse: an unlisted one is missing from the
    wheel without a word.
    """
    on_disk = set()
    for layer in LAYERS:
        for directory in [root / layer, *(path for path in (root / layer).rglob("*") if path.is_dir())]:
            if directory.name != "__pycache__" and any(path.suffix == ".py" for path in directory.iterdir()):
                on_disk.add("conveyor." + ".".join(directory.relative_to(root).parts))
                if not (directory / "__init__.py").exists():
                    on_disk.add(f"{directory.relative_to(root)} without __init__.py")
    listed = project(root)["packages"]
    assert isinstance(listed, list)
    return [f"not listed: {name}" for name in sorted(on_disk - set(listed))] + [
        f"listed but not there: {name}" for name in sorted(set(listed) - on_disk)
    ]


def unlisted_data(root: Path) -> list[str]:
    """Files of the layers that are no Python code and that no pattern of the package data takes into the wheel."""
    patterns = project(root)["package-data"]
    assert isinstance(patterns, dict)
    found = []
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.is_dir() or path.suffix in {".py", ".pyc"}:
                continue
            package = "conveyor." + ".".join(path.parent.relative_to(root).parts)
            if not any(fnmatch(path.name, pattern) for pattern in patterns.get(package, [])):
                found.append(f"not in the package data: {path.relative_to(root)}")
    return found


VIRTUAL_TIME_MARK: Final = "# virtual time: "
"""A file of tests/support whose `anyio.sleep` is only ever awaited in virtual time says so in a line that begins like
this, with the reason. Test files need no mark: their tests run in virtual time unless they ask for real clocks.
"""


def asks_for_real_clocks(node: ast.AST) -> bool:
    """Whether a test, a class of tests or a module's `pytestmark` asks for real clocks (tests/conftest.py)."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        asked = any(argument.arg == "real_time_backend" for argument in node.args.args)
        return asked or any("real_time" in ast.unparse(decorator) for decorator in node.decorator_list)
    if isinstance(node, ast.ClassDef):
        return any("real_time" in ast.unparse(decorator) for decorator in node.decorator_list)
    return isinstance(node, ast.Assign) and "pytest.mark.real_time" in ast.unparse(node)


def real_sleeps(root: Path) -> list[str]:
    """Calls in tests/ that sleep for real: `time.sleep` anywhere, and sleeps of the event loops where clocks are real.

    `sleep(0)` only lets others run, so it is allowed; `asyncio.sleep` never is, because it is for one loop only.
    """
    found = []
    for path in python_files(root, "tests"):
        text = path.read_text(encoding="utf-8")
        if "sleep" not in text:
            continue
        module = parsed(text)
        marked = any(line.startswith(VIRTUAL_TIME_MARK) for line in text.splitlines())
        jumps = marked or (path.name.startswith("test_") and not re.search(r"\b(anyio|trio|asyncio)\.run\(", text))
        if any(asks_for_real_clocks(node) for node in module.body if isinstance(node, ast.Assign)):
            jumps = False
        bare = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(module)
            if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio", "anyio", "trio"}
            for alias in node.names
        }
        for node, real in scoped(module, real=not jumps):
            if not isinstance(node, ast.Call):
                continue
            name = bare.get(ast.unparse(node.func), ast.unparse(node.func))
            if name not in {"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"}:
                continue
            yields = name != "time.sleep" and bool(node.args) and ast.unparse(node.args[0]) in {"0", "0.0"}
            if not yields and (real or name in {"time.sleep", "asyncio.sleep"}):
                found.append(f"{path.relative_to(root)}:{node.lineno}: {name}")
    return found


def scoped(node: ast.AST, *, real: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node below, with whether it runs on real clocks."""
    for child in ast.iter_child_nodes(node):
        inside = real or (not isinstance(child, ast.Assign) and asks_for_real_clocks(child))
        yield child, inside
        yield from scoped(child, real=inside)


MACHINE_PATH: Final = re.compile(r"(?<![\w.}$*~/-])/(?:root|work|opt|Users|home/(?!u/|user/|me/)\w+)/\w")
UNFINISHED: Final = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")


def leaked_text(root: Path) -> list[str]:
    """Absolute paths of the machine somebody worked on, and marks of unfinished work, in any file of the project."""
    found = []
    for path in text_files(root):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern, what in ((MACHINE_PATH, "a path of one machine"), (UNFINISHED, "unfinished")):
                match = pattern.search(line)
                if match:
                    found.append(f"{path.relative_to(root)}:{number}: {what}: {match[0]}")
    return found


def loose_constraints(root: Path) -> list[str]:
    """Lines of constraints.txt that are not `name==version`: no address, no path, no build of one machine."""
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    plain = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][0-9a-z.!]*")
    return [line for line in lines if line and not line.startswith("#") and not plain.fullmatch(line)]


def long_files(root: Path) -> list[str]:
    """Python files with more than `MAX_LINES` lines."""
    found = []
    for path in python_files(root, *LAYERS, "tests", "benchmarks", "examples", ".ci"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            found.append(f"{path.relative_to(root)}: {lines} lines")
    return found


__all__ = [
    "LAYERS",
    "ROOT",
    "broken_contracts",
    "impure_code",
    "leaked_text",
    "long_files",
    "loose_constraints",
    "python_files",
    "real_sleeps",
    "second_copies",
    "unlisted_data",
    "unlisted_packages",
]
