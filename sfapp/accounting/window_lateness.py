"""How late ranks are in each stage of a window, and what it costs: the part that reads the matrix (§17)."""

from __future__ import annotations

from functools import partial

import numpy as np

from sfapp.accounting.late_ranks import (
    Flags,
    Floats,
    SingleSteps,
    StageLateness,
    broad_own,
    has_enough_steps,
    lateness,
    saved,
    stage_lateness,
)
from sfapp.accounting.measures import Measures
from sfapp.model.arrays import to_numpy


def lateness_of(measures: Measures, boundary: int | None) -> tuple[StageLateness, ...] | None:
    """Return how late ranks are in each broad stage; None where that cannot be known.

    Args:
        boundary: wait stage that the carry-over frontier is aligned at.
    """
    if not (measures.has_all_rows and measures.ranks > 1 and has_enough_steps(measures.steps)):
        return None
    return measures.keep("lateness", boundary, partial(_lateness, measures))


def saved_time(
    measures: Measures, boundary: int | None, broad: int, always: tuple[int, ...], single: SingleSteps
) -> Floats:
    """Return what the lateness of some ranks in a broad stage costs at its end, ns [N].

    Args:
        always: positions of ranks that are late on average; their mean lateness counts.
        single: positions of other ranks, each with the steps in which it is late.
    """
    return measures.keep("saved", (boundary, broad, always, single), partial(_saved, measures))


def _lateness(measures: Measures, boundary: int | None) -> tuple[StageLateness, ...]:
    return tuple(
        stage_lateness(_late_NR(measures, broad), _position_NR(measures, boundary, broad))
        for broad in range(len(measures.broad))
    )


def _saved(measures: Measures, key: tuple[int | None, int, tuple[int, ...], SingleSteps]) -> Floats:
    boundary, broad, always, single = key
    late_NR = _late_NR(measures, broad)
    ranks = [*always, *(rank for rank, _ in single)]
    counted_NR = np.zeros((measures.steps, len(ranks)))
    counted_NR[:, : len(always)] = late_NR[:, list(always)].mean(axis=0)
    for column, (rank, steps) in enumerate(single, len(always)):
        counted_NR[list(steps), column] = late_NR[list(steps), rank]
    return saved(_position_NR(measures, boundary, broad), counted_NR, ranks)


def _split_S(measures: Measures) -> Flags:
    """Return whether the waits of each recorded stage are known in all steps."""
    if measures.own is None:
        return np.zeros(len(measures.broad_of_S), dtype=bool)
    return np.asarray(measures.own.split_SN.all(axis=1))


def _late_NR(measures: Measures, broad: int) -> Floats:
    members, split_S = measures.members(broad), _split_S(measures)
    typical_N = None
    if len(members) == 1:
        source = measures.own if measures.own is not None and split_S[members[0]] else measures
        typical_N = source.median_SN[members[0]]
    return lateness(broad_own(measures.window, members, split_S), typical_N)


def _position_NR(measures: Measures, boundary: int | None, broad: int) -> Floats:
    """Return where each rank is at the end of a broad stage's own part, ns [N, R]."""
    last = measures.members(broad)[-1]
    own_NR = broad_own(measures.window, (last,), _split_S(measures))
    position_NR = to_numpy(measures.window.duration_SNR[:last].sum(axis=0) + own_NR)
    carried = measures.carry(boundary)
    if carried is not None:
        position_NR = position_NR + (to_numpy(measures.before_NR) - carried.offset_R)
    return np.asarray(position_NR, dtype=np.float64)
