"""The range [G, X] of the saving by a fix if no replay predicts it (accounting.md §4).

The static gain G assumes that no rank waits for another; the excess X assumes that the other ranks wait for
all time beyond a typical rank's. For a stage on every rank, G and X are those of the diagnosis; for some
ranks they are computed from the same matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfapp.accounting.carry_over import CarryOver
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.model import Diagnosis
from sfapp.model.arrays import to_numpy


def saving_range(
    measures: Measures,
    diagnosis: Diagnosis,
    carry: CarryOver | None,
    stages: Sequence[int],
    places: Ints | None,
) -> tuple[float, float] | None:
    """Return G and X of a fix, ns of the mean step; None if the window has no gains.

    Args:
        diagnosis: of these measures.
        carry: the carry-over frontier of the diagnosis; None if steps have gaps.
        stages: positions of the broad stages.
        places: positions of the ranks, ascending; every rank if None.
    """
    if diagnosis.static_gain is None or not measures.has_all_rows:
        return None
    most = _excess(measures, diagnosis, carry, stages, places)
    return min(_static_gain(measures, diagnosis, stages, places), most), most


def _excess(
    measures: Measures,
    diagnosis: Diagnosis,
    carry: CarryOver | None,
    stages: Sequence[int],
    places: Ints | None,
) -> float:
    """Return X; for some ranks, only over the steps in which one of them is the slowest at the stage."""
    known = diagnosis.telling_excess
    share = sum(known.get(measures.broad[stage], 0.0) for stage in stages)
    if len(stages) == len(measures.broad) and diagnosis.exposed_imbalance is not None:
        share = diagnosis.exposed_imbalance
    most = share * diagnosis.step_time.mean_ns
    if places is None:
        return most
    frontier = measures if carry is None else carry
    median_SN = measures.median_SN if measures.own is None else measures.own.median_SN
    members = [member for stage in stages for member in measures.members(stage)]
    over_SN = (frontier.own_advance_SN[members] - median_SN[members]).clip(min=0)
    is_theirs_SN = np.isin(frontier.leader_SN[members], places)
    return min(most, float(over_SN[is_theirs_SN].sum()) / measures.steps)


def _static_gain(
    measures: Measures, diagnosis: Diagnosis, stages: Sequence[int], places: Ints | None
) -> float:
    """Return G: by how much the makespans shrink if durations are clipped to the baseline and nothing else
    changes."""
    if places is None and len(stages) == 1 and diagnosis.static_gain is not None:
        return diagnosis.static_gain[measures.broad[stages[0]]] * measures.makespan / measures.steps
    ranks = slice(None) if places is None else places
    duration_SNR, baseline_SNR = to_numpy(measures.window.duration_SNR), to_numpy(measures.baseline_SNR)
    remaining_NR = duration_SNR.sum(axis=0).astype(np.float64)
    for stage in stages:
        for member in measures.members(stage):
            over_NR = (duration_SNR[member] - baseline_SNR[member]).clip(min=0)
            remaining_NR[:, ranks] -= over_NR[:, ranks]
    return float(measures.makespan - remaining_NR.max(axis=1).sum()) / measures.steps
