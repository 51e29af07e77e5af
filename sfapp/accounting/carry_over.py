"""The carry-over frontier: prefixes that continue over the whole window (accounting.md §10).

A delay after a step's last group wait reaches the group only in the next step. Continuous prefixes charge it
to the stage that caused it. The advances still add up exactly, and no shared clock is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfapp.accounting.frontier import Boundaries, running_boundaries
from sfapp.accounting.kernels import max_last, median_last, placed
from sfapp.accounting.leaders import Ints
from sfapp.accounting.own_time import OwnBoundaries, at_own_end
from sfapp.model import Window
from sfapp.model.arrays import Array, namespace, to_numpy


@dataclass(frozen=True, slots=True, eq=False)
class CarryOverFrontier:
    """The window-aligned accounting.

    Attributes:
        boundaries: F', leaders and runners-up, each [S, N].
        start: F' before the first boundary, ns.
        advance_SN: a', int64 ns ≥ 0; sums exactly to F'(last) − F'(start).
        offset_R: o, int64 ns, subtracted from each rank so that ranks synchronise at the sync boundary.
        sync_stage: position of the sync boundary's stage, None if no wait stage was found.
    """

    boundaries: Boundaries
    start: int
    advance_SN: Array
    offset_R: Array
    sync_stage: int | None


def steps_before(total_NR: Array) -> Array:
    """Return the time that each rank used before each step: exclusive sum over steps, [..., N, R]."""
    xp = namespace(total_NR)
    before = xp.empty_like(total_NR)
    before[..., 0, :] = 0
    # Row by row: on wide rows, a cumulative sum along another axis than the last is several times slower.
    for step in range(1, total_NR.shape[-2]):
        xp.add(before[..., step - 1, :], total_NR[..., step - 1, :], out=before[..., step, :])
    return before


def frontier_before(frontier_SN: Array, start: int = 0) -> Array:
    """Return F' at the boundary before each (s, t), boundaries in order (t, s): [S, ..., N]."""
    before = namespace(frontier_SN).empty_like(frontier_SN)
    before[1:] = frontier_SN[:-1]
    before[0, ..., 0] = start
    before[0, ..., 1:] = frontier_SN[-1, ..., :-1]
    return before


def carry_over(
    duration_SNR: Array,
    before_NR: Array,
    offset_R: Array | None = None,
    sync_stage: int | None = None,
) -> CarryOverFrontier:
    """Compute the carry-over accounting with the rank offsets o (§10).

    Args:
        duration_SNR: int64 ns.
        before_NR: int64 ns, from ``steps_before``.
        offset_R: int64 ns; zeros if None.
        sync_stage: the stage that the offsets belong to.
    """
    if offset_R is None:
        offset_R = placed(np.zeros(duration_SNR.shape[2], dtype=np.int64), duration_SNR)
    boundaries = running_boundaries(duration_SNR, before_NR - offset_R)
    start = int((-offset_R).max())
    advance_SN = boundaries.frontier_SN - frontier_before(boundaries.frontier_SN, start)
    return CarryOverFrontier(boundaries, start, advance_SN, offset_R, sync_stage)


def sync_offsets(duration_SNR: Array, before_NR: Array, stage: int) -> tuple[Array, float]:
    """Return how closely ranks synchronise at the end of a stage: their offsets and the remaining distance.

    dev[t,r] = C − median_r C; off[r] = median_t dev; disp = median_t max_r |dev − off| (§10).

    Returns:
        off, float64 ns [R]; disp, ns.
    """
    position_NR = before_NR + duration_SNR[: stage + 1].sum(axis=0)
    deviation_NR = position_NR - median_last(position_NR)[..., None]
    offset_R = median_last(deviation_NR.T)
    spread_N = max_last(abs(deviation_NR - offset_R))
    return offset_R, float(median_last(spread_N))


@dataclass(frozen=True, slots=True, eq=False)
class CarryOver:
    """The carry-over accounting of a window, in NumPy on the host; fields as in ``CarryOverFrontier``.

    ``own_advance_SN``, ``leader_SN`` and ``gap_SN`` are as in ``Measures``.
    """

    frontier_SN: Ints
    start: int
    advance_SN: Ints
    own_advance_SN: Ints
    leader_SN: Ints
    gap_SN: Ints
    offset_R: Ints
    boundary: int | None

    @classmethod
    def of(cls, found: CarryOverFrontier, window: Window, before_NR: Array) -> CarryOver:
        """Return the accounting of a window.

        Args:
            before_NR: int64 ns, from ``steps_before``.
        """
        frontier_SN, advance_SN = to_numpy(found.boundaries.frontier_SN), to_numpy(found.advance_SN)
        whole = OwnBoundaries(
            advance_SN, to_numpy(found.boundaries.leader_SN), to_numpy(found.boundaries.gap_SN)
        )
        own = whole
        if window.waits and window.reduced is None:
            before_SN = frontier_before(frontier_SN, found.start)
            own = at_own_end(
                window, before_SN, whole, before_NR - placed(to_numpy(found.offset_R), before_NR)
            )
        return cls(
            frontier_SN=frontier_SN,
            start=found.start,
            advance_SN=advance_SN,
            own_advance_SN=own.advance_SN,
            leader_SN=own.leader_SN,
            gap_SN=own.gap_SN,
            offset_R=to_numpy(found.offset_R),
            boundary=found.sync_stage,
        )
