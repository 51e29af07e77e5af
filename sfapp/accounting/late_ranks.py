"""Which ranks are later than the others in a stage, beyond noise, and what that costs (accounting.md §17).

A rank's lateness in a stage is its own time there less what the other ranks typically take in the same step.
It is late where its mean lateness is more than chance explains, or where single steps lie far outside of what
all ranks show. The cost is what the frontier would gain if that lateness were taken away, at the end of the
stage's own part or where ranks next wait for each other, whichever is less: a rank that catches up until then
costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.accounting.kernels import median_last
from sfapp.accounting.noise import (
    LEAST_STEPS,
    MeanError,
    block_means,
    long_run,
    squared_differences,
    student_t_quantile,
    without_jump,
)
from sfapp.model import Window
from sfapp.model.arrays import Array, to_numpy
from sfapp.model.findings import StepNoise

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SingleSteps = tuple[tuple[int, tuple[int, ...]], ...]
"""Positions of ranks, each with the positions of its late steps."""

SAMPLED_RANKS = 256
"""Ranks that the common noise is estimated from, evenly spaced over all."""

_CANDIDATES = 16
"""Ranks whose single late steps are looked at: those with the most time far outside."""

_CLEAR = 3.0
"""Lateness above so many times the upper quartile of all may be an event."""

_TAIL_POWER = 3.0
"""Single steps are taken to have tails as heavy as Student's t with 3 degrees of freedom."""

_MOST_EVENTS = 8

_APART = 2
"""Late steps no further apart are one event: ranks stay slow for a while."""

_SLACK_RANKS = 64
"""Ranks that a resolution is computed from, evenly spaced over all."""

_FEW_RANKS = 3
"""So few ranks share a change of level within the window; of more, the median rank has none."""

USUAL_RANKS = 0.9
"""Part of the ranks that a resolution holds for: some are usually earlier than others."""


@dataclass(frozen=True, slots=True)
class LateSteps:
    """Single steps in which a rank is far outside.

    Attributes:
        steps: positions of the steps. chance: of one healthy rank to show such steps.
    """

    steps: tuple[int, ...]
    chance: float


@dataclass(frozen=True, slots=True, eq=False)
class StageLateness:
    """Lateness of all ranks in one broad stage.

    Attributes:
        mean_R: own time less that of the other ranks, mean over steps, ns.
        error_R: standard error of it. df: its degrees of freedom.
        typical_error: standard error for a typical rank.
        inflation: how many steps are worth an independent one.
        upper: upper quartile of |lateness| over steps and ranks, ns.
        late_steps: by position of the rank, single steps far outside.
        slack: how far some ranks' positions, where they next wait for each other, lie before the latest, ns.
    """

    mean_R: Floats
    error_R: Floats
    df: float
    typical_error: float
    inflation: float
    upper: float
    late_steps: dict[int, LateSteps]
    slack: Floats

    def error(self, rank: int) -> MeanError:
        """Return the error of a rank's mean lateness."""
        return MeanError(float(self.error_R[rank]), self.df)


def lateness(own_NR: Array, typical_N: Floats | None = None) -> Floats:
    """Return each rank's time less that of the other ranks in the same step: their median, ns [N, R].

    Args:
        typical_N: the median over ranks, where it is known.
    """
    own = to_numpy(own_NR).astype(np.float64)
    ranks = own.shape[-1]
    if ranks == 2:
        return own - own[..., ::-1]
    if ranks == 3:
        return np.asarray(own - (own.sum(axis=-1, keepdims=True) - own) / 2.0)
    typical = to_numpy(median_last(own_NR)) if typical_N is None else typical_N
    return np.asarray(own - typical[..., None])


def stages_lateness(late: Sequence[Floats], positions: Sequence[Floats]) -> tuple[StageLateness, ...]:
    """Return the lateness of several stages with its noise.

    The common noise comes from a sample of the ranks; a rank's own noise counts where it is larger.

    Args:
        late: lateness in each stage, ns [N, R]. positions: of ranks where they next wait for each other, ns.
    """
    steps, ranks = late[0].shape
    # Stages side by side: on small windows the number of calls is what costs.
    sample = np.concatenate([late_NR[:, :: -(-ranks // SAMPLED_RANKS)] for late_NR in late], axis=1)
    sampled = sample.shape[1] // len(late)
    if ranks <= _FEW_RANKS:
        sample = without_jump(sample)
    blocks = block_means(sample)
    lags = [squared_differences(values, lag) for values in (sample, blocks) for lag in (1, 2)]
    lag_4SR = np.array(lags).reshape(4, len(late), sampled)
    # Medians: a rank that becomes late within the window would look like a long memory of all.
    common_4S = np.median(lag_4SR, axis=2)
    sample_SC = np.abs(sample).reshape(steps, len(late), sampled).transpose(1, 0, 2).reshape(len(late), -1)
    quartile = 3 * (sample_SC.shape[1] - 1) // 4
    upper_S = np.partition(sample_SC, quartile, axis=1)[:, quartile]
    found = []
    for stage, (late_NR, position_NR) in enumerate(zip(late, positions, strict=True)):
        noise = StepNoise(steps, *common_4S[:, stage].tolist())
        run = long_run(noise, steps, max(1, sampled - 1))
        error, mean_R = run.error(steps, steps), late_NR.mean(axis=0)
        noisier_R = _noisier(late_NR, mean_R, lag_4SR[0, stage], noise.lag1)
        upper = float(upper_S[stage])
        found.append(
            StageLateness(
                mean_R,
                error.se * np.sqrt(noisier_R),
                error.df,
                error.se,
                run.inflation,
                upper,
                late_steps(late_NR, upper),
                position_NR.max(axis=1)[:, None] - position_NR[:, :: -(-ranks // _SLACK_RANKS)],
            )
        )
    return tuple(found)


def _noisier(late_NR: Floats, mean_R: Floats, lag1_R: Floats, common: float) -> Floats:
    """Return by how much each rank is noisier than usual, at least 1; of many only those that may be late."""
    ranks = len(mean_R)
    if common <= 0.0:
        return np.ones(ranks)
    if ranks <= SAMPLED_RANKS:
        return np.maximum(lag1_R / common, 1.0)
    noisier_R = np.ones(ranks)
    latest = np.argpartition(-mean_R, SAMPLED_RANKS)[:SAMPLED_RANKS]
    noisier_R[latest] = np.maximum(squared_differences(late_NR[:, latest], 1) / common, 1.0)
    return noisier_R


def persistently_late(stage: StageLateness, chance: float) -> Flags:
    """Return which ranks are late on average, bool [R].

    Args:
        chance: of one healthy rank to be among them.
    """
    margin = MeanError(1.0, stage.df).margin(chance)
    late: Flags = (stage.mean_R > stage.error_R * margin) & (stage.mean_R > 0.0)
    return late


def late_steps(late_NR: Floats, upper: float) -> dict[int, LateSteps]:
    """Return for the ranks with the most time far outside, by position, their late steps and the chance.

    A value x is exceeded with the chance (x / upper quartile)^-3 / 2, as under heavy tails. Of k events at
    least that far outside the expected number over all steps is the chance; that of any rank in any stage is
    as many times larger as there are ranks and stages.

    Args:
        upper: upper quartile of |lateness|.
    """
    if upper <= 0.0 or late_NR.max() <= _CLEAR * upper:
        return {}
    beyond_NR = late_NR > _CLEAR * upper
    score_R = np.where(beyond_NR, late_NR, 0.0).sum(axis=0)
    count = min(_CANDIDATES, int(np.count_nonzero(score_R)))
    if not count:
        return {}
    latest = np.argpartition(-score_R, count - 1)[:count]
    found = {}
    for rank in latest.tolist():
        events = _events(np.flatnonzero(beyond_NR[:, rank]))
        found[rank] = _least_chance(late_NR[:, rank] / upper, events)
    return found


def _events(positions: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Split late steps into events."""
    return np.split(positions, np.flatnonzero(np.diff(positions) > _APART) + 1)


def _least_chance(beyond_N: Floats, events: Sequence[npt.NDArray[np.int64]]) -> LateSteps:
    """Return the events of one rank that are least likely together.

    Args:
        beyond_N: lateness over its upper quartile.
    """
    peaks = sorted(
        ((float(beyond_N[event].max()), place) for place, event in enumerate(events)), reverse=True
    )
    least, number = chance_of_events([peak for peak, _ in peaks[:_MOST_EVENTS]], len(beyond_N))
    if number == _MOST_EVENTS:
        number = len(peaks)
    chosen = sorted(place for _, place in peaks[:number])
    together = tuple(int(step) for place in chosen for step in events[place])
    return LateSteps(together, min(1.0, least))


def chance_of_events(beyond: Sequence[float], steps: int) -> tuple[float, int]:
    """Return the least expected number of sets of events so far outside, and how many events the set has.

    Args:
        beyond: how far outside each is, over the usual spread, the furthest first.
        steps: of the window.
    """
    least, number = math.inf, 0
    for taken, furthest in enumerate(beyond, 1):
        tail = min(1.0, 0.5 * furthest**-_TAIL_POWER) if furthest > 0.0 else 1.0
        expected = math.comb(steps, taken) * tail**taken
        if expected < least:
            least, number = expected, taken
    return least, number


def broad_own(window: Window, members: Sequence[int], split_SN: Flags) -> Array:
    """Return own time of a broad stage, int64 ns [N, R]; the whole duration where waits are not known.

    Args:
        members: positions of its recorded stages. split_SN: in which steps the waits of each are known.
    """
    own_NR = None
    for stage in members:
        part_NR = window.duration_SNR[stage]
        if split_SN[stage].all():
            part_NR = part_NR - window.waits[window.stages[stage]]
        elif split_SN[stage].any():
            part_NR = to_numpy(part_NR).copy()
            part_NR[split_SN[stage]] -= to_numpy(window.waits[window.stages[stage]])[split_SN[stage]]
        own_NR = part_NR if own_NR is None else own_NR + part_NR
    assert own_NR is not None
    return own_NR


def saved(position_NR: Floats, late_NR: Floats, ranks: Sequence[int]) -> Floats:
    """Return by how much the latest position moves forward without the lateness of these ranks, ns [N].

    Args:
        late_NR: lateness of ``ranks`` alone, [N, len(ranks)].
    """
    chosen = list(ranks)
    others_NR = position_NR.copy()
    others_NR[:, chosen] -= late_NR.clip(min=0.0)
    return np.asarray(position_NR.max(axis=1) - others_NR.max(axis=1))


def lateness_for_cost(stages: Sequence[StageLateness], cost: float, power: float) -> list[float]:
    """Return for each stage by how much one rank must be later in every step for the frontier to move by
    ``cost``, ns.

    Some ranks are usually earlier than others: the result is enough for USUAL_RANKS of them, and for all but
    a share ``power`` of windows.
    """
    slack_NC = np.sort(np.concatenate([stage.slack for stage in stages], axis=1), axis=0)
    steps, ranks = len(slack_NC), stages[0].slack.shape[1]
    moved_NC = (_later(slack_NC, np.full(slack_NC.shape[1], cost)) - slack_NC).clip(min=0.0)
    inflation_S = np.array([stage.inflation for stage in stages])
    margin_S = np.array(
        [student_t_quantile(power, max(1.0, steps / stage.inflation - 1.0)) for stage in stages]
    )
    scale_C = np.repeat(margin_S * np.sqrt(inflation_S / steps), ranks)
    later_SR = _later(slack_NC, cost + scale_C * moved_NC.std(axis=0)).reshape(len(stages), ranks)
    later_SR.sort(axis=1)
    usual: list[float] = later_SR[:, round(USUAL_RANKS * (ranks - 1))].tolist()
    return usual


def _later(slack_NR: Floats, cost_R: Floats) -> Floats:
    """Return for each rank x such that the mean over steps of max(0, x - slack) is the cost."""
    steps = len(slack_NR)
    before_NR = np.cumsum(slack_NR, axis=0)
    index_N1 = np.arange(1, steps + 1)[:, None]
    # With the k smallest slacks below x, k x - their sum = N cost; the first x below the next slack holds.
    later_NR = (steps * cost_R + before_NR) / index_N1
    next_NR = np.concatenate((slack_NR[1:], np.full((1, slack_NR.shape[1]), np.inf)))
    first_R = (later_NR <= next_NR).argmax(axis=0)
    return np.asarray(later_NR[first_R, np.arange(slack_NR.shape[1])])


def has_enough_steps(steps: int) -> bool:
    """Return whether noise can be told from so many steps."""
    return steps >= LEAST_STEPS
