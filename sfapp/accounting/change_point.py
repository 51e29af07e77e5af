"""Find the step at which the level of a series rose, as a posterior over the steps (accounting.md §17).

The model is one lasting rise of the mean under autocorrelated noise with heavy tails. The prior is uniform
over the steps. Levels and scale are fitted for each place. The autocorrelation is averaged over, because a
few dozen steps hold little information on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.accounting.kernels import median_last

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LEAST_VALUES = 5
"""Minimum number of values; a shorter series shows no change."""

WITHIN = 0.95
"""Probability that the change lies within the interval."""

LEAST_EVIDENCE = 7.0
"""Minimum gain in log-likelihood of a rise over no rise; by chance, the best of 100 places reaches 4."""

REACH = 128
"""Values examined on either side of the best place; the work grows with the square of this."""

_FREEDOM = 4.0
"""Degrees of freedom of Student's t; so few that a single long step hardly moves levels and places."""

_MEMORIES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.85, 0.92, 0.97)
"""Autocorrelations of neighbouring steps that are averaged over."""

_ITERATIONS = 8
"""Rounds of reweighting; later ones change a log-likelihood by less than 0.01."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """Where a series rose, as positions: the first value at the higher level.

    Attributes:
        place: the most likely one. low, high: the shortest range with a probability of 95 %.
        evidence: gain in log-likelihood over no rise.
    """

    place: int
    low: int
    high: int
    evidence: float


def change_point(
    value_N: npt.ArrayLike, start_N: npt.ArrayLike | None = None, least: int = 1
) -> ChangePoint | None:
    """Return where a series rose to a lasting higher level; None if it is too short or shows no rise.

    Args:
        start_N: whether a value begins a stretch of consecutive values; the first always does.
        least: the first position at which it may have risen.
    """
    value_N = np.asarray(value_N, dtype=np.float64)
    count = len(value_N)
    if count < LEAST_VALUES or least >= count:
        return None
    start_N = np.zeros(count, dtype=bool) if start_N is None else np.array(start_N, dtype=bool)
    start_N[0] = True
    apart_N = value_N - median_last(value_N)
    spread = float(np.abs(apart_N).max())
    if spread <= 0.0:
        return None
    scaled_N = apart_N / spread
    first = 0
    if count > 2 * REACH:
        first = min(max(0, _roughly(scaled_N, least) - REACH), count - 2 * REACH)
        scaled_N, start_N = scaled_N[first : first + 2 * REACH], start_N[first : first + 2 * REACH].copy()
        start_N[0] = True
    place_K = np.arange(max(1, least - first), len(scaled_N))
    found = [_fit(scaled_N, start_N, place_K, memory) for memory in _MEMORIES]
    fits_MK = np.array([fit for fit, _ in found])
    evidence = float(fits_MK.max()) - max(level for _, level in found)
    if not evidence >= LEAST_EVIDENCE:
        return None
    chance_K = np.exp(fits_MK - fits_MK.max()).sum(axis=0)
    chance_K /= chance_K.sum()
    low, high = _shortest(chance_K)
    offset = first + int(place_K[0])
    return ChangePoint(offset + int(chance_K.argmax()), offset + low, offset + high, evidence)


def levels(value_NR: Floats) -> Floats:
    """Return each column's level in each step, [N, R]: its mean, or its means before and after one lasting
    change if these fit better by LEAST_EVIDENCE, by least squares."""
    steps = len(value_NR)
    mean_R = value_NR.mean(axis=0)
    apart_NR = value_NR - mean_R
    count_K1 = np.arange(1, steps)[:, None]
    before_KR = np.cumsum(apart_NR[:-1], axis=0)  # The sum of the others is its opposite.
    explained_KR = before_KR**2 * (1.0 / count_K1 + 1.0 / (steps - count_K1))
    whole_R = np.einsum("nr,nr->r", apart_NR, apart_NR)
    most_R = explained_KR.max(axis=0, initial=0.0)
    level_NR = np.repeat(mean_R[None], steps, axis=0)
    left_R = np.maximum(whole_R - most_R, 1e-12 * whole_R)
    changed_R = (whole_R > 0.0) & (whole_R >= left_R * np.exp(2.0 * LEAST_EVIDENCE / steps))
    for column in np.flatnonzero(changed_R).tolist():
        first = int(explained_KR[:, column].argmax()) + 1
        level_NR[:first, column] = value_NR[:first, column].mean()
        level_NR[first:, column] = value_NR[first:, column].mean()
    return level_NR


def _roughly(value_N: Floats, least: int) -> int:
    """Return the place of the rise with least squares."""
    count_K = np.arange(max(1, least), len(value_N))
    before_K = np.cumsum(value_N)[count_K - 1]
    after_K = value_N.sum() - before_K
    left_K = len(value_N) - count_K
    rise_K = after_K / left_K - before_K / count_K
    explained_K = np.where(rise_K > 0.0, rise_K**2 * count_K * left_K, 0.0)
    return int(count_K[explained_K.argmax()])


def _fit(
    value_N: Floats, start_N: Flags, place_K: npt.NDArray[np.int64], memory: float
) -> tuple[Floats, float]:
    """Return log-likelihoods of a rise at each place [K], minus infinity for a fall, and that of no rise."""
    raised_KN = (np.arange(len(value_N)) >= place_K[:, None]).astype(np.float64)
    rows = np.concatenate((raised_KN, np.zeros((1, len(value_N)))))
    rise_KN = _innovations(rows, start_N, memory)
    level_N = _innovations(np.ones_like(value_N), start_N, memory)
    shown_N = _innovations(value_N, start_N, memory)
    weight_KN = np.ones_like(rise_KN)
    scale_K1 = np.full((len(rise_KN), 1), np.inf)
    count = len(value_N)
    tiny = 1e-9
    for _ in range(_ITERATIONS):
        weighted_KN = weight_KN * rise_KN
        aa = weight_KN @ (level_N * level_N)
        ab = weighted_KN @ level_N
        bb = np.einsum("kt,kt->k", weighted_KN, rise_KN)
        ay = weight_KN @ (level_N * shown_N)
        by = weighted_KN @ shown_N
        determinant = aa * bb - ab * ab
        singular = determinant <= tiny * aa * aa
        determinant[singular] = 1.0
        rise_K = np.where(singular, 0.0, (aa * by - ab * ay) / determinant)
        base_K = (ay - ab * rise_K) / aa
        rest_KN = shown_N - base_K[:, None] * level_N - rise_K[:, None] * rise_KN
        square_KN = rest_KN * rest_KN
        scale_K1 = np.maximum(np.einsum("kt,kt->k", weight_KN, square_KN) / count, tiny**2)[:, None]
        ratio_KN = square_KN / scale_K1
        weight_KN = (_FREEDOM + 1.0) / (_FREEDOM + ratio_KN)
    fits = -0.5 * count * np.log(scale_K1[:, 0]) - (_FREEDOM + 1.0) / 2.0 * np.log1p(ratio_KN / _FREEDOM).sum(
        axis=1
    )
    fits += 0.5 * float(np.count_nonzero(start_N)) * np.log1p(-memory * memory)
    return np.where(rise_K[:-1] > 0.0, fits[:-1], -np.inf), float(fits[-1])


def _innovations(value_N: Floats, start_N: Flags, memory: float) -> Floats:
    """Return each value minus its prediction from the one before it, over the last axis."""
    found: Floats = np.asarray(value_N * np.sqrt(1.0 - memory * memory))
    follows = np.flatnonzero(~start_N)
    found[..., follows] = value_N[..., follows] - memory * value_N[..., follows - 1]
    return found


def _shortest(chance_K: Floats) -> tuple[int, int]:
    """Return the shortest range of positions with the probability WITHIN; the likeliest if there are
    several."""
    below_K = np.concatenate(([0.0], np.cumsum(chance_K)))
    low, high = 0, len(chance_K) - 1
    for length in range(1, len(chance_K) + 1):
        within = below_K[length:] - below_K[:-length]
        best = int(within.argmax())
        if within[best] >= WITHIN - 1e-12:
            low, high = best, best + length - 1
            break
    return low, high
