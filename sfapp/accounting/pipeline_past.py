"""Compare own time of pipeline stages with the run's healthy windows (accounting.md §22).

A stage with one rank has no other ranks of its role to be compared with, but it has its own past.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sfapp.accounting.noise import WindowSpread, difference_error, pooled
from sfapp.model import Diagnosis, Reference
from sfapp.model.pipeline import Pipeline, PipelineStage, StageGrowth, StagePast


def past_of(pipeline: Pipeline | None) -> tuple[StagePast, ...]:
    """Return what a window contributes to the past of its pipeline stages."""
    if pipeline is None:
        return ()
    return tuple(StagePast(one.stage, one.own_ns, one.noise) for one in pipeline.stages)


def pooled_past(parts: Sequence[tuple[StagePast, ...]], weights: Sequence[int]) -> tuple[StagePast, ...]:
    """Return mean own time over several windows; empty if their pipelines have different stages.

    Args:
        weights: number of steps of each window.
    """
    if len({tuple(one.stage for one in part) for part in parts}) != 1:
        return ()
    return tuple(_pooled(of_stage, weights) for of_stage in zip(*parts, strict=True))


def _pooled(of_stage: Sequence[StagePast], weights: Sequence[int]) -> StagePast:
    total = math.fsum(one.own_ns * weight for one, weight in zip(of_stage, weights, strict=True))
    noises = [one.noise for one in of_stage if one.noise is not None]
    return StagePast(of_stage[0].stage, total / math.fsum(weights), pooled(noises) if noises else None)


def with_stage_growth(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with the growth of each pipeline stage against its reference."""
    pipeline, reference = diagnosis.pipeline, diagnosis.reference
    if pipeline is None:
        return diagnosis
    past = {} if reference is None else {one.stage: one for one in reference.pipeline}
    stages = tuple(
        replace(one, growth=_growth(diagnosis, reference, one, past.get(one.stage)))
        for one in pipeline.stages
    )
    return diagnosis.changed(pipeline=replace(pipeline, stages=stages))


def _growth(
    diagnosis: Diagnosis, reference: Reference | None, now: PipelineStage, past: StagePast | None
) -> StageGrowth | None:
    """Return the growth of a stage; None if its past or the noise of either is unknown."""
    if reference is None or past is None or diagnosis.pipeline is None or past.own_ns <= 0.0:
        return None
    if now.noise is None or past.noise is None or not reference.steps:
        return None
    # Windows differ in own time as they do in the step, in proportion.
    between_ns = reference.between_ns * past.own_ns / max(1.0, reference.step_time_ns)
    spread = WindowSpread(between_ns, reference.between_windows)
    error = difference_error(now.noise, past.noise, reference.steps, spread)
    grown, margin = now.own_ns - past.own_ns, error.half_width
    chance = min(1.0, error.chance(grown) * len(diagnosis.pipeline.stages))
    gates = diagnosis.gates
    return StageGrowth(
        effect=grown / past.own_ns,
        low=(grown - margin) / past.own_ns,
        high=(grown + margin) / past.own_ns,
        chance=chance,
        is_clear=chance <= gates.alpha and grown >= gates.min_effect * diagnosis.step_time.mean_ns,
    )
