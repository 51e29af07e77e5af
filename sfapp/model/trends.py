"""Whether runs became slower: groups of runs by day or by a field of their jobs (accounting.md §23)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

BY_DAY = "day"
"""The field that groups windows by the day (UTC) on which they began."""

MOST_FIELD = 200
"""Characters of a field's name in an address."""

LEVEL = 0.95
"""Chance that all intervals of one measure hold together."""

LEAST_DIFFERENCE = 0.001
"""Differences below this are none, whatever the noise."""

TrendVerdict = Literal["slower", "faster", "none"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of a group from the runs that it is compared with.

    Attributes:
        estimate, low, high: the difference and its interval; of step times as a fraction, of shares of
            rank-hours in these.
        runs: runs of the group that were compared. other_runs: those that they were compared with.
        same_runs: whether both are the same runs.
    """

    estimate: float
    low: float
    high: float
    runs: int
    other_runs: int
    same_runs: bool

    @property
    def verdict(self) -> TrendVerdict:
        """Whether the group is slower or faster, beyond noise."""
        if abs(self.estimate) < LEAST_DIFFERENCE or self.low <= 0.0 <= self.high:
            return "none"
        return "slower" if self.estimate > 0.0 else "faster"


@dataclass(frozen=True, slots=True)
class TrendGroup:
    """Runs with one value of a field, or their windows of one day.

    Attributes:
        value: untrusted text.
        first_at, last_at: start of the first and of the last of its windows, UTC.
        step_ns: median over the runs of the mean step of healthy windows; None without healthy windows.
        rank_hours, lost_hours: rank-hours of its windows, and those of them that were lost.
        step: difference of the healthy step. lost: difference of the share of rank-hours that was lost.
            None where there are too few comparable runs.
    """

    value: str
    runs: int
    windows: int
    first_at: datetime | None
    last_at: datetime | None
    step_ns: float | None
    rank_hours: float
    lost_hours: float
    step: Difference | None = None
    lost: Difference | None = None


@dataclass(frozen=True, slots=True)
class Trends:
    """Groups of runs by one field.

    Attributes:
        by: the field. fields: all that can be chosen, ``day`` first; a limited number.
        groups: those that are shown, by the start of their first window.
        total_groups: number of all of them.
        runs: number of runs. unstated_runs: those with windows that do not state the field.
    """

    by: str = BY_DAY
    fields: tuple[str, ...] = (BY_DAY,)
    groups: tuple[TrendGroup, ...] = ()
    total_groups: int = 0
    runs: int = 0
    unstated_runs: int = 0
