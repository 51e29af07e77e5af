"""Measures of a reduced window, which has no matrix (docs/packet.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sfapp.accounting.carry_over import frontier_before
from sfapp.accounting.closure import Closure
from sfapp.accounting.frontier import Boundaries
from sfapp.accounting.kernels import as_float, previous_boundary
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.overflow import check_totals
from sfapp.accounting.own_time import OwnBoundaries
from sfapp.model import Baseline, Window, broad_stage
from sfapp.model.arrays import to_numpy
from sfapp.model.window import NOT_MEASURED


def measure_reduced(window: Window, baseline: Baseline) -> Measures:
    """Return measures from the ranks' reduction, equal to the last bit to those of ``measure_many`` from
    rows.

    Results that need the rows of all ranks (medians, and with them gains, excess, lags, the wait fit and a
    sync boundary) are NaN; the kept rows are not used to guess them.
    """
    reduced, reduction = window.reduced, window.manifest.reduced
    assert reduced is not None  # the caller asked
    assert reduction is not None  # Window's own rule
    check_totals(window)
    stages, steps = reduced.frontier_SN.shape
    absent_SN = np.full((stages, steps), np.nan)
    broad = window.broad_stages
    # Leaders as positions in ``led_by``, which lists each leader once.
    places = {rank: place for place, rank in enumerate(window.led_by.rank)}
    place_of = np.vectorize(places.__getitem__, otypes=[np.int64])
    frontier_SN = to_numpy(reduced.frontier_SN)
    before_SN = previous_boundary(frontier_SN)
    whole = OwnBoundaries(
        frontier_SN - before_SN,
        place_of(to_numpy(reduced.leader_SN)),
        to_numpy(reduced.frontier_SN - reduced.second_SN),
    )
    own = _at_own_end(window, "", before_SN, whole, place_of)
    found = Measures(
        window=window,
        baseline=baseline,
        broad=broad,
        broad_of_S=tuple(broad.index(broad_stage(stage)) for stage in window.stages),
        frontier_SN=frontier_SN,
        advance_SN=whole.advance_SN,
        own_advance_SN=own.advance_SN,
        leader_SN=own.leader_SN,
        gap_SN=own.gap_SN,
        median_SN=absent_SN,
        most_SN=absent_SN,
        mean_SN=to_numpy(as_float(reduced.total_SN) / reduction.ranks),
        max_SN=to_numpy(reduced.largest_SN),
        slowest_SN=np.zeros((stages, steps), dtype=np.int64),
        first_rank_SN=to_numpy(window.duration_SNR[:, :, 0]),
        clipped_BN=np.full((len(broad), steps), np.nan),
        wait_slope_S=np.full(stages, np.nan),
        wait_se_S=np.full(stages, np.nan),
        closure=Closure(
            float(reduction.residual_ns) / float(max(1, reduction.wall_ns)), reduction.overlap_share
        ),
        consecutive=bool((np.diff(window.step_N) == 1).all()),
        _baseline_SNR=np.empty(0),
        before_NR=np.empty(0),
    )
    carry_SN = to_numpy(reduced.carry_frontier_SN)
    carried = Boundaries(
        carry_SN, place_of(to_numpy(reduced.carry_leader_SN)), to_numpy(reduced.carry_second_SN)
    )
    before_SN = to_numpy(frontier_before(carry_SN))
    whole = OwnBoundaries(carry_SN - before_SN, carried.leader_SN, carried.gap_SN)
    found.remember_unaligned(carried, _at_own_end(window, "carry_", before_SN, whole, place_of))
    return found


def _at_own_end(
    window: Window, prefix: str, before_SN: Ints, whole: OwnBoundaries, place_of: Callable[[Ints], Ints]
) -> OwnBoundaries:
    """Return ``whole`` with the reduction at the ends of own time where waits are known (§15).

    Args:
        prefix: ``carry_`` for the carry-over frontier, else empty.
        before_SN: the frontier at the boundary before each (s, t), ns.
        place_of: position of each rank in ``led_by``.
    """
    reduced, reduction = window.reduced, window.manifest.reduced
    if reduced is None or reduced.own is None or reduction is None:
        return whole
    advance_SN, leader_SN, gap_SN = whole.advance_SN.copy(), whole.leader_SN.copy(), whole.gap_SN.copy()
    planes = reduced.own.planes()
    for index, name in enumerate(reduction.waits):
        stage = window.stages.index(name)
        frontier_N, leader_N, second_N = (
            to_numpy(planes[f"own_{prefix}{plane}"])[index] for plane in ("frontier", "leader", "second")
        )
        split_N = frontier_N != NOT_MEASURED
        advance_SN[stage, split_N] = (frontier_N - before_SN[stage])[split_N]
        leader_SN[stage, split_N] = place_of(leader_N[split_N])
        gap_SN[stage, split_N] = (frontier_N - second_N)[split_N]
    return OwnBoundaries(advance_SN, leader_SN, gap_SN)
