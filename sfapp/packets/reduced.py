"""Encode, decode and check the columns of a reduced window (docs/packet.md, Reduced windows)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfapp.model import PLANES, Manifest, ReducedPlanes
from sfapp.model.arrays import to_numpy
from sfapp.packets.arrow_columns import IntArray, column_of, integers
from sfapp.packets.faults import Faults
from sfapp.packets.row_grid import Grid
from sfapp.packets.value_checks import check_durations, check_range
from sfapp.packets.window_draft import WindowDraft


def values_of(window: WindowDraft) -> dict[str, IntArray]:
    """Return the values per step of those columns, int64 [N], by column."""
    if window.reduced is None:
        return {}
    return {
        column_of(plane, stage): values_N
        for plane, values_SN in window.reduced.planes().items()
        for stage, values_N in zip(window.stages, to_numpy(values_SN), strict=True)
    }


def read_planes(
    columns: dict[str, Any], manifest: Manifest, grid: Grid, faults: Faults
) -> ReducedPlanes | None:
    """Return the results over all ranks, from columns with a step's value in each of its rows; None with the
    faults reported.
    """
    before = len(faults.found)
    planes = {}
    for plane in PLANES:
        values_SN = np.zeros((len(manifest.stages), len(grid.step_N)), dtype=np.int64)
        for values_N, stage in zip(values_SN, manifest.stages, strict=True):
            name = column_of(plane, stage)
            if name in columns:  # A column with nulls has been reported already.
                values_NR = grid.arrange(integers(columns[name]))
                if not (values_NR == values_NR[:, :1]).all():
                    cell = int((values_NR != values_NR[:, :1]).argmax())
                    faults.add("differs between the rows of a step", row=grid.row(cell), column=name)
                values_N[:] = values_NR[:, 0]
        planes[f"{plane}_SN"] = values_SN
    found = ReducedPlanes(**planes)
    if len(faults.found) == before:
        check_planes(found, manifest, grid, faults)
    return found if len(faults.found) == before else None


def check_planes(planes: ReducedPlanes, manifest: Manifest, grid: Grid, faults: Faults) -> None:
    """Report numbers that no frontier can have."""

    def row_of(step: int) -> int:
        return grid.row(step * len(grid.rank_R))

    for plane, values_SN in planes.planes().items():
        for stage, values_N in zip(manifest.stages, to_numpy(values_SN), strict=True):
            if plane.endswith("leader"):
                check_range(column_of(plane, stage), values_N, 0, manifest.world_size - 1, row_of, faults)
            else:
                check_durations(column_of(plane, stage), values_N, row_of, faults)
    for prefix in ("", "carry_"):
        frontier_SN = to_numpy(getattr(planes, f"{prefix}frontier_SN"))
        second_SN = to_numpy(getattr(planes, f"{prefix}second_SN"))
        for index, stage in enumerate(manifest.stages):
            column = column_of(f"{prefix}frontier", stage)
            falls_N = frontier_SN[index] < frontier_SN[max(0, index - 1)]
            behind_N = frontier_SN[index] < second_SN[index]
            for wrong_N, what in (
                (falls_N, "lies before that of the stage before"),
                (behind_N, "lies behind its runner-up"),
            ):
                if wrong_N.any():
                    faults.add(what, row=row_of(int(wrong_N.argmax())), column=column)


def check_rows(window: WindowDraft, grid: Grid, faults: Faults) -> None:
    """Report a kept row that contradicts the frontier: a rank beyond it, or a leader that is not on it."""
    if window.reduced is None:
        return
    prefix_SNR = window.duration_SNR.cumsum(axis=0)
    frontier_SN = to_numpy(window.reduced.frontier_SN)
    leader_SN = to_numpy(window.reduced.leader_SN)
    for place, rank in enumerate(window.ranks.rank):
        beyond_SN = prefix_SNR[:, :, place] > frontier_SN
        off_SN = (leader_SN == rank) & (prefix_SNR[:, :, place] != frontier_SN)
        for wrong_SN, what in ((beyond_SN, "lies beyond the frontier"), (off_SN, "leads, but not its rows")):
            if wrong_SN.any():
                stage, step = np.argwhere(wrong_SN)[0]
                cell = int(step) * len(window.ranks) + place
                faults.add(f"rank {rank} {what}", row=grid.row(cell), column=window.stages[int(stage)])
