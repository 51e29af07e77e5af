"""Select the frontier of a figure: carry-over if the diagnosis uses it, else step-aligned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.accounting import CarryOver, Measures
from sfapp.model import Diagnosis, broad_stage
from sfapp.model.arrays import to_numpy
from sfapp.views import format

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveFrontier:
    """The frontier in use, relative to the start of each step.

    Attributes:
        carry: the carry-over accounting; None for the step-aligned frontier.
        advance_SN: ns.
        leader_SN: positions in ``measures.led_by``.
        gap_SN: ns from the slowest rank to the next one.
    """

    carry: CarryOver | None
    advance_SN: Ints
    leader_SN: Ints
    gap_SN: Ints

    @property
    def rise_SN(self) -> Ints:
        """The frontier since the start of each step, ns."""
        return self.advance_SN.cumsum(axis=0)

    @property
    def words(self) -> str:
        """Its name in figures."""
        return "carry-over frontier" if self.carry else "step-aligned frontier"


def active_frontier(measures: Measures, diagnosis: Diagnosis) -> ActiveFrontier:
    """Return the frontier that the diagnosis uses."""
    carry = carry_over(measures, diagnosis) if diagnosis.frontier == "carry_over" else None
    source = carry or measures
    return ActiveFrontier(carry, source.advance_SN, source.leader_SN, source.gap_SN)


def carry_over(measures: Measures, diagnosis: Diagnosis) -> CarryOver | None:
    """Return the carry-over accounting with the diagnosis's sync boundary; None if steps have gaps."""
    stages = measures.window.stages
    boundary = stages.index(diagnosis.sync_boundary) if diagnosis.sync_boundary in stages else None
    return measures.carry(boundary)


def active_shares(diagnosis: Diagnosis) -> dict[str, float] | None:
    """Return A, or A' if the diagnosis uses the carry-over frontier."""
    carried = diagnosis.frontier == "carry_over" and diagnosis.carry_over_shares
    return diagnosis.carry_over_shares if carried else diagnosis.shares


def leads_by_row(measures: Measures, leader_N: Ints) -> Floats:
    """Return the number of these boundaries at which each rank with rows is the slowest, [R]."""
    counts = np.bincount(leader_N, minlength=len(measures.led_by)).astype(np.float64)
    if measures.has_all_rows:
        return counts
    place = {rank: index for index, rank in enumerate(measures.led_by.rank)}
    return counts[[place[rank] for rank in measures.window.ranks.rank]]


def too_few_rows(measures: Measures) -> str:
    """Return why a plot over all ranks cannot be drawn for a reduced window."""
    kept = measures.window.ranks.rank
    return (
        f"The frontier was reduced over {format.counted(measures.ranks, 'rank')}; the packet keeps the rows "
        f"of {format.count(len(kept))} of them ({format.ranges(kept)}), and this plot needs all rows"
    )


def step_index(measures: Measures, step: int | None) -> int | None:
    """Return the position of a logical step number; None for the mean, or if the window lacks it."""
    if step is None:
        return None
    found = np.flatnonzero(measures.step_N == step)
    return int(found[0]) if len(found) else None


def stage_members(measures: Measures, stage: str) -> tuple[int, ...]:
    """Return the positions of the recorded stages that a stage name covers; empty if unknown."""
    names = measures.window.stages
    if stage in measures.broad:
        return tuple(index for index, name in enumerate(names) if broad_stage(name) == stage)
    return (names.index(stage),) if stage in names else ()


def time_in(measures: Measures, stage: str) -> Ints:
    """Return the time of every rank in a broad or recorded stage that the window has, ns [N, R]."""
    members = stage_members(measures, stage)
    if len(members) == 1:
        return to_numpy(measures.window.duration_SNR[members[0]])
    return to_numpy(measures.window.duration_SNR[list(members)].sum(axis=0))


def waits_in(measures: Measures, stage: str) -> Floats | None:
    """Return how long every rank waited for others in a stage, ns [N, R], 0 where not measured; None if the
    packet holds no waits of the stage (accounting.md §15)."""
    window = measures.window
    names = (window.stages[member] for member in stage_members(measures, stage))
    known = [to_numpy(window.waits[name]).clip(min=0) for name in names if name in window.waits]
    return np.sum(known, axis=0, dtype=np.float64) if known else None


def position_after(measures: Measures, active: ActiveFrontier, stages: int) -> Floats:
    """Return every rank's time after the first recorded stages of each step, ns from its start [N, R].

    With carry-over a rank may start earlier than the last one, below zero; the frontier starts at zero.
    """
    duration_SNR = measures.window.duration_SNR
    own_NR = to_numpy(duration_SNR[:stages].sum(axis=0)).astype(np.float64)
    if active.carry is None:
        return np.asarray(own_NR)
    total_NR = to_numpy(duration_SNR.sum(axis=0))
    before_N = np.concatenate([[active.carry.start], active.carry.frontier_SN[-1, :-1]])
    start_NR = total_NR.cumsum(axis=0) - total_NR - active.carry.offset_R - before_N[:, None]
    return np.asarray(own_NR + start_NR)


def mean_rise(advance_SN: Ints | Floats, index: int | None) -> Floats:
    """Return the advances of one step, or their mean over the window, ns [S]."""
    if index is None:
        return np.asarray(advance_SN.mean(axis=1), dtype=np.float64)
    return advance_SN[:, index].astype(np.float64)


def main_leaders(active: ActiveFrontier, index: int | None, ranks: int) -> list[tuple[int, float, int]]:
    """Return, per recorded stage, the rank position that set most of the advance, its part and its steps.

    For one step the leader has part 1 and one step.
    """
    stages, steps = active.advance_SN.shape
    if index is not None:
        return [(int(active.leader_SN[stage, index]), 1.0, 1) for stage in range(stages)]
    found = []
    for stage in range(stages):
        weight_R = np.bincount(active.leader_SN[stage], weights=active.advance_SN[stage], minlength=ranks)
        total = float(weight_R.sum())
        if total <= 0:
            weight_R = np.bincount(active.leader_SN[stage], minlength=ranks).astype(np.float64)
            total = float(steps)
        rank = int(weight_R.argmax())
        found.append((rank, float(weight_R[rank] / total), int((active.leader_SN[stage] == rank).sum())))
    return found
