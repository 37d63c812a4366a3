"""The two identities of a content (hub API notes, section 13)."""

from __future__ import annotations

import hashlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor.protocol.digests import ContentDigester, ContentDigests, check_sha256, digest_bytes
from conveyor.protocol.errors import InvalidValue


@pytest.mark.parametrize(
    ("content", "git_oid", "sha256"),
    [
        (
            b"Hello, World!",
            "b45ef6fec89518d314f546fd6c3025367b721684",
            "dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f",
        ),
        (
            b"",
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
    ],
)
def test_known_contents(content: bytes, git_oid: str, sha256: str) -> None:
    """The ids that git and sha256sum give for known contents."""
    assert digest_bytes(content) == ContentDigests(sha256, git_oid, len(content))


@pytest.mark.slow
@given(st.lists(st.binary(max_size=100), max_size=10))
def test_chunks_do_not_matter(chunks: list[bytes]) -> None:
    """However the bytes are cut, and whatever holds them, the digests are those of the whole."""
    whole = b"".join(chunks)
    digester = ContentDigester(len(whole))
    for number, chunk in enumerate(chunks):
        digester.update((chunk, bytearray(chunk), memoryview(chunk))[number % 3])
    assert digester.seen_bytes == len(whole)
    assert digester.finish() == digest_bytes(whole)


def test_views_count_in_bytes() -> None:
    """A view of wider items counts its bytes, not its items."""
    numbers = array("I", [1, 2, 3])
    digester = ContentDigester(len(numbers.tobytes()))
    digester.update(memoryview(numbers))
    assert digester.finish().sha256 == hashlib.sha256(numbers.tobytes()).hexdigest()


@pytest.mark.parametrize("declared", [0, 4, 6])
def test_another_length_than_announced_is_no_content(declared: int) -> None:
    """The git id covers the length first, so a content of another length has no digests."""
    digester = ContentDigester(declared)
    digester.update(b"12345")
    with pytest.raises(InvalidValue, match=rf"5 bytes where {declared} were announced: it changed"):
        digester.finish()


@pytest.mark.parametrize("value", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", b"0" * 64, None, 0])
def test_digests_that_are_refused(value: object) -> None:
    """Section 3, *digest*: 64 lower-case hexadecimal digits and nothing else."""
    assert check_sha256("0123456789abcdef" * 4, name="sha256") == "0123456789abcdef" * 4
    with pytest.raises(InvalidValue, match=r"^the digest must be 64 lower-case"):
        check_sha256(value, name="the digest")
