"""Log an error that repeats once a minute, because a page may send wrong values as often as it likes."""

from __future__ import annotations

import logging
from collections import OrderedDict

PAUSE_S = 60.0
"""Seconds in which an error of one place in the code is logged once."""

MAX_PLACES = 256
"""Places remembered, those of the latest errors."""

_Place = tuple[type[BaseException], str, int]


class RepeatedErrors(logging.Filter):
    """Drops records of an error that was logged less than ``PAUSE_S`` ago, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: OrderedDict[_Place, tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record, which then says how many like it were left out."""
        error = record.exc_info[1] if record.exc_info else record.msg
        if not isinstance(error, BaseException):
            return True
        place = _place(error)
        logged, left_out = self._logged.pop(place, (float("-inf"), 0))
        is_due = record.created - logged >= PAUSE_S
        self._logged[place] = (record.created, 0) if is_due else (logged, left_out + 1)
        if len(self._logged) > MAX_PLACES:
            self._logged.popitem(last=False)
        if is_due and left_out:
            record.msg = f"{record.getMessage()} ({left_out:,} more since the last one)"
            record.args = ()
        return is_due


def _place(error: BaseException) -> _Place:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return type(error), "", 0
    return type(error), frame.tb_frame.f_code.co_filename, frame.tb_lineno
