"""Prefixes, frontier, leaders and advances (accounting.md §1, §3; paper Section 3, eq. 1).

    P[s,t,r] = start[t,r] + Σ_{j ≤ s} d[j,t,r]        F[s,t] = max_r P[s,t,r]

With ``start`` 0 the frontier restarts at every step: the paper's. With ``start`` the time a rank has used
in the steps before, it runs on over the window: the carry-over frontier (§10). One recurrence serves both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from sfapp.accounting.kernels import (
    Array,
    add,
    first_argmax,
    max_last,
    native,
    previous_boundary,
    row_blocks,
)

_LOWEST = torch.iinfo(torch.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """What is known at each boundary (s, t), on the matrix' device.

    Attributes:
        frontier_SN: int64 ns, the largest prefix.
        leader_SN: int64, position of the rank that holds it (the lowest of equal ones).
        second_SN: int64 ns, the largest prefix of the other ranks; the frontier itself where R = 1.
    """

    frontier_SN: torch.Tensor
    leader_SN: torch.Tensor
    second_SN: torch.Tensor

    @property
    def gap_SN(self) -> torch.Tensor:
        """Distance of the leader to the next rank, ns, ≥ 0; 0 where ranks tie."""
        return self.frontier_SN - self.second_SN


def _prefix_room(duration_SNR: torch.Tensor) -> Iterator[tuple[slice, Array]]:
    """Each block of steps with room for its prefixes [n, R], as the block before left it.

    One room for all: a new megabyte each is new pages each, where malloc happens to map it.
    """
    _, steps, ranks = duration_SNR.shape
    room_nR: Array | None = None
    for rows in row_blocks(steps, ranks):
        if room_nR is None:  # the first block is the highest
            room_nR = native(duration_SNR.new_empty((rows.stop, ranks)))
        yield rows, room_nR[: rows.stop - rows.start]


def running_boundaries(duration_SNR: torch.Tensor, start_NR: torch.Tensor | None = None) -> Boundaries:
    """Frontier, leader and runner-up at every boundary in one pass of O(S·N·R), O(block) memory.

    Args:
        duration_SNR: int64 ns, stage-major.
        start_NR: int64 ns, what each rank's prefix starts from in each step; 0 where None.
    """
    stages, steps, ranks = duration_SNR.shape
    device = duration_SNR.device
    frontier_SN = torch.empty(stages, steps, dtype=torch.int64, device=device)
    leader_SN = torch.empty_like(frontier_SN)
    second_SN = torch.empty_like(frontier_SN)
    spent_SNR = native(duration_SNR)
    start = None if start_NR is None else native(start_NR)
    top_of, leader_of, second_of = native(frontier_SN), native(leader_SN), native(second_SN)
    row_N = native(torch.arange(steps, device=device))
    for rows, prefix_nR in _prefix_room(duration_SNR):
        add(spent_SNR[0, rows], 0 if start is None else start[rows], prefix_nR)
        for stage in range(stages):
            if stage:
                add(prefix_nR, spent_SNR[stage, rows], prefix_nR)
            leader_n = first_argmax(prefix_nR)
            held = row_N[: len(leader_n)], leader_n
            top_n = prefix_nR[held]
            top_of[stage, rows], leader_of[stage, rows] = top_n, leader_n
            if ranks > 1:
                # The leaders step aside for one maximum; cheaper than selecting the top two.
                prefix_nR[held] = _LOWEST
                second_of[stage, rows] = max_last(prefix_nR)
                prefix_nR[held] = top_n
    if ranks == 1:
        second_SN.copy_(frontier_SN)
    return Boundaries(frontier_SN, leader_SN, second_SN)


def frontier(duration_SNR: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frontier F, advances a and leaders of the step-aligned accounting, each [S, N].

    The bare core of the paper's Section 3, for callers that need nothing else.
    """
    stages, steps, _ = duration_SNR.shape
    leader_SN = torch.empty((stages, steps), dtype=torch.int64, device=duration_SNR.device)
    spent_SNR, leader_of = native(duration_SNR), native(leader_SN)
    for rows, room_nR in _prefix_room(duration_SNR):
        prefix_nR = spent_SNR[0, rows]
        for stage in range(stages):
            if stage:
                prefix_nR = add(prefix_nR, spent_SNR[stage, rows], room_nR)
            leader_of[stage, rows] = first_argmax(prefix_nR)
    frontier_SN = _leaders_prefix(duration_SNR, leader_SN)
    return frontier_SN, frontier_SN - previous_boundary(frontier_SN), leader_SN


def _leaders_prefix(duration_SNR: torch.Tensor, leader_SN: torch.Tensor) -> torch.Tensor:
    """The leaders' own prefixes, [S, N]: few cells, summed once more rather than picked from every block."""
    stages, steps = leader_SN.shape
    # [earlier stage, boundary, step]
    spent_SSN = duration_SNR[:, torch.arange(steps, device=leader_SN.device), leader_SN]
    counted_SS = torch.ones(stages, stages, dtype=torch.int64, device=leader_SN.device).triu()
    return (spent_SSN * counted_SS.unsqueeze(-1)).sum(dim=0)


def step_prefix(duration_SNR: torch.Tensor, step_index: int) -> torch.Tensor:
    """Prefixes P of one step: int64 ns [S, R]."""
    return duration_SNR[:, step_index].cumsum(dim=0)


def tie_set(duration_SNR: torch.Tensor, step_index: int, stage_index: int, eta_q: float) -> tuple[int, ...]:
    """Positions of the ranks within ηQ · F[S,t] of the frontier at one boundary (§3)."""
    prefix_SR = step_prefix(duration_SNR, step_index)
    behind_R = prefix_SR[stage_index].max() - prefix_SR[stage_index]
    tied = torch.nonzero(behind_R <= eta_q * prefix_SR[-1].max()).flatten()
    return tuple(int(position) for position in tied)
