"""Arrange the rows of a packet, one per (step, rank), and report missing and repeated ones.

Everything is vectorised: a packet has up to millions of rows and is checked on every ingest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.model import Manifest
from sfapp.packets.arrow_columns import IntArray
from sfapp.packets.faults import Faults, and_more
from sfapp.packets.packet_layout import MAX_RANK_VALUE, MAX_VALUE, RANK, STEP
from sfapp.packets.value_checks import check_range

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of a file as a matrix of N steps × R ranks, both ascending.

    Attributes:
        step_N: step numbers.
        rank_R: global ranks.
        order: the file's row for each cell; None if the rows are already in order.
    """

    step_N: IntArray
    rank_R: IntArray
    order: IntArray | None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.step_N), len(self.rank_R)

    def row(self, cell: int) -> int:
        """Return the file's row of a cell, counted through the steps."""
        return cell if self.order is None else int(self.order[cell])

    def arrange(self, values: Array) -> Array:
        """Return a column's values as [N, R]."""
        return (values if self.order is None else values[self.order]).reshape(self.shape)


def grid_of(step: Array, rank: Array, faults: Faults) -> Grid | None:
    """Return the grid that these rows form, or None with the faults reported.

    Rows in another order than (step, rank) are sorted, which is unambiguous. Repeated and missing rows are
    faults.
    """
    order = None
    grid = _grid_of_sorted(step, rank)
    if grid is None:
        order = np.lexsort((rank, step))
        step, rank = step[order], rank[order]
        twice = np.flatnonzero((step[1:] == step[:-1]) & (rank[1:] == rank[:-1]))
        if len(twice):
            first = int(twice[0])
            faults.add(
                f"step {step[first]}, rank {rank[first]} is also in row {order[first]}"
                f"{and_more(len(twice) - 1)}",
                row=int(order[first + 1]),
            )
            return None
        grid = _grid_of_sorted(step, rank)
    if grid is None:
        _report_missing(step, rank, faults)
        return None
    return _in_range(Grid(*grid, order), faults)


def _in_range(grid: Grid, faults: Faults) -> Grid | None:
    """Return the grid with its numbers as int64, if they fit."""
    ranks = len(grid.rank_R)
    steps_fit = check_range(STEP, grid.step_N, 0, MAX_VALUE, lambda index: grid.row(index * ranks), faults)
    ranks_fit = check_range(RANK, grid.rank_R, 0, MAX_RANK_VALUE, grid.row, faults)
    if not (steps_fit and ranks_fit):
        return None
    return Grid(grid.step_N.astype(np.int64), grid.rank_R.astype(np.int64), grid.order)


def _grid_of_sorted(step: Array, rank: Array) -> tuple[Array, Array] | None:
    """Return the step numbers and the ranks of rows that are in order and complete, else None."""
    ranks = int(np.searchsorted(step, step[0], side="right"))
    # If the rows are not in order, this is an arbitrary number, which the checks below detect.
    if not ranks or len(step) % ranks:
        return None
    step_NR, rank_NR = step.reshape(-1, ranks), rank.reshape(-1, ranks)
    step_N, rank_R = step_NR[:, 0], rank_NR[0]
    if not ((step_N[1:] > step_N[:-1]).all() and (rank_R[1:] > rank_R[:-1]).all()):
        return None
    if not ((step_NR == step_N[:, None]).all() and (rank_NR == rank_R).all()):
        return None
    return step_N, rank_R


def _report_missing(step: Array, rank: Array, faults: Faults) -> None:
    steps, first, rows = np.unique(step, return_index=True, return_counts=True)
    every_rank = np.unique(rank)
    short = int((rows < len(every_rank)).argmax())
    there = rank[first[short] : first[short] + rows[short]]
    absent = every_rank[~np.isin(every_rank, there)][0]
    missing = len(steps) * len(every_rank) - len(step)
    faults.add(f"step {steps[short]} has no row for rank {absent}{and_more(missing - 1)}", column=RANK)


def check_ranks(grid: Grid, manifest: Manifest, part_rank: int | None, faults: Faults) -> None:
    """Report ranks outside the job, and ranks that are neither in the rows nor listed as missing."""
    size = manifest.world_size
    ranks = grid.rank_R
    if ranks[-1] >= size:
        cell = int((ranks >= size).argmax())
        faults.add(f"rank {ranks[cell]} is outside world_size {size}", row=grid.row(cell), column=RANK)
        return
    if part_rank is not None:
        if len(ranks) != 1 or ranks[0] != part_rank:
            faults.add(
                f"the file's name says it is the part of rank {part_rank}, but it holds other ranks",
                column=RANK,
            )
        return
    present = set(ranks.tolist())
    both = present.intersection(manifest.missing_ranks)
    if both:
        faults.add(f"rank {min(both)} is among missing_ranks, but has rows", column=RANK)
    neither = size - len(present) - len(set(manifest.missing_ranks) - present)
    if neither > 0 and manifest.reduced is None:  # The frontier of a reduced window includes them.
        missing = set(manifest.missing_ranks)
        first = next(rank for rank in range(size) if rank not in present and rank not in missing)
        what = "has no rows and is not among missing_ranks"
        faults.add(f"rank {first} of world_size {size} {what}{and_more(neither - 1)}", column=RANK)


def check_same_every_step(name: str, values_NR: Array, grid: Grid, faults: Faults) -> None:
    """Report a rank whose identity changes inside the window."""
    if not (values_NR == values_NR[0]).all():
        differs = values_NR != values_NR[0]
        cell = int(differs.argmax())
        others = int(np.count_nonzero(differs)) - 1
        faults.add(
            f"rank {grid.rank_R[cell % grid.shape[1]]} changes inside the window{and_more(others)}",
            row=grid.row(cell),
            column=name,
        )
