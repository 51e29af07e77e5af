"""How late ranks are in each stage of a window, and what it costs: the part that reads the matrix (§17)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from sfapp.accounting.late_ranks import (
    Flags,
    Floats,
    StageLateness,
    broad_own,
    has_enough_steps,
    lateness,
    stages_lateness,
)
from sfapp.accounting.lateness_cost import Slack, lateness_for_cost
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.model.arrays import Array, to_numpy


def lateness_of(measures: Measures, boundary: int | None) -> tuple[StageLateness, ...] | None:
    """Return how late ranks are in each broad stage; None if that cannot be known, for one because most
    ranks are the only one of their role.

    Args:
        boundary: wait stage that the carry-over frontier is aligned at.
    """
    if not _is_known(measures):
        return None
    if _is_sampled(measures):
        return measures.keep("lateness and slacks", boundary, partial(_lateness_of_some, measures))[0]
    return measures.keep("lateness", None, lambda _: stages_lateness(_late_SNR(measures)))


def find_lateness(together: Sequence[Measures]) -> None:
    """Find the lateness of many windows, those of one shape together, which ``lateness_of`` then returns.

    Small windows cost as many calls as large ones: this spreads them over several windows.
    """
    by_shape: dict[tuple[int, int, int], list[Measures]] = defaultdict(list)
    for measures in together:
        if _is_known(measures) and not _is_sampled(measures):
            by_shape[len(measures.broad), measures.steps, measures.ranks].append(measures)
    for shape, of_shape in by_shape.items():
        size = max(1, _CELLS_TOGETHER // math.prod(shape))
        for begin in range(0, len(of_shape), size):
            chunk = of_shape[begin : begin + size]
            found = iter(stages_lateness(np.concatenate([_late_SNR(measures) for measures in chunk])))
            for measures in chunk:
                stages = tuple(islice(found, shape[0]))
                measures.keep("lateness", None, partial(_given, stages))


def lateness_that_costs(measures: Measures, boundary: int | None, cost: float, power: float) -> list[float]:
    """Return for each broad stage how much later one rank must be in every step to cost so much, ns.

    Kept, since moving another gate changes nothing of it. Needs the window's lateness to be known.
    """
    stages = lateness_of(measures, boundary)
    assert stages is not None
    slacks = _slacks(measures, boundary)
    return measures.keep(
        "costs", (boundary, cost, power), lambda _: lateness_for_cost(stages, slacks, cost, power)
    )


def late_in_stage(measures: Measures, broad: int) -> Floats:
    """Return each rank's time in a broad stage less that of the others of its role, ns [N, R]."""
    return _late_NR(measures, broad)


def own_in_stage(measures: Measures, broad: int) -> Array:
    """Return each rank's own time in a broad stage, int64 ns [N, R]; the whole time where waits are not
    known."""
    return broad_own(measures.window, measures.members(broad), split_of(measures))


def own_in_recorded(measures: Measures, stage: int) -> Array:
    """Return each rank's own time in a recorded stage, int64 ns [N, R]; the whole time where waits are not
    known."""
    return broad_own(measures.window, (stage,), split_of(measures))


MANY_RANKS = 1024
"""Of more ranks only some are looked at."""

_CELLS_TOGETHER = 1 << 17
"""Cells of several windows that lateness is found in together: 1 MB, which stays in a core's cache."""


def _given(stages: tuple[StageLateness, ...], _: None) -> tuple[StageLateness, ...]:
    return stages


def _is_known(measures: Measures) -> bool:
    return measures.keep("knows lateness", None, lambda _: _shows_lateness(measures))


def _shows_lateness(measures: Measures) -> bool:
    if not (measures.has_all_rows and measures.ranks > 1 and has_enough_steps(measures.steps)):
        return False
    alone = sum(len(members) == 1 for members in _roles(measures))
    return 2 * alone < measures.ranks


def _is_sampled(measures: Measures) -> bool:
    return measures.ranks > MANY_RANKS and len(measures.broad) == len(measures.broad_of_S)


def _slacks(measures: Measures, boundary: int | None) -> tuple[Slack, ...]:
    """Return for each broad stage the slack of ranks where they next wait for each other."""
    if _is_sampled(measures):
        return measures.keep("lateness and slacks", boundary, partial(_lateness_of_some, measures))[1]
    return measures.keep("slacks", boundary, partial(_slacks_of_all, measures))


def _slacks_of_all(measures: Measures, boundary: int | None) -> tuple[Slack, ...]:
    syncs = _next_syncs(measures, boundary)
    slacks = {stage: Slack.of(position_of(measures, boundary, stage)) for stage in set(syncs)}
    return tuple(slacks[sync] for sync in syncs)


def _next_syncs(measures: Measures, boundary: int | None) -> list[int]:
    """Return for each broad stage at the end of which recorded stage its lateness is counted."""
    lasts = [measures.members(broad)[-1] for broad in range(len(measures.broad))]
    syncs = [next_sync(measures, boundary, last) for last in lasts]
    return [last if sync is None else sync.stage for sync, last in zip(syncs, lasts, strict=True)]


def _lateness_of_some(
    measures: Measures, boundary: int | None
) -> tuple[tuple[StageLateness, ...], tuple[Slack, ...]]:
    """Return lateness and slacks of many ranks, looking only at a sample and at those that are the last
    anywhere.

    A rank that is never the last costs nothing, so the others count as not late.
    """
    carried = measures.carry(boundary)
    leaders = measures.leader_SN if carried is None else carried.leader_SN
    some = np.unique(
        np.concatenate((leaders.ravel(), np.arange(0, measures.ranks, measures.ranks // MANY_RANKS)))
    )
    split_SN = split_of(measures)
    before_NR = 0 if carried is None else to_numpy(measures.before_NR)[:, some] - carried.offset_R[some]
    prefix_NR = np.zeros((measures.steps, len(some)))
    late, ends = [], []
    for stage in range(len(measures.broad)):
        own_NR = to_numpy(broad_own(measures.window, (stage,), split_SN))[:, some].astype(np.float64)
        if len(_roles(measures)) > 1:
            late.append(_late_NR(measures, stage)[:, some])
        else:
            late.append(own_NR - (measures.own or measures).median_SN[stage][:, None])
        ends.append(prefix_NR + own_NR + before_NR)
        prefix_NR = prefix_NR + to_numpy(measures.window.duration_SNR[stage])[:, some]
    syncs = _next_syncs(measures, boundary)
    slacks = {stage: Slack.of(ends[stage]) for stage in set(syncs)}
    found = tuple(_of_all(stage, some, measures.ranks) for stage in stages_lateness(np.stack(late)))
    return found, tuple(slacks[sync] for sync in syncs)


def _of_all(stage: StageLateness, some: Ints, ranks: int) -> StageLateness:
    """Return lateness of some ranks as that of all, the others not late."""
    mean_R, error_R = np.zeros(ranks), np.full(ranks, stage.typical_error)
    df_R = np.full(ranks, stage.df)
    mean_R[some], error_R[some], df_R[some] = stage.mean_R, stage.error_R, stage.df_R
    late_steps = {int(some[rank]): late for rank, late in stage.late_steps.items()}
    return replace(stage, mean_R=mean_R, error_R=error_R, df_R=df_R, late_steps=late_steps)


@dataclass(frozen=True, slots=True)
class NextSync:
    """Where ranks next wait for each other.

    Attributes:
        stage: the recorded stage at the end of whose own part ranks are compared.
        is_next_step: whether that is in the next step.
        is_hidden: whether the waits there are not known: ranks are then compared at the stage before.
    """

    stage: int
    is_next_step: bool
    is_hidden: bool


def next_sync(measures: Measures, boundary: int | None, stage: int) -> NextSync | None:
    """Return where ranks wait for each other after a recorded stage; None if it is not known. Until then a
    late rank may catch up.
    """
    known: list[int] = []
    if measures.own is not None:
        known = np.flatnonzero(measures.own.split_SN.any(axis=1)).tolist()
    waits = sorted({*known, *(() if boundary is None else (boundary,))})
    if not waits:
        return None
    after = [wait for wait in waits if wait >= stage]
    found, is_next_step = (after[0], False) if after else (waits[0], True)
    if found in known or found == stage:
        return NextSync(found, is_next_step, is_hidden=False)
    return None if found == 0 else NextSync(found - 1, is_next_step, is_hidden=True)


def split_of(measures: Measures) -> Flags:
    """Return in which steps the waits of each recorded stage are known."""
    if measures.own is None:
        return np.zeros(measures.frontier_SN.shape, dtype=bool)
    return measures.own.split_SN


def _roles(measures: Measures) -> list[list[int]]:
    """Return the positions of the ranks of each role; ranks without one have a role together."""
    return measures.keep("roles", None, lambda _: _by_role(measures.window.ranks.role))


def _by_role(role_R: Sequence[str | None]) -> list[list[int]]:
    found: dict[str | None, list[int]] = defaultdict(list)
    for rank, role in enumerate(role_R):
        found[role].append(rank)
    return list(found.values())


def _late_SNR(measures: Measures) -> Floats:
    """Return ``_late_NR`` of all broad stages, [S, N, R]."""
    if (
        measures.own is None
        and len(measures.broad) == len(measures.broad_of_S)
        and len(_roles(measures)) == 1
    ):
        return lateness(measures.window.duration_SNR, measures.median_SN)
    return np.stack([_late_NR(measures, broad) for broad in range(len(measures.broad))])


def _late_NR(measures: Measures, broad: int) -> Floats:
    return late_of(measures, measures.members(broad))


def late_of(measures: Measures, members: Sequence[int]) -> Floats:
    """Return each rank's time in some recorded stages less that of the others of its role, ns [N, R]; 0 where
    there are none."""
    own_NR = broad_own(measures.window, members, split_of(measures))
    roles = _roles(measures)
    if len(roles) > 1:
        late_NR = np.zeros(own_NR.shape)
        for ranks in roles:
            if len(ranks) > 1:
                late_NR[:, ranks] = lateness(own_NR[:, ranks])
        return late_NR
    typical_N = None
    if len(members) == 1:
        typical_N = (measures.own or measures).median_SN[members[0]]
    return lateness(own_NR, typical_N)


def position_of(measures: Measures, boundary: int | None, stage: int) -> Floats:
    """Return where each rank is at the end of a recorded stage's own part, ns [N, R]."""
    own_NR = broad_own(measures.window, (stage,), split_of(measures))
    position_NR = to_numpy(measures.window.duration_SNR[:stage].sum(axis=0) + own_NR)
    carried = measures.carry(boundary)
    if carried is not None:
        position_NR = position_NR + (to_numpy(measures.before_NR) - carried.offset_R)
    return np.asarray(position_NR, dtype=np.float64)
