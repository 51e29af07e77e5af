"""Replay the schedule of a pipeline with measured own times (accounting.md §22).

A stage works on one micro-step at a time, in the order of its schedule. Forward of a micro-step needs that of
the stage before, backward that of the stage after. Transfers take no time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from sfapp.accounting.late_ranks import Floats
from sfapp.accounting.pipeline_times import PipelineTimes
from sfapp.model.pipeline import Schedule

MOST_WORK = 4096
"""Largest number of stages times micro-steps that is replayed."""

SCHEDULES: tuple[Schedule, ...] = ("1f1b", "gpipe")

Work = tuple[bool, int, int]
"""One piece of work: whether it is backward, its micro-step, and its stage, by position."""


def can_replay(times: PipelineTimes) -> bool:
    """Return whether the pipeline is small enough for a replay."""
    has_parts = len(times.forward_MNDP) == times.micro_steps
    return has_parts and times.micro_steps * len(times.stage_P) <= MOST_WORK


def mean_steps(times: PipelineTimes, schedule: Schedule, factor_VP: Floats) -> Floats:
    """Return the mean step of a replay in several variants, ns [V].

    Args:
        factor_VP: what own time of each stage is multiplied by, in each variant.
    """
    micro_steps, _, _, stages = times.forward_MNDP.shape
    factor_PV = factor_VP.T[:, :, None, None]
    time_P = [times.before_NDP[None, :, :, place] + 0.0 * factor_PV[place] for place in range(stages)]
    ended: dict[Work, Floats] = {}  # what another stage has yet to go on from
    for work in work_order(stages, micro_steps, schedule):
        is_backward, micro_step, place = work
        next_place = place - 1 if is_backward else place + 1
        own_NDP = times.backward_MNDP if is_backward else times.forward_MNDP
        begin = time_P[place]
        given = ended.pop((is_backward, micro_step, place + 1 if is_backward else place - 1), None)
        if given is not None:
            begin = np.maximum(begin, given)
        end = begin + own_NDP[micro_step, :, :, place] * factor_PV[place]
        if not is_backward:
            end = end + times.extra_MNDP[micro_step, :, :, place]
        time_P[place] = end
        if 0 <= next_place < stages:
            ended[work] = end
    last = [time + times.after_NDP[:, :, place] for place, time in enumerate(time_P)]
    return np.asarray(np.max(last, axis=(0, 3)).mean(axis=1))


@lru_cache(maxsize=64)
def work_order(stages: int, micro_steps: int, schedule: Schedule) -> tuple[Work, ...]:
    """Return the work of all stages in an order in which each piece comes after what it needs."""
    queues = [list(reversed(_of_stage(place, stages, micro_steps, schedule))) for place in range(stages)]
    done: set[Work] = set()
    order: list[Work] = []
    while len(order) < 2 * stages * micro_steps:
        for place, queue in enumerate(queues):
            while queue:
                is_backward, micro_step = queue[-1]
                source = place + 1 if is_backward else place - 1
                if 0 <= source < stages and (is_backward, micro_step, source) not in done:
                    break
                queue.pop()
                order.append((is_backward, micro_step, place))
                done.add(order[-1])
    return tuple(order)


def _of_stage(place: int, stages: int, micro_steps: int, schedule: Schedule) -> list[tuple[bool, int]]:
    """Return the work of one stage in its order: whether it is backward, and its micro-step.

    Under 1F1B a stage begins with as many forwards as there are stages after it; then one forward and one
    backward follow each other. Under GPipe all forwards come before all backwards.
    """
    ahead = micro_steps if schedule == "gpipe" else min(stages - 1 - place, micro_steps)
    work = [(False, micro_step) for micro_step in range(ahead)]
    for micro_step in range(micro_steps):
        if ahead + micro_step < micro_steps:
            work.append((False, ahead + micro_step))
        work.append((True, micro_step))
    return work
