"""How evenly ranks and nodes keep pace, step by step: TraceML's cross-node summary (its design, §8.2).

This is an overview only. Ranks that wait for each other finish their steps together, so a small skew means
that they are synchronised, not that no rank delays them. The diagnosis shows which rank does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfapp.errors import WindowError
from sfapp.model import RankTable

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Durations of some steps on each rank.

    Attributes:
        ranks: identities of the R ranks.
        step_N: int64, step numbers, ascending.
        wall_NR: ns; NaN where a rank has not reported the step's duration.
        newest_R: int64, the newest step that each rank has reported; -1 for none. Where rows hold several
            steps, the last row of a rank may end at a later one.
        steps_each: number of steps in the mean of each row; ``step_N`` names the last of them.
    """

    ranks: RankTable
    step_N: Integers
    wall_NR: Floats
    newest_R: Integers
    steps_each: int = 1

    @cached_property
    def summary(self) -> CrossNode:
        """How evenly the ranks and nodes keep pace."""
        return cross_node(self.wall_NR, self.ranks.node_rank)

    def recent_R(self, rows: int) -> Floats:
        """Return the mean of each rank's newest rows, ns [R]; NaN where it has none."""
        recent_NR = self.wall_NR[-rows:]
        there_R = np.count_nonzero(~np.isnan(recent_NR), axis=0)
        total_R = np.nansum(recent_NR, axis=0)
        mean_R: Floats = np.divide(total_R, there_R, out=np.full(len(total_R), np.nan), where=there_R > 0)
        return mean_R


def step_times(ranks: RankTable, rows: Sequence[Integers], newest: int = 200) -> StepTimes:
    """Align the steps of ranks in one table; ranks may be at different steps.

    Args:
        rows: per rank, in the order of ``ranks``, int64 [n, at least 2]: step number, wall ns, and any other
            columns. If a step occurs twice, the later row counts.
        newest: how many of the highest step numbers to keep.

    Raises:
        WindowError: there is not one array per rank.
    """
    if len(rows) != len(ranks):
        raise WindowError(f"steps of {len(rows)} ranks for {len(ranks)} identities")
    there = [row_NC[:, 0] for row_NC in rows]
    step_N = np.unique(np.concatenate([*there, np.empty(0, np.int64)]))[-newest:].astype(np.int64)
    wall_NR = np.full((len(step_N), len(ranks)), np.nan)
    for place, row_NC in enumerate(rows):
        kept = row_NC[np.isin(row_NC[:, 0], step_N)]
        wall_NR[np.searchsorted(step_N, kept[:, 0]), place] = kept[:, 1]
    newest_R = np.array([steps.max(initial=-1) for steps in there], dtype=np.int64)
    return StepTimes(ranks, step_N, wall_NR, newest_R)


def paced_steps(
    ranks: RankTable,
    rank_M: Integers,
    step_M: Integers,
    steps_M: Integers,
    wall_mean_M: npt.ArrayLike,
    most: int = 240,
) -> StepTimes:
    """Align the steps of ranks that report at intervals how long their last steps took.

    A row is one step, or the mean of several: as many as are needed for at most ``most`` rows, each at least
    as wide as a usual report. If a rank returned to an earlier step, only later reports count.

    Args:
        rank_M: the rank of each of the M reports, each rank's reports in order of time.
        step_M: number of the newest step in each report, at least 0.
        steps_M: number of steps in it, at least 1.
        wall_mean_M: their mean wall time, ns.
    """
    place_M, known_M = _places(ranks, rank_M)
    kept_M = np.flatnonzero(known_M)
    kept_M = kept_M[_not_replaced(place_M[kept_M], step_M[kept_M])]
    place_M, last_M = place_M[kept_M], step_M[kept_M]
    newest_R = np.full(len(ranks), -1, np.int64)
    np.maximum.at(newest_R, place_M, last_M)
    if not len(last_M):
        return StepTimes(ranks, np.empty(0, np.int64), np.empty((0, len(ranks))), newest_R)
    count_M = np.minimum(steps_M[kept_M], last_M + 1)
    first_M = last_M - count_M + 1
    first, last = int(first_M.min()), int(last_M.max())
    width = max(-(-(last - first + 1) // most), int(np.median(count_M)))
    rows = -(-(last - first + 1) // width)
    origin = last + 1 - rows * width
    which_E, row_E, weight_E = _spread(first_M - origin, last_M - origin, width)
    cell_E, size = row_E * len(ranks) + place_M[which_E], rows * len(ranks)
    wall_E = np.asarray(wall_mean_M, dtype=np.float64)[kept_M][which_E]
    weight = np.bincount(cell_E, weight_E, size).reshape(rows, len(ranks))
    total = np.bincount(cell_E, weight_E * wall_E, size).reshape(rows, len(ranks))
    wall_NR = np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)
    there_N = (weight > 0).any(axis=1)
    step_N = origin + width * (np.arange(rows, dtype=np.int64) + 1) - 1
    return StepTimes(ranks, step_N[there_N], wall_NR[there_N], newest_R, width)


def _spread(first_M: Integers, last_M: Integers, width: int) -> tuple[Integers, Integers, Floats]:
    """Return an entry for each row that a report overlaps: the report, the row, and the number of steps in
    it."""
    begin_M = first_M // width
    times_M = last_M // width - begin_M + 1
    which_E = np.repeat(np.arange(len(last_M)), times_M)
    row_E = np.arange(len(which_E)) - np.repeat(np.cumsum(times_M) - times_M, times_M) + begin_M[which_E]
    low_E = np.maximum(first_M[which_E], row_E * width)
    high_E = np.minimum(last_M[which_E], row_E * width + width - 1)
    return which_E, row_E, (high_E - low_E + 1).astype(np.float64)


def _places(ranks: RankTable, rank_M: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return the position of each rank in the table, and whether it has one."""
    numbers = np.asarray(ranks.rank, dtype=np.int64)
    if not len(numbers):
        return np.zeros(len(rank_M), np.int64), np.zeros(len(rank_M), bool)
    place_M = np.minimum(np.searchsorted(numbers, rank_M), len(numbers) - 1)
    return place_M.astype(np.int64), numbers[place_M] == rank_M


def _not_replaced(place_M: Integers, step_M: Integers) -> npt.NDArray[np.bool_]:
    """Return which reports are not replaced by a later one of the same rank for the same or an earlier
    step."""
    kept_M = np.ones(len(step_M), bool)
    narrow_M = place_M.astype(np.min_scalar_type(int(place_M.max(initial=0))))  # sorts several times faster
    order_M = np.argsort(narrow_M, kind="stable")
    place_sorted, step_sorted = place_M[order_M], step_M[order_M]
    went_back = (place_sorted[1:] == place_sorted[:-1]) & (step_sorted[1:] <= step_sorted[:-1])
    for place in np.unique(place_sorted[1:][went_back]):  # usually few or none
        members = order_M[
            np.searchsorted(place_sorted, place) : np.searchsorted(place_sorted, place, "right")
        ]
        least = np.minimum.accumulate(step_M[members][::-1])[::-1]
        kept_M[members[:-1]] = step_M[members[:-1]] < least[1:]
    return kept_M


@dataclass(frozen=True, slots=True, eq=False)
class CrossNode:
    """N steps of R ranks on K nodes; NaN (or −1 for a position) where no rank has a time.

    With w[t, r] the step time of rank r in step t, and R_k the ranks of node k:

    Attributes:
        nodes: the K node ranks, ascending.
        median_N: M[t] = median_r w[t, r], ns.
        node_median_NK: m[t, k] = median over r in R_k of w[t, r], ns.
        worst_N: r*[t] = argmax_r w[t, r], as a position among the R; the first if several tie. rank_skew_N:
            (w[t, r*] − M[t]) / M[t], a fraction.
        slowest_N: k*[t] = argmax_k m[t, k], as a position among the K; the first if several tie.
        node_skew_N: (max_k m[t, k] − min_k m[t, k]) / min_k m[t, k], a fraction.
        node_worst_NK: the slowest rank of each node, as a position among the R.
        node_rank_skew_NK: (max over r in R_k of w[t, r] − m[t, k]) / m[t, k], a fraction.
    """

    nodes: tuple[int, ...]
    median_N: Floats
    node_median_NK: Floats
    worst_N: Integers
    rank_skew_N: Floats
    slowest_N: Integers
    node_skew_N: Floats
    node_worst_NK: Integers
    node_rank_skew_NK: Floats


def cross_node(wall_NR: npt.ArrayLike, node_R: Sequence[int]) -> CrossNode:
    """Summarise how evenly ranks and nodes keep pace.

    Args:
        wall_NR: step times, ns [N, R]; NaN where a rank has none.
        node_R: the node of each rank.

    Raises:
        WindowError: the shapes do not match.
    """
    wall = np.asarray(wall_NR, dtype=np.float64)
    if wall.ndim != 2 or wall.shape[1] != len(node_R) or not len(node_R):
        raise WindowError(
            f"step times must be [steps, {len(node_R)}] for as many ranks, not {list(wall.shape)}"
        )
    nodes, node_place_R = np.unique(np.asarray(node_R), return_inverse=True)
    median_N = _median(wall)
    worst_N = _largest(wall)
    shape = len(wall), len(nodes)
    node_median, node_skew, node_worst = np.empty(shape), np.empty(shape), np.empty(shape, np.int64)
    for some_K, member_KR in _by_size(node_place_R):
        within = wall[:, member_KR].reshape(-1, member_KR.shape[1])  # a row for each step and node
        middle, worst = _median(within), _largest(within)
        found = np.where(worst < 0, -1, np.tile(member_KR, (len(wall), 1))[np.arange(len(worst)), worst])
        node_median[:, some_K] = middle.reshape(-1, len(some_K))
        node_skew[:, some_K] = _above(_at(within, worst), middle).reshape(-1, len(some_K))
        node_worst[:, some_K] = found.reshape(-1, len(some_K))
    slowest_N = _largest(node_median)
    fastest_N = _largest(-node_median)
    return CrossNode(
        nodes=tuple(nodes.tolist()),
        median_N=median_N,
        node_median_NK=node_median,
        worst_N=worst_N,
        rank_skew_N=_above(_at(wall, worst_N), median_N),
        slowest_N=slowest_N,
        node_skew_N=_above(_at(node_median, slowest_N), _at(node_median, fastest_N)),
        node_worst_NK=node_worst,
        node_rank_skew_NK=node_skew,
    )


def _by_size(node_place_R: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Return groups of nodes with the same number of ranks: the nodes, and the positions of the ranks of
    each."""
    size_K = np.bincount(node_place_R)
    order_R = np.argsort(node_place_R, kind="stable")
    for size in np.unique(size_K):
        some_K = np.flatnonzero(size_K == size)
        yield some_K, order_R[np.isin(node_place_R[order_R], some_K)].reshape(len(some_K), size)


def _median(values_NR: Floats) -> Floats:
    """Return the median of each row, ignoring NaN; NaN for a row of NaN."""
    ordered = np.sort(values_NR, axis=1)  # NaN last
    there_N = np.count_nonzero(~np.isnan(values_NR), axis=1)
    low, high = np.maximum(there_N - 1, 0) // 2, np.minimum(there_N // 2, values_NR.shape[1] - 1)
    return (_at(ordered, low) + _at(ordered, high)) / 2


def _largest(values_NR: Floats) -> Integers:
    """Return the position of the largest value of each row, the first of several; −1 for a row of NaN."""
    place_N = np.where(np.isnan(values_NR), -np.inf, values_NR).argmax(axis=1)
    return np.where(np.isnan(_at(values_NR, place_N)), -1, place_N).astype(np.int64)


def _at(values_NR: Floats, place_N: Integers) -> Floats:
    """Return the value of each row at a position; NaN for position −1."""
    found = values_NR[np.arange(len(values_NR)), np.maximum(place_N, 0)]
    return np.where(place_N < 0, np.nan, found)


def _above(value_N: Floats, base_N: Floats) -> Floats:
    """Return by how much a value exceeds a base, as a fraction of the base; NaN where the base is 0."""
    above_N: Floats = np.divide(value_N - base_N, base_N, out=np.full(len(base_N), np.nan), where=base_N > 0)
    return above_N
