"""The merge of run entries into `runs.json` (hand-over protocol, section 5.5; findings W1 and W2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor.protocol.errors import LocalProtocolError
from conveyor.protocol.run_index import RunIndexUnreadable, merge_run_index
from conveyor.protocol.work import PendingEntry

GOLDEN = b"""{
 "schema_version": 1,
 "updated_at": "1970-01-12T13:46:40+00:00",
 "runs": [
  {
   "run_id": "r1"
  }
 ]
}"""


def entry(run_id: str, **values: Any) -> PendingEntry:
    """A pending entry, its `run_id` last."""
    return PendingEntry(run_id, json.dumps({**values, "run_id": run_id}))


def index(*runs: Any, **others: Any) -> bytes:
    """An old document."""
    return json.dumps({"runs": list(runs), **others}).encode()


def merged_runs(document: bytes | None, *entries: PendingEntry) -> list[Any]:
    """The runs after a merge."""
    runs: list[Any] = json.loads(merge_run_index(document, entries, now_unix_s=0))["runs"]
    return runs


def test_the_document_of_the_protocol() -> None:
    """Section 5.5: one new run in a repository without an index, to the byte."""
    assert merge_run_index(None, [PendingEntry("r1", '{"run_id": "r1"}')], now_unix_s=1_000_000.0) == GOLDEN


def test_every_form_of_value_to_the_byte() -> None:
    """Section 5.5: indent of one, empty lists closed at once, escapes, key order of the build, no newline."""
    text = (
        '{"z": [], "a": {}, "run_id": "r", "\\u00e9\\ud83d\\ude00": [1, 2.5, true, null, {"b": "\\ud800"}], "n": 1e-7}'
    )
    assert merge_run_index(None, [PendingEntry("r", text)], now_unix_s=0) == (
        b'{\n "schema_version": 1,\n "updated_at": "1970-01-01T00:00:00+00:00",\n "runs": [\n  {\n   "z": [],\n'
        b'   "a": {},\n   "run_id": "r",\n   "\\u00e9\\ud83d\\ude00": [\n    1,\n    2.5,\n    true,\n    null,\n'
        b"    {\n"
        b'     "b": "\\ud800"\n    }\n   ],\n   "n": 1e-07\n  }\n ]\n}'
    )


@pytest.mark.parametrize(
    ("now_unix_s", "text"),
    [
        (0.0, "1970-01-01T00:00:00+00:00"),
        (1_792_454_400.0, "2026-10-20T00:00:00+00:00"),
        (1_792_454_400.999_9, "2026-10-20T00:00:00+00:00"),
    ],
)
def test_the_time_is_in_whole_seconds(now_unix_s: float, text: str) -> None:
    """Section 5.5: the attempt's start in UTC, cut to seconds; without runs the list is closed at once."""
    expected = f'{{\n "schema_version": 1,\n "updated_at": "{text}",\n "runs": []\n}}'
    assert merge_run_index(None, [], now_unix_s=now_unix_s) == expected.encode()


def test_only_runs_of_the_old_document_are_kept() -> None:
    """Section 5.5: other top-level keys are dropped; of `runs` only objects with a truthy `run_id` stay, untouched."""
    kept: list[dict[str, Any]] = [
        {"run_id": 9, "x": {"y": [1.5, None]}},
        {"run_id": [1]},
        {"b": 1, "run_id": "é", "a": 2},
    ]
    dropped: list[Any] = [
        None,
        1,
        "run",
        [],
        {},
        {"run_id": ""},
        {"run_id": None},
        {"run_id": 0},
        {"run_id": False},
        {"id": "x"},
    ]
    document = index(*dropped[:5], *kept, *dropped[5:], schema_version=7, note="x")
    after = json.loads(merge_run_index(document, [], now_unix_s=0))
    assert list(after) == ["schema_version", "updated_at", "runs"]
    assert after["schema_version"] == 1
    assert sorted(map(json.dumps, after["runs"])) == sorted(map(json.dumps, kept))


def test_an_entry_replaces_its_run_whole() -> None:
    """Section 5.5: every run of that id is removed, the entry comes as it is; no field is merged."""
    document = index({"run_id": "a", "old": 1}, {"run_id": "b"}, {"run_id": "a", "older": 1}, {"run_id": 5})
    runs = merged_runs(document, entry("a", new=1), PendingEntry("5", '{"run_id": "5"}'))
    assert runs == [{"run_id": "b"}, {"new": 1, "run_id": "a"}, {"run_id": 5}, {"run_id": "5"}]


@pytest.mark.parametrize(
    ("document", "pending", "order"),
    [
        ([{"run_id": "a"}, {"run_id": "c"}, {"run_id": "b"}], [], "cba"),
        (
            [
                {"run_id": "a", "updated_at": "2026-01-02"},
                {"run_id": "b", "updated_at": "2026-01-03"},
                {"run_id": "c", "started_at": "2026-01-04"},
            ],
            [],
            "cba",
        ),
        (
            [
                {"run_id": "a", "updated_at": "9", "started_at": "1"},
                {"run_id": "b", "updated_at": "5", "started_at": "99"},
            ],
            [],
            "ab",
        ),
        ([{"run_id": "a", "updated_at": "", "started_at": None}, {"run_id": "b", "updated_at": 0}], [], "ba"),
        ([{"run_id": "a", "updated_at": "same"}, {"run_id": "b", "updated_at": "same"}], [], "ab"),
        ([{"run_id": "b", "updated_at": "same"}, {"run_id": "a", "updated_at": "same"}], [], "ba"),
        ([{"run_id": "a", "updated_at": 10}, {"run_id": "b", "updated_at": 9}], [], "ba"),
        (
            [
                {"run_id": "a", "updated_at": True},
                {"run_id": "b", "updated_at": "Trud"},
                {"run_id": "c", "updated_at": "S"},
            ],
            [],
            "abc",
        ),
        ([{"run_id": "a", "updated_at": [2]}, {"run_id": "b", "updated_at": {"x": 1}}], [], "ba"),
        (
            [{"run_id": "a", "updated_at": float("nan"), "started_at": "1"}, {"run_id": "b", "started_at": "2"}],
            [],
            "ba",
        ),
        ([{"run_id": "x", "updated_at": "t"}], [entry("z", updated_at="t"), entry("y", updated_at="t")], "xyz"),
        ([{"run_id": "y", "updated_at": "t"}, {"run_id": "x", "updated_at": "t"}], [entry("y", updated_at="t")], "xy"),
    ],
)
def test_the_order_of_runs(document: list[Any], pending: list[PendingEntry], order: str) -> None:
    """Section 5.5: stable, descending, by the text of the first truthy of `updated_at`, `started_at`, `run_id`."""
    assert [run["run_id"] for run in merged_runs(index(*document), *pending)] == list(order)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_numbers_that_json_cannot_express_become_null(number: str) -> None:
    """Section 5.5: non-finite numbers become null, in the old document and in entries."""
    document = f'{{"runs": [{{"run_id": "old", "loss": [{number}, 1.5]}}]}}'.encode()
    runs = merged_runs(document, PendingEntry("new", f'{{"run_id": "new", "loss": {{"x": {number}}}}}'))
    assert runs == [{"run_id": "old", "loss": [None, 1.5]}, {"run_id": "new", "loss": {"x": None}}]


def test_long_whole_numbers_stay_exact() -> None:
    """Whole numbers beyond 64 bits are kept digit by digit."""
    assert b" 123456789012345678901234567890" in merge_run_index(
        index({"run_id": "a", "n": 123456789012345678901234567890}), [], now_unix_s=0
    )


def test_of_two_equal_keys_in_a_run_the_last_counts() -> None:
    """A run with a doubled key is read as Python reads it, as other programs on this file do."""
    assert merged_runs(b'{"runs": [{"run_id": "a", "runs": 1, "x": 1, "x": 2, "runs": 3}]}') == [
        {"run_id": "a", "runs": 3, "x": 2}
    ]


def test_a_byte_order_mark_is_passed_over() -> None:
    """UTF-8 with its mark is still UTF-8."""
    assert merged_runs(b"\xef\xbb\xbf" + index({"run_id": "a"})) == [{"run_id": "a"}]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (b"", "is not JSON"),
        (b"  \n", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"runs": []} x', "is not JSON"),
        (b'{"runs": [],}', "is not JSON"),
        (b'{"runs": ["\n"]}', "is not JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", "is not JSON"),
        (b'{"runs": [{"run_id": "a", "n": ' + b"9" * 5000 + b"}]}", "is not JSON"),
        (b"null", "is no JSON object"),
        (b"[]", "is no JSON object"),
        (b'"runs"', "is no JSON object"),
        (b"7", "is no JSON object"),
        (b'[{"runs": []}]', "is no JSON object"),
        (b"{}", "has no list 'runs'"),
        (b'{"runs": null}', "has no list 'runs'"),
        (b'{"runs": {"a": 1}}', "has no list 'runs'"),
        (b'{"Runs": []}', "has no list 'runs'"),
        (b'{"runs": [{"run_id": "a"}], "runs": []}', "has more than one 'runs'"),
        (b"\xff\xfe{", "is not UTF-8"),
        (index({"run_id": "a"}).decode().encode("utf-16"), "is not UTF-8"),
        (b'{"runs": ["\xed\xa0\x80"]}', "is not UTF-8"),
        pytest.param(b"[" * 200_000, "is nested too deep", id="200000 deep"),
        pytest.param(b'{"runs": [' + b"[" * 5000 + b"]" * 5000 + b"]}", "is nested too deep", id="5000 deep"),
        pytest.param(
            b'{"runs": [{"run_id": ' + b"[" * 5000 + b"]" * 5000 + b"}]}", "is nested too deep", id="a run id 5000 deep"
        ),
    ],
)
def test_a_document_that_is_not_understood(document: bytes, what: str) -> None:
    """W1, W2: it is an error with a name, for the caller to leave the file as it is; nothing is made of it."""
    with pytest.raises(RunIndexUnreadable, match=f"runs.json at the top level of the repository {what}") as error:
        merge_run_index(document, [entry("r1")], now_unix_s=0)
    assert "it is left as it is. Repair it" in str(error.value)
    assert error.value.code == "RUN_INDEX_UNREADABLE"


@pytest.mark.parametrize("depth", [100, 300, 500, 700, 900, 950, 990])
def test_a_deep_document_is_merged_or_left_alone(depth: int) -> None:
    """W2: whatever this machine's recursion allows, the answer is the whole document or the typed error."""
    deep = "[" * depth + "]" * depth
    document = f'{{"runs": [{{"run_id": "a", "updated_at": {deep}}}]}}'.encode()
    try:
        after = merge_run_index(document, [entry("b")], now_unix_s=0)
    except RunIndexUnreadable:
        assert depth > 100
    else:
        assert after.count(b"[") == depth + 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"run_id": "other"}', "{}", "[" * 100_000])
def test_an_entry_that_is_none_is_the_callers_defect(text: str) -> None:
    """Entries are checked when they are handed over; a broken one here is no fault of the repository."""
    with pytest.raises(LocalProtocolError, match="entry of run 'r1' is not a JSON object"):
        merge_run_index(None, [PendingEntry("r1", text)], now_unix_s=0)


def test_two_entries_of_one_run_are_the_callers_defect() -> None:
    """A run has one pending entry, the newest."""
    with pytest.raises(LocalProtocolError, match="two entries of run 'r1'"):
        merge_run_index(None, [entry("r1"), entry("r1")], now_unix_s=0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
run_ids = st.sampled_from("abcdef")
some_runs = st.lists(
    st.builds(
        lambda run_id, rest: {**rest, "run_id": run_id},
        run_ids,
        st.dictionaries(st.sampled_from(["updated_at", "started_at", "x"]), json_values),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(
    some_runs, st.dictionaries(run_ids, st.dictionaries(st.sampled_from(["updated_at", "x"]), json_values), max_size=4)
)
def test_nothing_is_lost_and_a_second_merge_changes_nothing(
    old: list[dict[str, Any]], fresh: dict[str, dict[str, Any]]
) -> None:
    """N-HUB-10: runs without an entry all stay as they were, each entry is there once, and the merge is repeatable."""
    entries = [PendingEntry(run_id, json.dumps({**values, "run_id": run_id})) for run_id, values in fresh.items()]
    document = merge_run_index(index(*old), entries, now_unix_s=5)
    runs = json.loads(document)["runs"]
    expected = [run for run in old if run["run_id"] not in fresh] + [json.loads(one.text) for one in entries]
    assert sorted(map(json.dumps, runs)) == sorted(map(json.dumps, expected))
    assert merge_run_index(document, entries, now_unix_s=5).count(b'"run_id"') == document.count(b'"run_id"')
    assert merge_run_index(document, [], now_unix_s=5) == document
    assert document == json.dumps(json.loads(document), indent=1).encode()
