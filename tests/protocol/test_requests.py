"""What a build hands over and the rules on it (hand-over protocol, sections 4.1 and 4.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any

import pytest

from conveyor.protocol.requests import (
    MAX_ENTRY_DEPTH,
    BundleFile,
    HandOverRefused,
    RefusalCode,
    RunFile,
    StageDatasetBundle,
    StageRunFiles,
    check_bundle,
    check_run_files,
)

SHA = "0" * 64
RUN = StageRunFiles("acme/staging", "run-1", (RunFile("a.json", "/tmp/a.json"),))
OUTPUT = BundleFile("d.h5", "dataset", "/tmp/d.h5", SHA, 3)
INVENTORY = BundleFile("m.json", "staged_manifest", "/tmp/m.json", SHA, 2)
BUNDLE = StageDatasetBundle("acme/private", "run-1", (OUTPUT, INVENTORY))


def refusal_of_run(**changes: Any) -> HandOverRefused:
    """The refusal of a run-file hand-over with these changes."""
    with pytest.raises(HandOverRefused) as refusal:
        check_run_files(replace(RUN, **changes))
    return refusal.value


def refusal_of_bundle(**changes: Any) -> HandOverRefused:
    """The refusal of a bundle with these changes."""
    with pytest.raises(HandOverRefused) as refusal:
        check_bundle(replace(BUNDLE, **changes))
    return refusal.value


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_targets_and_their_order() -> None:
    """Section 4.1: files go below `<prefix>/<run_id>/`, in the order given; the pointer is last, at the top level."""
    request = replace(
        RUN,
        files=(RunFile("z", "/t/z"), RunFile("b/a", PurePosixPath("/t/a"))),
        latest_pointer=Path("/t/p"),
        prefix="x/y",
    )
    checked = check_run_files(request)
    assert checked.sources == (("x/y/run-1/z", "/t/z"), ("x/y/run-1/b/a", "/t/a"), ("latest_staging.json", "/t/p"))
    assert (checked.flush, checked.commit_interval_s, checked.index_entry_text) == (False, 30.0, None)


def test_nothing_to_hand_over_is_valid() -> None:
    """Section 4.1: without file, pointer and entry a hand-over only hastens what the run has pending."""
    checked = check_run_files(replace(RUN, files=(), flush=True))
    assert checked.sources == ()
    assert checked.flush


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"repository": "acme"}, "repository"),
        ({"repository": None}, "repository"),
        ({"run_id": ""}, "run_id"),
        ({"run_id": 7}, "run_id"),
        ({"prefix": "releases"}, "prefix"),
        ({"prefix": ""}, "prefix"),
        ({"flush": 1}, "flush"),
        ({"flush": None}, "flush"),
        ({"flush": "yes"}, "flush"),
        ({"files": None}, "files"),
        ({"files": "abc"}, "files"),
        ({"files": [("a", "/a")]}, "files"),
        ({"files": [{"relative_path": "a", "local_path": "/a"}]}, "files"),
        ({"files": [RunFile("../a", "/a")]}, "relative_path"),
        ({"files": [RunFile("a", "a")]}, "local_path"),
        ({"files": [RunFile("a" * 250 + "/" + "b/" * 1900 + "c", "/a")], "prefix": "p" * 120}, "the path"),
        ({"latest_pointer": ""}, "latest_pointer"),
        ({"latest_pointer": "p.json"}, "latest_pointer"),
        ({"latest_pointer": 3}, "latest_pointer"),
        ({"files": [RunFile("a", "/1"), RunFile("a", "/2")]}, "same target"),
        ({"files": [RunFile("a", "/1"), RunFile("a/b", "/2")]}, "as a file and as the folder of"),
        ({"run_index_entry": []}, "run_index_entry must be an object"),
        ({"run_index_entry": "run-1"}, "run_index_entry must be an object"),
        ({"run_index_entry": {}}, "run_index_entry must have the run_id"),
        ({"run_index_entry": {"run_id": "run-2"}}, "run_index_entry must have the run_id"),
        ({"run_index_entry": {"run_id": "run-1", "at": {1, 2}}}, "run_index_entry must be made of JSON"),
        ({"run_index_entry": {"run_id": "run-1", "n": 10**5000}}, "run_index_entry must be made of JSON"),
        ({"run_index_entry": {"run_id": "run-1", ("a",): 1}}, "run_index_entry must be made of JSON"),
    ],
)
def test_each_rule_of_run_files(changes: dict[str, Any], field: str) -> None:
    """Section 4.1: a broken rule is `INVALID_REQUEST`, and the message begins with or names the field and its rule."""
    refusal = refusal_of_run(**changes)
    assert refusal.refusal_code is RefusalCode.INVALID_REQUEST
    assert field in str(refusal)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.1,
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        False,
        "30",
        1j,
        pytest.param(10**400, id="400 digits"),
        pytest.param(10**5000, id="5000 digits"),
    ],
)
def test_intervals_that_are_refused(value: object) -> None:
    """Section 4.1: the interval is a finite number of seconds, 0 or more, and no boolean."""
    refusal = refusal_of_run(commit_interval_s=value)
    assert "commit_interval_seconds must be a finite number of seconds, 0 or more" in str(refusal)


@pytest.mark.parametrize("value", [0, 0.0, 30, 0.5, pytest.param(10**300, id="300 digits")])
def test_intervals_that_are_taken(value: float) -> None:
    """Section 4.1: any other number is taken, whole ones too."""
    checked = check_run_files(replace(RUN, commit_interval_s=value))
    assert checked.commit_interval_s == float(value)
    assert type(checked.commit_interval_s) is float


def test_the_checks_of_run_files_come_in_order() -> None:
    """Section 4.1: of several broken rules the first one speaks, in the order that the protocol names."""
    broken: list[tuple[str, dict[str, Any]]] = [
        ("repository", {"repository": "bad"}),
        ("run_id", {"run_id": "bad id"}),
        ("each part of prefix", {"prefix": "bad prefix"}),
        ("flush", {"flush": None}),
        ("commit_interval_seconds", {"commit_interval_s": -1}),
        ("relative_path", {"files": [RunFile("a", "/1"), RunFile("a", "/1"), RunFile("/bad", "/1")]}),
        ("latest_pointer", {"latest_pointer": "bad"}),
        ("two files have the same target", {"files": [RunFile("a", "/1"), RunFile("a", "/1")], "latest_pointer": None}),
        ("run_index_entry", {"run_index_entry": 1, "files": ()}),
    ]
    for at, (first_word, _) in enumerate(broken):
        changes: dict[str, Any] = {}
        for _, later in reversed(broken[at:]):
            changes |= later
        assert str(refusal_of_run(**changes)).startswith(first_word)


def test_the_entry_keeps_its_key_order() -> None:
    """Section 5.3: an entry is kept as JSON text in the build's key order, whatever kind of mapping it is."""
    entry: Mapping[str, Any] = {"z": [1, {"y": None, "b": "é"}], "run_id": "run-1", "a": 1.5}
    for given in (entry, MappingProxyType(entry)):
        text = check_run_files(replace(RUN, run_index_entry=given)).index_entry_text
        assert text == '{"z": [1, {"y": null, "b": "\\u00e9"}], "run_id": "run-1", "a": 1.5}'


def test_an_entry_may_hold_numbers_that_json_cannot_express() -> None:
    """Section 5.5: non-finite numbers are no reason to refuse; they become null when the index is written."""
    text = check_run_files(replace(RUN, run_index_entry={"run_id": "run-1", "loss": float("nan")})).index_entry_text
    assert text == '{"run_id": "run-1", "loss": NaN}'


def test_entries_have_a_bounded_depth() -> None:
    """W2: an entry that nests deeper than the limit is refused, so that it cannot hold up the index of all runs."""
    deepest = {"run_id": "run-1", "text": "]" * 500 + '\\"[' * 500, "x": nested(MAX_ENTRY_DEPTH - 1)}
    assert check_run_files(replace(RUN, run_index_entry=deepest)).index_entry_text == json.dumps(deepest)
    refusal = refusal_of_run(run_index_entry={"run_id": "run-1", "x": nested(MAX_ENTRY_DEPTH)})
    assert str(refusal) == "run_index_entry nests 101 levels deep; the limit is 100"
    assert "run_index_entry" in str(refusal_of_run(run_index_entry={"run_id": "run-1", "x": nested(100_000)}))


@pytest.mark.parametrize("path", ["/a", "/a/../b", "/a b/é\n", PurePosixPath("/a"), Path("/a"), "/latin-\udce9"])
def test_local_paths_that_are_taken(path: Any) -> None:
    """Section 3, *local path*: any absolute path, also one whose name is not UTF-8."""
    checked = check_run_files(replace(RUN, files=(RunFile("a", path),)))
    assert checked.sources == (("runs/run-1/a", str(path)),)


@pytest.mark.parametrize("path", ["", "a", "./a", "~/a", "/a\0b", b"/a", None, 1, PureWindowsPath("C:/a"), "/\ud800"])
def test_local_paths_that_are_refused(path: Any) -> None:
    """Section 3, *local path*: empty, relative, or no path of this system."""
    refusal = refusal_of_run(files=[RunFile("a", path)])
    assert refusal.refusal_code is RefusalCode.INVALID_REQUEST
    assert str(refusal).startswith("local_path ")


def test_any_object_that_names_a_file_is_a_local_path() -> None:
    """Paths of other libraries are taken as the standard library takes them; one that gives bytes is refused."""

    class Named:
        def __init__(self, name: Any) -> None:
            self.name = name

        def __fspath__(self) -> Any:
            return self.name

    checked = check_run_files(replace(RUN, files=(RunFile("a", Named("/x/y")),)))
    assert checked.sources == (("runs/run-1/a", "/x/y"),)
    assert str(refusal_of_run(files=[RunFile("a", Named(b"/x/y"))])).startswith("local_path must be an absolute path")


def test_a_bundle_in_its_parts() -> None:
    """Section 4.4: the folder, the one inventory, and the outputs, which are the files of no sidecar role."""
    sums = BundleFile("sums", "checksums", PurePosixPath("/tmp/sums"), SHA, 0)
    build = BundleFile("build.json", "build_manifest", "/tmp/build.json", SHA, 0)
    checked = check_bundle(replace(BUNDLE, files=(sums, OUTPUT, INVENTORY, build), commit_message=" Étape 1\n\nmore "))
    assert checked.folder == "staged/run-1"
    assert checked.inventory == INVENTORY
    assert checked.outputs == (OUTPUT,)
    assert [file.name for file in checked.files] == ["sums", "d.h5", "m.json", "build.json"]
    assert checked.files[0].local_path == "/tmp/sums"
    assert checked.commit_message == " Étape 1\n\nmore "


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repository": "x"}, "repository"),
        ({"run_id": "/"}, "run_id"),
        ({"prefix": "releases/x"}, "prefix"),
        ({"commit_message": ""}, "commit_message"),
        ({"commit_message": " \n\t"}, "commit_message"),
        ({"commit_message": 5}, "commit_message"),
        ({"commit_message": "bad \ud800"}, "commit_message"),
        ({"files": ()}, "exactly one file of role 'staged_manifest', not 0"),
        ({"files": (OUTPUT,)}, "exactly one file of role 'staged_manifest', not 0"),
        (
            {"files": (OUTPUT, INVENTORY, replace(INVENTORY, name="n"))},
            "exactly one file of role 'staged_manifest', not 2",
        ),
        ({"files": (INVENTORY,)}, "at least one output"),
        ({"files": (INVENTORY, replace(OUTPUT, role="checksums"))}, "at least one output"),
        ({"files": (OUTPUT, INVENTORY, OUTPUT)}, "used twice: 'd.h5'"),
        (
            {"files": [OUTPUT, INVENTORY, *(replace(OUTPUT, name=name, role="checksums") for name in "ab")]},
            "at most one file of role 'checksums', not 2",
        ),
        (
            {"files": [OUTPUT, INVENTORY, *(replace(OUTPUT, name=name, role="build_manifest") for name in "ab")]},
            "at most one file of role 'build_manifest', not 2",
        ),
        ({"files": None}, "files must be a sequence of BundleFile"),
        ({"files": [OUTPUT, "m.json"]}, "files must be a sequence of BundleFile"),
    ],
)
def test_each_rule_of_bundles(changes: dict[str, Any], words: str) -> None:
    """Section 4.4: a broken rule is `INVALID_REQUEST`, and the message names the field and the rule."""
    refusal = refusal_of_bundle(**changes)
    assert refusal.refusal_code is RefusalCode.INVALID_REQUEST
    assert words in str(refusal)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "a/b"}, "name 'a/b' must be a file name"),
        ({"name": ".git"}, "name '.git'"),
        ({"name": None}, "name must be"),
        ({"role": "Data"}, "role of 'd.h5'"),
        ({"local_path": "d.h5"}, "local_path of 'd.h5'"),
        ({"sha256": "0" * 63}, "sha256 of 'd.h5'"),
        ({"sha256": "A" * 64}, "sha256 of 'd.h5'"),
        ({"sha256": SHA + "\n"}, "sha256 of 'd.h5'"),
        ({"sha256": None}, "sha256 of 'd.h5'"),
        ({"size_bytes": -1}, "size of 'd.h5'"),
        ({"size_bytes": True}, "size of 'd.h5'"),
        ({"size_bytes": 3.0}, "size of 'd.h5'"),
        ({"size_bytes": "3"}, "size of 'd.h5'"),
        ({"size_bytes": None}, "size of 'd.h5'"),
        ({"size_bytes": 2**63}, "size of 'd.h5'"),
        ({"size_bytes": 10**5000}, "size of 'd.h5'"),
    ],
)
def test_each_rule_of_a_bundle_file(changes: dict[str, Any], words: str) -> None:
    """Section 4.4: the message names the file as well as the rule."""
    refusal = refusal_of_bundle(files=(replace(OUTPUT, **changes), INVENTORY))
    assert refusal.refusal_code is RefusalCode.INVALID_REQUEST
    assert words in str(refusal)


@pytest.mark.slow
def test_two_equal_names_of_many_files() -> None:
    """Section 4.4: duplicate names are found among ten thousand files without a noticeable wait."""
    many = [replace(OUTPUT, name=f"f{number}") for number in range(10_000)]
    assert len(check_bundle(replace(BUNDLE, files=(*many, INVENTORY))).files) == 10_001
    assert "used twice: 'f7'" in str(refusal_of_bundle(files=[*many, INVENTORY, many[7]]))


def test_a_hand_over_without_an_interval_has_the_runtimes_own() -> None:
    """None is the interval of whoever takes the hand-over, and a number is stronger."""
    assert check_run_files(RUN, interval_s=300.0).commit_interval_s == 300.0
    assert check_run_files(replace(RUN, commit_interval_s=5), interval_s=300.0).commit_interval_s == 5.0
