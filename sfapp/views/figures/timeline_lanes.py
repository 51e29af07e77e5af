"""Place one rank's events of one step in rows: by lane, nested events below the enclosing one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import Operators

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

EVENTS_SHOWN = 800
"""Maximum number of drawn events of one rank, the longest ones: shorter ones take less than a pixel."""

LANES_SHOWN = 10
"""Maximum number of drawn threads and streams of one rank, the busiest ones."""

DEPTHS_SHOWN = 8
"""Maximum number of drawn levels of nested events."""


@dataclass(frozen=True, slots=True)
class LaneBlock:
    """The drawn events of one rank, in rows counted from its first one.

    Attributes:
        event_K: positions among the operators; row_K: the row of each.
        lanes: name, first row and number of rows of each lane.
        short, deep, elsewhere: number of events left out because they are too short, nested too deep, or on
            other lanes.
    """

    rank: int
    event_K: Ints
    row_K: Ints
    lanes: tuple[tuple[str, int, int], ...]
    short: int
    deep: int
    elsewhere: int

    @property
    def rows(self) -> int:
        return sum(rows for *_, rows in self.lanes)


def block_of(operators: Operators, rank: int, events: Ints, kept_E: Bools) -> LaneBlock:
    """Return the rank's lanes, those of the host first, each with its events stacked by depth.

    Args:
        events: of this rank, ascending.
        kept_E: bool [E], events to show before any others.
    """
    events, elsewhere = _of_busiest_lanes(operators, events, kept_E)
    events, short = _longest(operators, events, kept_E)
    lane_X = operators.lane_E[events]
    lanes, first_X = np.unique(lane_X, return_index=True)
    begins = sorted(
        (operators.lanes[lane].is_device, first, lane)
        for lane, first in zip(lanes.tolist(), first_X.tolist(), strict=True)
    )
    kept, row_X = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    placed = []
    row = deep = 0
    for _, _, lane in begins:
        own = events[lane_X == lane]
        depth = _depths(operators.start_ns_E[own], operators.end_ns_E[own])
        shown = depth < DEPTHS_SHOWN
        deep += int(np.count_nonzero(~shown))
        kept.append(own[shown])
        row_X.append(depth[shown] + row)
        rows = int(depth[shown].max()) + 1
        placed.append((operators.lanes[lane].name, row, rows))
        row += rows
    return LaneBlock(rank, np.concatenate(kept), np.concatenate(row_X), tuple(placed), short, deep, elsewhere)


def _of_busiest_lanes(operators: Operators, events: Ints, kept_E: Bools) -> tuple[Ints, int]:
    """Return the events of the busiest lanes, and the number of events on other lanes."""
    lane_X = operators.lane_E[events]
    lanes, count = np.unique(lane_X, return_counts=True)
    holds = np.isin(lanes, lane_X[kept_E[events]])
    busiest = lanes[np.lexsort((-count, ~holds))][:LANES_SHOWN]
    here = np.isin(lane_X, busiest)
    return events[here], int(np.count_nonzero(~here))


def _longest(operators: Operators, events: Ints, kept_E: Bools) -> tuple[Ints, int]:
    """Return the longest events, ascending, and the number of the others.

    An event is at least as long as those it encloses, so nesting is kept.
    """
    order = np.lexsort((-operators.duration_ns_E[events], ~kept_E[events]))
    return np.sort(events[order[:EVENTS_SHOWN]]), max(len(events) - EVENTS_SHOWN, 0)


def _depths(start_X: Ints, end_X: Ints) -> Ints:
    """Return the number of events of the lane that are open when each one begins."""
    ends: list[int] = []
    depths = []
    for start, end in zip(start_X.tolist(), end_X.tolist(), strict=True):
        while ends and ends[-1] <= start:
            ends.pop()
        depths.append(len(ends))
        ends.append(end)
    return np.asarray(depths, np.int64)
