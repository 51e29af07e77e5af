"""Hold evidence against lateness: excess over peers, correlation, single steps (accounting.md §21)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from sfapp.accounting.late_ranks import Floats
from sfapp.accounting.noise import long_run, step_noise, student_t_sf
from sfapp.model.arrays import to_numpy

_OUTLYING = 5.0
"""Largest distance of a step from the median that counts, as a multiple of the usual distance."""


def without_outliers(value_N: Floats) -> Floats:
    """Return the values with those far from the median moved to the edge of the others."""
    middle = float(np.median(value_N))
    reach = _OUTLYING * float(np.median(np.abs(value_N - middle)))
    return value_N.clip(middle - reach, middle + reach)


def chance_of_excess(excess_N: Floats) -> float:
    """Return the one-sided chance of a mean excess this large if the rank were like its peers."""
    noise = step_noise(excess_N)
    if noise is None:
        return 1.0
    steps = len(excess_N)
    found = long_run(noise, steps).error(steps, steps).chance(float(excess_N.mean()))
    return max(found, 0.5**steps)


def effective_steps(a_N: Floats, b_N: Floats) -> float:
    """Return how many independent pairs two autocorrelated series are worth (Bartlett)."""
    product = max(0.0, _lag1(a_N) * _lag1(b_N))
    return max(3.0, len(a_N) * (1.0 - product) / (1.0 + product))


def _lag1(value_N: Floats) -> float:
    centred_N = value_N - value_N.mean()
    total = float(centred_N @ centred_N)
    return float(centred_N[1:] @ centred_N[:-1]) / total if total > 0.0 else 0.0


def rank_correlation(a_N: Floats, b_N: Floats) -> tuple[float | None, float]:
    """Return Spearman's correlation and its one-sided chance; None and 1 if a series is constant."""
    a_N, b_N = midranks(a_N), midranks(b_N)
    spread = float(a_N.std() * b_N.std())
    if spread <= 0.0:
        return None, 1.0
    found = float(((a_N - a_N.mean()) * (b_N - b_N.mean())).mean()) / spread
    found = min(1.0, max(-1.0, found))
    df = effective_steps(a_N, b_N) - 2.0
    if 1.0 - found * found < 1e-12:
        return found, 1.0 / math.factorial(min(len(a_N), 100)) if found > 0.0 else 1.0
    return found, student_t_sf(found * math.sqrt(df / (1.0 - found * found)), df)


def midranks(value_N: Floats) -> Floats:
    """Return the rank of each value, ties with their mean rank."""
    _, inverse_N, count = np.unique(value_N, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2.0)[inverse_N], dtype=np.float64)


def slope(y_N: Floats, x_N: Floats) -> tuple[float, float]:
    """Return the least-squares slope of y on x and its standard error; 0 and infinity if x is constant."""
    x_N, y_N = x_N - x_N.mean(), y_N - y_N.mean()
    total = float(x_N @ x_N)
    if total <= 0.0 or len(x_N) < 3:
        return 0.0, math.inf
    found = float(x_N @ y_N) / total
    rest_N = y_N - found * x_N
    df = max(1.0, effective_steps(x_N, rest_N) - 2.0)
    return found, math.sqrt(float(rest_N @ rest_N) / len(x_N) * (df + 2.0) / df / total)


def chance_of_signs(excess_N: Floats, independent: float) -> float:
    """Return the chance that as many steps have a positive excess if both signs were equally likely.

    Args:
        independent: number of independent steps that the steps are worth.
    """
    trials = max(1, round(independent))
    above = math.floor(trials * float((excess_N > 0.0).mean()) + 1e-9)
    return sum(math.comb(trials, count) for count in range(above, trials + 1)) / 2.0**trials


def chance_in_steps(excess_NR: Floats, late: Sequence[int]) -> float:
    """Return the chance that the late steps of the first rank hold as many of the largest values [N, R].

    Values from the median of the late steps on are large; their number among as many cells drawn at random,
    of all ranks and steps, is hypergeometric.
    """
    late_K = excess_NR[list(late), 0]
    large = float(np.median(late_K))
    if large <= 0.0:
        return 1.0
    return hypergeometric_sf(
        int((late_K >= large).sum()), excess_NR.size, int((excess_NR >= large).sum()), len(late_K)
    )


@lru_cache(maxsize=4096)  # Windows of one job ask for the same numbers again and again.
def hypergeometric_sf(found: int, population: int, marked: int, drawn: int) -> float:
    """Return the chance of at least ``found`` marked ones among those drawn."""
    total = _log_choose(population, drawn)
    expected = drawn * marked / population
    chance = 0.0
    for count in range(max(found, drawn - (population - marked)), min(marked, drawn) + 1):
        part = math.exp(_log_choose(marked, count) + _log_choose(population - marked, drawn - count) - total)
        chance += part
        if count > expected + 1.0 and part < 1e-18 * chance:
            break
    return min(1.0, chance)


def _log_choose(of: int, chosen: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)


def holm(chances: Sequence[float]) -> list[float]:
    """Return chances corrected for their number (Holm)."""
    corrected = [1.0] * len(chances)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(chances)), key=lambda index: chances[index])):
        largest = max(largest, min(1.0, (len(chances) - place) * chances[index]))
        corrected[index] = largest
    return corrected


def over_peers(value_NR: Floats) -> Floats:
    """Return by how much each value exceeds the median of the ranks after the first in its step [N, R]."""
    return np.asarray(value_NR - np.median(to_numpy(value_NR[:, 1:]), axis=1)[:, None])
