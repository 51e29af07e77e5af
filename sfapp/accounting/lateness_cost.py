"""What the lateness of ranks costs where they next wait for each other (§17)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfapp.accounting import kernels
from sfapp.accounting.kernels import uses_compiled
from sfapp.accounting.late_ranks import Floats, StageLateness
from sfapp.accounting.noise import student_t_quantile

_SLACK_RANKS = 64
"""Number of ranks, evenly spaced, from which a resolution is computed."""

USUAL_RANKS = 0.9
"""Part of the ranks for which a resolution holds: some are usually earlier than others."""


@dataclass(frozen=True, slots=True, eq=False)
class Slack:
    """Slack of ranks where they next wait for each other: how far they are ahead of the latest one.

    Attributes:
        sorted_NR: of up to 64 ranks, evenly spaced over all, each rank's steps in ascending order, ns.
        before_NR: cumulative sum of it.
        reached_NR: by how much the latest position moves, summed over the steps, if the rank is later by the
            next larger slack in every step, ns.
    """

    sorted_NR: Floats
    before_NR: Floats
    reached_NR: Floats

    @classmethod
    def of(cls, position_NR: Floats) -> Slack:
        """Return the slack at these positions, ns [N, R]."""
        some_NR = position_NR[:, :: -(-position_NR.shape[1] // _SLACK_RANKS)]
        sorted_NR = np.sort(position_NR.max(axis=1)[:, None] - some_NR, axis=0)
        before_NR = np.cumsum(sorted_NR, axis=0)
        index_N1 = np.arange(1, len(sorted_NR))[:, None]
        return cls(sorted_NR, before_NR, index_N1 * sorted_NR[1:] - before_NR[:-1])

    def later(self, cost_CR: Floats) -> Floats:
        """Return by how much each rank must be later in every step for the latest position to move by a cost
        on average: x such that the mean over steps of max(0, x - slack) is the cost, ns [C, R].

        Args:
            cost_CR: several costs for each rank, ns.
        """
        total_CR = len(self.sorted_NR) * cost_CR
        if uses_compiled(self.reached_NR):
            later_CR = np.empty(total_CR.shape)
            kernels.compiled.slack_later(self.reached_NR, self.before_NR, total_CR, later_CR)
            return later_CR
        # With the k smallest slacks below x, k x - their sum is the total.
        below_CR = np.count_nonzero(self.reached_NR[:, None] < total_CR, axis=0)
        return np.asarray(
            (total_CR + self.before_NR[below_CR, np.arange(below_CR.shape[1])]) / (below_CR + 1)
        )

    def spread(self, cost: float) -> Floats:
        """Return the standard deviation over steps of the move of the latest position, for each rank so late
        that the mean move is the cost, ns [R]."""
        later_1R = self.later(np.full((1, self.sorted_NR.shape[1]), cost))
        moved_NR = (later_1R - self.sorted_NR).clip(min=0.0) - cost
        return np.asarray(np.sqrt(np.einsum("tr,tr->r", moved_NR, moved_NR) / len(moved_NR)))


def saved(position_NR: Floats, late_NR: Floats, ranks: Sequence[int]) -> Floats:
    """Return by how much the latest position moves forward without the lateness of these ranks, ns [N].

    Args:
        late_NR: lateness of ``ranks`` alone, [N, len(ranks)].
    """
    chosen = list(ranks)
    others_NR = position_NR.copy()
    others_NR[:, chosen] -= late_NR.clip(min=0.0)
    return np.asarray(position_NR.max(axis=1) - others_NR.max(axis=1))


def saved_alone(position_NR: Floats, late_NR: Floats, ranks: Sequence[int]) -> Floats:
    """Return by how much the latest position moves forward without the lateness of one rank, for each of
    these ranks, ns [N, len(ranks)].

    Args:
        late_NR: lateness of ``ranks`` alone, [N, len(ranks)].
    """
    second_N1, latest_N1 = np.partition(position_NR, -2, axis=1)[:, -2:].T[..., None]
    own_NR = position_NR[:, list(ranks)]
    others_NR = np.where(own_NR == latest_N1, second_N1, latest_N1)
    return np.asarray(latest_N1 - np.maximum(others_NR, own_NR - late_NR.clip(min=0.0)))


def saved_by_ranks(position_NR: Floats, late_NR: Floats, ranks: Sequence[int]) -> tuple[Floats, Floats]:
    """Return ``saved`` [N], and ``saved_alone`` summed over the steps [len(ranks)]."""
    if not uses_compiled(position_NR):
        alone_NR = saved_alone(position_NR, late_NR, ranks)
        return saved(position_NR, late_NR, ranks), np.asarray(alone_NR.sum(axis=0))
    saved_N, alone_R = np.empty(len(position_NR)), np.empty(len(ranks))
    kernels.compiled.saved(position_NR, late_NR, np.array(ranks, dtype=np.int64), saved_N, alone_R)
    return saved_N, alone_R


def lateness_for_cost(
    stages: Sequence[StageLateness], slacks: Sequence[Slack], cost: float, power: float
) -> list[float]:
    """Return for each stage by how much one rank must be later in every step for the frontier to move by
    ``cost``, ns.

    Some ranks are usually earlier than others. The result suffices for USUAL_RANKS of them, and for all
    windows but a share ``power``.

    Args:
        slacks: for each stage, slack of ranks where they next wait for each other; stages before the same
            wait share it.
    """
    by_slack: dict[Slack, list[int]] = defaultdict(list)
    for place, slack in enumerate(slacks):
        by_slack[slack].append(place)
    found = [0.0] * len(stages)
    for slack, places in by_slack.items():
        steps = len(slack.sorted_NR)
        scale_C = [_margin_of_mean(stages[place].inflation, steps, power) for place in places]
        later_CR = np.sort(slack.later(cost + np.array(scale_C)[:, None] * slack.spread(cost)), axis=1)
        for place, later in zip(
            places, later_CR[:, round(USUAL_RANKS * (later_CR.shape[1] - 1))], strict=True
        ):
            found[place] = float(later)
    return found


def _margin_of_mean(inflation: float, steps: int, chance: float) -> float:
    """Return how far above its true value a mean over this number of steps lies with this chance, in standard
    deviations of a step."""
    margin = student_t_quantile(chance, max(1.0, steps / inflation - 1.0))
    return margin * math.sqrt(inflation / steps)
