"""An error that a page causes again and again fills no log."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from sfapp.app.repeated_errors import MAX_PLACES, PAUSE_S, RepeatedErrors


def record_of(error: Callable[[], object], at: float) -> logging.LogRecord:
    with pytest.raises((ValueError, ZeroDivisionError)) as raised:
        error()
    found = raised.value
    record = logging.LogRecord(
        "nicegui", logging.ERROR, "", 0, "wrong", None, (type(found), found, found.__traceback__)
    )
    record.created = at
    return record


def wrong_value() -> object:
    return int("x")


def test_an_error_of_one_place_is_logged_once_a_minute_with_the_number_left_out() -> None:
    repeated = RepeatedErrors()
    logged = [repeated.filter(record_of(wrong_value, at)) for at in (0.0, 1.0, PAUSE_S - 1)]
    assert logged == [True, False, False]
    again = record_of(wrong_value, PAUSE_S)
    assert repeated.filter(again)
    assert again.getMessage() == "wrong (2 more since the last one)"


def test_errors_of_other_places_and_records_without_an_error_are_logged() -> None:
    repeated = RepeatedErrors()
    assert repeated.filter(record_of(wrong_value, 0.0))
    assert repeated.filter(record_of(lambda: int("y"), 0.0))
    for _ in range(2):
        assert repeated.filter(logging.LogRecord("nicegui", logging.INFO, "", 0, "ready", None, None))


def test_a_page_that_sends_other_errors_takes_no_more_memory() -> None:
    repeated = RepeatedErrors()
    for number in range(2 * MAX_PLACES):
        code = compile("\n" * number + "1 / 0", "page", "exec")
        assert repeated.filter(record_of(lambda code=code: exec(code), 0.0))
    assert repeated.filter(record_of(lambda: exec(compile("1 / 0", "page", "exec")), 1.0))
