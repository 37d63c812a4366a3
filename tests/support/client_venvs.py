"""Virtual environments that hold the unmodified huggingface_hub clients which the local Hub is tested with.

Run ``python tests/support/client_venvs.py``: it makes ``build/clients/hub-VERSION`` for each version below and does
nothing for those that are there already.
"""

import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("1.33.0", "2.4.0")
COMMAND = "python tests/support/client_venvs.py"
ROOT = Path(__file__).resolve().parents[2] / "build" / "clients"


def client_python(version: str) -> Path:
    """The interpreter of a client's environment, whether it is there or not."""
    return ROOT / f"hub-{version}" / "bin" / "python"


def stamp(version: str) -> Path:
    """The file that says the environment is complete, and for which interpreter it was made."""
    return ROOT / f"hub-{version}" / "complete.txt"


def is_complete(version: str) -> bool:
    """Whether the environment was made to its end and its interpreter still works here."""
    try:
        return stamp(version).read_text() == _stamp_text(version) and client_python(version).exists()
    except FileNotFoundError:
        return False


def _stamp_text(version: str) -> str:
    return f"huggingface_hub=={version} python {sys.version_info[0]}.{sys.version_info[1]}\n"


def make(version: str) -> None:
    """Make one environment from nothing. Raises ``subprocess.CalledProcessError`` when pip fails."""
    folder = ROOT / f"hub-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(client_python(version)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"huggingface_hub=={version}"], check=True)
    stamp(version).write_text(_stamp_text(version))


def main() -> int:
    """Make what is missing."""
    for version in VERSIONS:
        if is_complete(version):
            sys.stdout.write(f"huggingface_hub {version}: there already\n")
        else:
            make(version)
            sys.stdout.write(f"huggingface_hub {version}: made in build/clients/hub-{version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
