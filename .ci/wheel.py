"""Two steps of `.ci/run`: `copy DIR` copies the tree without what tools made, `check WHEEL` compares wheel and tree."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

LAYERS = ("protocol", "actors", "runtime")
MADE_BY_TOOLS = shutil.ignore_patterns("__pycache__", "*.pyc")


def copy(target: Path) -> None:
    """Copy what a wheel is made of. An old `build/lib` or egg-info would hide a sub-package that is not listed."""
    target.mkdir(parents=True)
    for layer in LAYERS:
        shutil.copytree(layer, target / layer, ignore=MADE_BY_TOOLS)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(name, target / name)


def check(wheel: Path) -> None:
    """Require each file of the three layers in the wheel, and nothing but them and the wheel's own records.

    Raises:
        SystemExit: a file is missing or does not belong there.
    """
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.endswith("/")}
    there = {name for name in inside if ".dist-info/" not in name}
    wanted = {
        "conveyor/" + path.as_posix()
        for layer in LAYERS
        for path in Path(layer).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    wanted |= {f"conveyor/{layer}/py.typed" for layer in LAYERS}
    missing, foreign = sorted(wanted - there), sorted(there - wanted)
    if missing or foreign:
        sys.exit(f"{wheel.name}: missing {missing or 'nothing'}; does not belong there: {foreign or 'nothing'}")
    if not any(name.endswith("licenses/LICENSE") for name in inside):
        sys.exit(f"{wheel.name}: the licence is missing")
    sys.stdout.write(f"{wheel.name}: {len(there)} files, as in the tree\n")


if __name__ == "__main__":
    {"copy": copy, "check": check}[sys.argv[1]](Path(sys.argv[2]))
