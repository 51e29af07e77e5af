"""Which ranks are later than the others in a stage, beyond noise, and what that costs (accounting.md §17).

A rank's lateness in a stage is its own time there minus the typical time of the other ranks of its role in
the same step. It is late if its mean lateness is more than chance explains, or if single steps lie far
outside the range of all ranks. The cost is how far the frontier would move forward without that lateness, at
the end of the stage's own part or where ranks next wait for each other, whichever is less: a rank that
catches up before that costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from sfapp.accounting.kernels import median_last
from sfapp.accounting.noise import (
    LEAST_STEPS,
    MeanError,
    block_means,
    long_run,
    squared_differences,
    without_jump,
)
from sfapp.model import Window
from sfapp.model.arrays import Array, to_numpy
from sfapp.model.findings import StepNoise

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SingleSteps = tuple[tuple[int, tuple[int, ...]], ...]
"""Late steps by position of the rank, as positions."""

SAMPLED_RANKS = 256
"""Number of ranks, evenly spaced, from which the common noise is estimated."""

_KNOWN_FROM = 2
"""Number of ranks whose steps count for how well the common noise is known. It is the median of all ranks,
but ranks differ, and a long memory is as hard to see in all of them."""

_QUARTILE_VALUES = 1024
"""Maximum number of values from which an upper quartile is taken; enough for an error of 3 %."""

_CANDIDATES = 16
"""Number of ranks whose single late steps are examined: those with the most time far outside."""

_CLEAR = 3.0
"""Multiple of the upper quartile of all lateness from which a late step may be an event."""

_TAIL_POWER = 3.0
"""Single steps are taken to have tails as heavy as Student's t with 3 degrees of freedom."""

_MOST_EVENTS = 8

_APART = 2
"""Largest distance of late steps that are one event: ranks stay slow for a while."""

_FEW_RANKS = 3
"""Largest number of ranks whose levels are examined for a change within the window; with more ranks, the
median rank has none."""


@dataclass(frozen=True, slots=True)
class LateSteps:
    """Single steps in which a rank is far outside the usual range.

    Attributes:
        steps: positions of the steps. chance: that one healthy rank shows such steps.
    """

    steps: tuple[int, ...]
    chance: float


@dataclass(frozen=True, slots=True, eq=False)
class StageLateness:
    """Lateness of all ranks in one broad stage.

    Attributes:
        mean_R: own time minus that of the other ranks, mean over steps, ns.
        error_R: standard error of it. df_R: its degrees of freedom.
        typical_error, df: the same for a typical rank.
        inflation: how many steps are worth an independent one.
        upper: upper quartile of |lateness| over steps and ranks, ns.
        late_steps: by position of the rank, single steps far outside.
    """

    mean_R: Floats
    error_R: Floats
    df_R: Floats
    typical_error: float
    df: float
    inflation: float
    upper: float
    late_steps: dict[int, LateSteps]

    def error(self, rank: int) -> MeanError:
        """Return the error of a rank's mean lateness."""
        return MeanError(float(self.error_R[rank]), float(self.df_R[rank]))


def lateness(own_NR: Array, typical_N: Floats | None = None) -> Floats:
    """Return each rank's time minus the median of the other ranks in the same step, ns [N, R].

    Args:
        typical_N: the median over ranks, if it is known.
    """
    own = to_numpy(own_NR).astype(np.float64)
    ranks = own.shape[-1]
    if ranks == 2:
        return own - own[..., ::-1]
    if ranks == 3:
        return np.asarray(own - (own.sum(axis=-1, keepdims=True) - own) / 2.0)
    typical = to_numpy(median_last(own_NR)) if typical_N is None else typical_N
    return np.asarray(own - typical[..., None])


def stages_lateness(late_SNR: Floats) -> tuple[StageLateness, ...]:
    """Return the lateness in several stages of one window or more, with its noise.

    The common noise comes from a sample of the ranks; a rank's own noise counts where it is larger.

    Args:
        late_SNR: lateness in each stage, ns.
    """
    # All stages at once: on small windows the number of calls dominates the cost.
    stages, steps, ranks = late_SNR.shape
    sample_SNR = late_SNR[:, :, :: -(-ranks // SAMPLED_RANKS)]
    sampled = sample_SNR.shape[2]
    sample = np.ascontiguousarray(sample_SNR.swapaxes(0, 1)).reshape(steps, stages * sampled)
    if ranks <= _FEW_RANKS:
        sample = without_jump(sample)
    lag_4SR = np.array(_lags(sample)).reshape(4, stages, sampled)
    # Medians: one rank that becomes late within the window must not look like a long memory of all ranks.
    common_4S = to_numpy(median_last(lag_4SR))
    some = np.abs(sample[:: max(1, steps * sampled // _QUARTILE_VALUES)])
    sample_SC = some.reshape(len(some), stages, sampled).swapaxes(0, 1).reshape(stages, -1)
    quartile = 3 * (sample_SC.shape[1] - 1) // 4
    upper_S = np.partition(sample_SC, quartile, axis=1)[:, quartile]
    mean_SR = late_SNR.mean(axis=1)
    noisier_SR = _noisier(late_SNR, mean_SR, lag_4SR[0], common_4S[0])
    runs = [long_run(StepNoise(steps, *lags), steps, max(1, sampled - 1)) for lags in common_4S.T.tolist()]
    errors = [run.error(steps, steps * min(_KNOWN_FROM, max(1, sampled - 1))) for run in runs]
    error_SR, df_SR = _errors(late_SNR, mean_SR, noisier_SR, errors)
    return tuple(
        StageLateness(mean_R, error_R, df_R, error.se, error.df, run.inflation, upper, single)
        for mean_R, error_R, df_R, error, run, upper, single in zip(
            mean_SR,
            error_SR,
            df_SR,
            errors,
            runs,
            upper_S.tolist(),
            late_steps(late_SNR, upper_S),
            strict=True,
        )
    )


def _lags(values: Floats) -> list[Floats]:
    """Return the mean squared differences of steps and of blocks, each 1 and 2 apart, [N, ...] to [...]."""
    return [squared_differences(series, lag) for series in (values, block_means(values)) for lag in (1, 2)]


def _noisier(late_SNR: Floats, mean_SR: Floats, lag1_SR: Floats, common_S: Floats) -> Floats:
    """Return how many times noisier than usual each rank is, at least 1 [S, R]; among many ranks only those
    that may be late are examined."""
    noisier_SR = np.ones(mean_SR.shape)
    noisy = np.flatnonzero(common_S > 0.0)
    if mean_SR.shape[1] <= SAMPLED_RANKS:
        noisier_SR[noisy] = np.maximum(lag1_SR[noisy] / common_S[noisy, None], 1.0)
        return noisier_SR
    for stage in noisy.tolist():
        latest = np.argpartition(-mean_SR[stage], SAMPLED_RANKS)[:SAMPLED_RANKS]
        own_R = squared_differences(late_SNR[stage][:, latest], 1)
        noisier_SR[stage, latest] = np.maximum(own_R / common_S[stage], 1.0)
    return noisier_SR


def _errors(
    late_SNR: Floats, mean_SR: Floats, noisier_SR: Floats, common: Sequence[MeanError]
) -> tuple[Floats, Floats]:
    """Return the error of each rank's mean lateness in each stage, and its degrees of freedom, [S, R].

    A rank's noise beyond the common one has a memory of its own. It is examined where a rank may be late;
    elsewhere all of its noise has that of the common one.
    """
    steps, ranks = late_SNR.shape[1:]
    se_S1 = np.array([[error.se] for error in common])
    error_SR = se_S1 * np.sqrt(noisier_SR)
    df_SR = np.repeat([[error.df] for error in common], ranks, axis=1)
    examined_SR = (noisier_SR > 1.0) & (mean_SR > _CLEAR * se_S1)
    for stage in np.flatnonzero(examined_SR.any(axis=1)).tolist():
        usual, examined = common[stage], examined_SR[stage].nonzero()[0]
        for rank in examined[np.argsort(-mean_SR[stage, examined])][:_CANDIDATES].tolist():
            # A lasting change of level counts as a long memory: such a rank is late in some of the steps.
            own = long_run(StepNoise(steps, *map(float, _lags(late_SNR[stage][:, rank]))), steps)
            more = own.variance / steps * (1.0 - 1.0 / float(noisier_SR[stage, rank]))
            both = usual.se**2 + more
            if both < error_SR[stage, rank] ** 2:
                # Welch and Satterthwaite
                parts = usual.se**4 / usual.df + more**2 / own.error(steps, steps).df
                error_SR[stage, rank], df_SR[stage, rank] = math.sqrt(both), both**2 / parts
    return error_SR, df_SR


def persistently_late(stage: StageLateness, chance: float) -> Flags:
    """Return which ranks are late on average, bool [R].

    Args:
        chance: that one healthy rank is among them.
    """
    margin = MeanError(1.0, stage.df).margin(chance)
    late: Flags = (stage.mean_R > stage.error_R * margin) & (stage.mean_R > 0.0)
    has_own_df: Flags = stage.df_R != stage.df
    for rank in has_own_df.nonzero()[0].tolist():
        margin = MeanError(1.0, float(stage.df_R[rank])).margin(chance)
        late[rank] = stage.mean_R[rank] > stage.error_R[rank] * margin and stage.mean_R[rank] > 0.0
    return late


def late_steps(late_SNR: Floats, upper_S: Floats) -> Iterator[dict[int, LateSteps]]:
    """Yield for each stage the ranks with the most time far outside, by position, with late steps and chance.

    A value x is exceeded with the chance (x / upper quartile)^-3 / 2, as under heavy tails. The chance of k
    events at least this far outside is their expected number over all steps. The chance over all ranks and
    stages is larger by the number of ranks times stages.

    Args:
        upper_S: upper quartile of |lateness|. If it is 0, no step is far outside.
    """
    clear_S = np.where(upper_S > 0.0, _CLEAR * upper_S, np.inf)
    beyond_SNR = late_SNR > clear_S[:, None, None]
    score_SR = np.where(beyond_SNR, late_SNR, 0.0).sum(axis=1)
    count_S = np.count_nonzero(score_SR, axis=1).clip(max=_CANDIDATES)
    for stage, count in enumerate(count_S.tolist()):
        if not count:
            yield {}
            continue
        latest = np.argpartition(-score_SR[stage], count - 1)[:count]
        late_RN = late_SNR[stage][:, latest].T
        places, steps = np.nonzero(beyond_SNR[stage][:, latest].T)
        far: list[float] = (late_RN[places, steps] / upper_S[stage]).tolist()
        ends = np.searchsorted(places, np.arange(count + 1)).tolist()
        step_of: list[int] = steps.tolist()
        yield {
            rank: _least_chance(_events(step_of[begin:end], far[begin:end]), late_RN.shape[1])
            for rank, (begin, end) in zip(latest.tolist(), pairwise(ends), strict=True)
        }


_Event = tuple[float, list[int]]
"""An event: its largest lateness over the upper quartile, and its steps."""


def _events(steps: Sequence[int], beyond: Sequence[float]) -> list[_Event]:
    """Join late steps into events, in order."""
    events: list[_Event] = []
    for step, far in zip(steps, beyond, strict=True):
        if events and step - events[-1][1][-1] <= _APART:
            furthest, together = events[-1]
            events[-1] = max(furthest, far), [*together, step]
        else:
            events.append((far, [step]))
    return events


def _least_chance(events: list[_Event], steps: int) -> LateSteps:
    """Return the events of one rank that are least likely together in this number of steps."""
    furthest = sorted(events, reverse=True)
    least, number = chance_of_events([far for far, _ in furthest[:_MOST_EVENTS]], steps)
    if number == _MOST_EVENTS:
        number = len(furthest)
    together = sorted(chain.from_iterable(event for _, event in furthest[:number]))
    return LateSteps(tuple(together), min(1.0, least))


def chance_of_events(beyond: Sequence[float], steps: int) -> tuple[float, int]:
    """Return the smallest expected number of sets of events this far outside, and the size of that set.

    Args:
        beyond: how far outside each event is, over the usual spread, the furthest first.
        steps: number of steps of the window.
    """
    least, number = math.inf, 0
    for taken, furthest in enumerate(beyond, 1):
        tail = min(1.0, 0.5 * furthest**-_TAIL_POWER) if furthest > 0.0 else 1.0
        expected = math.comb(steps, taken) * tail**taken
        if expected < least:
            least, number = expected, taken
    return least, number


def broad_own(window: Window, members: Sequence[int], split_SN: Flags) -> Array:
    """Return own time in a broad stage, int64 ns [N, R]; the whole duration where waits are not known.

    Args:
        members: positions of its recorded stages. split_SN: in which steps the waits of each are known.
    """
    own_NR = None
    for stage in members:
        part_NR = window.duration_SNR[stage]
        if split_SN[stage].any():
            waits_NR = window.waits[window.stages[stage]]
            if split_SN[stage].all():
                part_NR = part_NR - waits_NR
            else:
                part_NR = to_numpy(part_NR).copy()
                part_NR[split_SN[stage]] -= to_numpy(waits_NR)[split_SN[stage]]
        own_NR = part_NR if own_NR is None else own_NR + part_NR
    assert own_NR is not None
    return own_NR


def has_enough_steps(steps: int) -> bool:
    """Return whether this number of steps suffices to estimate noise."""
    return steps >= LEAST_STEPS
