"""The measured wait model: does slack turn into time, stage by stage (accounting.md §11)?

If ranks wait for each other in a stage, a rank that arrives with more slack spends just that much longer in
it. The slope of that regression, each rank's own mean taken out, is evidence for the wait, not a premise.

Slack is taken from the carry-over frontier over the whole window (``wait_slopes``), or from where ranks last
met, if they meet at the end of that stage in every step (``slopes_since_meeting``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from sfapp.accounting.carry_over import frontier_before
from sfapp.accounting.kernels import median_last

_BLOCK_CELLS = 1 << 17

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
    # Ranks are independent once their means are out, so a block of them stays in cache.
    for block in _rank_blocks(before[..., 0].numel(), ranks):
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


def slopes_since_meeting(duration_SNR: torch.Tensor) -> WaitSlopes:
    """Regress d[s,t,r] on how late the others are since ranks met at the end of s in the step before (§11).

    The carry-over frontier without offsets lies on the ranks that wait for one that is late all along, and
    how late it is cannot be seen from there; from meeting to meeting it can. Of two slopes the one that says
    less is returned:

    - with a rank's own time since the meeting taken out: a rank that waits for a loader of its own spends
      less time in s where it was slower itself, for no other's sake;
    - with each step's mean taken out: what makes a step long on all ranks, such as long sequences, lengthens
      s and the others' time alike.

    Both leave out what s took in the step before, which a slow stage right after a meeting remembers.

    Args:
        duration_SNR: int64 ns, of consecutive steps.

    Returns:
        Slope and standard error, float64 [S].
    """
    stages, steps, ranks = duration_SNR.shape
    nan = torch.full((stages,), torch.nan, dtype=torch.float64)
    if steps <= MIN_STEPS or ranks < 2:
        return WaitSlopes(nan, nan)
    most_SNR = duration_SNR.new_empty((stages, steps - 1, 0))  # own time: the largest, and that of the others
    for block in _rank_blocks(stages * steps, ranks):
        own = _since_meeting(duration_SNR[..., block])
        largest = torch.cat((most_SNR, own), dim=-1)
        most_SNR = largest.topk(min(2, largest.shape[-1]), dim=-1).values
    first, second = most_SNR.unsqueeze(-2).unbind(dim=-1)
    products = duration_SNR.new_zeros((stages, 4, 4), dtype=torch.float64)
    step_sums = duration_SNR.new_zeros((stages, 4, steps - 1), dtype=torch.float64)
    for block in _rank_blocks(stages * steps, ranks):
        own = _since_meeting(duration_SNR[..., block])
        late = torch.where(own == first, second, first).sub_(own).clamp_(min=0)
        spent = duration_SNR[..., block]
        rows = torch.stack((late, own, spent[:, :-1], spent[:, 1:]), dim=1).double()
        rows -= rows.mean(dim=-2, keepdim=True)
        step_sums += rows.sum(dim=-1)
        rows = rows.flatten(start_dim=2)
        products += rows @ rows.mT
    within_steps = products - step_sums @ step_sums.mT / ranks
    observations = (steps - 1) * ranks
    least = observations * (MIN_SLACK * float(median_last(duration_SNR.sum(dim=0).flatten()))) ** 2
    without_own = torch.tensor([0, 2, 3], device=products.device)
    by_own = _first_slopes(products, observations - ranks - 3, least)
    by_step = _first_slopes(
        within_steps[:, without_own][..., without_own], observations - ranks - (steps - 1) - 1, least
    )
    weaker = by_step.slope - 2 * by_step.se < by_own.slope - 2 * by_own.se
    both = ~(by_own.slope.isnan() | by_step.slope.isnan())
    return WaitSlopes(
        torch.where(weaker, by_step.slope, by_own.slope).where(both, torch.nan),
        torch.where(weaker, by_step.se, by_own.se).where(both, torch.nan),
    )


def _first_slopes(products: torch.Tensor, freedom: int, least: float) -> WaitSlopes:
    """Slope and standard error of the first regressor, from sums of products [S, k, k], the response last;
    NaN where, of its squares, what the other regressors do not tell adds up to less than ``least``."""
    ends = [0, -1]
    others = products[:, 1:-1, 1:-1]
    # One that does not vary explains nothing: its row of zeros is left to the pseudo-inverse.
    told = products[:, ends, 1:-1] @ torch.linalg.pinv(others, hermitian=True) @ products[:, 1:-1, ends]
    left = products[:, ends][..., ends] - told
    apart, shared, time = left[:, 0, 0], left[:, 0, 1], left[:, 1, 1]
    usable = (apart > 0) & (apart >= least) & (freedom > 0)
    slope = torch.where(usable, shared / apart, torch.nan)
    squares = (time - slope * shared).clamp(min=0)
    return WaitSlopes(slope, (squares / max(1, freedom) / apart).sqrt())


def _rank_blocks(cells: int, ranks: int) -> Iterator[slice]:
    """Slices over ranks of so many cells each, that stay in cache."""
    width = max(1, _BLOCK_CELLS // max(1, cells))
    for begin in range(0, ranks, width):
        yield slice(begin, begin + width)


def _since_meeting(duration: torch.Tensor) -> torch.Tensor:
    """A rank's own time since stage s ended in the step before, until it begins, ns [S, N-1, R]."""
    before = duration.cumsum(dim=0) - duration
    after = duration.sum(dim=0) - before - duration
    return before[:, 1:] + after[:, :-1]
