"""Measures of a window that its ranks reduced: no matrix to walk, and none to guess from (docs/packet.md)."""

from __future__ import annotations

import numpy as np

from sfapp.accounting.closure import Closure
from sfapp.accounting.frontier import Boundaries
from sfapp.accounting.kernels import as_float, previous_boundary
from sfapp.accounting.measures import Measures
from sfapp.accounting.overflow import check_totals
from sfapp.model import Baseline, Window, broad_stage
from sfapp.model.arrays import to_numpy


def measure_reduced(window: Window, baseline: Baseline) -> Measures:
    """Return what the ranks found together as ``measure_many`` finds it from rows: the same to the last bit.

    What needs the rows of all ranks (medians, and with them gains, excess, lags, the wait fit and a sync
    boundary) is NaN: nothing is guessed from those that were kept.
    """
    reduced, reduction = window.reduced, window.manifest.reduced
    assert reduced is not None  # the caller asked
    assert reduction is not None  # Window's own rule
    check_totals(window)
    stages, steps = reduced.frontier_SN.shape
    absent_SN = np.full((stages, steps), np.nan)
    broad = window.broad_stages
    # Leaders as positions in ``led_by``, which lists each of them once.
    places = {rank: place for place, rank in enumerate(window.led_by.rank)}
    place_of = np.vectorize(places.__getitem__, otypes=[np.int64])
    leader_SN = place_of(to_numpy(reduced.leader_SN))
    carry_leader_SN = place_of(to_numpy(reduced.carry_leader_SN))
    found = Measures(
        window=window,
        baseline=baseline,
        broad=broad,
        broad_of_S=tuple(broad.index(broad_stage(stage)) for stage in window.stages),
        frontier_SN=to_numpy(reduced.frontier_SN),
        advance_SN=(advance_SN := to_numpy(reduced.frontier_SN - previous_boundary(reduced.frontier_SN))),
        own_advance_SN=advance_SN,
        leader_SN=leader_SN,
        gap_SN=to_numpy(reduced.frontier_SN - reduced.second_SN),
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
    carried = Boundaries(reduced.carry_frontier_SN, carry_leader_SN, reduced.carry_second_SN)
    found.remember_unaligned(carried)
    return found
