"""Rows of a running job, as an aggregator collects them, from durations that a test plants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sfapp.model import DEFAULT_STAGES, RankIdentity
from sfapp.model.live_rows import LiveRank, LiveRows

Ints = npt.NDArray[np.int64]


def live_rows(
    duration_SNR: Ints,
    *,
    first_step: int = 100,
    world_size: int | None = None,
    without: Collection[int] = (),
    stopped: Mapping[int, int] | None = None,
    silent: Mapping[int, float] | None = None,
    left: Collection[int] = (),
    idle_s: float = 0.1,
    stages: Sequence[str] = DEFAULT_STAGES,
    ranks_per_node: int = 4,
    at_ns: int = 0,
    run_id: str = "run",
) -> LiveRows:
    """Rows of every rank.

    Args:
        without: ranks that never reported. stopped: by rank, how many of the steps it has finished.
        silent: by rank, seconds without a message. left: ranks that have left.
        idle_s: seconds since a step last arrived.
    """
    _, steps, ranks = duration_SNR.shape
    found = []
    for rank in range(ranks):
        if rank in without:
            continue
        done = (stopped or {}).get(rank, steps)
        own_NS = duration_SNR[:, :done, rank].T
        step_N = np.arange(first_step, first_step + done)
        row_NC = np.column_stack([step_N, own_NS.sum(axis=1), own_NS]).astype(np.int64)
        node = rank // ranks_per_node
        identity = RankIdentity(rank, rank % ranks_per_node, node, f"node-{node}")
        found.append(
            LiveRank(
                identity,
                tuple(stages),
                row_NC,
                (silent or {}).get(rank, 0.1),
                idle_s if done else None,
                rank in left,
            )
        )
    return LiveRows(run_id, at_ns, world_size or ranks, tuple(found))
