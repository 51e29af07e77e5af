"""Draw the exposed time of a running job's last steps, split by stage."""

from __future__ import annotations

from sfapp.accounting import RollingHistory
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, axis, empty_figure, f4, figure, legend_above, plain, step_axis
from sfapp.views.plot_registry import LiveInput, Placement, PlotSpec

STAGES = PlotSpec(
    name="live_stages",
    title="Live stages",
    help=(
        "Exposed time of each of the last steps, split by stage: the time that the slowest rank spends "
        "in it. A stage that grows from one step on delays the job. If the job is faster than "
        "the page, steps between two updates are left out."
    ),
    source=LiveInput,
    build=lambda given, dark: live_stages(given.stages, run=given.run, dark=dark),
    reads=("rolling",),
    tabs=(Placement("live", 30),),
    report=None,
    notebook=None,
    applies=lambda given: given.stages is not None,
)

SHOWN_STEPS = 200


def live_stages(history: RollingHistory | None, *, run: str = "", dark: bool = False) -> Figure:
    """Return the last steps as stacked bars."""
    if history is None or not len(history.step_N):
        return empty_figure("no step has been judged yet", dark=dark, title=STAGES.title, height=220)
    step_N, advance_BN = history.step_N[-SHOWN_STEPS:], history.advance_BN[:, -SHOWN_STEPS:]
    unit = format.unit_for(float(advance_BN.sum(axis=0).max()))
    colours = palette.stage_colours(history.stages, dark)
    short = format.short_stages(history.stages)
    steps = step_N.tolist()
    traces = [
        {
            "type": "bar",
            "x": steps,
            "y": f4(advance_N / unit.ns),
            "name": plain(short[stage], 28),
            "marker": {"color": colours[stage], "line": {"width": 0}},
            "hovertemplate": f"step %{{x}}: {plain(short[stage])} %{{y:.2f}} {unit.name}<extra></extra>",
        }
        for stage, advance_N in zip(history.stages, advance_BN, strict=True)
    ]
    largest = int(advance_BN.sum(axis=1).argmax())
    return figure(
        traces,
        dark=dark,
        title=STAGES.title,
        subtitle=f"exposed time of the last {format.counted(len(steps), 'step')}, split by stage",
        alt=(
            f"Exposed time of {format.counted(len(steps), 'step')} up to {steps[-1]}, split by stage; the "
            f"largest part is {short[history.stages[largest]]}."
        ),
        height=260,
        barmode="stack",
        bargap=0.06 if len(steps) <= 120 else 0,
        xaxis=step_axis(dark, len(steps)),
        yaxis=axis(dark, ticksuffix=f" {unit.name}", nticks=5, rangemode="tozero"),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )
