"""Prefixes, frontier, leaders and advances (accounting.md §1, §3; paper Section 3, eq. 1).

    P[s,t,r] = start[t,r] + Σ_{j ≤ s} d[j,t,r]        F[s,t] = max_r P[s,t,r]

With ``start`` 0 the frontier restarts at every step: the paper's. With ``start`` the time a rank has used
in the steps before, it runs on over the window: the carry-over frontier (§10). One recurrence serves both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sfapp.accounting.kernels import first_argmax, previous_boundary, row_blocks


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
    for rows in row_blocks(steps, ranks):
        prefix_nR = torch.zeros_like(duration_SNR[0, rows]) if start_NR is None else start_NR[rows].clone()
        for stage in range(stages):
            prefix_nR += duration_SNR[stage, rows]
            leader_n1 = first_argmax(prefix_nR).unsqueeze(-1)
            top_n1 = prefix_nR.gather(-1, leader_n1)
            frontier_SN[stage, rows] = top_n1.squeeze(-1)
            leader_SN[stage, rows] = leader_n1.squeeze(-1)
            if ranks > 1:
                # The leaders step aside for one maximum; cheaper than selecting the top two.
                prefix_nR.scatter_(-1, leader_n1, torch.iinfo(torch.int64).min)
                second_SN[stage, rows] = prefix_nR.amax(dim=-1)
                prefix_nR.scatter_(-1, leader_n1, top_n1)
    if ranks == 1:
        second_SN.copy_(frontier_SN)
    return Boundaries(frontier_SN, leader_SN, second_SN)


def frontier(duration_SNR: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frontier F, advances a and leaders of the step-aligned accounting, each [S, N].

    The bare core of the paper's Section 3, for callers that need nothing else.
    """
    stages, steps, ranks = duration_SNR.shape
    frontier_SN = torch.empty(stages, steps, dtype=torch.int64, device=duration_SNR.device)
    leader_SN = torch.empty_like(frontier_SN)
    for rows in row_blocks(steps, ranks):
        prefix_nR = duration_SNR[0, rows].clone()
        for stage in range(stages):
            if stage:
                prefix_nR += duration_SNR[stage, rows]
            leader_n = first_argmax(prefix_nR)
            leader_SN[stage, rows] = leader_n
            frontier_SN[stage, rows] = prefix_nR.gather(-1, leader_n.unsqueeze(-1)).squeeze(-1)
    return frontier_SN, frontier_SN - previous_boundary(frontier_SN), leader_SN


def step_prefix(duration_SNR: torch.Tensor, step_index: int) -> torch.Tensor:
    """Prefixes P of one step: int64 ns [S, R]."""
    return duration_SNR[:, step_index].cumsum(dim=0)


def tie_set(duration_SNR: torch.Tensor, step_index: int, stage_index: int, eta_q: float) -> tuple[int, ...]:
    """Positions of the ranks within ηQ · F[S,t] of the frontier at one boundary (§3)."""
    prefix_SR = step_prefix(duration_SNR, step_index)
    behind_R = prefix_SR[stage_index].max() - prefix_SR[stage_index]
    tied = torch.nonzero(behind_R <= eta_q * prefix_SR[-1].max()).flatten()
    return tuple(int(position) for position in tied)
