"""A side of a comparison as text, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.model.sides import SideKey


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("train-7/12", SideKey("train-7", 12)),
        ("train-7", SideKey("train-7")),
        ("a/b", SideKey("a/b")),
        ("a/b/3", SideKey("a/b", 3)),
        ("a/3/", SideKey("a/3")),
        ("12", SideKey("12")),
    ],
)
def test_a_number_behind_the_last_slash_is_a_window(text: str, key: SideKey) -> None:
    assert SideKey.parse(text) == key


@given(st.text(min_size=1), st.none() | st.integers(0, 10**12))
def test_every_run_and_window_can_be_written_and_read_back(run_id: str, window: int | None) -> None:
    key = SideKey(run_id, window)
    assert SideKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "/"])
def test_nothing_is_no_side(text: str) -> None:
    with pytest.raises(ValueError, match="must be RUN or RUN/WINDOW"):
        SideKey.parse(text)
