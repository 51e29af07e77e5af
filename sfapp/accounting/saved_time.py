"""What the lateness of some ranks in a stage costs, and how well that is known (accounting.md §17)."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import numpy as np

from sfapp.accounting.change_point import levels
from sfapp.accounting.late_ranks import Floats, SingleSteps, StageLateness
from sfapp.accounting.lateness_cost import saved_by_ranks
from sfapp.accounting.measures import Measures
from sfapp.accounting.noise import LEAST_STEPS, MeanError, step_noise, step_spread
from sfapp.accounting.window_lateness import (
    NextSync,
    late_of,
    lateness_of,
    next_sync,
    position_of,
    split_of,
)
from sfapp.model.arrays import to_numpy

_SINGLE_RANGE = 2.0
"""Multiple of the upper quartile of |lateness| within which 95 % of single steps lie: 1.7 for normal values,
2.2 with tails as heavy as Student's t with 3 degrees of freedom."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedTime:
    """What the window would gain without the lateness of some ranks in a broad stage.

    Attributes:
        together_N: by step, without that of all of them, ns.
        alone: by position of the rank, without that of this rank alone, all steps, ns.
        low, high: ends of the 95 % interval of the gain together, all steps, ns: what their lateness would
            cost if it was smaller, or larger, by its error. The error is the noise of a typical rank: how
            much their own lateness varies has been measured, since the gain in these steps is meant.
    """

    together_N: Floats
    alone: dict[int, float]
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _LatenessError:
    """Half of the width of 95 % intervals of a rank's lateness, ns.

    Attributes:
        of_mean: of the mean over all steps; over fewer steps it is larger. of_step: of a single step.
    """

    of_mean: float
    of_step: float

    @classmethod
    def of(cls, stage: StageLateness, parts: int) -> _LatenessError:
        """Return the error in one of several parts of a stage."""
        mean = MeanError(stage.typical_error, stage.df).half_width
        return cls(mean / parts, _SINGLE_RANGE * stage.upper / parts)


def saved_time(
    measures: Measures, boundary: int | None, broad: int, always: tuple[int, ...], single: SingleSteps
) -> SavedTime:
    """Return what the lateness of some ranks in a broad stage costs at its end.

    Args:
        always: positions of ranks that are late on average; the level of their lateness counts.
        single: positions of other ranks, each with the steps in which it is late.
    """
    return measures.keep("saved", (boundary, broad, always, single), partial(_saved, measures))


def _saved(measures: Measures, key: tuple[int | None, int, tuple[int, ...], SingleSteps]) -> SavedTime:
    boundary, broad, always, single = key
    stages = lateness_of(measures, boundary)
    assert stages is not None
    ranks = [*always, *(rank for rank, _ in single)]
    parts = _before_each_wait(measures, broad)
    error = _LatenessError.of(stages[broad], len(parts))
    found = []
    for members in parts:
        counted_NR = _counted(late_of(measures, members), always, single)
        error_NR = _error_of(counted_NR, len(always), error)
        found.append(_saved_before(measures, boundary, members[-1], ranks, counted_NR, error_NR))
    return SavedTime(
        together_N=np.sum([part.together_N for part in found], axis=0),
        alone={rank: sum(part.alone[rank] for part in found) for rank in ranks},
        low=sum(part.low for part in found),
        high=sum(part.high for part in found),
    )


def _before_each_wait(measures: Measures, broad: int) -> list[tuple[int, ...]]:
    """Return the recorded stages of a broad stage, those before the same known wait together.

    With gradient accumulation ranks may wait for each other in every micro-step: lateness in one of them is
    made up for by the wait that follows it.
    """
    members = measures.members(broad)
    known = np.flatnonzero(split_of(measures).any(axis=1))
    before: dict[int, list[int]] = defaultdict(list)
    for stage, wait in zip(members, np.searchsorted(known, members).tolist(), strict=True):
        before[wait].append(stage)
    return [tuple(stages) for stages in before.values()]


def _saved_before(
    measures: Measures,
    boundary: int | None,
    last: int,
    ranks: list[int],
    counted_NR: Floats,
    error_NR: Floats,
) -> SavedTime:
    """Return what lateness before the same wait costs.

    Args:
        last: the last of the recorded stages in which ranks are late.
        counted_NR: lateness of ``ranks``, [N, ranks]. error_NR: half of the width of its 95 % interval.
    """
    position_NR = position_of(measures, boundary, last)
    sync = next_sync(measures, boundary, last)
    there_NR = None
    if sync is not None and sync.stage != last:
        there_NR = position_of(measures, boundary, sync.stage)
        if sync.is_next_step:  # The last step ends before that: it costs what it does at the stage's end.
            there_NR = np.concatenate((there_NR[1:], position_NR[-1:]))

    def saved(late_NR: Floats) -> tuple[Floats, Floats]:
        here_N, alone_R = saved_by_ranks(position_NR, late_NR, ranks)
        if there_NR is None:
            return here_N, alone_R
        there_N, alone_there_R = saved_by_ranks(there_NR, late_NR, ranks)
        return min(here_N, there_N, key=np.sum), np.minimum(alone_R, alone_there_R)

    together_N, alone_R = saved(counted_NR)
    fewer_NR = counted_NR - error_NR
    if sync is not None and sync.is_next_step:  # It may also cost nothing, if it is made up for until then.
        fewer_NR[-1] = 0.0
    low_N, high_N = saved(fewer_NR)[0], saved(counted_NR + error_NR)[0]
    if sync is not None and sync.is_hidden:
        low_N = (low_N - _caught_up(measures, sync, counted_NR, ranks)).clip(min=0.0)
    # Of one rank, rounding must not make the cost alone differ from that together.
    alone = alone_R.tolist() if len(ranks) > 1 else [float(together_N.sum())]
    return SavedTime(
        together_N, dict(zip(ranks, alone, strict=True)), float(low_N.sum()), float(high_N.sum())
    )


def _counted(late_NR: Floats, always: tuple[int, ...], single: SingleSteps) -> Floats:
    """Return the lateness that counts: the level of ranks that are late on average, and that of others in
    their late steps, [N, ranks]."""
    counted_NR = np.zeros((len(late_NR), len(always) + len(single)))
    counted_NR[:, : len(always)] = levels(late_NR[:, list(always)])
    for column, (rank, steps) in enumerate(single, len(always)):
        counted_NR[list(steps), column] = late_NR[list(steps), rank]
    return counted_NR


def _error_of(counted_NR: Floats, always: int, error: _LatenessError) -> Floats:
    """Return half of the width of the 95 % interval of each lateness that counts, [N, ranks]: levels in the
    first columns, single steps in the others."""
    steps = len(counted_NR)
    is_first_NR = counted_NR[:, :always] == counted_NR[:1, :always]
    firsts_R = is_first_NR.sum(axis=0)
    at_level_NR = np.where(is_first_NR, firsts_R, steps - firsts_R)
    of_levels_NR = error.of_mean * np.sqrt(steps / at_level_NR)
    return np.hstack((of_levels_NR, error.of_step * (counted_NR[:, always:] != 0.0)))


def _caught_up(measures: Measures, sync: NextSync, counted_NR: Floats, ranks: list[int]) -> float:
    """Return by how much some other rank may be later than usual within a stage whose waits are not known, ns
    of a step.

    A late rank waits least there, so that its time shows how much work there varies; of the other ranks, the
    slowest one counts.
    """
    spent_NR = to_numpy(measures.window.duration_SNR[sync.stage + 1])[:, ranks]
    if sync.is_next_step:
        spent_NR, counted_NR = spent_NR[1:], counted_NR[:-1]
    latest_N = counted_NR.argmax(axis=1)[:, None]
    is_late_N = counted_NR.max(axis=1) > 0.0
    in_late_steps = np.take_along_axis(spent_NR, latest_N, axis=1)[is_late_N, 0]
    series = [in_late_steps] if len(in_late_steps) >= LEAST_STEPS else spent_NR.T
    noises = [noise for noise in map(step_noise, series) if noise is not None]
    spread = min(map(step_spread, noises), default=0.0)
    return spread * math.sqrt(2.0 * math.log(measures.ranks))
