"""How far a mean of autocorrelated steps may be from its true value (accounting.md §17).

Steps of a training job are neither independent nor normally distributed: ranks stay slow for a while, and
sequence lengths vary. The variance of a mean is estimated from differences between neighbouring steps, which
a lasting change of level within a window hardly affects, and extrapolated as for a first-order
autoregression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sfapp.accounting import kernels
from sfapp.accounting.kernels import median_last
from sfapp.model.arrays import to_numpy
from sfapp.model.findings import StepNoise

Floats = npt.NDArray[np.float64]

LEAST_STEPS = 5
"""Minimum number of steps to estimate noise."""

LEAST_WINDOWS = 5
"""Minimum number of windows to estimate how far windows differ beyond the noise of their steps."""

BLOCK, LEAST_BLOCKS = 5, 4
"""Steps per block, and number of blocks from which they show more than single steps: long memory hidden by
independent noise."""

LEAST_FREEDOM = 3.0
"""Minimum of the degrees of freedom of a mean's error: its size is known from at least four differences
between steps, also where their memory makes a window worth a single independent step."""

OUTLYING = 3.0
"""Largest noise of one series that counts, as a multiple of the median of several."""

INTERVAL = 0.025
"""Chance that the true effect lies above (or below) an interval."""

JUMP = 12.0
"""Multiple of the usual difference between neighbouring steps from which one may be a change of level."""

LONGEST_MEMORY = 0.97
"""Largest autocorrelation assumed; above it, a window is hardly more than one observation."""

LONGEST_BLOCK_MEMORY = 0.8
"""Largest autocorrelation assumed between blocks: their means are no autoregression, and the largest
differences overstate it."""

_EFFICIENCY = 0.37
"""Degrees of freedom of an estimate from the closest half of normal values, relative to their variance."""

_KEPT_SQUARE = 0.925
"""Mean square of normal values that is left where each is capped at OUTLYING times the median size."""

_ITERATIONS, _TINY = 300, 1e-300


@dataclass(frozen=True, slots=True)
class MeanError:
    """Standard error of a mean of steps.

    Attributes:
        se: in the unit of the values.
        df: degrees of freedom: effective number of independent steps, less one.
    """

    se: float
    df: float

    def chance(self, excess: float) -> float:
        """Return the one-sided chance of a mean this far above its true value."""
        if self.se <= 0.0:
            return 0.0 if excess > 0.0 else 1.0
        return student_t_sf(excess / self.se, self.df)

    def margin(self, chance: float) -> float:
        """Return how far above its true value a mean lies with this chance; infinite without degrees of
        freedom."""
        return self.se * student_t_quantile(chance, self.df) if self.se > 0.0 else 0.0

    @property
    def half_width(self) -> float:
        """Half of the width of the 95 % interval."""
        return self.margin(INTERVAL)


def mean_error(value_N: npt.ArrayLike) -> MeanError | None:
    """Return the error of the mean of a series of consecutive steps; None if it is too short."""
    noise = step_noise(value_N)
    return None if noise is None else long_run(noise, noise.steps).error(noise.steps, noise.steps)


def mean_margin(value_N: npt.ArrayLike) -> float:
    """Return the half-width of the interval of the mean of consecutive steps; 0 if there are too few.

    It is at most the range of the steps: with a long memory, a window is worth few independent steps, but
    their mean lies near them.
    """
    error = mean_error(value_N)
    return 0.0 if error is None else min(error.half_width, float(np.ptp(value_N)))


def squared_differences(values: Floats, lag: int) -> Floats:
    """Return the mean squared difference between values ``lag`` steps apart, [N, ...] to [...]; 0 if there is
    none."""
    if len(values) <= lag:
        return np.zeros(values.shape[1:])
    difference = values[lag:] - values[:-lag]
    return np.asarray(np.einsum("t...,t...->...", difference, difference) / len(difference))


def block_means(values: Floats) -> Floats:
    """Return means over blocks of steps, [N, ...]; no rows if there are too few blocks."""
    blocks = len(values) // BLOCK
    if blocks < LEAST_BLOCKS:
        return values[:0]
    return np.asarray(values[: blocks * BLOCK].reshape(blocks, BLOCK, *values.shape[1:]).mean(axis=1))


def without_jump(value_NR: Floats) -> Floats:
    """Return the values with a single lasting jump of a column's level removed.

    Such a jump is an effect, not noise. It is far larger than usual differences between neighbours, and the
    means before and after it differ by at least half of it. Each level lasts a block or more: one long step
    at either end is no level.
    """
    step_RN = np.abs(value_NR[1:] - value_NR[:-1]).T
    jump_R = step_RN.max(axis=1)
    found = value_NR
    for column in np.flatnonzero(jump_R > JUMP * to_numpy(median_last(step_RN))).tolist():
        first = int(step_RN[column].argmax()) + 1
        if not BLOCK <= first <= len(value_NR) - BLOCK:
            continue
        change = _mean(value_NR[first:, column]) - _mean(value_NR[:first, column])
        if abs(change) >= jump_R[column] / 2.0:
            found = found.copy() if found is value_NR else found
            found[first:, column] -= change
    return found


def step_noise(value_N: npt.ArrayLike) -> StepNoise | None:
    """Return the noise of a series of consecutive steps; None if it is too short."""
    values = np.ascontiguousarray(value_N, dtype=np.float64)
    if len(values) < LEAST_STEPS:
        return None
    if kernels.compiled is None:
        return StepNoise(len(values), *series_noise(values))
    return StepNoise(len(values), *kernels.compiled.series_noise(values, JUMP, BLOCK, LEAST_BLOCKS))


def series_noise(value_N: Floats) -> tuple[float, ...]:
    """Return the mean squared differences of steps and of blocks, each 1 and 2 apart, without a lasting jump;
    the kernels have the same in C, with sums in the same order."""
    values = without_jump(value_N[:, None])[:, 0]
    return tuple(
        _squared_difference(series, lag) for series in (values, block_means(values)) for lag in (1, 2)
    )


def _squared_difference(series_N: Floats, lag: int) -> float:
    difference_N = series_N[lag:] - series_N[:-lag]
    return _mean(difference_N * difference_N) if len(difference_N) else 0.0


def _mean(value_N: Floats) -> float:
    """Return the mean, with the values added one after the other."""
    return float(np.cumsum(value_N)[-1]) / len(value_N)


def pooled(noises: Sequence[StepNoise]) -> StepNoise:
    """Return the usual noise of several series of the same values.

    It is the mean, with each series capped at OUTLYING medians: otherwise one long step would raise the noise
    that it is compared with.
    """
    lags = np.array([(one.lag1, one.lag2, one.block1, one.block2) for one in noises])
    usual = np.minimum(lags, OUTLYING * median_last(lags.T)).mean(axis=0)
    return StepNoise(sum(one.steps for one in noises), *map(float, usual))


@dataclass(frozen=True, slots=True)
class LongRun:
    """Variance of means of steps.

    Attributes:
        variance: of a mean of n steps, times n.
        inflation: number of steps that are worth one independent step.
    """

    variance: float
    inflation: float

    def error(self, steps: int, known_from: int) -> MeanError:
        """Return the error of a mean of ``steps`` steps, with the noise estimated from the same number."""
        return MeanError(
            math.sqrt(self.variance / steps), max(LEAST_FREEDOM, known_from / self.inflation - 1.0)
        )


def long_run(noise: StepNoise, steps: int, series: int = 1) -> LongRun:
    """Return the variance of a mean over this number of steps: the larger of the estimates from single steps
    and blocks.

    Args:
        series: number of series of which the noise is the median.
    """
    rho = _memory(noise.lag1, noise.lag2, LONGEST_MEMORY)
    single = noise.lag1 / (2.0 * (1.0 - rho))
    whole = single * _inflation(rho, steps)
    if noise.block1 > 0.0:
        # With few blocks, a long memory cannot be distinguished from chance.
        longest = max(0.0, 1.0 - 2.0 / math.sqrt(series * noise.steps / BLOCK))
        between = _memory(noise.block1, noise.block2, min(LONGEST_BLOCK_MEMORY, longest))
        blocks = noise.block1 / (2.0 * (1.0 - between))
        whole = max(whole, BLOCK * blocks * _inflation(between, max(1, steps // BLOCK)))
    return LongRun(whole, max(1.0, whole / single) if single > 0.0 else 1.0)


def step_spread(noise: StepNoise) -> float:
    """Return the standard deviation of single steps."""
    return math.sqrt(noise.lag1 / (2.0 * (1.0 - _memory(noise.lag1, noise.lag2, LONGEST_MEMORY))))


def _memory(lag1: float, lag2: float, longest: float) -> float:
    """Return the autocorrelation of neighbours from the mean squared differences 1 and 2 apart."""
    return min(longest, max(0.0, lag2 / lag1 - 1.0)) if lag1 > 0.0 else 0.0


def _inflation(rho: float, steps: int) -> float:
    """Return the factor by which autocorrelation multiplies the variance of a mean over this number of
    steps."""
    if rho <= 0.0:
        return 1.0
    tail = 2.0 * rho * (1.0 - rho**steps) / (steps * (1.0 - rho) ** 2)
    return max(1.0, (1.0 + rho) / (1.0 - rho) - tail)


@dataclass(frozen=True, slots=True)
class WindowSpread:
    """How far the means of a run's healthy windows differ beyond the noise of their steps.

    Attributes:
        ns: standard deviation. windows: number of windows in the estimate; 0 if there are too few.
    """

    ns: float = 0.0
    windows: int = 0

    @property
    def df(self) -> float:
        """Degrees of freedom of the estimate."""
        return max(1.0, _EFFICIENCY * (self.windows - 1))


def window_spread(mean_W: Sequence[float], noise: StepNoise, steps: int) -> WindowSpread:
    """Return how far healthy windows differ, from windows of which some may be slow (§17).

    Of two estimates the smaller one counts, because faults enlarge either. Differences between successive
    windows are enlarged by frequent changes, but not by a few lasting ones nor by slow growth. The range of
    the closest half of the windows is enlarged by slow growth, but not by frequent changes.

    Args:
        mean_W: mean steps of successive windows, ns. noise: of the run's steps. steps: of one window.
    """
    means = np.asarray(mean_W, dtype=np.float64)
    count = len(means)
    if count < LEAST_WINDOWS:
        return WindowSpread()
    lag1, lag2 = (_usual_square(means[lag:] - means[:-lag]) for lag in (1, 2))
    longest = min(LONGEST_BLOCK_MEMORY, max(0.0, 1.0 - 2.0 / math.sqrt(count)))
    successive = lag1 / (2.0 * (1.0 - _memory(lag1, lag2, longest)))
    ordered = np.sort(means)
    half = count // 2 + 1
    closest = float((ordered[half - 1 :] - ordered[: count - half + 1]).min()) / 2.0
    # The consistency factor of a normal distribution and its correction for few values (Rousseeuw and Leroy).
    closest *= 1.4826 * (1.0 + 5.0 / (count - 1))
    explained = long_run(noise, steps).variance / steps
    return WindowSpread(math.sqrt(max(0.0, min(successive, closest**2) - explained)), count)


def _usual_square(difference_W: Floats) -> float:
    """Return the mean square of differences, each capped at OUTLYING times the usual size."""
    square_W = difference_W * difference_W
    capped_W = np.minimum(square_W, OUTLYING**2 * float(median_last(square_W)))
    return float(capped_W.mean()) / _KEPT_SQUARE


def difference_error(ours: StepNoise, usual: StepNoise, steps: int, spread: WindowSpread) -> MeanError:
    """Return the error of the difference between a window's mean step and the mean of healthy windows.

    Autocorrelation is estimated from many windows: within one window, a lasting change of level looks like a
    long memory. A window noisier than usual counts with its own noise. Degrees of freedom are those of the
    sum of both variances (Welch and Satterthwaite).

    Args:
        usual: noise of the run's steps. steps: number of steps of the healthy windows.
        spread: of window means beyond the noise of steps.
    """
    noisier = max(1.0, ours.lag1 / usual.lag1) if usual.lag1 > 0.0 else 1.0
    own = long_run(usual, ours.steps)
    within = own.variance * (noisier / ours.steps + 1.0 / steps)
    between = spread.ns**2 * (1.0 + min(1.0, ours.steps / steps))
    df = own.error(1, usual.steps).df
    if between > 0.0:
        df = (within + between) ** 2 / (within**2 / df + between**2 / spread.df)
    return MeanError(math.sqrt(within + between), df)


def student_t_sf(value: float, df: float) -> float:
    """Return P(T > value) of Student's t; ``df`` need not be whole (checked against scipy in the tests)."""
    if value < 0.0:
        return 1.0 - student_t_sf(-value, df)
    return 0.5 * _incomplete_beta(df / (df + value * value), df / 2.0, 0.5)


def student_t_quantile(chance: float, df: float) -> float:
    """Return the value that Student's t exceeds with this chance (at most 0.5)."""
    # Rounded down to two digits, so that the cached result serves all windows of similar degrees of freedom.
    digits = 1 - math.floor(math.log10(df))
    return _quantile(chance, math.floor(df * 10.0**digits) / 10.0**digits)


@lru_cache(maxsize=4096)
def _quantile(chance: float, df: float) -> float:
    low, high = 0.0, 1.0
    while student_t_sf(high, df) > chance:
        low, high = high, high * 4.0
        if high > 1e12:
            return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if student_t_sf(middle, df) > chance else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (Lentz)."""
    if x <= 0.0 or x >= 1.0:
        return min(1.0, max(0.0, x))
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    fraction_of = continued_fraction if kernels.compiled is None else kernels.compiled.continued_fraction
    return math.exp(log_front) / a * (fraction_of(x, a, b) - 1.0)


def continued_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function; the kernels have the same in C."""
    fraction = 1.0
    c, d = 1.0, 0.0
    for term in range(_ITERATIONS):
        half = term // 2
        if term == 0:
            numerator = 1.0
        elif term % 2 == 0:
            numerator = half * (b - half) * x / ((a + 2 * half - 1.0) * (a + 2 * half))
        else:
            numerator = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1.0))
        d = 1.0 / _away_from_zero(1.0 + numerator * d)
        c = _away_from_zero(1.0 + numerator / c)
        fraction *= c * d
        if abs(1.0 - c * d) < 1e-12:
            break
    return fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
