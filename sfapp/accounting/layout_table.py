"""Own time, lateness and slowdown of ranks by coordinates of the parallel layout (accounting.md §20)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from sfapp.accounting.late_ranks import Floats, StageLateness, has_enough_steps, lateness, stages_lateness
from sfapp.accounting.layout_pattern import late_pattern, late_ranks
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.window_lateness import own_in_stage
from sfapp.model import DIMENSIONS, Diagnosis
from sfapp.model.arrays import to_numpy
from sfapp.model.parallel_layout import LayoutPattern, LayoutTable
from sfapp.model.stages import broad_stage

MOST_CELLS = 1024
"""Largest table that is part of a diagnosis, of which stores keep one per window; plots draw larger ones."""

MOST_DRAWN = 1 << 16
"""Number of cells of the largest table that is made, unless there are more ranks. Two dimensions of a job
have about one cell for each rank or fewer, but the coordinates in a file can be any."""


@dataclass(frozen=True, slots=True, eq=False)
class RankTimes:
    """Own time of each rank in a step: Σ over the stages in which it is known.

    Attributes:
        own_R: mean over steps, ns.
        late: lateness against the median of the other ranks in the same step.
        slowdown_R: own_R over its median over ranks, less 1.
    """

    own_R: Floats
    late: StageLateness
    slowdown_R: Floats


@dataclass(frozen=True, slots=True)
class _TableKey:
    """What a table depends on besides the matrix.

    Attributes:
        least_ns: least lateness of a late rank.
    """

    dimensions: tuple[str, str]
    hidden: tuple[str, ...]
    alpha: float
    least_ns: float


def hidden_stages(judged: Diagnosis) -> tuple[str, ...]:
    """Return the broad stages in which ranks wait for each other and the waits are not known."""
    known = set(judged.wait_advances_ns or {})
    hidden = (stage for stage in map(broad_stage, judged.wait_stages) if stage not in known)
    return tuple(dict.fromkeys(hidden))


def layout_axes(layout: Mapping[str, Sequence[int]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of dimensions for rows and columns along which ranks differ; the first is the default.

    That is DP × PP, with others in the place of those along which ranks do not differ.
    """
    differing = [name for name in DIMENSIONS if len(set(layout.get(name, ()))) > 1]
    others = [name for name in ("dp", "pp") if name not in differing]
    shown = [*differing, *others[: max(0, 2 - len(differing))]]
    return tuple(combinations(sorted(shown, key=DIMENSIONS.index), 2))


def layout_table(
    measures: Measures, judged: Diagnosis, axes: tuple[str, str] | None = None
) -> LayoutTable | None:
    """Return the ranks of a window by two coordinates; None without a layout, or if own time is not known.

    Along a dimension that the layout lacks, all ranks are at 0.

    Args:
        axes: dimensions of rows and columns; the first of ``layout_axes`` if None.
    """
    layout, hidden = measures.window.layout, hidden_stages(judged)
    is_known = measures.has_all_rows and measures.ranks > 1 and set(hidden) != set(measures.broad)
    if not (layout and is_known and has_enough_steps(measures.steps)):
        return None
    key = _TableKey(
        dimensions=axes or layout_axes(layout)[0],
        hidden=hidden,
        alpha=judged.gates.alpha,
        least_ns=judged.gates.min_effect * judged.step_time.mean_ns,
    )
    return measures.keep("layout table", key, partial(_table, measures))


def with_layout(judged: Diagnosis, measures: Measures) -> Diagnosis:
    """Return the diagnosis with its table by coordinates, if the window has a layout."""
    table = layout_table(measures, judged)
    if table is None:
        return judged
    if len(table.rows) * len(table.columns) > MOST_CELLS:
        table = replace(table, own_ns=(), late_ns=(), slowdown=(), rank=())
    return judged.changed(layout=table)


def _table(measures: Measures, key: _TableKey) -> LayoutTable:
    ranks = measures.window.ranks
    times = measures.keep("rank times", key.hidden, partial(_rank_times, measures))
    places = [ranks.layout.get(name, (0,) * len(ranks)) for name in key.dimensions]
    rows, row_R = np.unique(places[0], return_inverse=True)
    columns, column_R = np.unique(places[1], return_inverse=True)
    table = LayoutTable(
        dimensions=key.dimensions,
        rows=tuple(rows.tolist()),
        columns=tuple(columns.tolist()),
        own_ns=(),
        late_ns=(),
        slowdown=(),
        rank=(),
        hidden=key.hidden,
        pattern=_pattern(measures, times, key),
    )
    shape = (len(rows), len(columns))
    if math.prod(shape) > max(MOST_DRAWN, len(ranks)):
        return table
    cell_R = np.asarray(row_R * len(columns) + column_R, dtype=np.int64)
    slowest = _slowest(times.own_R, cell_R, math.prod(shape))
    return replace(
        table,
        own_ns=_cells(times.own_R, slowest, shape),
        late_ns=_cells(times.late.mean_R, slowest, shape),
        slowdown=_cells(times.slowdown_R, slowest, shape),
        rank=_cells(np.array(ranks.rank), slowest, shape),
    )


def _rank_times(measures: Measures, hidden: tuple[str, ...]) -> RankTimes:
    own_NR = np.zeros(measures.window.wall_NR.shape, dtype=np.int64)
    for broad, stage in enumerate(measures.broad):
        if stage not in hidden:
            own_NR += to_numpy(own_in_stage(measures, broad))
    own_R = own_NR.mean(axis=0)
    (late,) = stages_lateness(lateness(own_NR)[None])
    return RankTimes(own_R, late, own_R / max(1.0, float(np.median(own_R))) - 1.0)


def _pattern(measures: Measures, times: RankTimes, key: _TableKey) -> LayoutPattern | None:
    """Return the pattern that the late ranks form; None if there is none."""
    ranks = measures.window.ranks
    found = late_pattern(ranks, late_ranks(times.late, key.alpha, key.least_ns))
    if found is None:
        return None
    kinds, members = found
    hosts = {ranks.hostname[place] for place in members}
    return LayoutPattern(
        kind=kinds[0],
        also=tuple(kinds[1:]),
        ranks=tuple(ranks.rank[place] for place in members),
        coordinates={
            name: column[members[0]]
            for name, column in ranks.layout.items()
            if len({column[place] for place in members}) == 1
        },
        hostname=hosts.pop() if len(hosts) == 1 else None,
        late_ns=float(times.late.mean_R[members].mean()),
        slowdown=float(times.slowdown_R[members].mean()),
    )


def _slowest(own_R: Floats, cell_R: Ints, cells: int) -> Ints:
    """Return the position of the rank with the most own time in each cell, −1 without ranks: [cells]."""
    found = np.full(cells, -1, dtype=np.int64)
    order = np.argsort(own_R, kind="stable")
    found[cell_R[order]] = order  # The last one assigned is the slowest.
    return found


def _cells(value_R: np.ndarray[Any, Any], slowest: Ints, shape: tuple[int, int]) -> Any:
    """Return the value of each cell's slowest rank, by row and column; None without ranks."""
    values = value_R[slowest].tolist()
    known = [value if place >= 0 else None for value, place in zip(values, slowest.tolist(), strict=True)]
    return tuple(tuple(known[row * shape[1] : (row + 1) * shape[1]]) for row in range(shape[0]))
