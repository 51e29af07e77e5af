"""Encode, decode and check the columns of a reduced window (docs/packet.md, Reduced windows)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfapp.model import OWN_PLANES, PLANES, Manifest, OwnPlanes, ReducedPlanes
from sfapp.model.arrays import to_numpy
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.arrow_columns import IntArray, column_of, integers, nullable_integers
from sfapp.packets.column_access import Columns
from sfapp.packets.faults import Faults
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.row_grid import Grid
from sfapp.packets.value_checks import RowOf, check_durations, check_range
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


def own_values_of(window: WindowDraft) -> dict[str, IntArray]:
    """Return the values of the columns at the ends of own time; ``NOT_MEASURED`` for null."""
    if window.reduced is None or window.reduced.own is None or window.manifest.reduced is None:
        return {}
    return {
        column_of(plane, stage): values_N
        for plane, values_VN in window.reduced.own.planes().items()
        for stage, values_N in zip(window.manifest.reduced.waits, to_numpy(values_VN), strict=True)
    }


def read_planes(columns: Columns, manifest: Manifest, grid: Grid, faults: Faults) -> ReducedPlanes | None:
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
                values_N[:] = _of_steps(name, integers(columns[name]), grid, faults)
        planes[f"{plane}_SN"] = values_SN
    found = ReducedPlanes(**planes, own=_read_own(columns, manifest, grid, faults))
    if len(faults.found) == before:
        check_planes(found, manifest, grid, faults)
    return found if len(faults.found) == before else None


def _read_own(columns: Columns, manifest: Manifest, grid: Grid, faults: Faults) -> OwnPlanes | None:
    waited = () if manifest.reduced is None else manifest.reduced.waits
    if not waited:
        return None
    planes = {}
    for plane in OWN_PLANES:
        rows = []
        for stage in waited:
            values, is_null = nullable_integers(columns[column_of(plane, stage)])
            filled = np.where(is_null, NOT_MEASURED, values.astype(np.int64))
            rows.append(_of_steps(column_of(plane, stage), filled, grid, faults))
        planes[plane.removeprefix("own_") + "_VN"] = np.stack(rows)
    return OwnPlanes(**planes)


def _of_steps(name: str, values: IntArray, grid: Grid, faults: Faults) -> IntArray:
    """Return a column's value in each step, int64 [N]; report where the rows of a step differ."""
    values_NR = grid.arrange(values)
    if not (values_NR == values_NR[:, :1]).all():
        cell = int((values_NR != values_NR[:, :1]).argmax())
        faults.add("differs between the rows of a step", row=grid.row(cell), column=name)
    return np.asarray(values_NR[:, 0], dtype=np.int64)


def check_planes(planes: ReducedPlanes, manifest: Manifest, grid: Grid, faults: Faults) -> None:
    """Report numbers that are impossible in a frontier."""

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

    if planes.own is not None and manifest.reduced is not None:
        _check_own(planes, planes.own, manifest, row_of, faults)


def _check_own(
    planes: ReducedPlanes, own: OwnPlanes, manifest: Manifest, row_of: RowOf, faults: Faults
) -> None:
    """Report impossible numbers at the ends of own time: null in only some of a step's columns, outside the
    stage, or behind the runner-up."""
    waited = () if manifest.reduced is None else manifest.reduced.waits
    named = own.planes()
    unknown_VN = named[OWN_PLANES[0]] == NOT_MEASURED
    for index, stage in enumerate(waited):
        if stage not in manifest.stages:  # reported with the manifest
            continue
        known_N = ~unknown_VN[index]
        place = manifest.stages.index(stage)
        for plane, values_VN in named.items():
            column, values_N = column_of(plane, stage), np.where(known_N, values_VN[index], 0)
            if ((values_VN[index] != NOT_MEASURED) != known_N).any():
                faults.add("is null in other steps than its companions", column=column)
            elif plane.endswith("leader"):
                check_range(column, values_N, 0, manifest.world_size - 1, row_of, faults)
            else:
                check_durations(column, values_N, row_of, faults)
        for prefix in ("", "carry_"):
            ends_N = to_numpy(getattr(planes, f"{prefix}frontier_SN"))[place]
            own_N, second_N = named[f"own_{prefix}frontier"][index], named[f"own_{prefix}second"][index]
            for wrong_N, what in (
                (known_N & (own_N > ends_N), "lies beyond the end of its stage"),
                (known_N & (own_N < second_N), "lies behind its runner-up"),
            ):
                if wrong_N.any():
                    column = column_of(f"own_{prefix}frontier", stage)
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
    if window.reduced.own is not None and window.manifest.reduced is not None:
        _check_own_rows(window, window.reduced.own, window.manifest.reduced.waits, grid, faults)


def _check_own_rows(
    window: WindowDraft, own: OwnPlanes, waited: Sequence[str], grid: Grid, faults: Faults
) -> None:
    """Report a kept row whose own time contradicts the frontier at its end."""
    for index, stage in enumerate(waited):
        frontier_N, leader_N = own.frontier_VN[index], own.leader_VN[index]
        known_N = frontier_N != NOT_MEASURED
        wait_NR = window.waits.get(stage)
        if wait_NR is None:
            faults.add("is absent, although the ends of own time are known", column=WAIT_PREFIX + stage)
            continue
        own_NR = window.duration_SNR[: window.stages.index(stage) + 1].sum(axis=0) - wait_NR.clip(min=0)
        for place, rank in enumerate(window.ranks.rank):
            end_N = own_NR[:, place]
            wrong_N = known_N & ((end_N > frontier_N) | ((leader_N == rank) & (end_N != frontier_N)))
            wrong_N |= known_N & (wait_NR[:, place] == NOT_MEASURED)
            if wrong_N.any():
                cell = int(wrong_N.argmax()) * len(window.ranks) + place
                what = f"rank {rank} contradicts the frontier at the end of own time"
                faults.add(what, row=grid.row(cell), column=WAIT_PREFIX + stage)
