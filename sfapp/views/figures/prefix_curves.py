"""Compute prefix curves of one step or the mean step: positions, frontier, slowest ranks, crossings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.arrays import to_numpy
from sfapp.views import format
from sfapp.views.figures.active_frontier import ActiveFrontier, Floats


@dataclass(frozen=True, slots=True)
class Crossing:
    """One rank overtakes another as the slowest between two boundaries.

    Attributes:
        old, new: rank positions. x: in boundaries. height: ns. lead: of the new rank at the next boundary,
            ns.
    """

    old: int
    new: int
    x: float
    height: float
    lead: float


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Time since the step began, ns; boundary 0 is the start.

    Attributes:
        position_SR: [S+1, R]; below zero at boundary 0 for ranks that start before the last one.
        frontier_S: [S+1]. leader_S: positions of the slowest ranks at the S boundaries. gap_S: to the next
        rank.
    """

    position_SR: Floats
    frontier_S: Floats
    leader_S: tuple[int, ...]
    gap_S: Floats

    def sure_leaders(self, eta_q: float) -> list[int | None]:
        """Return the slowest rank of each boundary if it is clear by ηQ of the step, else None."""
        least = eta_q * float(self.frontier_S[-1])
        return [
            leader if gap >= least else None for leader, gap in zip(self.leader_S, self.gap_S, strict=True)
        ]

    def handovers(self, eta_q: float) -> list[Crossing]:
        """Return the changes between clear slowest ranks, at which the curves cross, the clearest first."""
        sure = self.sure_leaders(eta_q)
        found = []
        for stage in range(1, len(sure)):
            old, new = sure[stage - 1], sure[stage]
            if old is None or new is None or old == new:
                continue
            before = float(self.position_SR[stage, old] - self.position_SR[stage, new])
            after = float(self.position_SR[stage + 1, new] - self.position_SR[stage + 1, old])
            part = before / (before + after) if before + after > 0 else 0.5
            low, high = self.position_SR[stage, new], self.position_SR[stage + 1, new]
            found.append(Crossing(old, new, stage + part, float(low + part * (high - low)), after))
        return sorted(found, key=lambda crossing: -crossing.lead)


@dataclass(frozen=True, eq=False)
class CurvesInput:
    """Content of the two panels: the curves, and the lead over the slowest rank.

    Attributes:
        shown: the role of each rank position with its own line: ``suspect``, ``slowest`` or ``selected``.
    """

    measures: Measures
    diagnosis: Diagnosis
    active: ActiveFrontier
    curves: Curves
    shown: dict[int, str]
    which: str
    dark: bool

    @cached_property
    def behind_SR(self) -> Floats:
        return np.asarray(self.curves.frontier_S[:, None] - self.curves.position_SR)

    @cached_property
    def unit(self) -> format.Unit:
        return format.unit_for(float(np.abs(self.curves.position_SR).max()))

    @cached_property
    def behind_unit(self) -> format.Unit:
        return format.unit_for(float(self.behind_SR.max()))

    def height(self, panel: int) -> Floats:
        if panel == 0:
            return self.curves.position_SR / self.unit.ns
        return self.behind_SR / self.behind_unit.ns


def curves_of(measures: Measures, active: ActiveFrontier, index: int | None) -> Curves:
    """Return the curves of one step, or the mean of all."""
    return _mean_step(measures, active) if index is None else _one_step(measures, active, index)


def _one_step(measures: Measures, active: ActiveFrontier, index: int) -> Curves:
    duration_SNR = measures.window.duration_SNR
    own_SR = to_numpy(duration_SNR[:, index, :]).cumsum(axis=0)
    start_R: Floats = np.zeros(measures.ranks)
    if active.carry:
        used_R = to_numpy(duration_SNR[:, :index, :].sum(axis=(0, 1)))
        before = active.carry.frontier_SN[-1, index - 1] if index else active.carry.start
        start_R = (used_R - active.carry.offset_R - before).astype(np.float64)
    return _curves(
        start_R,
        own_SR,
        active.advance_SN[:, index].astype(np.float64),
        tuple(int(leader) for leader in active.leader_SN[:, index]),
        active.gap_SN[:, index].astype(np.float64),
    )


def _mean_step(measures: Measures, active: ActiveFrontier) -> Curves:
    duration_SNR = measures.window.duration_SNR
    own_SR = to_numpy(duration_SNR.sum(axis=1)).cumsum(axis=0) / measures.steps
    start_R: Floats = np.zeros(measures.ranks)
    if active.carry:
        # The mean over steps of the exclusive running sum: step t counts in all later steps.
        total_NR = to_numpy(duration_SNR.sum(axis=0))
        used_R = np.arange(measures.steps - 1, -1, -1) @ total_NR / measures.steps
        before_N = np.concatenate([[active.carry.start], active.carry.frontier_SN[-1, :-1]])
        start_R = np.asarray(used_R - active.carry.offset_R - before_N.mean(), dtype=np.float64)
    leaders = [np.bincount(row, minlength=measures.ranks) for row in active.leader_SN]
    leader_S = tuple(int(counts.argmax()) for counts in leaders)
    mean = _curves(start_R, own_SR, active.advance_SN.mean(axis=1), leader_S, np.zeros(len(leader_S)))
    # In the mean step, the gap of a boundary is that of the most frequent slowest rank to the next mean.
    ends_SR = mean.position_SR[1:]
    rows = np.arange(len(leader_S))
    of_leader_S = ends_SR[rows, leader_S]
    rest_SR = ends_SR.copy()
    rest_SR[rows, leader_S] = -np.inf
    gap_S = of_leader_S - rest_SR.max(axis=1) if measures.ranks > 1 else np.zeros(len(leader_S))
    return Curves(mean.position_SR, mean.frontier_S, leader_S, np.asarray(gap_S))


def _curves(
    start_R: Floats, own_SR: Floats, advance_S: Floats, leader_S: tuple[int, ...], gap_S: Floats
) -> Curves:
    position_SR = np.vstack([start_R, start_R + own_SR]).astype(np.float64)
    frontier_S = np.concatenate([[0.0], advance_S.cumsum()])
    return Curves(position_SR, frontier_S, leader_S, gap_S)
