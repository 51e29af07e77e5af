"""The slowest rank per step, its margin and its changes (accounting.md §3, §12). Works on the host on vectors
[N]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfapp.model import Culprit, RankTable
from sfapp.model.diagnosis import CulpritKind

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

PERSISTENT = 0.8
"""Fraction of the eligible steps from which one leader is ``chronic`` and a spacing is a period."""

ONE_OFF_STEPS = 2
LISTED_STEPS = 32

_LONGEST_PERIOD = 2**31 - 1
"""The store's column is an INTEGER."""


@dataclass(frozen=True, slots=True, eq=False)
class StageLeaders:
    """Exposure of one broad stage in every step: its advance and its leading rank.

    Attributes:
        advance_N: ns.
        leader_N: position of the leading rank.
        gap_N: ns to the next rank.
    """

    advance_N: Ints
    leader_N: Ints
    gap_N: Ints


@dataclass(frozen=True, slots=True)
class Handover:
    """How often the lead changed from one rank to another at a boundary (a crossing of prefix curves)."""

    stage: str
    from_rank: int
    to_rank: int
    count: int


def stage_leaders(advance_SN: Ints, leader_SN: Ints, gap_SN: Ints, members: Sequence[int]) -> StageLeaders:
    """Collect the boundaries of one broad stage.

    **choice** If micro-steps are separate, a step's leader is the one at the micro-step that exposed the most
    time.
    """
    if len(members) == 1:
        stage = members[0]
        return StageLeaders(advance_SN[stage], leader_SN[stage], gap_SN[stage])
    rows = np.asarray(members)
    steps = np.arange(advance_SN.shape[1])
    largest_N = rows[advance_SN[rows].argmax(axis=0)]
    return StageLeaders(advance_SN[rows].sum(axis=0), leader_SN[largest_N, steps], gap_SN[largest_N, steps])


def eligible_steps(
    leaders: StageLeaders, makespan_N: Ints, gamma_elig: float, eta_q: float, ranks: int
) -> Flags:
    """Return the steps in which the stage matters and one rank leads it clearly: bool [N] (§3)."""
    if ranks < 2:
        return np.zeros(len(makespan_N), dtype=bool)
    eligible: Flags = (leaders.advance_N >= gamma_elig * makespan_N) & (leaders.gap_N >= eta_q * makespan_N)
    return eligible


def switch_rate(leader_N: Ints, eligible_N: Flags) -> float:
    """Return the rate of leader changes between consecutive eligible steps; 0 with fewer than two."""
    chosen = leader_N[eligible_N]
    if len(chosen) < 2:
        return 0.0
    return float(np.count_nonzero(chosen[1:] != chosen[:-1]) / (len(chosen) - 1))


def most_frequent(leader_N: Ints) -> tuple[int, float]:
    """Return the most frequent leader (the lowest of several) and its fraction of the steps."""
    count_R = np.bincount(leader_N)
    best = int(count_R.argmax())
    return best, float(count_R[best] / len(leader_N))


def period_of(eligible_N: Flags, step_N: Ints | None = None) -> int | None:
    """Return the spacing k ≥ 2 of step numbers at which eligible steps recur, or None.

    **choice** Real jobs jitter: at least 80 % of the eligible steps must lie on the spacing, and at least 80
    % and at least three of the spacing's steps must be eligible. Steps without rows count for neither.

    Args:
        step_N: step numbers, ascending; consecutive ones if None.
    """
    steps = len(eligible_N)
    place_N, unit = np.arange(steps), 1
    has_gaps = step_N is not None and steps > 1 and int(step_N[-1] - step_N[0]) >= steps
    if step_N is not None and has_gaps:
        unit = int(np.gcd.reduce(np.diff(step_N)))
        place_N = (step_N - step_N[0]) // unit
    positions = place_N[eligible_N]
    if len(positions) < 3:
        return None
    # Only spacings that give about as many steps as are eligible can pass both tests.
    closest = max(2, int(steps / (len(positions) / PERSISTENT + 1)))
    widest = min(steps // 2, int(steps / max(1.0, PERSISTENT * len(positions) - 1)) + 1)
    best = (0, 0)
    for spacing in range(closest, widest + 1):
        hits = np.bincount(positions % spacing, minlength=spacing)
        phase = int(hits.argmax())
        hit, expected = int(hits[phase]), len(range(phase, steps, spacing))
        if has_gaps:
            expected = int(np.count_nonzero(place_N % spacing == phase))
        if hit >= 3 and hit >= PERSISTENT * max(len(positions), expected):
            best = max(best, (hit, spacing * unit))
    return best[1] if 0 < best[1] <= _LONGEST_PERIOD else None


def culprit(
    stage: str,
    leaders: StageLeaders,
    eligible_N: Flags,
    step_N: Ints,
    ranks: RankTable,
    gamma_switch: float,
) -> Culprit:
    """Classify a culprit as ``chronic``, ``rotating``, ``periodic``, ``one-off`` or ``mixed`` (§12).

    **choice** In this order: ``one-off`` (≤ 2 eligible steps), ``periodic``, ``chronic``, ``rotating``,
    ``mixed``; ``none`` if no step is eligible."""
    count = int(np.count_nonzero(eligible_N))
    if not count:
        return Culprit(stage, "none")
    position, share = most_frequent(leaders.leader_N[eligible_N])
    period = period_of(eligible_N, step_N)
    kind: CulpritKind
    if count <= ONE_OFF_STEPS:
        kind = "one-off"
    elif period is not None:
        kind = "periodic"
    elif share >= PERSISTENT:
        kind = "chronic"
    elif switch_rate(leaders.leader_N, eligible_N) > gamma_switch:
        kind = "rotating"
    else:
        kind = "mixed"
    listed = tuple(int(step) for step in step_N[eligible_N]) if count <= LISTED_STEPS else ()
    return Culprit(
        stage,
        kind,
        rank=ranks.rank[position],
        hostname=ranks.hostname[position],
        share=share,
        eligible_steps=count,
        period=period if kind == "periodic" else None,
        steps=listed,
    )


def count_handovers(leader_SN: Ints, stages: Sequence[str], ranks: RankTable) -> list[Handover]:
    """Count per boundary how often each (from, to) pair took the lead within a step (§3)."""
    found: list[Handover] = []
    for index in range(1, len(stages)):
        before_N, after_N = leader_SN[index - 1], leader_SN[index]
        changed = before_N != after_N
        pairs = Counter(zip(before_N[changed].tolist(), after_N[changed].tolist(), strict=True))
        found += [
            Handover(stages[index], ranks.rank[before], ranks.rank[after], count)
            for (before, after), count in pairs.most_common()
        ]
    return found
