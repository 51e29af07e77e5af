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
    """

    together_N: Floats
    alone: dict[int, float]


@dataclass(frozen=True, slots=True)
class _LatenessError:
    """Half of the width of 95 % intervals of a rank's lateness, ns.

    Attributes:
        of_mean: of the mean over all steps; over fewer steps it is larger. of_step: of a single step.
    """

    of_mean: float = 0.0
    of_step: float = 0.0

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


def saved_between(
    measures: Measures, boundary: int | None, broad: int, always: tuple[int, ...], single: SingleSteps
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of what ``saved_time`` returns for these ranks together, ns of the
    mean step: what their lateness would cost if it was smaller, or larger, by its error.

    The error is the noise of a typical rank. The time that these ranks lost in the steps of the window is
    asked for, so how much their own lateness varies is none.
    """
    return measures.keep("saved between", (boundary, broad, always, single), partial(_between, measures))


def _between(
    measures: Measures, key: tuple[int | None, int, tuple[int, ...], SingleSteps]
) -> tuple[float, float]:
    boundary, broad, always, single = key
    stages = lateness_of(measures, boundary)
    assert stages is not None
    parts = _before_each_wait(measures, broad)
    error = _LatenessError.of(stages[broad], len(parts))
    low, high = (
        sum(
            float(_saved_before(measures, boundary, members, always, single, error, sign)[0].sum())
            for members in parts
        )
        / measures.steps
        for sign in (-1, 1)
    )
    return low, high


def _saved(measures: Measures, key: tuple[int | None, int, tuple[int, ...], SingleSteps]) -> SavedTime:
    boundary, broad, always, single = key
    ranks = [*always, *(rank for rank, _ in single)]
    parts = [
        _saved_before(measures, boundary, members, always, single)
        for members in _before_each_wait(measures, broad)
    ]
    together_N = np.sum([part_N for part_N, _ in parts], axis=0)
    if len(ranks) == 1:
        return SavedTime(together_N, {ranks[0]: float(together_N.sum())})
    alone_R = np.sum([part_R for _, part_R in parts], axis=0)
    return SavedTime(together_N, dict(zip(ranks, alone_R.tolist(), strict=True)))


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
    members: tuple[int, ...],
    always: tuple[int, ...],
    single: SingleSteps,
    error: _LatenessError | None = None,
    sign: int = 0,
) -> tuple[Floats, Floats]:
    """Return what the lateness in some recorded stages before the same wait costs: by step [N] together, and
    in all steps that of each rank alone, ns.

    Args:
        sign: whether the lateness is taken to be smaller (-1) or larger (1) than measured, by its error.
    """
    ranks = [*always, *(rank for rank, _ in single)]
    counted_NR = _counted(late_of(measures, members), always, single)
    if error is not None:
        counted_NR += sign * _error_of(counted_NR, len(always), error)
    last = members[-1]
    position_NR = position_of(measures, boundary, last)
    together_N, alone_R = saved_by_ranks(position_NR, counted_NR, ranks)
    sync = next_sync(measures, boundary, last)
    if sync is None:
        return together_N, alone_R
    if sync.stage != last:
        there_NR = position_of(measures, boundary, sync.stage)
        if (
            sync.is_next_step
        ):  # The last step ends before that: it costs at most what it does here, or nothing.
            there_NR = np.concatenate((there_NR[1:], position_NR[-1:]))
            counted_NR[-1] *= sign >= 0
        together_there_N, alone_there_R = saved_by_ranks(there_NR, counted_NR, ranks)
        together_N = min(together_N, together_there_N, key=np.sum)
        alone_R = np.minimum(alone_R, alone_there_R)
    if sync.is_hidden and sign < 0:
        together_N = (together_N - _caught_up(measures, sync, counted_NR, ranks)).clip(min=0.0)
    return together_N, alone_R


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
