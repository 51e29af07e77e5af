"""Measure the frontier, the whole diagnosis and a moved gate against simple NumPy code on the same data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from benchmarks.harness import Result, side_by_side
from sfapp.accounting import diagnose, frontier, judge, measure
from sfapp.accounting.frontier import walk
from sfapp.accounting.gains import clipped_makespan
from sfapp.accounting.kernels import middle_last
from sfapp.model import DEFAULT_STAGES, Gates, Manifest, RankTable, Window, stage_hash
from sfapp.model.stages import BACKWARD


def job(ranks: int, steps: int = 100, seed: int = 0, *, waits: bool = False) -> Window:
    """Return a synthetic window in which ranks wait in backward for a random slow data loader, with these
    waits."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([2.0, 20.0, 40.0, 1.0, 3.0, 0.1]).reshape(-1, 1, 1) * 1e6
    duration_SNR = (scale * (1 + 0.05 * torch.rand(6, steps, ranks, generator=generator))).long().numpy()
    slow_N = torch.randint(0, ranks, (steps,), generator=generator).numpy()
    duration_SNR[0, np.arange(steps), slow_N] += 60_000_000
    late_NR = duration_SNR[:3].sum(axis=0)
    wait_NR = late_NR.max(axis=-1, keepdims=True) - late_NR
    duration_SNR[2] += wait_NR
    table = RankTable(
        rank=tuple(range(ranks)),
        local_rank=tuple(rank % 8 for rank in range(ranks)),
        node_rank=tuple(rank // 8 for rank in range(ranks)),
        hostname=tuple(f"node-{rank // 8}" for rank in range(ranks)),
        role=(None,) * ranks,
    )
    manifest = Manifest(
        run_id="bench",
        window=seed,
        stages=DEFAULT_STAGES,
        stage_hash=stage_hash(DEFAULT_STAGES),
        world_size=ranks,
    )
    wall_NR = duration_SNR.sum(axis=0)
    return Window(
        manifest, duration_SNR, wall_NR, np.arange(steps), table, waits={BACKWARD: wait_NR} if waits else {}
    )


def numpy_rank_major(matrix_RNS: np.ndarray) -> np.ndarray:
    """Compute cumulated sums, maxima over ranks and differences, in the paper's own layout."""
    frontier_NS = np.cumsum(matrix_RNS, axis=-1).max(axis=0)
    return np.diff(frontier_NS, axis=-1, prepend=0)


def run() -> Iterator[Result]:
    """Yield results for windows of 16,384 ranks × 100 steps × 6 stages (79 MB); for gates 1,024 × 100 × 6."""
    waited = job(16_384, waits=True)
    window = replace(waited, waits={})
    duration_SNR = window.duration_SNR
    tensor_SNR = torch.from_numpy(duration_SNR)
    total, core = side_by_side(lambda: tensor_SNR.sum(), lambda: frontier(duration_SNR), runs=15)
    yield Result("frontier (F, a, leaders), 16,384 × 100 × 6 / tensor.sum()", core, 2.0, yardstick=total)

    # The paper's part: frontier, leaders, gaps, totals, the cohort median and the static gains.
    def paper_part() -> None:
        walked = walk(duration_SNR)
        _, median_SN = middle_last(duration_SNR)
        clipped_makespan(duration_SNR, walked.total_NR, median_SN[..., None], range(len(duration_SNR)))

    matrix_RNS = np.ascontiguousarray(duration_SNR.transpose(2, 1, 0))
    textbook, whole, with_waits, paper = side_by_side(
        lambda: numpy_rank_major(matrix_RNS), lambda: diagnose(window), lambda: diagnose(waited), paper_part
    )
    yield Result("diagnose, the paper's part / NumPy cumsum+max+diff", paper, 1.5, yardstick=textbook)
    yield Result(
        "diagnose with carry-over and wait fit / NumPy cumsum+max+diff", whole, 8.0, yardstick=textbook
    )

    yield Result(
        "the same with waits within a stage / NumPy cumsum+max+diff", with_waits, 10.0, yardstick=textbook
    )

    measures = measure(job(1_024))
    judge(measures)
    gates = [Gates(tau_c=0.5 + 0.004 * step, gamma_a=0.3 + 0.002 * step) for step in range(100)]
    (moved,) = side_by_side(lambda: [judge(measures, choice) for choice in gates], runs=5)
    yield Result("moving a gate, 1,024 × 100 × 6", moved / len(gates), 0.002)
