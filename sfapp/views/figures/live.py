"""A job while it runs: step times of all ranks, who lags, and what the machines do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sfapp.accounting import CrossNode, StepTimes
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
from sfapp.views.text.live import STALE_S

STEPS = PlotSpec(
    name="live_steps",
    title="Live step time",
    help=(
        "Ranks that wait for each other take the same time per step, whichever rank is slow: their lines "
        "coincide, and only their level shows a problem. Where the lines part, some ranks run ahead."
    ),
    source=LiveInput,
    build=lambda given, dark: live_steps(given.times, run=given.run, dark=dark),
    reads=(),
    tabs=(Placement("live", 10, 7),),
    report=None,
    notebook=None,
)

RANKS = PlotSpec(
    name="live_ranks",
    title="Live ranks",
    help=(
        "Blue ranks are faster than the median rank, vermilion ranks are slower, over their newest steps. A "
        "rank that no longer reports is marked with the time since its last sample. Ranks that wait for each "
        "other look alike."
    ),
    source=LiveInput,
    build=lambda given, dark: live_ranks(given.times, given.silent_s, run=given.run, dark=dark),
    reads=(),
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
    reads=(),
    tabs=(Placement("live", 30),),
    report=None,
    notebook=None,
)

RECENT = 20
"""Steps that a rank's tile is the mean of."""

_NAMED_TILES = 64
_NODE_LINES = 16
_NO_STEPS = "no rank has finished a step yet"


def live_steps(times: StepTimes, *, run: str = "", dark: bool = False) -> Figure:
    """Step time over the newest steps: median of all ranks, the slowest rank, each node's median."""
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
        subtitle=f"wall time of {_each(times)}: median of all ranks, slowest rank, medians of the nodes",
        alt=(
            f"The newest {format.counted(_count(times), 'step')} up to "
            f"{times.step_N[-1]}: "
            f"{format.duration(float(np.nanmedian(summary.median_N)))} each on the median of "
            f"{format.counted(len(ranks), 'rank')}."
        ),
        xaxis=step_axis(dark, extent(times)),
        yaxis=axis(dark, ticksuffix=f" {unit.name}", nticks=5, rangemode="tozero"),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )


def extent(times: StepTimes) -> int:
    """How many step numbers an axis covers: far more than there are rows, where a row is of many steps."""
    return int(times.step_N[-1] - times.step_N[0]) + times.steps_each


def _count(times: StepTimes) -> int:
    """How many steps there are; the first row may be of fewer than the others."""
    return min(len(times.step_N) * times.steps_each, int(times.step_N[-1]) + 1)


def _each(times: StepTimes) -> str:
    """What one point of a line is."""
    return (
        "each step" if times.steps_each == 1 else f"every {format.count(times.steps_each)} steps, their mean"
    )


def _worst_ns(times: StepTimes, summary: CrossNode) -> Any:
    found = times.wall_NR[np.arange(len(times.step_N)), np.maximum(summary.worst_N, 0)]
    return np.where(summary.worst_N < 0, np.nan, found)


def _node_lines(times: StepTimes, summary: CrossNode, unit: format.Unit, dark: bool) -> list[Trace]:
    """Every node's median as one trace, with gaps between the nodes."""
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
    """From the fastest node's median to the slowest's: lines of very many nodes would hide each other."""
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
    """How uneven ranks and nodes were in each of the newest steps."""
    if not len(times.step_N):
        return empty_figure(_NO_STEPS, dark=dark, title=SKEW.title)
    summary = times.summary
    ranks, colours = times.ranks, palette.theme(dark)
    rank_text = [
        "" if place < 0 else f"rank {ranks.rank[place]} against the median rank" for place in summary.worst_N
    ]
    node_text = [
        "" if place < 0 else f"node {summary.nodes[place]} against the fastest" for place in summary.slowest_N
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
        subtitle="how far the slowest rank is above the median, and the slowest node above the fastest",
        alt=f"In step {times.step_N[-1]} the slowest rank is {last} above the median rank.",
        height=240,
        xaxis=step_axis(dark, extent(times)),
        yaxis=axis(dark, tickformat=".1~%", nticks=5, rangemode="tozero"),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )


def live_ranks(
    times: StepTimes, silent_s: Mapping[int, float] | None = None, *, run: str = "", dark: bool = False
) -> Figure:
    """Every rank as a tile: a row a node, a column a local rank, dark where it is slower than the median.

    Args:
        silent_s: by global rank, seconds since anything was heard of it; marked from ``STALE_S`` on.
    """
    ranks = times.ranks
    if not len(ranks):
        return empty_figure("no rank has said anything yet", dark=dark, title=RANKS.title)
    silent = silent_s or {}
    mean_R = times.recent_R(recent_rows(times))
    middle = float(np.nanmedian(mean_R)) if np.isfinite(mean_R).any() else float("nan")
    nodes = {node: row for row, node in enumerate(ranks.nodes)}
    z = np.full((len(nodes), max(ranks.local_rank) + 1), np.nan)
    hover = [[""] * z.shape[1] for _ in range(z.shape[0])]
    words = []
    for place in range(len(ranks)):
        who = ranks.identity(place)
        row, column = nodes[who.node_rank], who.local_rank
        above = mean_R[place] / middle - 1
        late = silent.get(who.rank, 0.0)
        is_stale = late > STALE_S
        z[row, column] = np.nan if is_stale else above
        said = (
            f"no data for {format.lasting(late)}" if is_stale else f"{format.duration(mean_R[place])} a step"
        )
        hover[row][column] = (
            f"<b>rank {who.rank}</b> on {plain(who.hostname)}, local {who.local_rank}<br>{said}"
            f"<br>{format.percent_change(above)} against the median rank"
        )
        if len(ranks) <= _NAMED_TILES or is_stale:
            text = f"rank {who.rank}<br>{said}" if len(ranks) <= _NAMED_TILES else "?"
            words.append(note(text, column, row, dark, font=_tile_font(above, is_stale, dark)))
    stale = sorted(rank for rank in ranks.rank if silent.get(rank, 0.0) > STALE_S)
    return figure(
        [
            {
                "type": "heatmap",
                "z": f4(z),
                "zmin": -_FULL,
                "zmax": _FULL,
                "colorscale": palette.diverging(palette.theme(dark)),
                "hovertext": hover,
                "hovertemplate": "%{hovertext}<extra></extra>",
                "hoverongaps": True,
                "showscale": False,
                "xgap": 3 if len(ranks) <= _NAMED_TILES else 1,
                "ygap": 3 if len(nodes) <= _NAMED_TILES else 1,
            }
        ],
        dark=dark,
        title=RANKS.title,
        subtitle=(
            f"mean of the newest {recent_rows(times) * times.steps_each} steps, against the median rank; "
            "a row a node"
        ),
        alt=(
            f"{format.counted(len(ranks), 'rank')} on {format.counted(len(nodes), 'node')}; "
            + (f"no data from rank {format.ranges(stale)}." if stale else "all of them are heard of.")
        ),
        height=int(min(720, 90 + 52 * len(nodes))),
        xaxis=axis(
            dark, title="local rank", showgrid=False, tickformat="d", dtick=1 if z.shape[1] <= 16 else None
        ),
        yaxis=axis(
            dark,
            showgrid=False,
            autorange="reversed",
            tickvals=list(nodes.values()),
            ticktext=[f"node {node}" for node in nodes],
        ),
        annotations=words,
        uirevision=f"live/{run}",
    )


_FULL = 0.25
"""A rank that is so much above the median has the scale's full colour."""


def recent_rows(times: StepTimes) -> int:
    """How many rows a rank's tile is the mean of."""
    return max(1, RECENT // times.steps_each)


def _tile_font(above: float, is_stale: bool, dark: bool) -> dict[str, Any]:
    colours = palette.theme(dark)
    if is_stale or not np.isfinite(above):
        return {"size": 11, "color": colours.alarm if is_stale else colours.muted}
    tile = palette.at(palette.diverging(colours), above / (2 * _FULL) + 0.5)
    return {"size": 11, "color": palette.readable_on(tile)}
