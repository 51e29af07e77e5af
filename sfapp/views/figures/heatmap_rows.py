"""Rows of the rank × step heatmap: one per rank, or the named ranks above bands that keep extremes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import RankTable
from sfapp.model.view import Quantity
from sfapp.views import format
from sfapp.views.figures.active_frontier import Floats
from sfapp.views.figures.base import plain

CELLS = 2**18
"""Maximum number of drawn cells; above it, neighbouring steps are merged, which a note states."""

NAMED_RANKS = 32
"""Number of ranks up to which each has a row with its name."""

BANDS = 64
"""Maximum number of rows for several ranks each: next to the named ones, more would be thinner than two
pixels."""

_LABELLED = 8
"""Named ranks that all have a label; of more, the hover text names those without."""

MOST_MISSING = 4
"""Ranks that did not report and have a row each."""

_LABEL = 0.055
"""Part of the height for a row with a label: 15 of 340 pixels in the lowest plot."""

_TWO_SIDED: tuple[Quantity, ...] = ("slack", "lag")
"""Quantities whose smallest value may be as unusual as the largest."""

_LEAST_IS_SLOW: tuple[Quantity, ...] = ("slack", "wait")
"""Quantities that are smallest on the slowest rank, which enters last and waits for no other."""


@dataclass(frozen=True, slots=True, eq=False)
class HeatRows:
    """The rows to draw, from top to bottom: those of single ranks, an empty one, bands of neighbouring ranks.

    The band of a single rank includes it, and would otherwise look like a part of its row.

    Attributes:
        value_KN: ns, in K rows. names: of the rows, each another.
        missing: ranks that did not report; they have the first rows, without values.
        single: ranks with rows of their own above the bands; empty where every rank has one.
        rows_each: rows of each of them, because all rows of a heatmap have one height.
        ranks_each, steps_each: how many ranks and steps one value below stands for.
        slowest: row of the slowest rank in the window's table. notes: what was merged.
    """

    value_KN: Floats
    names: tuple[str, ...]
    missing: tuple[int, ...]
    single: tuple[int, ...]
    rows_each: int
    ranks_each: int
    steps_each: int
    slowest: int
    notes: tuple[str, ...]

    @property
    def first_band(self) -> int:
        """The first row below those of missing and single ranks, and below the empty row."""
        return (len(self.missing) + len(self.single)) * self.rows_each + bool(self.single)

    def row_of(self, place: int) -> int:
        """Return the row of the band with the rank at a position of the window's table."""
        return self.first_band + place // self.ranks_each

    @property
    def labelled(self) -> list[tuple[int, int]]:
        """The rank and the middle row of missing and single ranks whose labels have room."""
        found: list[tuple[int, int]] = []
        for place, rank in enumerate((*self.missing, *self.single)):
            row = place * self.rows_each + self.rows_each // 2
            if not found or row - found[-1][1] >= self.label_rows:
                found.append((rank, row))
        return found

    @property
    def label_rows(self) -> int:
        """Rows that a label takes."""
        return math.ceil(_LABEL * len(self.names))


def heat_rows(
    measures: Measures,
    value_RN: Floats,
    quantity: Quantity,
    named: Sequence[int],
    missing: Sequence[int] = (),
) -> HeatRows:
    """Return one row per rank; of more than ``NAMED_RANKS`` single ranks, and bands that keep extremes.

    Args:
        value_RN: the quantity per rank and step, ns.
        named: ranks to show singly, in this order; the slowest follows them.
        missing: ranks that did not report; the first ``MOST_MISSING`` have rows.
    """
    ranks = measures.window.ranks
    mean_R = value_RN.mean(axis=1)
    slowest = int(mean_R.argmin() if quantity in _LEAST_IS_SLOW else mean_R.argmax())
    lost, empty = tuple(missing[:MOST_MISSING]), _missing_note(missing)
    if len(ranks) <= NAMED_RANKS:
        cells, steps_each = _merged_steps(_below_gaps(value_RN, len(lost)))
        names = (*_missing_names(lost, 1), *(_name(ranks, place) for place in range(len(ranks))))
        notes = _merge_notes(value_RN.shape, quantity, 1, steps_each)
        return HeatRows(cells, names, lost, (), 1, 1, steps_each, slowest, (*empty, *notes))
    single = tuple(rank for rank in dict.fromkeys((*named, ranks.rank[slowest])) if rank in ranks.rank)
    ranks_each = _ranks_each(ranks)
    bands = _extremes(value_RN, quantity, ranks_each)
    rows_each = _rows_each(len(bands), len(lost) + len(single))
    places = [ranks.rank.index(rank) for rank in single]
    shown = np.vstack([np.repeat(value_RN[places], rows_each, axis=0), _below_gaps(bands, 1)])
    cells, steps_each = _merged_steps(_below_gaps(shown, len(lost) * rows_each))
    return HeatRows(
        cells,
        (
            *_missing_names(lost, rows_each),
            *_single_names(ranks, places, rows_each),
            " ",
            *_band_names(ranks, ranks_each),
        ),
        lost,
        single,
        rows_each,
        ranks_each,
        steps_each,
        slowest,
        (*empty, *_merge_notes(value_RN.shape, quantity, ranks_each, steps_each)),
    )


def _below_gaps(value_KN: Floats, gaps: int) -> Floats:
    """Return values below rows without any."""
    return np.vstack([np.full((gaps, value_KN.shape[1]), np.nan), value_KN]) if gaps else value_KN


def _missing_names(missing: Sequence[int], rows_each: int) -> list[str]:
    return [
        f"rank {rank} did not report" + "\u200b" * (row + 1) for rank in missing for row in range(rows_each)
    ]


def _missing_note(missing: Sequence[int]) -> tuple[str, ...]:
    more = len(missing) - MOST_MISSING
    if more <= 0:
        return ()
    return (f"{format.counted(more, 'more rank')} did not report: {format.ranges(missing[MOST_MISSING:])}.",)


def _ranks_each(ranks: RankTable) -> int:
    """Return the number of ranks in a band: whole nodes if several share a band and all have the same
    size."""
    each = -(-len(ranks) // BANDS)
    sizes = {ranks.node_rank.count(node) for node in ranks.nodes[:2]}
    node = max(sizes)
    return -(-each // node) * node if len(sizes) == 1 and each > node else each


def _extremes(value_RN: Floats, quantity: Quantity, ranks_each: int) -> Floats:
    """Return for each band and step the largest value, or the one furthest from the median of all ranks."""
    if ranks_each == 1:
        return value_RN
    starts = np.arange(0, len(value_RN), ranks_each)
    largest = np.maximum.reduceat(value_RN, starts, axis=0)
    if quantity not in _TWO_SIDED:
        return np.asarray(largest)
    least = np.minimum.reduceat(value_RN, starts, axis=0)
    median_N = np.median(value_RN, axis=0)
    return np.where(median_N - least > largest - median_N, least, largest)


def _rows_each(bands: int, single: int) -> int:
    """Return the number of rows of a single rank, so that its label has room; one if most have no label."""
    if single > _LABELLED:
        return 2
    return math.ceil(_LABEL * bands / (1 - _LABEL * single))


def _merged_steps(value_KN: Floats) -> tuple[Floats, int]:
    rows, steps = value_KN.shape
    each = max(1, -(-steps // max(1, CELLS // rows)))
    if each == 1:
        return value_KN, 1
    return np.asarray(np.maximum.reduceat(value_KN, np.arange(0, steps, each), axis=1)), each


def _name(ranks: RankTable, place: int) -> str:
    return f"rank {ranks.rank[place]} on {plain(ranks.hostname[place])}"


def _single_names(ranks: RankTable, places: Sequence[int], rows_each: int) -> list[str]:
    # The rows of one rank need different names that look the same.
    return [_name(ranks, place) + "\u200b" * (row + 1) for place in places for row in range(rows_each)]


def _band_names(ranks: RankTable, ranks_each: int) -> list[str]:
    if ranks_each == 1:
        return [_name(ranks, place) for place in range(len(ranks))]
    starts = range(0, len(ranks), ranks_each)
    ends = [min(start + ranks_each, len(ranks)) - 1 for start in starts]
    return [
        f"{ends[row] - start + 1} ranks, {ranks.rank[start]} to {ranks.rank[ends[row]]}"
        for row, start in enumerate(starts)
    ]


def _merge_notes(
    shape: tuple[int, ...], quantity: Quantity, ranks_each: int, steps_each: int
) -> tuple[str, ...]:
    parts = [format.counted(ranks_each, "rank")] if ranks_each > 1 else []
    parts += [format.counted(steps_each, "step")] if steps_each > 1 else []
    if not parts:
        return ()
    ranks, steps = (format.count(size) for size in shape)
    kept = f"the {quantity} furthest from the median" if quantity in _TWO_SIDED else f"the largest {quantity}"
    each = format.listed(parts, conjunction="×")
    singly = " The suspect, the slowest and selected ranks have rows of their own." if ranks_each > 1 else ""
    return (
        f"Downsampled from {ranks} × {steps}: each cell shows {kept} of {each}.{singly} "
        "Shares and labels use every value.",
    )
