"""The content of one repository: git blobs by blob id, LFS objects by sha256, parts of unfinished uploads."""

import hashlib
import os
import shutil
import uuid
from pathlib import Path

from .gitids import blob_id
from .problems import bad_request

_COPY_BYTES = 1024 * 1024


class RepoObjects:
    """Files below one repository's folder. A file under its final name is always whole: it gets there by rename."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self.folder = folder
        self._sync = sync

    def prepare(self) -> None:
        """Make the folders and remove what interrupted writes left; call when nobody writes."""
        for name in ("blobs", "lfs", "parts", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for path in (self.folder / "tmp").iterdir():
            path.unlink()

    def blob_path(self, oid: str) -> Path:
        """Where the content of a git blob is."""
        return self.folder / "blobs" / oid[:2] / oid

    def lfs_path(self, sha256: str) -> Path:
        """Where the content of an LFS object is."""
        return self.folder / "lfs" / sha256[:2] / sha256

    def lfs_size(self, sha256: str) -> int | None:
        """Size in bytes of an uploaded LFS object, None when it never was uploaded here."""
        try:
            return self.lfs_path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def temporary(self) -> Path:
        """A fresh name for a file being received."""
        return self.folder / "tmp" / uuid.uuid4().hex

    def settle(self, source: Path, target: Path) -> None:
        """Give a finished file its final name, durably with ``sync``."""
        target.parent.mkdir(parents=True, exist_ok=True)
        if self._sync:
            _sync_path(source)
        source.replace(target)
        if self._sync:
            _sync_path(target.parent)

    def add_blob(self, content: bytes) -> str:
        """Keep the content of a regular file; returns its git blob id."""
        oid = blob_id(content)
        target = self.blob_path(oid)
        if not target.exists():
            source = self.temporary()
            source.write_bytes(content)
            self.settle(source, target)
        return oid

    def add_lfs(self, content: bytes) -> str:
        """Keep an LFS object given whole; returns its sha256."""
        digest = hashlib.sha256(content).hexdigest()
        target = self.lfs_path(digest)
        if not target.exists():
            source = self.temporary()
            source.write_bytes(content)
            self.settle(source, target)
        return digest

    def part_path(self, sha256: str, number: int) -> Path:
        """Where one part of a multipart upload waits for its completion."""
        return self.folder / "parts" / sha256 / str(number)

    def join_parts(self, sha256: str, size_bytes: int, etags: list[str]) -> None:
        """Make an LFS object of its parts and drop them. Repeating a finished completion is harmless.

        Raises:
            HubRefusal: 400; a part is missing or not the one named, or the whole has another size or digest.
        """
        if self.lfs_size(sha256) is not None:
            return
        digest, total_bytes, target = hashlib.sha256(), 0, self.temporary()
        try:
            with target.open("wb") as out:
                for number, etag in enumerate(etags, start=1):
                    part = self.part_path(sha256, number)
                    if not part.exists():
                        raise bad_request(f"InvalidPart: part {number} is missing. Upload it, then complete again.")
                    part_digest = hashlib.md5(usedforsecurity=False)
                    with part.open("rb") as source:
                        while chunk := source.read(_COPY_BYTES):
                            part_digest.update(chunk)
                            digest.update(chunk)
                            total_bytes += len(chunk)
                            out.write(chunk)
                    if part_digest.hexdigest() != etag.strip('"'):
                        raise bad_request(f"InvalidPart: the ETag given for part {number} is not that of its content.")
            if total_bytes != size_bytes or digest.hexdigest() != sha256:
                raise bad_request(
                    f"The {len(etags)} parts make {total_bytes} bytes with sha256 {digest.hexdigest()}; announced were "
                    f"{size_bytes} bytes with {sha256}."
                )
            self.settle(target, self.lfs_path(sha256))
        finally:
            target.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "parts" / sha256, ignore_errors=True)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
