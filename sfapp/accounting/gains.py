"""Effects of clipping a stage: baselines, static gain, takeover (accounting.md §4; paper eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from sfapp.accounting import kernels
from sfapp.accounting.kernels import as_float, empty, full, max_last, median_last, placed, row_blocks
from sfapp.errors import WindowError
from sfapp.model import Baseline, Reference
from sfapp.model.arrays import Array


def baseline_of(
    duration_SNR: Array,
    median_SN: Array,
    stages: Sequence[str],
    baseline: Baseline,
    reference: Reference | None,
) -> Array:
    """Return the candidate baseline b̃, float64 ns, broadcastable against [S, N, R].

    Args:
        duration_SNR: int64 ns of one window.
        median_SN: float64 ns, the median over ranks of every stage and step.
        baseline: ``rank_median``: each rank's median over the window's steps; ``cohort_median``: each
            step's median over ranks; ``reference``: per stage, the median of a healthy window.
        reference: needed for the baseline ``reference``.

    Raises:
        WindowError: baseline ``reference`` without a reference of the same stages.
    """
    if baseline == "cohort_median":
        return median_SN[..., None]
    if baseline == "rank_median":
        return median_last(duration_SNR.swapaxes(1, 2))[:, None]
    if reference is None:
        raise WindowError("baseline 'reference' needs a healthy window to take it from: choose one")
    missing = [stage for stage in stages if stage not in reference.stage_median_ns]
    if missing:
        raise WindowError(
            f"window {reference.window} of run {reference.run_id!r} cannot be the reference: "
            f"it has no stage {missing[0]!r}"
        )
    medians = [reference.stage_median_ns[stage] for stage in stages]
    return placed(np.array(medians, dtype=np.float64), duration_SNR).reshape(-1, 1, 1)


def _over_baseline(duration_nR: Array, baseline: Array, rows: slice) -> Array:
    """Return d − min(d, b̃), ns: the time that clipping removes, for some steps of one stage."""
    level = baseline[rows] if baseline.shape[0] > 1 else baseline
    return (duration_nR - level).clip(min=0)


def clipped_makespan(
    duration_SNR: Array,
    total_NR: Array,
    baseline_SNR: Array,
    broad_of_S: Sequence[int],
) -> Array:
    """Return F[S,t] with each broad stage clipped to its baseline in turn: float64 ns [B, N].

    Only totals change, so no second frontier pass is needed.
    """
    broads = max(broad_of_S) + 1
    _, steps, ranks = duration_SNR.shape
    clipped_BN = empty((broads, steps), duration_SNR, "float64")
    if kernels.uses_compiled(duration_SNR):
        broad_index_S = np.asarray(broad_of_S, dtype=np.int64)
        level = np.ascontiguousarray(baseline_SNR)
        total = np.ascontiguousarray(total_NR)
        clip = partial(
            kernels.compiled.clipped_makespan, duration_SNR, total, level, broad_index_S, clipped_BN
        )
        kernels.in_parallel(clip, steps, duration_SNR.size)
        return clipped_BN
    for rows in row_blocks(steps, ranks, duration_SNR):
        total_nR = as_float(total_NR[rows])
        for broad in range(broads):
            remaining_nR = total_nR
            for stage in (s for s, b in enumerate(broad_of_S) if b == broad):
                over = _over_baseline(duration_SNR[stage, rows], baseline_SNR[stage], rows)
                remaining_nR = remaining_nR - over
            clipped_BN[broad, rows] = max_last(remaining_nR)
    return clipped_BN


def clipped_frontier(
    duration_SNR: Array,
    baseline_SNR: Array,
    clipped: Sequence[int],
) -> Array:
    """Return the frontier recomputed with some stages clipped to the baseline: float64 ns [S, N] (takeover,
    §4)."""
    stages, steps, ranks = duration_SNR.shape
    frontier_SN = empty((stages, steps), duration_SNR, "float64")
    if kernels.uses_compiled(duration_SNR):
        is_clipped_S = np.zeros(stages, dtype=np.int64)
        is_clipped_S[list(clipped)] = 1
        level = np.ascontiguousarray(baseline_SNR)
        clip = partial(kernels.compiled.clipped_frontier, duration_SNR, level, is_clipped_S, frontier_SN)
        kernels.in_parallel(clip, steps, duration_SNR.size)
        return frontier_SN
    for rows in row_blocks(steps, ranks, duration_SNR):
        prefix_nR = full(duration_SNR[0, rows].shape, 0.0, duration_SNR)
        for stage in range(stages):
            spent_nR = duration_SNR[stage, rows]
            prefix_nR += spent_nR
            if stage in clipped:
                prefix_nR -= _over_baseline(spent_nR, baseline_SNR[stage], rows)
            frontier_SN[stage, rows] = max_last(prefix_nR)
    return frontier_SN
