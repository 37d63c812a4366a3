"""Object ids are git's own (hub API notes section 13). The expected tree ids were written by git itself."""

import hashlib

import pytest

from conveyor.runtime.localhub import gitids


def test_blob_id_is_that_of_the_notes() -> None:
    """The 13 bytes of the example give the id of the example."""
    assert gitids.blob_id(b"Hello, World!") == "b45ef6fec89518d314f546fd6c3025367b721684"


def test_an_lfs_file_is_its_pointer_to_git() -> None:
    """A pointer has three lines, each ended by a newline."""
    digest = hashlib.sha256(b"x").hexdigest()
    expected = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 1\n"
    assert gitids.pointer_text(digest, 1) == expected.encode()


def test_tree_ids_are_those_of_git() -> None:
    """Folders sort as if their names ended with a slash: ``a.c`` comes before ``a``."""
    texts = {"a/b/x": b"hi\n", "a.c/z": b"yo\n", "a/q": b"q\n", "r": b"r\n"}
    found = gitids.tree_ids({path: gitids.blob_id(text) for path, text in texts.items()})
    assert found[""] == "b97f0f4753dbfe3e77d2d59e98f7cd915b55dd94"
    assert sorted(found) == ["", "a", "a.c", "a/b"]


def test_an_empty_tree_has_the_well_known_id() -> None:
    """No file at all is still a tree."""
    assert gitids.tree_ids({})[""] == gitids.EMPTY_TREE_ID


@pytest.mark.parametrize("changed", ["tree", "parents", "author", "time_unix_ms", "title", "description"])
def test_a_commit_id_depends_on_all_it_holds(changed: str) -> None:
    """Two commits that differ in anything have different ids."""

    def commit_id(*, differ: bool) -> str:
        values = {"tree": "a" * 40, "author": "u", "title": "t", "description": "d"}
        time_unix_ms, parents = 1_000, ["b" * 40]
        if differ and changed in values:
            values[changed] = "c" * 40
        if differ and changed == "time_unix_ms":
            time_unix_ms = 2_000
        if differ and changed == "parents":
            parents = []
        return gitids.commit_id(**values, time_unix_ms=time_unix_ms, parents=parents)

    assert commit_id(differ=False) != commit_id(differ=True)
