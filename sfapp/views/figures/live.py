"""Draw a running job: step times of all ranks and how far they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sfapp.accounting import CrossNode, Onset, StepTimes
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    f4,
    figure,
    legend_above,
    note,
    plain,
    step_axis,
)
from sfapp.views.plot_registry import LiveInput, Placement, PlotSpec

STEPS = PlotSpec(
    name="live_steps",
    title="Live step time",
    help=(
        "Ranks that wait for each other take the same time per step, whichever rank is slow: their lines "
        "coincide, and only their level shows a problem. Where the lines part, some ranks run ahead. A "
        "dashed line marks the step at which the current effect began, as far back as steps were judged."
    ),
    source=LiveInput,
    build=lambda given, dark: live_steps(given.times, run=given.run, dark=dark, onsets=given.onsets),
    reads=("history", "rolling"),
    tabs=(Placement("live", 20, 5),),
    report=None,
    notebook=None,
)

SKEW = PlotSpec(
    name="live_skew",
    title="Live skew",
    help=(
        "By how much the slowest rank exceeds the median rank, and the slowest node's median the fastest "
        "node's. Both are small where ranks wait for each other, whichever rank delays them: finished "
        "windows name it."
    ),
    source=LiveInput,
    build=lambda given, dark: live_skew(given.times, run=given.run, dark=dark),
    reads=("history",),
    tabs=(Placement("live", 35),),
    report=None,
    notebook=None,
)

_MARKS = 8

RECENT = 20
"""Number of steps in the mean of a rank's tile."""

_NODE_LINES = 16
_NO_STEPS = "no rank has finished a step yet"


def live_steps(
    times: StepTimes, *, run: str = "", dark: bool = False, onsets: Sequence[Onset] = ()
) -> Figure:
    """Return the newest step times: median of all ranks, slowest rank, median of each node.

    Args:
        onsets: where effects began, to be marked.
    """
    if not len(times.step_N):
        return empty_figure(_NO_STEPS, dark=dark, title=STEPS.title)
    summary = times.summary
    unit = format.unit_for(float(np.nanmax(times.wall_NR)))
    colours = palette.theme(dark)
    worst_N = _worst_ns(times, summary)
    ranks = times.ranks
    line = {"type": "scatter", "mode": "lines", "x": times.step_N.tolist(), "connectgaps": False}
    nodes_of = _node_lines if len(summary.nodes) <= _NODE_LINES else _node_band
    traces = nodes_of(times, summary, unit, dark) if len(summary.nodes) > 1 else []
    traces += [
        line
        | {
            "y": f4(worst_N / unit.ns),
            "name": "slowest rank",
            "line": {"color": colours.alarm, "width": 1.2, "dash": "dot"},
            "text": [
                "" if place < 0 else f"rank {ranks.rank[place]} on {plain(ranks.hostname[place])}"
                for place in summary.worst_N
            ],
            "hovertemplate": f"step %{{x}}: %{{text}}, %{{y:.2f}} {unit.name}<extra></extra>",
        },
        line
        | {
            "y": f4(summary.median_N / unit.ns),
            "name": "median of all ranks",
            "line": {"color": colours.ink, "width": 2},
            "hovertemplate": f"step %{{x}}: median %{{y:.2f}} {unit.name}<extra></extra>",
        },
    ]
    return figure(
        traces,
        dark=dark,
        title=STEPS.title,
        subtitle=f"wall time of {_each(times)}: median of all ranks, slowest rank, median of each node",
        alt=(
            f"The newest {format.counted(_count(times), 'step')} up to "
            f"{times.step_N[-1]}: "
            f"{format.duration(float(np.nanmedian(summary.median_N)))} each on the median of "
            f"{format.counted(len(ranks), 'rank')}."
        ),
        xaxis=step_axis(dark, extent(times)),
        yaxis=axis(dark, ticksuffix=f" {unit.name}", nticks=5, rangemode="tozero"),
        **onset_marks(onsets, times, dark),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )


def onset_marks(onsets: Sequence[Onset], times: StepTimes, dark: bool) -> dict[str, Any]:
    """Return the layout of a dashed line at each onset within the steps; the newest has a text."""
    colours = palette.theme(dark)
    shown = [onset for onset in onsets if times.step_N[0] <= onset.began <= times.step_N[-1]]
    lines = [
        {
            "type": "line",
            "x0": onset.began,
            "x1": onset.began,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": colours.warn, "width": 1.5, "dash": "dash"},
        }
        for onset in shown[-_MARKS:]
    ]
    notes = []
    for onset in shown[-1:]:
        ranks = f"rank {format.ranges(onset.ranks)}" if onset.ranks else "all ranks"
        is_right = onset.began - times.step_N[0] > extent(times) / 2
        notes.append(
            note(
                f"{ranks} {format.in_stage(onset.stage)}{'' if onset.is_exact else ' (or earlier)'}",
                onset.began,
                0.04,
                dark,
                yref="paper",
                yanchor="bottom",
                xanchor="right" if is_right else "left",
                bgcolor=palette.alpha(colours.surface, 0.85),
                font={"size": 12, "color": colours.warn},
            )
        )
    return {"shapes": lines, "annotations": notes}


def extent(times: StepTimes) -> int:
    """Return how many step numbers an axis covers; a row may stand for many steps."""
    return int(times.step_N[-1] - times.step_N[0]) + times.steps_each


def _count(times: StepTimes) -> int:
    """Return the number of steps; the first row may stand for fewer steps than the others."""
    return min(len(times.step_N) * times.steps_each, int(times.step_N[-1]) + 1)


def _each(times: StepTimes) -> str:
    """Return what one point of a line represents."""
    return (
        "each step" if times.steps_each == 1 else f"every {format.count(times.steps_each)} steps, their mean"
    )


def _worst_ns(times: StepTimes, summary: CrossNode) -> Any:
    found = times.wall_NR[np.arange(len(times.step_N)), np.maximum(summary.worst_N, 0)]
    return np.where(summary.worst_N < 0, np.nan, found)


def _node_lines(times: StepTimes, summary: CrossNode, unit: format.Unit, dark: bool) -> list[Trace]:
    """Return the medians of all nodes as one trace, with gaps between the nodes."""
    steps = [*times.step_N.tolist(), None]
    level = np.vstack([summary.node_median_NK / unit.ns, np.full(len(summary.nodes), np.nan)])
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": steps * len(summary.nodes),
            "y": f4(level.T.ravel()),
            "text": [f"node {node}" for node in summary.nodes for _ in steps],
            "name": "median of each node",
            "line": {"color": palette.theme(dark).rank, "width": 1},
            "connectgaps": False,
            "hovertemplate": f"step %{{x}}: %{{text}} %{{y:.2f}} {unit.name}<extra></extra>",
        }
    ]


def _node_band(times: StepTimes, summary: CrossNode, unit: format.Unit, dark: bool) -> list[Trace]:
    """Return a band from the fastest node's median to the slowest's; many lines would hide each other."""
    slowest = [
        "" if place < 0 else f"slowest node {summary.nodes[place]}" for place in summary.slowest_N.tolist()
    ]
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": times.step_N.tolist(),
        "line": {"color": palette.theme(dark).rank, "width": 1},
        "connectgaps": False,
    }
    return [
        line
        | {
            "y": f4(np.fmin.reduce(summary.node_median_NK, axis=1) / unit.ns),
            "name": "fastest node's median",
            "showlegend": False,
            "hovertemplate": f"step %{{x}}: fastest node %{{y:.2f}} {unit.name}<extra></extra>",
        },
        line
        | {
            "y": f4(np.fmax.reduce(summary.node_median_NK, axis=1) / unit.ns),
            "text": slowest,
            "name": "medians of the nodes",
            "fill": "tonexty",
            "fillcolor": palette.alpha(palette.theme(dark).rank, 0.3),
            "hovertemplate": f"step %{{x}}: %{{text}} %{{y:.2f}} {unit.name}<extra></extra>",
        },
    ]


def live_skew(times: StepTimes, *, run: str = "", dark: bool = False) -> Figure:
    """Return how uneven ranks and nodes were in each of the newest steps."""
    if not len(times.step_N):
        return empty_figure(_NO_STEPS, dark=dark, title=SKEW.title)
    summary = times.summary
    ranks, colours = times.ranks, palette.theme(dark)
    rank_text = [
        "" if place < 0 else f"rank {ranks.rank[place]} vs the median rank" for place in summary.worst_N
    ]
    node_text = [
        "" if place < 0 else f"node {summary.nodes[place]} vs the fastest" for place in summary.slowest_N
    ]
    shown = [("slowest rank above the median", summary.rank_skew_N, rank_text, colours.alarm, "solid")]
    if len(summary.nodes) > 1:
        shown.append(
            ("slowest node above the fastest", summary.node_skew_N, node_text, colours.accent, "dash")
        )
    last = format.percent(float(summary.rank_skew_N[-1]), 1)
    return figure(
        [
            {
                "type": "scatter",
                "mode": "lines",
                "x": times.step_N.tolist(),
                "y": f4(values_N),
                "text": text,
                "name": name,
                "line": {"color": colour, "width": 1.5, "dash": dash},
                "connectgaps": False,
                "hovertemplate": "step %{x}: %{text}, %{y:.1%}<extra></extra>",
            }
            for name, values_N, text, colour, dash in shown
        ],
        dark=dark,
        title=SKEW.title,
        subtitle="slowest rank above the median rank; slowest node above the fastest node",
        alt=f"In step {times.step_N[-1]} the slowest rank is {last} above the median rank.",
        height=240,
        xaxis=step_axis(dark, extent(times)),
        yaxis=axis(dark, tickformat=".1~%", nticks=5, rangemode="tozero"),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )


def recent_rows(times: StepTimes) -> int:
    """Return the number of rows in the mean of a rank's tile."""
    return max(1, RECENT // times.steps_each)
