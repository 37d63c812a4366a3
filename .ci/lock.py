"""Prints constraints.txt from pip's report of what an install of everything would take (`make lock`).

Only names and versions are kept: nothing of where this machine gets its packages from.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

HEAD = """\
# What `make` and `.ci/run` install: made by `make lock` from the bounds in pyproject.toml. Do not edit.
"""


def lines(report: Path) -> list[str]:
    """One `name==version` for each package of the report but this project itself, in order.

    Raises:
        SystemExit: a version is a build of one machine (`+something`), which nobody else could install.
    """
    packages = {}
    for item in json.loads(report.read_text(encoding="utf-8"))["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        packages[name] = item["metadata"]["version"]
    packages.pop("conveyor", None)
    local = [f"{name} {version}" for name, version in packages.items() if "+" in version]
    if local:
        sys.exit(f"these are builds of this machine only: {', '.join(local)}. Take them from a public index.")
    return [f"{name}=={version}" for name, version in sorted(packages.items())]


if __name__ == "__main__":
    sys.stdout.write(HEAD + "".join(line + "\n" for line in lines(Path(sys.argv[1]))))
