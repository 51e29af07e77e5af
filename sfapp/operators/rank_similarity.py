"""Find the rank whose completions come at other times than the others': stage 1 (KAIR §III-B).

Suffixes: R ranks, T time windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.errors import WindowError
from sfapp.model import Operators
from sfapp.operators.cohorts import Roles, median_of_groups, roles_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WINDOWS_A_STEP = 1_000
"""Time windows per typical step: a K-S distance is exact up to the completions within one window."""

MAX_WINDOWS = 10_000
"""Largest number of time windows: a step ten times the usual length fits, and 2,048 ranks take 160 MB."""

MAX_RANKS = 8_192
"""Largest number of ranks: the distances of all pairs take half a gigabyte."""

_RANKS_FOR_TORCH = 256
"""From so many ranks on, torch's distances on all cores are worth loading it."""

SHORTEST_WINDOW_NS = 1_000
"""Shortest time window, ns: ranks' clocks agree to about a microsecond (KAIR §III-A, Feature 4)."""


@dataclass(frozen=True, slots=True, eq=False)
class RankSimilarity:
    """Distances between the timing patterns of ranks.

    Attributes:
        ranks: the R ranks, ascending.
        window_ns: length of a time window, counted from the begin of each step.
        why: how that length was chosen.
        count_RT: int64 [R, T], events completed in each time window, summed over steps.
        distance_RR: float64 [R, R], two-sample K-S distance of each pair of ranks, 0…1.
        score_R: float64 [R], abnormality: a rank's mean distance from the other ranks of its role.
    """

    ranks: tuple[int, ...]
    window_ns: int
    why: str
    count_RT: Ints
    distance_RR: Floats
    score_R: Floats

    @property
    def order_R(self) -> Ints:
        """Return positions in ``ranks``, most abnormal first: the order of the heatmap."""
        return np.argsort(-self.score_R, kind="stable").astype(np.int64)


def rank_similarity(
    operators: Operators, window_ns: int | None = None, roles: Roles | None = None
) -> RankSimilarity:
    """Score each rank by its timing pattern: when within a step its events complete.

    Steps are overlaid from their common begin, the earliest event of any rank. Ranks that synchronise in
    every step are never more than a step apart, so over a whole window of steps their curves would coincide.

    Args:
        window_ns: length of the time windows; None chooses it and says why.
        roles: the role of each rank, if they differ.

    Raises:
        WindowError: more than 8,192 ranks.
    """
    inside = operators.select(operators.step_E >= 0)
    ranks = inside.ranks
    _check_ranks(len(ranks))
    step, step_E = np.unique(inside.step_E, return_inverse=True)
    begin_N = np.full(len(step), np.iinfo(np.int64).max)
    np.minimum.at(begin_N, step_E, inside.start_ns_E)
    since_E = inside.end_ns_E - begin_N[step_E]
    longest = int(since_E.max(initial=0))
    length, why = (window_ns, "as requested") if window_ns else _window_length(since_E, step_E, len(step))
    windows = min(longest // length, MAX_WINDOWS - 1) + 1
    window_E = np.minimum(since_E // length, windows - 1)
    row_E = np.searchsorted(np.asarray(ranks, np.int64), inside.rank_E)
    flat = np.bincount(row_E * windows + window_E, minlength=len(ranks) * windows)
    count_RT = flat.reshape(len(ranks), windows).astype(np.int64)
    distance_RR = ks_distances(count_RT)
    role_R = roles_of(ranks, roles)
    same_role_RR = role_R[:, None] == role_R
    score_R = (distance_RR * same_role_RR).sum(axis=1) / np.maximum(same_role_RR.sum(axis=1) - 1, 1)
    return RankSimilarity(ranks, length, why, count_RT, distance_RR, score_R)


def ks_distances(count_RT: Ints) -> Floats:
    """Return the two-sample K-S distance of each pair of rows of counts, float64 [R, R].

    D[a, b] = max over t of |F[a, t] - F[b, t]|, F the share of a row's completions until t (KAIR §III-B).
    Equal to ``scipy.stats.ks_2samp`` of the time windows of the completions. One table of shares [R, T]
    serves all pairs and each pair is reduced at once, so no R × R × T array is held. A row without
    completions has distance 1 from a row with completions.

    Raises:
        WindowError: more than 8,192 ranks.
    """
    ranks = len(count_RT)
    _check_ranks(ranks)
    total_R = count_RT.sum(axis=1, keepdims=True)
    share_RT = count_RT.cumsum(axis=1) / np.maximum(total_R, 1)
    distance_RR = np.zeros((ranks, ranks))
    begin = 0
    upper = _upper_distances(share_RT) if ranks >= _RANKS_FOR_TORCH else None
    for row in range(ranks - 1):
        if upper is None:
            distances = np.abs(share_RT[row + 1 :] - share_RT[row]).max(axis=1)
        else:
            distances = upper[begin : begin + ranks - 1 - row]
        distance_RR[row, row + 1 :] = distance_RR[row + 1 :, row] = distances
        begin += ranks - 1 - row
    return distance_RR


def _upper_distances(share_RT: Floats) -> Floats | None:
    """Return the largest difference of any two rows, row by row of the upper triangle; None without torch."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    distances: Floats = torch.nn.functional.pdist(torch.from_numpy(share_RT), p=float("inf")).numpy()
    return distances


def _check_ranks(ranks: int) -> None:
    if ranks > MAX_RANKS:
        raise WindowError(
            f"{ranks:,} ranks have {ranks * ranks:,} distances, more than fit in memory: "
            f"compare at most {MAX_RANKS:,} at a time, for example those of one role"
        )


def _window_length(since_E: Ints, step_E: Ints, steps: int) -> tuple[int, str]:
    length_N = np.zeros(steps, np.int64)
    np.maximum.at(length_N, step_E, since_E)
    usual = median_of_groups(length_N.astype(np.float64), np.zeros(steps, np.int64), 1)[0] if steps else 0.0
    fine, coarse = usual / WINDOWS_A_STEP, int(length_N.max(initial=0)) / (MAX_WINDOWS - 1)
    length = max(int(np.ceil(max(fine, coarse))), SHORTEST_WINDOW_NS)
    if length == SHORTEST_WINDOW_NS:
        return length, "1 µs, the accuracy of the clocks"
    if coarse > fine:
        return length, f"the longest step in {MAX_WINDOWS:,} windows, the most that are kept"
    return (
        length,
        f"a {WINDOWS_A_STEP:,}th of the median step: error ≤ one bin",
    )
