"""Windows and lists of ranks as users write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sfapp.errors import ParseError
from sfapp.model.parse import is_run_window, parse_ranks, parse_run_window, parse_time, whole_number


@pytest.mark.parametrize(
    ("text", "found"), [("train-7/12", ("train-7", 12)), ("a/b/0", ("a/b", 0)), ("12/007", ("12", 7))]
)
def test_a_window_is_a_run_and_a_number(text: str, found: tuple[str, int]) -> None:
    assert parse_run_window(text) == found
    assert is_run_window(text)


@pytest.mark.parametrize(
    "text", ["", "run", "/1", "run/", "run/²", "run/٣", "run/-1", "run/1.5", f"run/{10**18}"]
)
def test_other_text_is_refused(text: str) -> None:
    assert not is_run_window(text)
    with pytest.raises(ParseError, match="must be RUN/WINDOW"):
        parse_run_window(text)


@pytest.mark.parametrize(
    ("text", "found"), [("7", (7,)), ("3,0", (0, 3)), (" 0 - 2 , 1,8", (0, 1, 2, 8)), ("5-5", (5,))]
)
def test_ranks_are_listed_alone_or_as_ranges(text: str, found: tuple[int, ...]) -> None:
    assert parse_ranks(text, most=64) == found


@pytest.mark.parametrize("text", ["", ",", "a", "1,", "3-1", "-1", "1-2-3", "²", "0x1", "1-", "9999999999"])
def test_other_lists_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="must be ranks and ranges of ranks"):
        parse_ranks(text, most=64)


@pytest.mark.parametrize("text", ["0-4", "0,1,2,3,4", "0-3,9", "0-999999999"])
def test_too_many_ranks_are_refused(text: str) -> None:
    with pytest.raises(ParseError, match="must name at most 4 ranks"):
        parse_ranks(text, most=4)


@pytest.mark.parametrize(("text", "found"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_a_whole_number_is_ascii_digits(text: str, found: int) -> None:
    assert whole_number(text) == found


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "+1", "1.0", " 1", "1_0", "9" * 19, "9" * 5000])
def test_other_text_is_no_whole_number(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize(
    "text", [None, "", "zzzz", "9999-99-99", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
def test_a_text_that_is_no_time_in_utc_has_none(text: str | None) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize("text", ["2026-11-21T10:00:00Z", "2026-11-21T12:00:00+02:00", "2026-11-21T10:00:00"])
def test_a_time_is_in_utc(text: str) -> None:
    assert parse_time(text) == datetime(2026, 11, 21, 10, tzinfo=UTC)
