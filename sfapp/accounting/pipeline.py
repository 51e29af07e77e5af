"""Compare the stages of a pipeline: balance, idle time, what bounds the step (accounting.md §22).

Pipeline stages do different work, and often one rank is alone in its stage, so that it has no other rank to
be compared with. What can be known all the same: which stage has the most work, how long stages are idle,
which micro-steps are longer than the others, and how a stage differs from its own past.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sfapp.accounting.associations import without_outliers
from sfapp.accounting.late_ranks import Floats, has_enough_steps, lateness, stages_lateness
from sfapp.accounting.layout_table import hidden_stages
from sfapp.accounting.measures import Measures
from sfapp.accounting.noise import MeanError, mean_margin, step_noise
from sfapp.accounting.pipeline_micro_steps import MicroSteps, compare_micro_steps
from sfapp.accounting.pipeline_replay import SCHEDULES, can_replay, mean_steps
from sfapp.accounting.pipeline_times import PipelineTimes, body_stages, pipeline_times
from sfapp.accounting.what_if import MAX_ERROR
from sfapp.model import Diagnosis
from sfapp.model.pipeline import Pipeline, PipelineStage, Schedule


@dataclass(frozen=True, slots=True)
class _Replayed:
    """Mean steps of a replay, ns.

    Attributes:
        unchanged: as measured. balanced: with the work spread evenly. fixed: with the stage with the most
            own time as fast as the median of the others.
    """

    schedule: Schedule
    unchanged: float
    balanced: float
    fixed: float


def with_pipeline(judged: Diagnosis, measures: Measures) -> Diagnosis:
    """Return the diagnosis with its pipeline stages compared, if the window has a pipeline."""
    pipeline = compare_stages(measures, judged)
    return judged if pipeline is None else judged.changed(pipeline=pipeline)


def compare_stages(measures: Measures, judged: Diagnosis) -> Pipeline | None:
    """Return the pipeline stages of a window compared; None without a pipeline, or if own time in forward
    and backward is not known, or with too few steps."""
    times = pipeline_times(measures) if has_enough_steps(measures.steps) else None
    if times is None:
        return None
    hidden = hidden_stages(judged)
    if any(measures.broad[place] in hidden for body in body_stages(measures) for place in body):
        return None
    step_ns, gates = judged.step_time.mean_ns, judged.gates
    micro = compare_micro_steps(times, gates.alpha, gates.min_effect * step_ns)
    own_NP = times.own_NP  # Added up once: a pipeline may have a thousand stages.
    stages = tuple(_stage(measures, times, own_NP, micro, place, step_ns) for place in range(own_NP.shape[1]))
    found = Pipeline(
        stages=stages,
        micro_steps=times.micro_steps,
        ordered=times.ordered,
        ideal_idle=(len(stages) - 1) / (times.micro_steps + len(stages) - 1),
        slow_micro_steps=() if micro is None else tuple(np.flatnonzero(micro.common_M).tolist()),
    )
    return found if len(stages) == 1 else _compared(measures, judged, times, found)


def _stage(
    measures: Measures,
    times: PipelineTimes,
    own_NP: Floats,
    micro: MicroSteps | None,
    place: int,
    step_ns: float,
) -> PipelineStage:
    balance_N = own_NP[:, place] / np.maximum(1.0, own_NP.mean(axis=1)) - 1.0
    margin = mean_margin(balance_N)
    balance, own = float(balance_N.mean()), float(own_NP[:, place].mean())
    around_ND = times.before_NDP[..., place] + times.after_NDP[..., place]
    other = float((around_ND + times.extra_MNDP[..., place].sum(axis=0)).mean())
    slow = [] if micro is None else micro.slow_of(place).tolist()
    trend = np.nan if micro is None else float(micro.trend_P[place])
    return PipelineStage(
        stage=int(times.stage_P[place]),
        rank=measures.window.ranks.rank[int(times.rank_P[place])],
        ranks=int(times.ranks_P[place]),
        forward_ns=float(times.forward_MNDP[..., place].sum(axis=0).mean()),
        backward_ns=float(times.backward_MNDP[..., place].sum(axis=0).mean()),
        other_ns=other,
        idle=min(1.0, max(0.0, 1.0 - own / max(1.0, step_ns - other))),
        balance=balance,
        low=balance - margin,
        high=balance + margin,
        noise=step_noise(own_NP[:, place]),
        slow_micro_steps=tuple(slow),
        slow_ns=0.0 if micro is None or not slow else float(micro.late_PM[place, slow].mean()),
        trend=None if np.isnan(trend) else trend,
    )


def _compared(measures: Measures, judged: Diagnosis, times: PipelineTimes, found: Pipeline) -> Pipeline:
    """Return the pipeline with what bounds it and what fixing that would bring."""
    step_ns, gates = judged.step_time.mean_ns, judged.gates
    replayed = measures.keep("pipeline replay", step_ns, partial(_replayed, times))
    error = None if replayed is None else abs(replayed.unchanged - step_ns) / step_ns
    reason = None
    if replayed is None:
        reason = "pipeline_too_large"
    elif error is not None and error > MAX_ERROR:
        # Durations with unknown waits are longer than own times, so that the replay cannot fit either.
        reason = "replay_differs" if times.knows_waits else "no_waits_recorded"
    lead_ns, chance = _lead(times)
    is_clear = chance <= gates.alpha and lead_ns >= gates.min_effect * step_ns
    largest = int(times.own_NP.mean(axis=0).argmax())
    bounding = int(times.stage_P[largest]) if is_clear and reason != "no_waits_recorded" else None
    found = replace(found, bounding=bounding, chance=chance, error=error, reason=reason)
    if replayed is None or reason is not None:
        return found
    saved = replayed.unchanged - replayed.fixed
    return replace(
        found,
        schedule=replayed.schedule,
        fixed_ns=None if bounding is None else step_ns - saved,
        balanced_ns=step_ns - (replayed.unchanged - replayed.balanced),
    )


def _lead(times: PipelineTimes) -> tuple[float, float]:
    """Return by how much the stage with the most own time leads the next one, ns, and the chance of that
    if two stages were equally long.

    Single steps that lie far outside, such as the first ones of a job, count no more than others at the edge.
    """
    own_NP = times.own_NP
    own_P = own_NP.mean(axis=0)
    largest = int(own_P.argmax())
    late_NP = np.apply_along_axis(without_outliers, 0, lateness(own_NP))
    (late,) = stages_lateness(late_NP[None])
    error = late.error(largest)
    of_lead = MeanError(math.sqrt(2.0) * error.se, error.df)
    lead = float(late.mean_R[largest] - np.delete(late.mean_R, largest).max())
    return lead, min(1.0, of_lead.chance(lead) * len(own_P))


def _replayed(times: PipelineTimes, step_ns: float) -> _Replayed | None:
    """Return the replay of the schedule that is nearest to the measured step; None for a large pipeline."""
    if not can_replay(times):
        return None
    factor_VP = _variants(times.own_NP.mean(axis=0))
    found = []
    for schedule in SCHEDULES:
        unchanged, balanced, fixed = mean_steps(times, schedule, factor_VP).tolist()
        found.append(_Replayed(schedule, unchanged, balanced, fixed))
        if abs(unchanged - step_ns) <= MAX_ERROR * step_ns:
            break
    return min(found, key=lambda one: abs(one.unchanged - step_ns))


def _variants(own_P: Floats) -> Floats:
    """Return what own times are multiplied by: unchanged, with all stages at the mean, with the largest at
    the median of the others; [3, P]."""
    known_P = np.maximum(1.0, own_P)
    factor_VP = np.ones((3, len(own_P)))
    factor_VP[1] = known_P.mean() / known_P
    largest = int(own_P.argmax())
    factor_VP[2, largest] = float(np.median(np.delete(known_P, largest))) / known_P[largest]
    return factor_VP
