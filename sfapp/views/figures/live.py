"""Draw a running job: step times of all ranks and how far they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.accounting import CrossNode, StepTimes
from sfapp.model import RankIdentity
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
        "other have the same colour."
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
    """Return the newest step times: median of all ranks, slowest rank, median of each node."""
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
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}",
    )


def extent(times: StepTimes) -> int:
    """Return how many step numbers an axis covers; a row may stand for many steps."""
    return int(times.step_N[-1] - times.step_N[0]) + times.steps_each


def _count(times: StepTimes) -> int:
    """Return the number of steps; the first row may stand for fewer steps than the others."""
    return min(len(times.step_N) * times.steps_each, int(times.step_N[-1]) + 1)


def _each(times: StepTimes) -> str:
    """Return what one point of a line stands for."""
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


def live_ranks(
    times: StepTimes, silent_s: Mapping[int, float] | None = None, *, run: str = "", dark: bool = False
) -> Figure:
    """Return every rank as a tile: one row per node, one column per local rank, dark where it is slow.

    Args:
        silent_s: seconds since the last sample, by global rank; marked from ``STALE_S`` on.
    """
    ranks = times.ranks
    if not len(ranks):
        return empty_figure("no rank has reported yet", dark=dark, title=RANKS.title)
    tiles = _tiles(times, silent_s or {})
    nodes = ranks.nodes
    columns = max(ranks.local_rank) + 1
    steps = recent_rows(times) * times.steps_each
    stale = sorted(tile.identity.rank for tile in tiles if tile.is_stale)
    return figure(
        [_tile_map(tiles, len(nodes), columns, dark)],
        dark=dark,
        title=RANKS.title,
        subtitle=f"mean of the newest {steps} steps vs the median rank; one row per node",
        alt=(
            f"{format.counted(len(ranks), 'rank')} on {format.counted(len(nodes), 'node')}; "
            + (f"no data from rank {format.ranges(stale)}." if stale else "all ranks report.")
        ),
        height=int(min(720, 90 + 52 * len(nodes))),
        xaxis=axis(
            dark, title="local rank", showgrid=False, tickformat="d", dtick=1 if columns <= 16 else None
        ),
        yaxis=axis(
            dark,
            showgrid=False,
            autorange="reversed",
            tickvals=list(range(len(nodes))),
            ticktext=[f"node {node}" for node in nodes],
        ),
        annotations=_tile_notes(tiles, dark),
        uirevision=f"live/{run}",
    )


@dataclass(frozen=True, slots=True)
class _Tile:
    """One rank in the grid; ``above`` is its step time relative to the median rank's, minus 1."""

    row: int
    column: int
    identity: RankIdentity
    above: float
    text: str
    is_stale: bool


def _tiles(times: StepTimes, silent_s: Mapping[int, float]) -> list[_Tile]:
    ranks = times.ranks
    mean_R = times.recent_R(recent_rows(times))
    median = float(np.nanmedian(mean_R)) if np.isfinite(mean_R).any() else float("nan")
    row_of = {node: row for row, node in enumerate(ranks.nodes)}
    tiles = []
    for place in range(len(ranks)):
        identity = ranks.identity(place)
        late_s = silent_s.get(identity.rank, 0.0)
        is_stale = late_s > STALE_S
        text = (
            f"no data for {format.lasting(late_s)}"
            if is_stale
            else f"{format.duration(mean_R[place])} per step"
        )
        row, column = row_of[identity.node_rank], identity.local_rank
        tiles.append(_Tile(row, column, identity, mean_R[place] / median - 1, text, is_stale))
    return tiles


def _tile_map(tiles: Sequence[_Tile], rows: int, columns: int, dark: bool) -> Trace:
    z = np.full((rows, columns), np.nan)
    hover = [[""] * columns for _ in range(rows)]
    for tile in tiles:
        rank = tile.identity
        z[tile.row, tile.column] = np.nan if tile.is_stale else tile.above
        hover[tile.row][tile.column] = (
            f"<b>rank {rank.rank}</b> on {plain(rank.hostname)}, local {rank.local_rank}<br>{tile.text}"
            f"<br>{format.percent_change(tile.above)} vs the median rank"
        )
    return {
        "type": "heatmap",
        "z": f4(z),
        "zmin": -_FULL,
        "zmax": _FULL,
        "colorscale": palette.diverging(palette.theme(dark)),
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hoverongaps": True,
        "showscale": False,
        "xgap": 3 if len(tiles) <= _NAMED_TILES else 1,
        "ygap": 3 if rows <= _NAMED_TILES else 1,
    }


def _tile_notes(tiles: Sequence[_Tile], dark: bool) -> list[dict[str, Any]]:
    """Return the text of every tile; of many tiles only a mark on those without data."""
    is_named = len(tiles) <= _NAMED_TILES
    return [
        note(
            f"rank {tile.identity.rank}<br>{tile.text}" if is_named else "?",
            tile.column,
            tile.row,
            dark,
            font=_tile_font(tile.above, tile.is_stale, dark),
        )
        for tile in tiles
        if is_named or tile.is_stale
    ]


_FULL = 0.25
"""A rank this much above the median has the full colour of the scale."""


def recent_rows(times: StepTimes) -> int:
    """Return how many rows a rank's tile is the mean of."""
    return max(1, RECENT // times.steps_each)


def _tile_font(above: float, is_stale: bool, dark: bool) -> dict[str, Any]:
    colours = palette.theme(dark)
    if is_stale or not np.isfinite(above):
        return {"size": 12, "color": colours.alarm if is_stale else colours.muted}
    tile = palette.at(palette.diverging(colours), above / (2 * _FULL) + 0.5)
    return {"size": 12, "color": palette.readable_on(tile)}
