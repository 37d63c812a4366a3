"""From a path on the command line to hand-overs: which files, which targets, which roles."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from ...protocol.limits import RUN_FILES_TOGETHER_MAX_BYTES
from ...protocol.receipts import BundleReceipt, BundleStatus
from ...protocol.requests import BundleFile, RunFile, StageDatasetBundle, StageRunFiles
from .running import BadUse

INVENTORY_NAME: Final = "staged_manifest.json"
KNOWN_ROLES: Final = {
    INVENTORY_NAME: "staged_manifest",
    "build_manifest.json": "build_manifest",
    "sha256sums.txt": "checksums",
}
INVENTORIES: Final = "inventories"
"""The directory beside the store in which inventories are made."""
OUTPUT_ROLE: Final = "output"
MAX_FILES_OF_ONE_HAND_OVER: Final = 500


def run_file_requests(
    path: Path, repository: str, run_id: str, prefix: str, pointer: Path | None
) -> list[StageRunFiles]:
    """Hand-overs for a file, or for every file below a folder; several where one would be too large.

    Raises:
        BadUse: there is nothing to hand over.
    """
    root, files = _files_below(path)
    requests: list[StageRunFiles] = []
    part: list[RunFile] = []
    part_bytes = 0
    for file in files:
        size_bytes = file.stat().st_size
        is_full = part_bytes + size_bytes > RUN_FILES_TOGETHER_MAX_BYTES or len(part) == MAX_FILES_OF_ONE_HAND_OVER
        if part and is_full:
            requests.append(StageRunFiles(repository, run_id, tuple(part), prefix=prefix, flush=True))
            part, part_bytes = [], 0
        part.append(RunFile(file.relative_to(root).as_posix(), file.absolute()))
        part_bytes += size_bytes
    last = pointer.absolute() if pointer is not None else None
    requests.append(StageRunFiles(repository, run_id, tuple(part), prefix=prefix, latest_pointer=last, flush=True))
    return requests


def bundle_files(path: Path, roles: list[str]) -> list[BundleFile]:
    """The files of a folder, or one file, as those of a bundle, each read once for its SHA-256.

    Roles follow the usual names, and `--role NAME=ROLE`.

    Raises:
        BadUse: there is nothing to hand over, the folder has sub-folders, or a role is not NAME=ROLE.
    """
    root, files = _files_below(path)
    nested = [file for file in files if file.parent != root]
    if nested:
        raise BadUse(f"a bundle is flat, and {path} has sub-folders ({nested[0].relative_to(root)}); move its files up")
    named = dict(KNOWN_ROLES)
    for text in roles:
        name, mark, role = text.partition("=")
        if not mark or root / name not in files:
            raise BadUse(f"--role {text!r} is not NAME=ROLE with the name of a file in {root}; correct it")
        named[name] = role
    return [_bundle_file(file, named.get(file.name, OUTPUT_ROLE)) for file in files]


def with_inventory(run_id: str, files: list[BundleFile], place: Path) -> list[BundleFile]:
    """The files, and an inventory made in the directory `place` if there is none among them.

    It lists each output with its size and SHA-256.
    """
    if any(file.role == KNOWN_ROLES[INVENTORY_NAME] for file in files):
        return files
    return [*files, _made_inventory(run_id, files, place)]


async def tidy_inventory(request: StageDatasetBundle, receipt: BundleReceipt) -> None:
    """Remove an inventory that was made and is not needed any more: the store holds a copy, or nothing was taken."""
    is_needed = receipt.status not in (BundleStatus.REFUSED, BundleStatus.UNAVAILABLE) and (
        INVENTORY_NAME not in receipt.copied_files
    )
    for file in request.files:
        made = Path(file.local_path)
        if made.parent.name == INVENTORIES and not is_needed:
            await anyio.Path(made).unlink(missing_ok=True)


def _bundle_file(file: Path, role: str) -> BundleFile:
    try:
        with file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            size_bytes = os.fstat(stream.fileno()).st_size
    except OSError as error:
        _unreadable(error)
        raise
    return BundleFile(file.name, role, file.absolute(), sha256, size_bytes)


def _made_inventory(run_id: str, files: list[BundleFile], place: Path) -> BundleFile:
    """An inventory beside the store, never in the folder."""
    outputs = {
        file.name: {"bytes": file.size_bytes, "sha256": file.sha256}
        for file in files
        if file.role not in KNOWN_ROLES.values()
    }
    content = json.dumps({"run_id": run_id, "files": outputs}, sort_keys=True, indent=1).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    place.mkdir(mode=0o700, exist_ok=True)
    made = place / f"{sha256}.json"
    part = made.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(made)
    return BundleFile(INVENTORY_NAME, "staged_manifest", made, sha256, len(content))


def _files_below(path: Path) -> tuple[Path, list[Path]]:
    path = path.absolute()
    if path.is_file():
        return path.parent, [path]
    if not path.is_dir():
        raise BadUse(f"{path} is no file and no folder; name what to deliver")
    files: list[Path] = []
    for folder, folders, names in os.walk(path, onerror=_unreadable):
        files += (Path(folder, name) for name in names)
        for name in folders:
            # Followed, it could lead anywhere, and round in circles; left out, it would be missed in silence.
            if (linked := Path(folder, name)).is_symlink():
                raise BadUse(
                    f"{linked} is a link to a folder, which is not followed; deliver that folder by its own path"
                )
    files.sort()
    for file in files:
        if not file.is_file():
            raise BadUse(f"{file} is no regular file, and only those are delivered; remove it from the folder")
    if not files:
        raise BadUse(f"{path} has no files in it; name what to deliver")
    return path, files


def _unreadable(error: OSError) -> None:
    raise BadUse(f"{error.filename} cannot be read: {error.strerror}; correct its permissions")


__all__ = ["INVENTORIES", "bundle_files", "run_file_requests", "tidy_inventory", "with_inventory"]
