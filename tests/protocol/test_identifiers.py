"""The single values of hand-overs (hand-over protocol, section 3), and what no commit can carry (finding W7)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from conveyor.protocol.errors import InvalidValue, shown
from conveyor.protocol.identifiers import (
    MAX_PATH_BYTES,
    check_file_name,
    check_identifier,
    check_no_folder,
    check_prefix,
    check_relative_path,
    check_repository,
    check_role,
    check_target,
)

NO_TEXTS: list[Any] = [None, 1, True, b"a", ["a"], ("a",), {"a": 1}]


@pytest.mark.parametrize("value", ["a", "0", "A.b_c-d", "run-1", "a..", "a.git", "x" * 128])
def test_identifiers_that_are_taken(value: str) -> None:
    """Section 3, *identifier*: 1 to 128 allowed characters after a letter or digit."""
    assert check_identifier(value, name="run_id") == value


@pytest.mark.parametrize(
    "value", ["", "x" * 129, ".a", "-a", "_a", "a b", "a/b", "a\n", "é", "٣", "a\0", "\ud800", *NO_TEXTS]
)
def test_identifiers_that_are_refused(value: object) -> None:
    """Section 3, *identifier*: anything else is refused, with the field and the value in the message."""
    with pytest.raises(InvalidValue, match=r"^run_id must be 1 to 128") as refusal:
        check_identifier(value, name="run_id")
    assert shown(value) in str(refusal.value)


@pytest.mark.parametrize("value", ["a/b", "0/0", "acme/my.data_set-1", f"{'o' * 96}/{'n' * 96}"])
def test_repositories_that_are_taken(value: str) -> None:
    """Section 3, *repository*: owner and name, 1 to 96 characters each."""
    assert check_repository(value) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "a",
        "a/",
        "/b",
        "a/b/c",
        "a//b",
        f"{'o' * 97}/n",
        f"o/{'n' * 97}",
        ".a/b",
        "a/-b",
        "a/b\n",
        "a b/c",
        *NO_TEXTS,
    ],
)
def test_repositories_that_are_refused(value: object) -> None:
    """Section 3, *repository*: anything else is refused."""
    with pytest.raises(InvalidValue, match=r"^repository must be OWNER/NAME"):
        check_repository(value)


@pytest.mark.parametrize("value", ["a", "dataset", "build_manifest", "a1", "a" * 64])
def test_roles_that_are_taken(value: str) -> None:
    """Section 3, *role*: 1 to 64 lower-case characters after a letter."""
    assert check_role(value) == value


@pytest.mark.parametrize("value", ["", "a" * 65, "A", "aB", "1a", "_a", "a-b", "a\n", *NO_TEXTS])
def test_roles_that_are_refused(value: object) -> None:
    """Section 3, *role*: anything else is refused."""
    with pytest.raises(InvalidValue, match=r"^role must be 1 to 64"):
        check_role(value)


@pytest.mark.parametrize(
    "value", ["runs", "a/b/c", "Releases", "releases2/x", "a/releases", "runs.json5", "a/runs.json"]
)
def test_prefixes_that_are_taken(value: str) -> None:
    """Section 3, *prefix*: identifiers divided by slashes; `releases` is compared exactly, and only at the start."""
    assert check_prefix(value) == value


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", "non-empty text"),
        ("/a", "each part of prefix"),
        ("a/", "each part of prefix"),
        ("a//b", "each part of prefix"),
        ("a/../b", "each part of prefix"),
        (".git", "each part of prefix"),
        ("releases", "reserved"),
        ("releases/x", "reserved"),
        ("runs.json", "a file at the top level"),
        ("latest_staging.json/x", "a file at the top level"),
        ("releases.json", "a file at the top level"),
        ("a/" * 2100 + "a", "the limit is 4095"),
        *((value, "non-empty text") for value in NO_TEXTS),
    ],
)
def test_prefixes_that_are_refused(value: object, rule: str) -> None:
    """Section 3, *prefix*, and W7: a folder named as a file of the top level would keep that file out for ever."""
    with pytest.raises(InvalidValue, match=rule):
        check_prefix(value)


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "a/b/c.json",
        ".hidden",
        "..a",
        "a..",
        "...",
        "with space",
        " ",
        "tab\tand\nline",
        "\x01\x7f",
        "été/数据.bin",
        "😀",
        "~user",
        "C:",
        "runs.json",
        ".gitignore",
        ".gitattributes",
        "x.git",
        ".Cache",
        "s" * 255,
        "é" * 127,
        "/".join(["s" * 255] * 15),
    ],
)
def test_relative_paths_that_are_taken(value: str) -> None:
    """Section 3, *relative path*: leading dots, spaces, control characters and any script are allowed."""
    assert check_relative_path(value) == value


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", "non-empty text"),
        ("a\\b", "backslash"),
        ("a\0b", "NUL"),
        ("/a", "must be relative"),
        ("//a", "must be relative"),
        ("a//b", "must be relative"),
        ("a/", "must be relative"),
        ("/", "must be relative"),
        (".", "must be relative"),
        ("..", "must be relative"),
        ("./a", "must be relative"),
        ("a/./b", "must be relative"),
        ("a/../b", "must be relative"),
        ("a/..", "must be relative"),
        (".git", "repository refuses"),
        ("a/.git/config", "repository refuses"),
        ("a/.GIT", "repository refuses"),
        (".Git/x", "repository refuses"),
        (".cache", "repository refuses"),
        ("a/.cache/b", "repository refuses"),
        ("s" * 256, "limit is 255"),
        ("é" * 128, "limit is 255"),
        ("a/" * 2100 + "a", "4095 bytes, the limit"),
        ("bad-\ud800", "not valid Unicode"),
        ("latin-\udce9", "not valid Unicode"),
        *((value, "non-empty text") for value in NO_TEXTS),
    ],
)
def test_relative_paths_that_are_refused(value: object, rule: str) -> None:
    """Section 3, *relative path*, and W7: what git or the Hub's client refuses is refused before it is queued."""
    with pytest.raises(InvalidValue, match=rule) as refusal:
        check_relative_path(value)
    assert str(refusal.value).startswith("relative_path ")


@pytest.mark.parametrize("value", ["a/b", "a/", "", "..", ".git", "a\\b"])
def test_a_file_name_is_a_relative_path_of_one_part(value: str) -> None:
    """Section 3, *file name*: no slash, and every rule of a relative path."""
    assert check_file_name("data set.h5") == "data set.h5"
    with pytest.raises(InvalidValue, match=r"^name "):
        check_file_name(value)


def test_a_whole_path_is_bounded() -> None:
    """A path of 4095 bytes is taken, one of 4096 is refused with the limit."""
    assert check_target("a" * MAX_PATH_BYTES)
    with pytest.raises(InvalidValue, match=r"has 4096 bytes in the repository; the limit is 4095"):
        check_target("é" * (MAX_PATH_BYTES // 2) + "aa")


@pytest.mark.parametrize("paths", [["a", "a/b"], ["x/a/b/c", "x/a"], ["a", "ab", "a-b", "a/b/c"]])
def test_no_path_is_the_folder_of_another(paths: list[str]) -> None:
    """W7: a name cannot be a file and a folder in one commit, in whichever order they come."""
    for given in (paths, paths[::-1]):
        with pytest.raises(InvalidValue, match="as a file and as the folder of"):
            check_no_folder(given)
    check_no_folder(["a", "ab/c", "a.b", "b/a"])


def test_subclasses_of_text_become_plain() -> None:
    """Texts of other libraries are taken as their content, which every serializer understands."""

    class Word(StrEnum):
        VALUE = "a"

    for checked in (
        check_identifier(Word.VALUE, name="run_id"),
        check_role(Word.VALUE),
        check_prefix(Word.VALUE),
        check_relative_path(Word.VALUE),
        check_file_name(Word.VALUE),
    ):
        assert type(checked) is str
        assert checked == "a"


def test_messages_show_any_value_shortened() -> None:
    """A refused value is shown in at most about 200 characters, also where its own `repr` fails."""

    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    assert shown("a'b") == '"a\'b"'
    assert len(shown("x" * 10_000_000)) < 210
    assert len(shown(list(range(1000)))) < 210
    assert shown(10**5000) == "a value of type int"
    assert shown(Silent()) == "a value of type Silent"
