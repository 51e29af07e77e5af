"""Parsers of text from outside, such as options, links, forms and files: windows, lists of ranks, numbers.

Messages begin with "must", so that a caller can put the name of its option before them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from sfapp.errors import ParseError

UNREADABLE_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What decoding JSON from outside raises: it is malformed, not UTF-8, or nested too deeply."""

RUN_WINDOW = re.compile(r"(?P<run>[\s\S]+)/(?P<window>[0-9]{1,18})")
MOST_WINDOW = 10**18 - 1
"""Largest number of a window: links hold at most 18 digits."""
MOST_RANK = 10**9 - 1
"""Largest rank in a list of ranks, which has at most nine digits."""

_RANKS = re.compile(r"\s*(?P<first>[0-9]{1,9})(?:\s*-\s*(?P<last>[0-9]{1,9}))?\s*")


def whole_number(text: str, digits: int = 18) -> int | None:
    """Parse a whole number of at most so many ASCII digits; None for any other text.

    ``str.isdigit`` accepts ``²``, which ``int`` refuses, and ``int`` refuses several thousand digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def parse_time(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time into UTC; without a zone it is in UTC. None for any other text."""
    try:
        moment = None if text is None else datetime.fromisoformat(text)
        if moment is None or moment.tzinfo is None:
            return None if moment is None else moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # no time, or one that is before or after all times in UTC
        return None


def parse_run_window(text: str) -> tuple[str, int]:
    """Parse ``RUN/WINDOW`` into run id and window number; the run id may hold slashes.

    Raises:
        ParseError: the text has another form.
    """
    found = RUN_WINDOW.fullmatch(text)
    if found is None:
        raise ParseError("must be RUN/WINDOW, for example train-7/12")
    return found["run"], int(found["window"])


def is_run_window(text: str) -> bool:
    """Return whether a text has the form ``RUN/WINDOW``."""
    return RUN_WINDOW.fullmatch(text) is not None


def parse_ranks(text: str, most: int) -> tuple[int, ...]:
    """Parse a list of ranks such as ``0,3,8-11`` into its ranks, each once, ascending.

    Args:
        most: largest accepted number of ranks.

    Raises:
        ParseError: the text has another form, a range descends, or there are more than ``most`` ranks.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = _RANKS.fullmatch(part)
        first, last = (int(found["first"]), int(found["last"] or found["first"])) if found else (0, -1)
        if last < first:
            raise ParseError("must be ranks and ranges of ranks, for example 0,3,8-11")
        if last - first < most:
            ranks.update(range(first, last + 1))
        if last - first >= most or len(ranks) > most:
            raise ParseError(f"must name at most {most:,} ranks")
    return tuple(sorted(ranks))
