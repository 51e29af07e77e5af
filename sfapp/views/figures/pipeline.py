"""Draw the stages of a pipeline: own time and idle time in a step (accounting.md §22)."""

from __future__ import annotations

from collections.abc import Callable

from sfapp.accounting import Measures, has_pipeline
from sfapp.model import Diagnosis
from sfapp.model.pipeline import Pipeline, PipelineStage
from sfapp.model.stages import BACKWARD, FORWARD
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import too_few_rows
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    figure,
    legend_above,
    name_axis,
    revision,
)
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput
from sfapp.views.text.pipeline import pipeline_sentences

PLOT = PlotSpec(
    name="pipeline",
    title="Pipeline stages",
    help=(
        "One bar per pipeline stage: its own time in forward and backward, other work, and the rest of the "
        "step, in which it is idle. The stage with the most own time bounds the step. Bars of equal own time "
        "are an even partitioning; the idle time that remains is the bubble of the pipeline."
    ),
    source=WindowInput,
    build=lambda given, dark: pipeline_stages(given.measures, given.diagnosis, dark=dark),
    reads=("verdict",),
    tabs=(Placement("ranks", 29),),
    report=66,
    notebook="pipeline_stages",
    applies=lambda given: has_pipeline(given.measures),
)


def pipeline_stages(measures: Measures, diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return one bar per pipeline stage with its own and its idle time per step."""
    pipeline = diagnosis.pipeline
    if not measures.has_all_rows:
        return empty_figure(too_few_rows(measures), dark=dark, title=PLOT.title)
    if pipeline is None:
        return empty_figure(
            "Own time of pipeline stages is not known: the window has no pipeline or too few steps, or ranks "
            "wait in forward or backward for an unknown time.",
            dark=dark,
            title=PLOT.title,
        )
    step_ns = diagnosis.step_time.mean_ns
    unit = format.unit_for(step_ns)
    sentences = pipeline_sentences(diagnosis)
    return figure(
        _bars(pipeline, step_ns, unit, dark),
        dark=dark,
        title=PLOT.title,
        subtitle="mean time per step of each pipeline stage",
        alt=" ".join((*sentences, _in_words(pipeline))),
        notes=sentences,
        height=320,
        xaxis=name_axis(dark, len(pipeline.stages), type="category"),
        yaxis=axis(dark, title=f"{unit.name} per step", rangemode="tozero"),
        barmode="stack",
        showlegend=True,
        legend=legend_above(),
        uirevision=revision(diagnosis, "pipeline"),
    )


def _bars(pipeline: Pipeline, step_ns: float, unit: format.Unit, dark: bool) -> list[Trace]:
    colours = palette.theme(dark)
    stages = palette.stage_colours((FORWARD, BACKWARD), dark)

    def idle(one: PipelineStage) -> float:
        return max(0.0, step_ns - one.own_ns - one.other_ns)

    parts: list[tuple[str, str, Callable[[PipelineStage], float]]] = [
        ("forward", stages[FORWARD], lambda one: one.forward_ns),
        ("backward", stages[BACKWARD], lambda one: one.backward_ns),
        ("other work", colours.rank, lambda one: one.other_ns),
        ("idle", colours.quiet, idle),
    ]
    return [
        {
            "type": "bar",
            "name": name,
            "x": [f"pp {one.stage}" for one in pipeline.stages],
            "y": [round(value(one) / unit.ns, 4) for one in pipeline.stages],
            "marker": {"color": colour},
            "hovertext": [
                f"{name} {format.duration(value(one))}<br>{_hover(one)}" for one in pipeline.stages
            ],
            "hovertemplate": "%{x}: %{hovertext}<extra></extra>",
        }
        for name, colour, value in parts
    ]


def _hover(one: PipelineStage) -> str:
    ranks = f"rank {one.rank}" if one.ranks == 1 else f"{one.ranks} ranks, slowest {one.rank}"
    return (
        f"{ranks}: own time {format.duration(one.own_ns)}, {format.percent_change(one.balance)} vs the mean "
        f"stage, idle {format.percent(one.idle)}"
    )


def _in_words(pipeline: Pipeline) -> str:
    most = max(pipeline.stages, key=lambda one: one.own_ns)
    return (
        f"{format.counted(len(pipeline.stages), 'pipeline stage')}; stage {most.stage} has the most own "
        f"time, {format.duration(most.own_ns)} per step."
    )
