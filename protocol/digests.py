"""The two identities of a file's content: SHA-256 and the git blob id (hub API notes, section 13).

The Hub names a regular file by its git blob id and a large one by its SHA-256, and it alone decides which a file is.
So both are computed in one pass over the bytes and kept together.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from .errors import InvalidValue, shown

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ContentDigests:
    """Both identities of one content and its length."""

    sha256: str
    """64 lower-case hexadecimal digits."""
    git_oid: str
    """40 lower-case hexadecimal digits: SHA-1 over the git blob header and the content."""
    size_bytes: int


class ContentDigester:
    """Computes both digests while the bytes pass once.

    The git blob id covers the length before the content, so the length has to be known first.

    Args:
        size_bytes: the number of bytes that will follow.
    """

    def __init__(self, size_bytes: int) -> None:
        self._declared_bytes = size_bytes
        self._seen_bytes = 0
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)

    @property
    def seen_bytes(self) -> int:
        """How many bytes have passed so far."""
        return self._seen_bytes

    def update(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take the next bytes of the content."""
        self._seen_bytes += chunk.nbytes if isinstance(chunk, memoryview) else len(chunk)
        self._sha256.update(chunk)
        self._git.update(chunk)

    def finish(self) -> ContentDigests:
        """Give both digests.

        Raises:
            InvalidValue: another number of bytes passed than was declared; the content changed while it was read.
        """
        if self._seen_bytes != self._declared_bytes:
            raise InvalidValue(
                f"the content has {self._seen_bytes} bytes where {self._declared_bytes} were announced: "
                "it changed while it was read; read it again once it is complete"
            )
        return ContentDigests(self._sha256.hexdigest(), self._git.hexdigest(), self._seen_bytes)


def digest_bytes(content: bytes) -> ContentDigests:
    """Both digests of a content held in memory."""
    digester = ContentDigester(len(content))
    digester.update(content)
    return digester.finish()


def check_sha256(value: object, *, name: str) -> str:
    """Give back a digest that is 64 lower-case hexadecimal digits.

    Raises:
        InvalidValue: it is anything else (hand-over protocol, section 3).
    """
    if not isinstance(value, str) or _SHA256.fullmatch(value) is None:
        raise InvalidValue(f"{name} must be 64 lower-case hexadecimal digits (a SHA-256), not {shown(value)}")
    return str.__str__(value)


__all__ = ["ContentDigester", "ContentDigests", "check_sha256", "digest_bytes"]
