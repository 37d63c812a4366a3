"""Telling local filesystems from those that machines share (N-STO-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

from conveyor.runtime.store.filesystems import filesystem_type, is_network, parse_mount_lines, parse_mountinfo


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "fuse.sshfs", "fuse.s3fs", "fuse"])
def test_shared_filesystems(kind: str) -> None:
    """Network filesystems by name, and user-space ones that are mostly remote."""
    assert is_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "apfs", "overlay", "fuse.lxcfs", None])
def test_local_filesystems(kind: str | None) -> None:
    """Local ones; what cannot be told counts as local, as SQLite itself would."""
    assert not is_network(kind)


def test_the_table_of_linux() -> None:
    """Optional fields, escapes and the last mount on a point."""
    text = (
        "27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n"
        "50 27 0:40 / /mnt/two\\040words rw - nfs4 server:/x rw\n"
        "51 27 0:41 / / rw - overlay overlay rw\n"
        "broken line\n"
    )
    assert parse_mountinfo(text) == [
        (Path("/"), "ext4"),
        (Path("/mnt/two words"), "nfs4"),
        (Path("/"), "overlay"),
    ]


def test_the_list_of_macos() -> None:
    """Names with spaces and brackets."""
    text = (
        "/dev/disk1s1 on / (apfs, local, journaled)\n"
        "//me@nas/a (b) on /Volumes/a (b) (smbfs, nodev)\n"
        "map on /x (autofs)\n"
    )
    assert parse_mount_lines(text) == [(Path("/"), "apfs"), (Path("/Volumes/a (b)"), "smbfs"), (Path("/x"), "autofs")]


def test_this_machine_has_an_answer(tmp_path: Path) -> None:
    """Every existing directory lies on some filesystem, and /proc on none that keeps files."""
    assert filesystem_type(tmp_path) is not None
    if Path("/proc/self/mountinfo").exists():
        assert filesystem_type(Path("/proc/self")) == "proc"
