"""Draw the window step by step: stacked advances, and the slowest rank at the suspect stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfapp.accounting import Measures
from sfapp.accounting.leaders import eligible_steps, stage_leaders
from sfapp.model import Diagnosis, Gates
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import (
    ActiveFrontier,
    Ints,
    active_frontier,
    stage_members,
    step_index,
)
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    f4,
    figure,
    legend_above,
    note,
    plain,
    revision,
    step_axis,
)
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="step_timeline",
    title="Exposed time per step",
    help=(
        "One bar per step, split into the exposed time of each stage. The dots below show which "
        "rank is the slowest at the suspect stage: a level row is the same rank every step, scattered dots "
        "are different ranks."
    ),
    source=WindowInput,
    build=lambda given, dark: step_timeline(given.measures, given.diagnosis, given.view.step, dark=dark),
    reads=("frontier", "aim", "leaders", "step"),
    tabs=(Placement("frontier", 40),),
    report=30,
    notebook="steps",
    picks_step=True,
    has_step_axis=True,
)

_BARS_UP_TO = 600
"""Number of steps above which areas replace bars, which would be thinner than a pixel."""


def step_timeline(
    measures: Measures, diagnosis: Diagnosis, step: int | None = None, *, dark: bool = False
) -> Figure:
    """Return stacked advances per step with one step framed, above the slowest rank at the suspect stage.

    ``customdata`` of every point is the step number, so that a click can select it.
    """
    active = active_frontier(measures, diagnosis)
    advance_BN = measures.by_broad(active.advance_SN)
    unit = format.unit_for(float(advance_BN.sum(axis=0).max()))
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(measures.broad, dark)
    short = format.short_stages(measures.broad)
    step_N = measures.step_N
    traces = [
        _stack(short[stage], by_stage[stage], advance_BN[place] / unit.ns, step_N, unit, dark)
        for place, stage in enumerate(measures.broad)
    ]
    stage = diagnosis.aim.stage if diagnosis.aim else diagnosis.top_stage
    leaders = None
    if stage is not None and measures.ranks > 1:
        leaders = _leaders(measures, active, diagnosis.gates, stage, dark)
    low = 0.36 if leaders else 0.0
    layout: dict[str, Any] = {
        "xaxis": step_axis(dark, measures.steps, anchor="y2" if leaders else "y"),
        "yaxis": axis(dark, ticksuffix=f" {unit.name}", domain=[low, 1], nticks=5, rangemode="tozero"),
    }
    annotations = []
    if leaders and stage:
        traces.append(leaders)
        layout["yaxis2"] = axis(
            dark, domain=[0, 0.24], nticks=5, tickprefix="r", tickformat="d",
            range=[max(measures.led_by.rank) + 0.7, min(measures.led_by.rank) - 0.7],
        )  # fmt: skip
        text = f"slowest rank at {plain(short.get(stage, stage))}"
        annotations.append(
            note(text, 0, 0.25, dark, xref="paper", yref="paper", xanchor="left", yanchor="bottom",
                 font={"size": 12, "color": colours.muted})
        )  # fmt: skip
    index = step_index(measures, step)
    return figure(
        traces,
        dark=dark,
        title=PLOT.title,
        subtitle=f"{active.words}, advance of each stage per step",
        interaction="click a step to inspect it",
        alt=_in_words(measures, advance_BN, diagnosis),
        height=340 if leaders else 260,
        barmode="stack",
        bargap=0.12 if measures.steps <= 80 else 0,
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        shapes=[] if index is None or step is None else [_frame(step, low, colours)],
        annotations=annotations,
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        clickmode="event",
        uirevision=revision(diagnosis, "steps"),
        **layout,
    )


def _stack(name: str, colour: str, value_N: object, step_N: Ints, unit: format.Unit, dark: bool) -> Trace:
    template = f"step %{{x}}<br>{plain(name)} +%{{y:.1f}} {unit.name}<extra></extra>"
    trace: Trace = {
        "x": step_N.tolist(),
        "y": f4(np.asarray(value_N)),
        "customdata": step_N.tolist(),
        "name": plain(name, 28),
        "hovertemplate": template,
    }
    if len(step_N) <= _BARS_UP_TO:
        edge = {"color": palette.theme(dark).surface, "width": 0.6 if len(step_N) <= 80 else 0}
        return trace | {"type": "bar", "marker": {"color": colour, "line": edge}}
    return trace | {
        "type": "scatter",
        "mode": "lines",
        "stackgroup": "steps",
        "line": {"shape": "hvh", "width": 0, "color": colour},
        "fillcolor": colour,
    }


def _leaders(
    measures: Measures, active: ActiveFrontier, gates: Gates, stage: str, dark: bool
) -> Trace | None:
    """Return a dot per step at the slowest rank of the stage, hollow if the step is not eligible."""
    members = list(stage_members(measures, stage))
    if not members:
        return None
    leaders = stage_leaders(active.advance_SN, active.leader_SN, active.gap_SN, members)
    sure_N = eligible_steps(leaders, measures.makespan_N, gates.gamma_elig, gates.eta_q, measures.ranks)
    colour = palette.stage_colours(measures.broad, dark)[measures.broad[measures.broad_of_S[members[0]]]]
    ranks = measures.led_by
    numbers = np.asarray(ranks.rank)[leaders.leader_N]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": measures.step_N.tolist(),
        "y": numbers.tolist(),
        "yaxis": "y2",
        "customdata": measures.step_N.tolist(),
        "marker": {
            "size": 7 if measures.steps <= 150 else 4,
            "symbol": ["circle" if sure else "circle-open" for sure in sure_N],
            "color": colour,
            "line": {"color": palette.theme(dark).ink, "width": 0.8},
            "opacity": [1.0 if sure else 0.45 for sure in sure_N],
        },
        "hovertext": [
            f"step {number}: rank {ranks.rank[leader]} on {plain(ranks.hostname[leader])}"
            f"<br>{format.duration(gap)} after the next rank"
            for number, leader, gap in zip(
                measures.step_N.tolist(), leaders.leader_N, leaders.gap_N.tolist(), strict=True
            )
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
        "name": "leader",
    }


def _frame(step: int, low: float, colours: palette.Theme) -> dict[str, object]:
    return {
        "type": "rect", "x0": step - 0.5, "x1": step + 0.5, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": colours.ink, "width": 2}, "fillcolor": palette.alpha(colours.ink, 0.05),
        "name": "step",
    }  # fmt: skip


def _in_words(measures: Measures, advance_BN: Ints, diagnosis: Diagnosis) -> str:
    total_N = advance_BN.sum(axis=0)
    top = int(advance_BN.sum(axis=1).argmax())
    return (
        f"Advances of {format.counted(measures.steps, 'step')} from {measures.step_N[0]} on: "
        f"{format.duration(float(total_N.mean()))} per step on average, "
        f"{format.duration(float(total_N.max()))} at most; "
        f"{format.short_stage(measures.broad[top])} takes most."
    )
