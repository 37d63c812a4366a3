"""Which filesystem a path lies on, and whether it is one that other machines share (N-STO-01).

A write-ahead database needs memory that all its users share, which a network filesystem does not give.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

FilesystemProbe = Callable[[Path], str | None]
"""Tells the type of the filesystem under an existing directory, in lower case; None if it cannot be told."""

_NETWORK: Final = frozenset(
    (
        *("9p", "acfs", "afpfs", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gfs", "gfs2"),
        *("glusterfs", "gpfs", "lustre", "mfs", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2"),
        *("smb3", "smbfs", "vboxsf", "virtiofs", "webdav", "wekafs"),
    )
)
_LOCAL_FUSE: Final = "lxcfs|ntfs|exfat|overlay|squash|gocryptfs|encfs|bindfs|ext[234]"
_NETWORK_FUSE: Final = re.compile(rf"fuse\.(?!.*(?:{_LOCAL_FUSE}))|fuse$")
"""What sits behind a user-space filesystem is mostly remote; a few well-known ones are not."""

_MOUNTINFO: Final = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")
_DARWIN_LINE = re.compile(r"^.* on (?P<point>.*) \((?P<kind>[^,)]+)[,)].*$")


def is_network(kind: str | None) -> bool:
    """Whether a filesystem of this type may be shared between machines."""
    return kind is not None and (kind in _NETWORK or _NETWORK_FUSE.match(kind) is not None)


def filesystem_type(directory: Path) -> str | None:
    """The type of the filesystem under an existing directory, by the system's table of mounts."""
    best: tuple[int, str | None] = (-1, None)
    resolved = directory.resolve()
    for point, kind in _mounts():
        if (resolved == point or point in resolved.parents) and len(point.parts) >= best[0]:
            # Later mounts on the same point cover earlier ones.
            best = (len(point.parts), kind.lower())
    return best[1]


def _mounts() -> Iterable[tuple[Path, str]]:
    try:
        return parse_mountinfo(_MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        # Not Linux.
        pass
    try:
        answer = subprocess.run(["/sbin/mount"], capture_output=True, timeout=5.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_mount_lines(answer.stdout.decode(errors="surrogateescape"))


def parse_mountinfo(text: str) -> list[tuple[Path, str]]:
    """Mount points and types of Linux's `/proc/self/mountinfo`, in order."""
    found = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if separator and len(fields) >= 5:
            point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
            found.append((Path(point), right.split(" ")[0]))
    return found


def parse_mount_lines(text: str) -> list[tuple[Path, str]]:
    """Mount points and types of what macOS's `mount` prints, in order."""
    matches = (_DARWIN_LINE.match(line) for line in text.splitlines())
    return [(Path(match["point"]), match["kind"]) for match in matches if match is not None]


__all__ = ["FilesystemProbe", "filesystem_type", "is_network", "parse_mount_lines", "parse_mountinfo"]
