"""Windows of generated jobs whose ranks differ by noise only, for a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.accounting import job
from sfapp.model import Window

USUAL_NS = (2e6, 20e6, 40e6, 1e6, 3e6, 1e5)
"""Usual time of each stage."""


def noisy_durations(ranks: int, steps: int, seed: int) -> npt.NDArray[np.int64]:
    """Return stage durations with noise of 2 %, int64 ns [S, N, R]."""
    noise = np.random.default_rng(seed).normal(1.0, 0.02, (len(USUAL_NS), steps, ranks))
    durations_SNR: npt.NDArray[np.int64] = (np.reshape(USUAL_NS, (-1, 1, 1)) * noise).astype(np.int64)
    return durations_SNR


def window_on_hosts(
    run_id: str, number: int, durations_SNR: npt.NDArray[np.int64], hosts: Sequence[str], **manifest: Any
) -> Window:
    """Return these durations as a window of a run.

    Args:
        hosts: names of the nodes, on which the ranks are spread evenly.
        manifest: further fields of the manifest.
    """
    _, steps, ranks = durations_SNR.shape
    made = job(ranks, steps)
    nodes = tuple(rank * len(hosts) // ranks for rank in range(ranks))
    return replace(
        made,
        manifest=replace(made.manifest, run_id=run_id, window=number, **manifest),
        duration_SNR=durations_SNR,
        wall_NR=durations_SNR.sum(axis=0),
        step_N=np.arange(number * steps, (number + 1) * steps),
        ranks=replace(made.ranks, hostname=tuple(hosts[node] for node in nodes), node_rank=nodes),
    )


def part(window: Window, rank: int) -> Window:
    """Return what one rank writes of a window whose collection failed."""
    return replace(
        window,
        manifest=replace(window.manifest, gather_ok=False, gather_error="timed out"),
        duration_SNR=window.duration_SNR[:, :, [rank]],
        wall_NR=window.wall_NR[:, [rank]],
        ranks=window.ranks.select([rank]),
    )
