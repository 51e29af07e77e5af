"""Describe the stages of a pipeline: what bounds the step, idle time, past and micro-steps (accounting.md
§22)."""

from __future__ import annotations

import numpy as np

from sfapp.model import Diagnosis
from sfapp.model.pipeline import Pipeline, PipelineStage
from sfapp.model.reasons import reason_sentence
from sfapp.views import format
from sfapp.views.text.findings import healthy_windows

_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe"}


def is_compared(pipeline: Pipeline | None) -> bool:
    """Return whether stages were compared with each other: there are several, and own time is known."""
    return pipeline is not None and len(pipeline.stages) > 1 and pipeline.reason != "no_waits_recorded"


def pipeline_headline(pipeline: Pipeline) -> tuple[str, str]:
    """Return ``Pipeline stage 7 bounds the step`` and ``(rank 7, +35 % vs the mean stage)``."""
    if pipeline.bounding is None:
        return "Pipeline: no stage bounds the step", _between(pipeline)
    stage = pipeline.of(pipeline.bounding)
    more = format.percent_change(stage.balance)
    return f"Pipeline stage {stage.stage} bounds the step", f"({_ranks(stage)}, {more} vs the mean stage)"


def pipeline_sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return what is known about the stages of a window's pipeline; empty without one."""
    pipeline = diagnosis.pipeline
    if pipeline is None:
        return ()
    compared: tuple[str, ...] = ()
    if len(pipeline.stages) > 1:
        compared = (_bounding(pipeline), _idle(pipeline), _what_if(pipeline, diagnosis))
    sentences = (*_growth(pipeline, diagnosis), *compared, *_micro_steps(pipeline))
    return tuple(sentence for sentence in sentences if sentence)


def _ranks(stage: PipelineStage) -> str:
    return f"rank {stage.rank}" if stage.ranks == 1 else format.counted(stage.ranks, "rank")


def _between(pipeline: Pipeline) -> str:
    shares = [one.balance for one in pipeline.stages]
    low, high = format.percent_change(min(shares)), format.percent_change(max(shares))
    return f"(own times {low} to {high} vs the mean stage)"


def _bounding(pipeline: Pipeline) -> str:
    if pipeline.reason == "no_waits_recorded":
        return (
            "Pipeline stages cannot be compared: the packet holds no waits, so forward and backward may "
            "include waiting for other stages. Recorder.watch_waits(model) records them."
        )
    if pipeline.bounding is None:
        return f"No pipeline stage bounds the step beyond noise {_between(pipeline)}."
    stage = pipeline.of(pipeline.bounding)
    more = format.percent_interval(stage.balance, stage.low, stage.high)
    return (
        f"Pipeline stage {stage.stage} ({_ranks(stage)}) bounds the step: {format.duration(stage.own_ns)} of "
        f"own time per step, {more} more than the mean stage."
    )


def _idle(pipeline: Pipeline) -> str:
    if pipeline.reason == "no_waits_recorded":
        return ""
    idle = [one.idle for one in pipeline.stages]
    return (
        f"Stages are idle for {100 * min(idle):.0f}–{format.percent(max(idle))} of the step; with "
        f"{format.counted(pipeline.micro_steps, 'micro-step')}, {format.percent(pipeline.ideal_idle)} is the "
        "bubble of a balanced pipeline."
    )


def _what_if(pipeline: Pipeline, diagnosis: Diagnosis) -> str:
    """Return what a faster stage or an even partitioning would bring, or why that is not predicted."""
    if pipeline.reason == "no_waits_recorded":
        return ""
    if pipeline.balanced_ns is None or pipeline.schedule is None or pipeline.error is None:
        why = reason_sentence(pipeline.reason or "")
        off = "" if pipeline.error is None else f" It is off by {format.percent(pipeline.error)}."
        return f"No prediction of a balanced pipeline: {why[0].lower()}{why[1:]}{off}"
    now = format.duration(diagnosis.step_time.mean_ns)
    parts = []
    if pipeline.fixed_ns is not None:
        fixed = format.duration(pipeline.fixed_ns)
        parts.append(f"with stage {pipeline.bounding} as fast as the median of the others {fixed}")
    parts.append(f"with the same work spread evenly {format.duration(pipeline.balanced_ns)}")
    return (
        f"The step would take {', '.join(parts)} instead of {now} (replay of "
        f"{_SCHEDULES[pipeline.schedule]}, off by {format.percent(pipeline.error, 1)})."
    )


def _growth(pipeline: Pipeline, diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the stage that grew most against its own past, and by how much the others did."""
    grown = [one for one in pipeline.stages if one.growth is not None and one.growth.is_clear]
    if not grown or diagnosis.reference is None:
        return ()
    most = max(grown, key=lambda one: 0.0 if one.growth is None else one.growth.effect)
    assert most.growth is not None  # of those that grew
    found = most.growth
    size = format.percent_interval(found.effect, found.low, found.high)
    text = f"Pipeline stage {most.stage} ({_ranks(most)}) takes {size} longer than in "
    text += healthy_windows(diagnosis.reference)
    others = [one.growth.effect for one in pipeline.stages if one is not most and one.growth is not None]
    if others:
        text += f"; the median of the other stages {format.percent_change(float(np.median(others)))}"
    return (f"{text}.",)


def _micro_steps(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the micro-steps that differ from the others, and stages that change along them."""
    found = []
    if pipeline.slow_micro_steps:
        which = format.ranges(pipeline.slow_micro_steps)
        found.append(f"Micro-step {which} takes longer on most stages: look at its data.")
    for one in pipeline.stages:
        if one.slow_micro_steps:
            which, late = format.ranges(one.slow_micro_steps), format.duration(one.slow_ns)
            found.append(
                f"On pipeline stage {one.stage} ({_ranks(one)}), micro-step {which} takes {late} longer than "
                "the others."
            )
        if one.trend is not None:
            found.append(
                f"On pipeline stage {one.stage} ({_ranks(one)}), micro-steps change by "
                f"{format.percent_change(one.trend)} from the first to the last."
            )
    return tuple(found)
