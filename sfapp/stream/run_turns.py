"""Take turns among more runs than are looked after at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


def next_in_turn(names: Iterable[str], last: str, most: int) -> list[str]:
    """Return at most ``most`` of these names in order, beginning after ``last``, then from the first."""
    ordered = sorted(names)
    begin = bisect_right(ordered, last)
    return [*ordered[begin:], *ordered[:begin]][:most]
