"""The measured wait model: does slack turn into time, stage by stage (accounting.md §11)?

If ranks wait for each other in a stage, a rank that arrives with more slack spends just that much longer in
it. The slope of that regression, each rank's own mean taken out, is evidence for the wait, not a premise.

Slack is taken from the carry-over frontier over the whole window (``wait_slopes``), or from where ranks last
met, if they meet at the end of that stage in every step (``slopes_since_sync``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sfapp.accounting.carry_over import frontier_before
from sfapp.accounting.kernels import as_float, full, max_last, median_last
from sfapp.model.arrays import Array, namespace

_BLOCK_CELLS = 1 << 17

MIN_STEPS = 10
MIN_SLACK = 0.001
"""Slack whose root mean square is below this share of a typical step is no evidence of waiting."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitSlopes:
    """Slope and standard error of each stage, float64 [S, ...], NaN where absent."""

    slope: Array
    se: Array


def wait_slopes(duration: Array, before: Array, total: Array, drift: Array) -> WaitSlopes:
    """Regress d[s,t,r] on the carry-over slack λ'[s,t,r] (o = 0), per stage, for one window or many.

    Args:
        duration: int64 ns [S, ..., N, R].
        before: int64 ns [..., N, R], time used in the steps before.
        total: int64 ns [..., N, R], each rank's step total.
        drift: int64 ns [S, ..., N], the carry-over frontier with zero offsets.
    """
    stages, *batch, steps, ranks = duration.shape
    xp = namespace(duration)
    nan = full((stages, *batch), np.nan, duration)
    if steps < MIN_STEPS or ranks < 2:
        return WaitSlopes(nan, nan)
    edge = frontier_before(drift)
    moments = full((3, stages, *batch), 0.0, duration)
    # Ranks are independent once their means are out, so a block of them stays in cache. The blocks are those
    # of one window: their sums must not depend on how many windows are measured together.
    for block in _rank_blocks(steps, ranks):
        position = before[..., block] + 0
        for stage in range(stages):
            spent = duration[stage][..., block]
            slack = as_float(edge[stage][..., None] - position)
            slack -= slack.mean(axis=-2, keepdims=True)
            time = as_float(spent)
            time -= time.mean(axis=-2, keepdims=True)
            moments[1, stage] += (slack * time).sum(axis=(-2, -1))
            slack *= slack
            time *= time
            moments[0, stage] += slack.sum(axis=(-2, -1))
            moments[2, stage] += time.sum(axis=(-2, -1))
            position += spent
    xx, xy, yy = moments
    typical = median_last(total.reshape(*batch, -1))
    usable = xp.sqrt(xx / (steps * ranks)) >= MIN_SLACK * typical
    usable &= xx > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = xp.where(usable, xy / xx, nan)
        squares = (yy - slope * xy).clip(min=0)
        freedom = steps * ranks - ranks - 1
        return WaitSlopes(slope, xp.where(usable, xp.sqrt(squares / freedom / xx), nan))


def slopes_since_sync(duration_SNR: Array) -> WaitSlopes:
    """Regress d[s,t,r] on how late the others are since the sync at the end of s in the step before (§11).

    The carry-over frontier without offsets lies on the ranks that wait for one that is late all along, and
    how late it is cannot be seen from there; from sync to sync it can. The smaller of two slopes is returned:

    - with a rank's own time since the meeting taken out: a rank that waits for a loader of its own spends
      less time in s where it was slower itself, for no other's sake;
    - with each step's mean taken out: what makes a step long on all ranks, such as long sequences, lengthens
      s and the others' time equally.

    Both leave out what s took in the step before, which a slow stage right after a meeting remembers.

    Args:
        duration_SNR: int64 ns, of consecutive steps.

    Returns:
        Slope and standard error, float64 [S].
    """
    stages, steps, ranks = duration_SNR.shape
    xp = namespace(duration_SNR)
    if steps <= MIN_STEPS or ranks < 2:
        nan = full((stages,), np.nan, duration_SNR)
        return WaitSlopes(nan, nan)
    cells = stages * 4 * steps  # four values of each are kept at a time
    latest: Array = None  # own time of the rank that the others wait for
    for block in _rank_blocks(cells, ranks):
        most = max_last(_own_since_sync(duration_SNR[..., block]))[..., None]
        latest = most if latest is None else xp.maximum(latest, most)
    products = full((stages, 4, 4), 0.0, duration_SNR)
    step_sums = full((stages, 4, steps - 1), 0.0, duration_SNR)
    for block in _rank_blocks(cells, ranks):
        own = _own_since_sync(duration_SNR[..., block])
        spent = duration_SNR[..., block]
        rows = as_float(xp.stack((latest - own, own, spent[:, :-1], spent[:, 1:]), axis=1))
        rows -= rows.mean(axis=-2, keepdims=True)
        step_sums += rows.sum(axis=-1)
        rows = rows.reshape(stages, 4, -1)
        products += rows @ rows.swapaxes(1, 2)
    within_steps = products - step_sums @ step_sums.swapaxes(1, 2) / ranks
    observations = (steps - 1) * ranks
    least = observations * (MIN_SLACK * float(median_last(duration_SNR.sum(axis=0).reshape(-1)))) ** 2
    without_own = [0, 2, 3]
    by_own = _first_slopes(products, observations - ranks - 3, least)
    by_step = _first_slopes(
        within_steps[:, without_own][..., without_own], observations - ranks - (steps - 1) - 1, least
    )
    weaker = by_step.slope - 2 * by_step.se < by_own.slope - 2 * by_own.se
    both = ~(xp.isnan(by_own.slope) | xp.isnan(by_step.slope))
    return WaitSlopes(
        xp.where(both, xp.where(weaker, by_step.slope, by_own.slope), np.nan),
        xp.where(both, xp.where(weaker, by_step.se, by_own.se), np.nan),
    )


def _first_slopes(products: Array, freedom: int, least: float) -> WaitSlopes:
    """Return slope and standard error of the first regressor, from sums of products [S, k, k], response last.

    NaN where, of its squares, what the other regressors do not explain adds up to less than ``least``.
    """
    xp = namespace(products)
    ends = [0, -1]
    others = products[:, 1:-1, 1:-1]
    # A regressor that does not vary explains nothing: its row of zeros is left to the pseudo-inverse.
    smallest = others.shape[-1] * np.finfo(np.float64).eps
    inverse = xp.linalg.pinv(others, smallest, hermitian=True)
    explained = products[:, ends, 1:-1] @ inverse @ products[:, 1:-1, ends]
    left = products[:, ends][..., ends] - explained
    apart, shared, time = left[:, 0, 0], left[:, 0, 1], left[:, 1, 1]
    usable = (apart > 0) & (apart >= least) & (freedom > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = xp.where(usable, shared / apart, np.nan)
        squares = (time - slope * shared).clip(min=0)
        return WaitSlopes(slope, xp.sqrt(squares / max(1, freedom) / apart))


def _rank_blocks(cells: int, ranks: int) -> Iterator[slice]:
    """Yield slices over ranks of so many cells each, that stay in cache."""
    width = max(1, _BLOCK_CELLS // max(1, cells))
    for begin in range(0, ranks, width):
        yield slice(begin, begin + width)


def _own_since_sync(duration: Array) -> Array:
    """Return a rank's own time since stage s ended in the step before, until it begins, ns [S, N-1, R]."""
    before = duration.cumsum(axis=0) - duration
    after = duration.sum(axis=0) - before - duration
    return before[:, 1:] + after[:, :-1]
