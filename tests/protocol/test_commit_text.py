"""Titles, bodies and delivery ids of commits (hand-over protocol, sections 5.5 and 5.6; hub API notes, section 12)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor.protocol.commit_text import (
    MAX_TITLE_CHARACTERS,
    bundle_title,
    bundles_title,
    commit_body,
    delivery_id,
    find_delivery_id,
    message_lines,
    run_files_title,
)

DELIVERY = "0123456789abcdef" * 2
ITEMS = [("runs/r/a", 1, "a" * 64), ("runs/r/b", 2, "b" * 64), ("runs/r/c", 0, "c" * 64)]


@pytest.mark.parametrize(
    ("run_ids", "title"),
    [
        (["r1"], "Stage run files for r1"),
        (["r2", "r1", "r2", "r10"], "Stage run files for r1, r10, r2"),
    ],
)
def test_titles_of_run_files(run_ids: list[str], title: str) -> None:
    """Section 5.5: the distinct run ids, sorted, joined with a comma and a space."""
    assert run_files_title(run_ids) == title


@pytest.mark.slow
@given(st.dictionaries(st.integers(0, 10**6), st.integers(0, 120), min_size=1, max_size=40))
def test_titles_have_a_bound(sizes: dict[int, int]) -> None:
    """W11: a title of many runs is shortened and tells how many are not shown; the names shown are the first."""
    run_ids = {f"{number}{'.' * more}" for number, more in sizes.items()}
    title = run_files_title(run_ids)
    assert len(title) <= MAX_TITLE_CHARACTERS
    names = sorted(run_ids)
    shortened = re.fullmatch(r"Stage run files for (.*) and (\d+) more", title)
    shown = (shortened[1] if shortened else title.removeprefix("Stage run files for ")).split(", ")
    assert shown == names[: len(shown)]
    assert len(shown) + (int(shortened[2]) if shortened else 0) == len(names)


def test_a_title_of_a_whole_sweep() -> None:
    """W11: 128 runs of one sweep."""
    title = run_files_title(f"sweep-job-{number:03}" for number in range(128))
    assert title.startswith("Stage run files for sweep-job-000, sweep-job-001, ")
    assert title.endswith(" and 117 more")
    assert bundles_title([f"r{number:03}" for number in range(3)]) == "Stage 3 bundles: r000, r001, r002"
    assert bundles_title([f"r{number:03}" for number in range(128)]).endswith(" more")


@pytest.mark.parametrize(
    ("message", "title", "lines"),
    [
        (None, "Stage r1 under staged/r1", ()),
        ("Étape 1", "Étape 1", ()),
        ("  Title  ", "Title", ()),
        ("\n\nTitle\r\n\r\nfirst\n\n second\n", "Title", ("first", "", " second")),
        ("Title\nline", "Title", ("line",)),
        (f"Title\nConveyor-Delivery: {DELIVERY}", "Title", (f" Conveyor-Delivery: {DELIVERY}",)),
    ],
)
def test_titles_of_bundles(message: str | None, title: str, lines: tuple[str, ...]) -> None:
    """Section 5.6: the build's message or the default; a title is one line, the other lines go into the body."""
    assert bundle_title("r1", "staged/r1", message) == title
    assert message_lines(message) == lines


@pytest.mark.parametrize(
    "lines", [(), ("one",), ("one", "", "two"), message_lines(f"t\nConveyor-Delivery: {'f' * 32}")]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_delivery_id_is_found_in_a_body(lines: tuple[str, ...], newline: str) -> None:
    """Hub API notes, section 12: what was written is found again, also where line ends were changed."""
    body = commit_body(DELIVERY, lines)
    assert body.splitlines()[-1] == f"Conveyor-Delivery: {DELIVERY}"
    assert find_delivery_id(body.replace("\n", newline)) == DELIVERY
    assert find_delivery_id(f"{body}\n\nCo-authored-by: someone") == DELIVERY


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Stage",
        DELIVERY,
        f"Conveyor-Delivery: {DELIVERY[:-1]}",
        f"Conveyor-Delivery: {DELIVERY}0",
        f"Conveyor-Delivery: {DELIVERY.upper()}",
        f" Conveyor-Delivery: {DELIVERY}",
        f"see Conveyor-Delivery: {DELIVERY}",
    ],
)
def test_other_commits_have_no_delivery_id(body: str) -> None:
    """Another program's commit is never taken for ours."""
    assert find_delivery_id(body) is None


@given(st.permutations(ITEMS))
def test_a_delivery_is_the_same_in_any_order(items: list[tuple[str, int, str]]) -> None:
    """N-HUB-15: what a commit carries makes its identity, not the order in which it was collected."""
    assert delivery_id("s" * 32, "a/b", items) == delivery_id("s" * 32, "a/b", iter(ITEMS))


def test_each_part_makes_another_delivery() -> None:
    """N-HUB-15: store, repository, path, version, content and the set of paths each make another identity."""
    (path, version, sha256), *rest = ITEMS
    identities = {
        delivery_id("s" * 32, "a/b", ITEMS),
        delivery_id("t" * 32, "a/b", ITEMS),
        delivery_id("s" * 32, "a/c", ITEMS),
        delivery_id("s" * 32, "a/b", [("runs/r/A", version, sha256), *rest]),
        delivery_id("s" * 32, "a/b", [(path, 7, sha256), *rest]),
        delivery_id("s" * 32, "a/b", [(path, version, "d" * 64), *rest]),
        delivery_id("s" * 32, "a/b", rest),
        delivery_id("s" * 32, "a/b", []),
    }
    assert len(identities) == 8
    assert all(re.fullmatch("[0-9a-f]{32}", identity) for identity in identities)
