"""What the table of windows shows of a window finds it, and numbers are found as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sfapp.model.search_words import MOST_WORDS, is_found, search_words
from sfapp.store import Store, WindowQuery
from sfapp.views.window_list_rows import window_row

SAMPLE = Path(__file__).parent.parent.parent / "sample_data" / "packets"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.open([SAMPLE], memory=True) as store:
        store.ingest()
        yield store


def numbers(store: Store, text: str, run: str | None = "gpt-small-ddp") -> set[int]:
    found = store.windows(WindowQuery(run=run, text=text, limit=1000)).rows
    return {row["window"] for row in found}


def visible(row: Mapping[str, Any]) -> Iterator[str]:
    """Texts of a row of the table."""
    shown = window_row(row)
    yield row["run_id"]
    for name in ("name", "aim", "persistence", "severity", "time", "change", "imbalance", "top", "steps"):
        yield shown[name]
    yield from shown["spread"].split(" / ")
    yield from shown["routing"].split(" + ")
    yield from shown["labels"]
    if row["leader_rank"] is not None:
        yield from shown["leader"].split(", ")


def test_every_text_of_every_row_finds_its_window(store: Store) -> None:
    shown: dict[tuple[str, str], set[int]] = {}
    for row in store.windows(WindowQuery(limit=1000)).rows:
        for text in visible(row):
            if text and text != "n/a":
                shown.setdefault((row["run_id"], text), set()).add(row["window"])
    lost = {
        (run, text): missed
        for (run, text), windows in shown.items()
        if (missed := windows - numbers(store, text, run))
    }
    assert lost == {}


def test_a_rank_is_found_by_its_number_and_no_other_rank_is(store: Store) -> None:
    assert numbers(store, "rank 3 data") <= numbers(store, "rank 3")
    for row in store.windows(WindowQuery(run="gpt-small-ddp", text="rank 3", limit=1000)).rows:
        assert 3 in (row["aim_rank"], row["leader_rank"], *(row["missing_ranks"] or ()))
    assert numbers(store, "window 1") == {1}


def test_words_may_stand_in_any_order_and_all_must_be_there(store: Store) -> None:
    assert numbers(store, "RANK 3 Callbacks") == numbers(store, "callbacks rank 3") != set()
    assert numbers(store, "callbacks nonsense") == set()


@pytest.mark.parametrize(
    "text", ["'; DROP TABLE windows; --", "100%_", "\\", "(", "[a", "*", "a" * 5000, "~", "rank ~"]
)
def test_any_text_can_be_searched(store: Store, text: str) -> None:
    assert isinstance(numbers(store, text), set)


def test_only_some_words_count() -> None:
    assert len(search_words("a " * 100)) == MOST_WORDS


@pytest.mark.parametrize(
    ("text", "shown", "finds"),
    [
        ("3", "rank 37", False),
        ("3", "0.3 ms", False),
        ("3", "rank 3 (node-1)", True),
        ("rank 3", "Ranks 3–5 are late", True),
        ("rank 3", "window 3, rank 5", False),
        ("150", "150.3 ms", True),
        ("node-1", "node-10", False),
        ("fault", "a default", True),
    ],
)
def test_numbers_are_whole_and_words_may_be_parts(text: str, shown: str, finds: bool) -> None:
    assert is_found(search_words(text), shown) is finds
