"""Separate own time from waiting inside a stage to find the last rank to arrive (accounting.md §15).

A rank that is slow inside a stage in which ranks wait for each other makes that stage equally long on all
ranks. If each rank's waiting was measured, the frontier at the end of the own parts shows which rank was
late. The frontier at the end of a stage does not change, so advances and shares stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sfapp.accounting.kernels import first_argmax, middle_last, two_largest_last
from sfapp.accounting.leaders import Flags, Floats, Ints
from sfapp.model import Window
from sfapp.model.arrays import Array, to_numpy
from sfapp.model.window import NOT_MEASURED


@dataclass(frozen=True, slots=True, eq=False)
class OwnBoundaries:
    """A frontier whose leaders are taken at the end of the own part of each stage. NumPy on the host.

    Attributes:
        advance_SN: a_own, int64 ns: the advance by the own part; the whole advance of a stage whose waits are
            not known in that step.
        leader_SN: position of the rank whose own part ends last.
        gap_SN: its distance to the next rank, ns.
    """

    advance_SN: Ints
    leader_SN: Ints
    gap_SN: Ints


@dataclass(frozen=True, slots=True, eq=False)
class OwnDurations:
    """Own time over the ranks: as the same fields of ``Measures``, without waiting.

    Attributes:
        split_SN: bool, where the waits of every rank are known.
        median_SN: median over ranks, ns; most_SN: the lower middle value.
    """

    split_SN: Flags
    median_SN: Floats
    most_SN: Floats


def split_steps(window: Window) -> Flags:
    """Return in which steps the waits of every rank in a stage are known: bool [S, N].

    A rank without a measured wait would appear to have only own time, so such a step is not split. For a
    reduced window, the ranks have determined this together.
    """
    split_SN = np.zeros(window.duration_SNR.shape[:2], dtype=bool)
    if window.reduced is not None:
        own, reduction = window.reduced.own, window.manifest.reduced
        if own is not None and reduction is not None:
            for stage, frontier_N in zip(reduction.waits, to_numpy(own.frontier_VN), strict=True):
                split_SN[window.stages.index(stage)] = frontier_N != NOT_MEASURED
        return split_SN
    for stage, wait_NR in window.waits.items():
        split_SN[window.stages.index(stage)] = (to_numpy(wait_NR) != NOT_MEASURED).all(axis=-1)
    return split_SN


def own_duration(window: Window, stage: int) -> Array:
    """Return d minus the wait in a recorded stage with measured waits, int64 ns [N, R]."""
    wait_NR = window.waits[window.stages[stage]]
    return window.duration_SNR[stage] - wait_NR.clip(min=0)


def own_durations(window: Window, median_SN: Floats, most_SN: Floats) -> OwnDurations:
    """Return medians over ranks of own time, or of the whole stage where its waits are not known.

    Args:
        median_SN, most_SN: of the whole durations.
    """
    split_SN = split_steps(window)
    median_SN, most_SN = median_SN.copy(), most_SN.copy()
    for stage in np.flatnonzero(split_SN.any(axis=1)).tolist():
        most_N, median_N = map(to_numpy, middle_last(own_duration(window, stage)))
        median_SN[stage] = np.where(split_SN[stage], median_N, median_SN[stage])
        most_SN[stage] = np.where(split_SN[stage], most_N, most_SN[stage])
    return OwnDurations(split_SN, median_SN, most_SN)


def at_own_end(
    window: Window,
    before_SN: Ints,
    whole: OwnBoundaries,
    start_NR: Array | None = None,
) -> OwnBoundaries:
    """Return leaders and advances of a frontier, at the end of the own part for stages with known waits.

    Args:
        before_SN: the frontier at the boundary before each (s, t), ns.
        whole: advances, leaders and gaps at the end of each stage.
        start_NR: int64 ns, the value at which each rank's prefix starts in each step; 0 if None.
    """
    split_SN = split_steps(window)
    stages = np.flatnonzero(split_SN.any(axis=1)).tolist()
    if not stages:
        return whole
    advance_SN, leader_SN, gap_SN = whole.advance_SN.copy(), whole.leader_SN.copy(), whole.gap_SN.copy()
    for stage in stages:
        prefix_NR = window.duration_SNR[:stage].sum(axis=0) + own_duration(window, stage)
        if start_NR is not None:
            prefix_NR = prefix_NR + start_NR
        two_N2 = to_numpy(two_largest_last(prefix_NR))
        split_N = split_SN[stage]
        own_N = two_N2[:, 0] - before_SN[stage]
        advance_SN[stage] = np.where(split_N, own_N, advance_SN[stage])
        leader_SN[stage] = np.where(split_N, to_numpy(first_argmax(prefix_NR)), leader_SN[stage])
        gap_SN[stage] = np.where(split_N, two_N2[:, 0] - two_N2[:, -1], gap_SN[stage])
    return OwnBoundaries(advance_SN, leader_SN, gap_SN)


class OwnFrontier(Protocol):
    """A frontier with leaders at the end of own time: ``Measures`` and ``CarryOver``."""

    @property
    def advance_SN(self) -> Ints: ...

    @property
    def own_advance_SN(self) -> Ints: ...

    @property
    def leader_SN(self) -> Ints: ...

    @property
    def gap_SN(self) -> Ints: ...


def own_excess(own: OwnDurations, frontier: OwnFrontier, median_SN: Floats, ranks: int) -> Floats:
    """Return the excess of own time over a typical rank's, by recorded stage, ns [S].

    **choice** Within a stage in which ranks wait, some rank is always the last. Time lost because the slowest
    rank changes is jitter and needs no attention. The excess of such a stage is therefore at most what one
    rank costs beyond the others: its gaps where it leads, minus the mean of the other ranks' gaps.

    Args:
        median_SN: median over ranks of the whole durations, used where waits are not known.
        ranks: number of ranks that took part.
    """
    split_SN = own.split_SN
    whole_SN = (frontier.advance_SN - median_SN).clip(min=0)
    excess_S = np.where(split_SN, 0.0, whole_SN).sum(axis=1)
    own_SN = (frontier.own_advance_SN - own.median_SN).clip(min=0)
    for stage in np.flatnonzero(split_SN.any(axis=1)).tolist():
        split_N = split_SN[stage]
        gap_R = np.bincount(frontier.leader_SN[stage, split_N], weights=frontier.gap_SN[stage, split_N])
        most = float(gap_R.max())
        beyond_others = most - (float(gap_R.sum()) - most) / max(1, ranks - 1)
        excess_S[stage] += max(0.0, min(beyond_others, float(own_SN[stage, split_N].sum())))
    return np.asarray(excess_S)
