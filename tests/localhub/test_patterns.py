"""``.gitattributes`` and ``.gitignore`` decide as git decides (hub API notes section 4)."""

import pytest

from conveyor.runtime.localhub.patterns import default_gitattributes, ignored, lfs_by_attributes

DATASET = default_gitattributes("dataset").decode()
MODEL = default_gitattributes("model").decode()


@pytest.mark.parametrize(
    ("path", "lfs"),
    [
        ("x.bin", True),
        ("deep/er/x.parquet", True),
        ("weights.h5", True),
        ("a/b/saved_model/x", False),
        ("saved_model/x", True),
        ("saved_model/variables/deep/x", True),
        ("run.tfevents.123", True),
        ("x.tar.gz", True),
        ("photo.png", True),
        ("metrics.json", False),
        ("bin", False),
        ("x.bin/readme.md", False),
        (".gitattributes", False),
    ],
)
def test_default_attributes_of_a_dataset(path: str, lfs: bool) -> None:
    """Names decide, at any depth; a folder's name does not decide for its files."""
    assert lfs_by_attributes(DATASET, path) is lfs


def test_media_names_are_lfs_in_datasets_alone() -> None:
    """A model repository is born with the shorter list."""
    assert lfs_by_attributes(DATASET, "a.png")
    assert not lfs_by_attributes(MODEL, "a.png")


def test_the_last_matching_line_decides() -> None:
    """A later line may take a file out of LFS again."""
    text = "# all\n*.dat filter=lfs -text\nsmall/*.dat -filter\nsmall/*/*.dat !filter\n"
    assert lfs_by_attributes(text, "big/x.dat")
    assert not lfs_by_attributes(text, "small/x.dat")
    assert not lfs_by_attributes(text, "small/y/x.dat")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.log", "a/b/x.log", True),
        ("/x.log", "x.log", True),
        ("/x.log", "a/x.log", False),
        ("logs/", "logs/x", True),
        ("logs/", "a/logs/x", True),
        ("logs/", "logs", False),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("**/z", "a/b/z", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/*", "a/b/c", True),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("\\#x", "#x", True),
        ("#x", "#x", False),
        ("*.tmp\n!keep.tmp", "keep.tmp", False),
        ("out/\n!out/keep.tmp", "out/keep.tmp", True),
        ("a.c", "abc", False),
    ],
)
def test_gitignore(pattern: str, path: str, expected: bool) -> None:
    """Anchors, folders, stars, classes, escapes, comments and negation."""
    assert ignored(pattern, path) is expected
