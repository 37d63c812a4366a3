"""Which requests a fault rule takes: by what they are, by number, by seeded dice; and how scripts are refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from conveyor.runtime.localhub import FaultScriptInvalid
from conveyor.runtime.localhub.faults import Faults, RequestFacts, load_fault_script, parse_fault_script

DROP = {"do": "drop_before"}


def facts(kind: str = "commit", **more: Any) -> RequestFacts:
    """A commit to ``a/b`` on main that names two paths."""
    values: dict[str, Any] = {"method": "POST", "repo": "a/b", "revision": "main", "paths": ("x.bin", "d/y.txt")}
    return RequestFacts(kind=kind, **{**values, **more})


def fires(rules: list[dict[str, Any]], requests: list[RequestFacts], seed: int = 0) -> list[list[str]]:
    """Names of the rules that fire for each request in turn."""
    script = {"seed": seed, "rules": [{"name": f"r{n}", "action": DROP, **rule} for n, rule in enumerate(rules)]}
    faults = Faults()
    faults.install(parse_fault_script(msgspec.json.encode(script), source="test"))
    return [[rule.name for rule in faults.select(request)] for request in requests]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({}, True),
        ({"kind": "commit"}, True),
        ({"kind": ["tree", "commit"]}, True),
        ({"kind": "tree"}, False),
        ({"method": "post"}, True),
        ({"method": "GET"}, False),
        ({"repo": "a/*"}, True),
        ({"repo": "b/*"}, False),
        ({"revision": "main"}, True),
        ({"revision": "side"}, False),
        ({"path": "*.bin"}, True),
        ({"path": "d/*"}, True),
        ({"path": "*.csv"}, False),
        ({"kind": "commit", "repo": "a/b", "path": "*.csv"}, False),
    ],
)
def test_all_fields_given_must_fit(match: dict[str, Any], expected: bool) -> None:
    """Globs for names; any of the request's paths may fit."""
    assert fires([{"match": match}], [facts()]) == [["r0"] if expected else []]


@pytest.mark.parametrize(
    ("match", "times", "expected"),
    [
        ({"nth": 2}, None, "-x---"),
        ({"nth": [1, 4]}, None, "x--x-"),
        ({"every": 2}, None, "-x-x-"),
        ({"after": 2}, None, "--xxx"),
        ({"after": 1, "nth": 1}, None, "-x---"),
        ({}, 2, "xx---"),
        ({"after": 1, "every": 2}, 1, "--x--"),
        ({"probability": 0.0}, None, "-----"),
        ({"probability": 1.0}, None, "xxxxx"),
    ],
)
def test_numbers_count_the_requests_that_fit(match: dict[str, Any], times: int | None, expected: str) -> None:
    """Requests of another kind in between do not count."""
    requests = [request for _ in range(5) for request in (facts(), facts("tree"))]
    found = fires([{"match": {"kind": "commit", **match}, "times": times}], requests)
    assert "".join("x" if names else "-" for names in found[::2]) == expected
    assert not any(found[1::2])


def test_dice_are_seeded_and_one_for_each_rule() -> None:
    """The same seed replays the same sequence; another seed, or another rule, has its own."""
    rules: list[dict[str, Any]] = [{"match": {"probability": 0.5}}, {"match": {"probability": 0.5}}]
    requests = [facts()] * 40
    first = fires(rules, requests, seed=3)
    assert first == fires(rules, requests, seed=3)
    assert first != fires(rules, requests, seed=4)
    assert [names == ["r0", "r1"] or names == [] for names in first] != [True] * 40
    assert [row == ["r0"] for row in fires(rules[:1], requests, seed=3)] == ["r0" in row for row in first]


def test_counters_tell_seen_and_fired() -> None:
    """A test can assert that its fault happened; installing a rule again starts it afresh."""
    faults = Faults()
    script = parse_fault_script(b'[{"name":"a","action":{"do":"drop_before"},"match":{"every":2}}]', source="test")
    faults.install(script)
    for _ in range(5):
        faults.select(facts())
    (row,) = faults.state()["rules"]
    assert (row["name"], row["seen"], row["fired"], row["action"]) == ("a", 5, 2, DROP)
    faults.install(script)
    assert faults.state()["rules"][0]["seen"] == 0
    faults.clear()
    assert faults.state()["rules"] == []


def test_replace_drops_the_rules_before() -> None:
    """Without it a script adds."""
    faults = Faults()
    for name, replace in (("a", "false"), ("b", "false"), ("c", "true")):
        text = f'{{"rules":[{{"name":"{name}","action":{{"do":"drop_before"}}}}],"replace":{replace}}}'
        faults.install(parse_fault_script(text.encode(), source="test"))
    assert [row["name"] for row in faults.state()["rules"]] == ["c"]


def test_scripts_are_json_or_toml(tmp_path: Path) -> None:
    """Both say the same."""
    toml = """
    seed = 7
    [[rules]]
    name = "lost"
    times = 1
    match = { kind = "commit", nth = [2, 3] }
    action = [{ do = "delay", before_s = 0.5 }, { do = "land_then_drop" }]
    """
    json = """{"seed": 7, "rules": [{"name": "lost", "times": 1, "match": {"kind": "commit", "nth": [2, 3]},
      "action": [{"do": "delay", "before_s": 0.5}, {"do": "land_then_drop"}]}]}"""
    (tmp_path / "f.toml").write_text(toml)
    (tmp_path / "f.json").write_text(json)
    assert load_fault_script(tmp_path / "f.toml") == load_fault_script(tmp_path / "f.json")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "truncated"),
        ('[{"name":"a"}]', "action"),
        ('[{"name":"a","action":{"do":"explode"}}]', "explode"),
        ('[{"name":"a","action":{"do":"status"}}]', "status"),
        ('[{"name":"a","action":{"do":"status","status":200}}]', "400"),
        ('[{"name":"a","action":{"do":"drop_before","typo":1}}]', "typo"),
        ('[{"name":"a","action":{"do":"drop_before"},"match":{"kind":"comments"}}]', "comments"),
        ('[{"name":"a","action":{"do":"drop_before"},"match":{"kind":"control"}}]', "control"),
        ('[{"name":"a","action":{"do":"drop_before"},"match":{"probability":2}}]', "probability"),
        ('[{"name":"a","action":{"do":"drop_before"},"match":{"nth":0}}]', "nth"),
    ],
)
def test_a_bad_script_is_refused_with_the_field(tmp_path: Path, text: str, word: str) -> None:
    """A typing mistake is never a rule that silently takes everything or nothing."""
    path = tmp_path / "faults.json"
    path.write_text(text)
    with pytest.raises(FaultScriptInvalid, match=word) as caught:
        load_fault_script(path)
    assert "faults.json" in str(caught.value)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    """With the next step."""
    with pytest.raises(FaultScriptInvalid, match=r"none\.toml cannot be read: No such file.* Name an existing"):
        load_fault_script(tmp_path / "none.toml")
