"""Own time of the stages of a pipeline, by micro-step, step and replica (accounting.md §22)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np

from sfapp.accounting.late_ranks import Floats
from sfapp.accounting.leaders import Ints
from sfapp.accounting.measures import Measures
from sfapp.accounting.window_lateness import own_in_recorded
from sfapp.model import ALL_RANKS, RankTable
from sfapp.model.arrays import to_numpy
from sfapp.model.stages import RESIDUAL, is_waiting_stage, stage_category

MOST_STAGES = 1024
"""Largest number of pipeline stages that are compared."""

_MOST_CELLS = 1 << 26
"""Largest number of ranks times steps times micro-steps that were merged: a few bytes of a file can claim any
number of them."""

_ROLE = re.compile(r"pp(?P<stage>[0-9]{1,7})")


@dataclass(frozen=True, slots=True, eq=False)
class PipelineTimes:
    """Own time in the pipeline of a window, float64 ns.

    M micro-steps, N steps, D data-parallel replicas, P pipeline stages. Of ranks that differ in other
    coordinates the slowest one counts: they exchange data in every layer and advance together.

    Attributes:
        stage_P: coordinates along ``pp``, ascending.
        rank_P: position of the rank with the most own time. ranks_P: number of ranks.
        micro_steps: per step.
        forward_MNDP, backward_MNDP: by micro-step; equal parts of the step if these were merged, or the whole
            step as one if these are too many.
        extra_MNDP: of other stages that were recorded by micro-step, such as data.
        before_NDP, after_NDP: of other stages, before forward and after it, without residual and waiting.
        ordered: whether micro-steps were recorded separately.
        knows_waits: whether waits were measured in forward or backward, or are a stage of their own.
    """

    stage_P: Ints
    rank_P: Ints
    ranks_P: Ints
    micro_steps: int
    forward_MNDP: Floats
    backward_MNDP: Floats
    extra_MNDP: Floats
    before_NDP: Floats
    after_NDP: Floats
    ordered: bool
    knows_waits: bool

    @property
    def own_NP(self) -> Floats:
        """Own time per step in forward and backward, mean over replicas."""
        own_NDP = self.forward_MNDP.sum(axis=0) + self.backward_MNDP.sum(axis=0)
        return np.asarray(own_NDP.mean(axis=1))


def pipeline_stages(ranks: RankTable) -> tuple[int, ...] | None:
    """Return the pipeline stage of each rank: its coordinate ``pp``, or the number of its role ``ppN``; None
    if a rank has none."""
    if "pp" in ranks.layout:
        return ranks.layout["pp"]
    numbers: dict[str | None, int] = {}
    for role in ranks.distinct_roles:
        match = None if role is None else _ROLE.fullmatch(role)
        if match is None:
            return None
        numbers[role] = int(match["stage"])
    return tuple(numbers[role] for role in ranks.role)


def has_pipeline(measures: Measures) -> bool:
    """Return whether the window's ranks are stages of a pipeline, or one stage that was chosen as a group."""
    stages = pipeline_stages(measures.window.ranks)
    if stages is None:
        return False
    number = len(set(stages))
    return 1 < number <= MOST_STAGES or (number == 1 and measures.window.group != ALL_RANKS)


def body_stages(measures: Measures) -> tuple[list[int], list[int]]:
    """Return the positions of the broad stages that are forward, and of those that are backward."""
    categories = [stage_category(stage) for stage in measures.broad]
    return (
        [place for place, category in enumerate(categories) if category == "forward"],
        [place for place, category in enumerate(categories) if category == "backward"],
    )


def pipeline_times(measures: Measures) -> PipelineTimes | None:
    """Return own times of the pipeline of a window; None if there is none, if it has no forward or backward,
    or if rows of ranks are not kept."""
    if not (measures.has_all_rows and has_pipeline(measures) and all(body_stages(measures))):
        return None
    return measures.keep("pipeline times", None, partial(_times, measures))


def _times(measures: Measures, _: None) -> PipelineTimes:
    ranks = measures.window.ranks
    stage_R = np.asarray(pipeline_stages(ranks), dtype=np.int64)
    stage_P, place_R, ranks_P = np.unique(stage_R, return_inverse=True, return_counts=True)
    cells = _Cells.of(_replicas(ranks, stage_R, place_R), place_R, len(stage_P))
    forward, backward = body_stages(measures)
    micro_steps = _micro_steps(measures, (*forward, *backward))
    factor = micro_steps if micro_steps > 1 else max(1, measures.window.manifest.accumulation.factor)
    parts = factor if factor * measures.window.wall_NR.size <= _MOST_CELLS else micro_steps
    forward_MNDP = _by_micro_step(measures, forward, cells, micro_steps, parts)
    backward_MNDP = _by_micro_step(measures, backward, cells, micro_steps, parts)
    extra_MNDP = np.zeros((micro_steps, *forward_MNDP.shape[1:]))
    around = [np.zeros(forward_MNDP.shape[1:]) for _ in range(2)]
    for broad, name in enumerate(measures.broad):
        if broad in (*forward, *backward) or name == RESIDUAL or is_waiting_stage(name):
            continue
        members = measures.members(broad)
        if len(members) == micro_steps > 1:
            extra_MNDP += _by_micro_step(measures, [broad], cells, micro_steps, parts)
        else:
            around[broad > forward[0]] += cells.slowest(_own(measures, members))
    own_R = _own(measures, [each for broad in (*forward, *backward) for each in measures.members(broad)])
    return PipelineTimes(
        stage_P=stage_P,
        rank_P=_slowest_ranks(own_R.mean(axis=0), place_R, len(stage_P)),
        ranks_P=ranks_P,
        micro_steps=factor,
        forward_MNDP=forward_MNDP,
        backward_MNDP=backward_MNDP,
        extra_MNDP=extra_MNDP if micro_steps > 1 else np.broadcast_to(extra_MNDP, forward_MNDP.shape),
        before_NDP=around[0],
        after_NDP=around[1],
        ordered=micro_steps > 1,
        knows_waits=_knows_waits(measures, (*forward, *backward)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Ranks in order of replica and stage, with the place at which each of these begins."""

    order_R: Ints
    begin_C: Ints
    shape: tuple[int, int]

    @classmethod
    def of(cls, replica_R: Ints, place_R: Ints, stages: int) -> _Cells:
        cell_R = replica_R * stages + place_R
        order_R = np.argsort(cell_R, kind="stable")
        _, begin_C = np.unique(cell_R[order_R], return_index=True)
        return cls(order_R, begin_C, (len(begin_C) // stages, stages))

    def slowest(self, value_NR: Floats) -> Floats:
        """Return the largest value of each replica and stage, [N, D, P]."""
        found = np.maximum.reduceat(value_NR[:, self.order_R], self.begin_C, axis=1)
        return np.asarray(found.reshape(len(value_NR), *self.shape))


def _replicas(ranks: RankTable, stage_R: Ints, place_R: Ints) -> Ints:
    """Return the replica of each rank: by its coordinate ``dp``, or without a layout by its order within its
    stage; all the same unless each replica has ranks in every stage."""
    count = Counter(stage_R.tolist())
    if "dp" in ranks.layout:
        replica_R = np.unique(np.asarray(ranks.layout["dp"]), return_inverse=True)[1]
    elif ranks.layout or len(set(count.values())) > 1:
        return np.zeros_like(place_R)
    else:
        order_R = np.argsort(place_R, kind="stable")
        replica_R = np.empty_like(place_R)
        replica_R[order_R] = np.arange(len(place_R)) % next(iter(count.values()))
    cells = len({*zip(replica_R.tolist(), place_R.tolist(), strict=True)})
    if cells != (int(replica_R.max()) + 1) * len(count):
        return np.zeros_like(place_R)
    return np.asarray(replica_R, dtype=np.int64)


def _micro_steps(measures: Measures, body: tuple[int, ...]) -> int:
    """Return the number of micro-steps that were recorded separately; 1 if they were merged."""
    (number, *others) = {len(measures.members(broad)) for broad in body}
    return 1 if others else number


def _by_micro_step(
    measures: Measures, broads: list[int], cells: _Cells, micro_steps: int, parts: int
) -> Floats:
    """Return own time of some broad stages by micro-step, [M, N, D, P]; merged ones are equal parts."""
    members = [measures.members(broad) for broad in broads]
    if micro_steps > 1:
        return np.stack(
            [
                cells.slowest(_own(measures, [of_broad[step] for of_broad in members]))
                for step in range(micro_steps)
            ]
        )
    whole_NDP = cells.slowest(_own(measures, [each for of_broad in members for each in of_broad]))
    return np.broadcast_to(whole_NDP[None] / parts, (parts, *whole_NDP.shape))


def _own(measures: Measures, stages: list[int] | tuple[int, ...]) -> Floats:
    """Return own time in some recorded stages together, ns [N, R]."""
    own_NR = np.zeros(measures.window.wall_NR.shape)
    for stage in stages:
        own_NR += to_numpy(own_in_recorded(measures, stage))
    return own_NR


def _slowest_ranks(own_R: Floats, place_R: Ints, stages: int) -> Ints:
    """Return the position of the rank with the most own time in each stage: [P]."""
    found = np.zeros(stages, dtype=np.int64)
    order_R = np.argsort(own_R, kind="stable")
    found[place_R[order_R]] = order_R  # The last one assigned is the slowest.
    return found


def _knows_waits(measures: Measures, body: tuple[int, ...]) -> bool:
    if any(is_waiting_stage(stage) for stage in measures.broad):
        return True
    if measures.own is None:
        return False
    return any(
        bool(measures.own.split_SN[stage].all()) for broad in body for stage in measures.members(broad)
    )
