"""Prefixes, frontier, leaders and advances (accounting.md §1, §3; paper Section 3, eq. 1).

    P[s,t,r] = start[t,r] + Σ_{j ≤ s} d[j,t,r]        F[s,t] = max_r P[s,t,r]

With ``start`` 0, the frontier restarts at every step, as in the paper. With ``start`` the time that a rank
used in earlier steps, it continues over the window: the carry-over frontier (§10). One recurrence serves
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from sfapp.accounting import kernels
from sfapp.accounting.kernels import (
    empty,
    first_argmax,
    max_last,
    placed,
    previous_boundary,
    row_blocks,
)
from sfapp.model.arrays import Array, namespace, to_numpy

_LOWEST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """Frontier and leaders at each boundary (s, t), on the device of the matrix.

    Attributes:
        frontier_SN: int64 ns, the largest prefix.
        leader_SN: int64, position of the rank with that prefix (the lowest of equal ones).
        second_SN: int64 ns, the largest prefix of the other ranks; the frontier itself where R = 1.
    """

    frontier_SN: Array
    leader_SN: Array
    second_SN: Array

    @property
    def gap_SN(self) -> Array:
        """Distance of the leader to the next rank, ns, ≥ 0; 0 where ranks tie."""
        return self.frontier_SN - self.second_SN


def _prefix_room(duration_SNR: Array) -> Iterator[tuple[slice, Array]]:
    """Yield each block of steps with a buffer for its prefixes [n, R], which still holds the block before.

    All blocks share one buffer: a new one for each block would need new memory pages each time.
    """
    _, steps, ranks = duration_SNR.shape
    room_nR: Array | None = None
    for rows in row_blocks(steps, ranks, duration_SNR):
        if room_nR is None:  # the first block is the largest
            room_nR = empty((rows.stop, ranks), duration_SNR)
        yield rows, room_nR[: rows.stop - rows.start]


def running_boundaries(duration_SNR: Array, start_NR: Array | None = None) -> Boundaries:
    """Compute frontier, leader and runner-up at every boundary in one pass of O(S·N·R), O(block) memory.

    Args:
        duration_SNR: int64 ns, stage-major.
        start_NR: int64 ns, the value at which each rank's prefix starts in each step; 0 if None.
    """
    stages, steps, ranks = duration_SNR.shape
    frontier_SN, leader_SN, second_SN = (empty((stages, steps), duration_SNR) for _ in range(3))
    if kernels.uses_compiled(duration_SNR):
        start = None if start_NR is None else np.ascontiguousarray(start_NR)
        boundaries = partial(
            kernels.compiled.boundaries, duration_SNR, start, frontier_SN, leader_SN, second_SN
        )
        kernels.in_parallel(partial(boundaries, None, None, None), steps, duration_SNR.size)
        return Boundaries(frontier_SN, leader_SN, second_SN)
    add = namespace(duration_SNR).add
    row_N = placed(np.arange(steps), duration_SNR)
    for rows, prefix_nR in _prefix_room(duration_SNR):
        add(duration_SNR[0, rows], 0 if start_NR is None else start_NR[rows], out=prefix_nR)
        for stage in range(stages):
            if stage:
                add(prefix_nR, duration_SNR[stage, rows], out=prefix_nR)
            leader_n = first_argmax(prefix_nR)
            held = row_N[: len(leader_n)], leader_n
            top_n = prefix_nR[held]
            frontier_SN[stage, rows], leader_SN[stage, rows] = top_n, leader_n
            if ranks > 1:
                # Mask the leaders and take the maximum again; cheaper than selecting the top two.
                prefix_nR[held] = _LOWEST
                second_SN[stage, rows] = max_last(prefix_nR)
                prefix_nR[held] = top_n
    if ranks == 1:
        second_SN[...] = frontier_SN
    return Boundaries(frontier_SN, leader_SN, second_SN)


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Results of one pass over a matrix, on the device of the matrix.

    Attributes:
        boundaries: of the step-aligned accounting.
        largest_SN, sum_SN: int64 ns, maximum and sum over ranks of the durations.
        total_NR: int64 ns, each rank's step total.
    """

    boundaries: Boundaries
    largest_SN: Array
    sum_SN: Array
    total_NR: Array


def walk(duration_SNR: Array) -> Walk:
    """Return boundaries, maxima and sums of a matrix: int64 ns, stage-major."""
    if not kernels.uses_compiled(duration_SNR):
        boundaries = running_boundaries(duration_SNR)
        return Walk(boundaries, max_last(duration_SNR), duration_SNR.sum(axis=-1), duration_SNR.sum(axis=0))
    stages, steps, ranks = duration_SNR.shape
    found_SN = [np.empty((stages, steps), dtype=np.int64) for _ in range(5)]
    total_NR = np.empty((steps, ranks), dtype=np.int64)
    one_pass = partial(kernels.compiled.boundaries, duration_SNR, None, *found_SN, total_NR)
    kernels.in_parallel(one_pass, steps, duration_SNR.size)
    frontier_SN, leader_SN, second_SN, largest_SN, sum_SN = found_SN
    return Walk(Boundaries(frontier_SN, leader_SN, second_SN), largest_SN, sum_SN, total_NR)


def frontier(duration_SNR: Array) -> tuple[Array, Array, Array]:
    """Compute frontier F, advances a and leaders of the step-aligned accounting, each [S, N].

    This is the core of the paper's Section 3, for callers that need nothing else.
    """
    stages, steps, _ = duration_SNR.shape
    if kernels.uses_compiled(duration_SNR):
        frontier_SN, leader_SN = np.empty((2, stages, steps), dtype=np.int64)
        one_pass = partial(kernels.compiled.frontier, duration_SNR, frontier_SN, leader_SN)
        kernels.in_parallel(one_pass, steps, duration_SNR.size)
        return frontier_SN, frontier_SN - previous_boundary(frontier_SN), leader_SN
    add = namespace(duration_SNR).add
    leader_SN = empty((stages, steps), duration_SNR)
    for rows, room_nR in _prefix_room(duration_SNR):
        prefix_nR = duration_SNR[0, rows]
        for stage in range(stages):
            if stage:
                prefix_nR = add(prefix_nR, duration_SNR[stage, rows], out=room_nR)
            leader_SN[stage, rows] = first_argmax(prefix_nR)
    frontier_SN = _leaders_prefix(duration_SNR, leader_SN)
    return frontier_SN, frontier_SN - previous_boundary(frontier_SN), leader_SN


def _leaders_prefix(duration_SNR: Array, leader_SN: Array) -> Array:
    """Return the leaders' own prefixes, [S, N]. They are few, so summing again is faster than selecting from
    each block."""
    stages, steps = leader_SN.shape
    # [earlier stage, boundary, step]
    spent_SSN = duration_SNR[:, placed(np.arange(steps), leader_SN), leader_SN]
    counted_SS = placed(np.triu(np.ones((stages, stages), dtype=np.int64)), leader_SN)
    return (spent_SSN * counted_SS[..., None]).sum(axis=0)


def step_prefix(duration_SNR: Array, step_index: int) -> Array:
    """Return the prefixes P of one step: int64 ns [S, R]."""
    return duration_SNR[:, step_index].cumsum(axis=0)


def tie_set(duration_SNR: Array, step_index: int, stage_index: int, eta_q: float) -> tuple[int, ...]:
    """Return positions of the ranks within ηQ · F[S,t] of the frontier at one boundary (§3)."""
    prefix_SR = to_numpy(step_prefix(duration_SNR, step_index))
    behind_R = prefix_SR[stage_index].max() - prefix_SR[stage_index]
    return tuple(np.flatnonzero(behind_R <= eta_q * prefix_SR[-1].max()).tolist())
