"""What clipping a stage would bring: baselines, static gain, takeover (accounting.md §4; paper eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sfapp.accounting.kernels import median_last, row_blocks
from sfapp.errors import WindowError
from sfapp.model import Baseline, Reference


def baseline_of(
    duration_SNR: torch.Tensor,
    median_SN: torch.Tensor,
    stages: Sequence[str],
    baseline: Baseline,
    reference: Reference | None,
) -> torch.Tensor:
    """The candidate baseline b̃, float64 ns, broadcastable against [S, N, R].

    Args:
        duration_SNR: int64 ns of one window.
        median_SN: float64 ns, the median over ranks of every stage and step.
        baseline: ``rank_median``: each rank's median over the window's steps; ``cohort_median``: each
            step's median over ranks; ``reference``: per stage, the median of a healthy window.
        reference: needed for ``reference``.

    Raises:
        WindowError: baseline ``reference`` without a reference of the same stages.
    """
    if baseline == "cohort_median":
        return median_SN.unsqueeze(-1)
    if baseline == "rank_median":
        return median_last(duration_SNR.transpose(1, 2).contiguous()).unsqueeze(1)
    if reference is None:
        raise WindowError("baseline 'reference' needs a healthy window to take it from: choose one")
    missing = [stage for stage in stages if stage not in reference.stage_median_ns]
    if missing:
        raise WindowError(
            f"window {reference.window} of run {reference.run_id!r} cannot be the reference: "
            f"it has no stage {missing[0]!r}"
        )
    medians = [reference.stage_median_ns[stage] for stage in stages]
    return torch.tensor(medians, dtype=torch.float64, device=duration_SNR.device).reshape(-1, 1, 1)


def _over_baseline(duration_nR: torch.Tensor, baseline: torch.Tensor, rows: slice) -> torch.Tensor:
    """d − min(d, b̃), ns: what clipping takes off, for some steps of one stage."""
    level = baseline[rows] if baseline.shape[0] > 1 else baseline
    return (duration_nR - level).clamp_(min=0)


def clipped_makespan(
    duration_SNR: torch.Tensor,
    total_NR: torch.Tensor,
    baseline_SNR: torch.Tensor,
    broad_of_S: Sequence[int],
) -> torch.Tensor:
    """F[S,t] with each broad stage clipped to its baseline in turn: float64 ns [B, N].

    Only totals move, so no second frontier pass is needed.
    """
    broads = max(broad_of_S) + 1
    _, steps, ranks = duration_SNR.shape
    clipped_BN = torch.empty(broads, steps, dtype=torch.float64, device=duration_SNR.device)
    for rows in row_blocks(steps, ranks):
        total_nR = total_NR[rows].double()
        for broad in range(broads):
            remaining_nR = total_nR
            for stage in (s for s, b in enumerate(broad_of_S) if b == broad):
                over = _over_baseline(duration_SNR[stage, rows], baseline_SNR[stage], rows)
                remaining_nR = remaining_nR - over
            clipped_BN[broad, rows] = remaining_nR.amax(dim=-1)
    return clipped_BN


def clipped_frontier(
    duration_SNR: torch.Tensor,
    baseline_SNR: torch.Tensor,
    clipped: Sequence[int],
) -> torch.Tensor:
    """The frontier recomputed with some stages clipped to the baseline: float64 ns [S, N] (takeover, §4)."""
    stages, steps, ranks = duration_SNR.shape
    frontier_SN = torch.empty(stages, steps, dtype=torch.float64, device=duration_SNR.device)
    for rows in row_blocks(steps, ranks):
        prefix_nR = torch.zeros_like(duration_SNR[0, rows], dtype=torch.float64)
        for stage in range(stages):
            spent_nR = duration_SNR[stage, rows]
            prefix_nR += spent_nR
            if stage in clipped:
                prefix_nR -= _over_baseline(spent_nR, baseline_SNR[stage], rows)
            frontier_SN[stage, rows] = prefix_nR.amax(dim=-1)
    return frontier_SN
