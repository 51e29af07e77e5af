"""The measured wait model: does slack turn into time, stage by stage (accounting.md §11)?

If ranks wait for each other in a stage, a rank that arrives with more slack spends just that much longer in
it. The slope of that regression, each rank's own mean taken out, is evidence for the wait, not a premise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sfapp.accounting.carry_over import frontier_before
from sfapp.accounting.kernels import median_last

MIN_STEPS = 10
MIN_SLACK = 0.001
"""Slack whose root mean square is below this share of a typical step says nothing about waiting."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitSlopes:
    """Slope and standard error of each stage, float64 [S, ...], NaN where absent."""

    slope: torch.Tensor
    se: torch.Tensor


def wait_slopes(
    duration: torch.Tensor, before: torch.Tensor, total: torch.Tensor, drift: torch.Tensor
) -> WaitSlopes:
    """Regress d[s,t,r] on the carry-over slack λ'[s,t,r] (o = 0), per stage, for one window or many.

    Args:
        duration: int64 ns [S, ..., N, R].
        before: int64 ns [..., N, R], time used in the steps before.
        total: int64 ns [..., N, R], each rank's step total.
        drift: int64 ns [S, ..., N], the carry-over frontier with zero offsets.
    """
    stages, *batch, steps, ranks = duration.shape
    nan = torch.full((stages, *batch), torch.nan, dtype=torch.float64, device=duration.device)
    if steps < MIN_STEPS or ranks < 2:
        return WaitSlopes(nan, nan)
    edge = frontier_before(drift)
    moments = torch.zeros(3, stages, *batch, dtype=torch.float64, device=duration.device)
    width = max(1, (1 << 17) // (steps * max(1, before[..., 0, 0].numel())))
    for begin in range(0, ranks, width):
        # Ranks are independent once their means are out, so a block of them stays in cache.
        block = slice(begin, begin + width)
        position = before[..., block].clone()
        for stage in range(stages):
            spent = duration[stage][..., block]
            slack = (edge[stage].unsqueeze(-1) - position).double()
            slack -= slack.mean(dim=-2, keepdim=True)
            time = spent.double()
            time -= time.mean(dim=-2, keepdim=True)
            moments[0, stage] += (slack * slack).sum(dim=(-2, -1))
            moments[1, stage] += (slack * time).sum(dim=(-2, -1))
            moments[2, stage] += (time * time).sum(dim=(-2, -1))
            position += spent
    xx, xy, yy = moments
    typical = median_last(total.flatten(start_dim=-2))
    usable = (xx / (steps * ranks)).sqrt() >= MIN_SLACK * typical
    usable &= xx > 0
    slope = torch.where(usable, xy / xx, nan)
    squares = (yy - slope * xy).clamp(min=0)
    freedom = steps * ranks - ranks - 1
    return WaitSlopes(slope, (squares / freedom / xx).sqrt() + nan.where(~usable, torch.zeros_like(nan)))
