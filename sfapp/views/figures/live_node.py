"""Draw one node of a running job: each rank's step time, and the time in each layer."""

from __future__ import annotations

import numpy as np

from sfapp.accounting import RollingVerdict, StepTimes
from sfapp.model import Window
from sfapp.model.arrays import to_numpy
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    f4,
    figure,
    legend_above,
    plain,
    step_axis,
)
from sfapp.views.figures.live import extent
from sfapp.views.figures.live_lateness import lateness_words
from sfapp.views.plot_registry import LiveInput, Placement, PlotSpec

COURSES = PlotSpec(
    name="live_courses",
    title="Live ranks of a node",
    help=(
        "One line per rank, all on one scale from 0: a rank with a higher line is slower, not noisier. Ranks "
        "that synchronise have the same step time; the number below a rank's name is how late it is before "
        "that, as a part of the step, and ranks that hold the job are red. A line that ends early belongs to "
        "a rank that no longer reports, or lags behind."
    ),
    source=LiveInput,
    build=lambda given, dark: live_courses(given.times, given.node, given.rolling, run=given.run, dark=dark),
    reads=("history", "node", "rolling"),
    tabs=(Placement("live:node", 10, 6),),
    report=None,
    notebook=None,
)

LAYERS = PlotSpec(
    name="live_layers",
    title="Layers of a node",
    help=(
        "Host time in each layer of the model, from the newest finished window. On a GPU this is the time "
        "to launch the work, not to run it."
    ),
    source=LiveInput,
    build=lambda given, dark: live_layers(given.window, given.node, run=given.run, dark=dark),
    reads=("window", "node"),
    tabs=(Placement("live:node", 60, 6),),
    report=None,
    notebook=None,
)

LAYERS_SHOWN = 40
_LABEL_SHIFT = -18
"""Pixels, downwards, from the zero of a rank's row to the middle of the row."""
_PASSES = ("forward", "backward")
_NS_PER_MS = 1e6


def live_courses(
    times: StepTimes, node: int, rolling: RollingVerdict | None = None, *, run: str = "", dark: bool = False
) -> Figure:
    """Return each rank's step time: one line per rank on one scale, in one trace.

    Args:
        rolling: says how late ranks are, and which hold the job: these have a trace of their own.
    """
    # Long because the layout of a figure is one literal.
    title = COURSES.title_of(node)
    ranks = times.ranks
    places = [place for place in range(len(ranks)) if ranks.node_rank[place] == node]
    value_RN = times.wall_NR[:, places].T
    if not places or not np.isfinite(value_RN).any():
        return empty_figure(f"no rank of node {node} has finished a step yet", dark=dark, title=title)
    largest = max(float(np.nanmax(value_RN)), 1.0)
    unit = format.unit_for(largest)
    gap_R1 = np.full((len(places), 1), np.nan)
    rows_R1 = np.arange(len(places), dtype=np.float64)[:, None]
    names = [f"rank {ranks.rank[place]}" for place in places]
    steps = [*times.step_N.tolist(), None]
    colours = palette.theme(dark)
    late_of = _lateness(rolling)
    holding = set() if rolling is None or rolling.finding is None else set(rolling.finding.ranks)
    level_RN, spent_RN = 0.85 * value_RN / largest - rows_R1, value_RN / unit.ns

    def lines(rows: list[int], name: str, colour: str) -> Trace:
        return {
            "type": "scatter",
            "mode": "lines",
            "x": steps * len(rows),
            "y": f4(np.hstack([level_RN[rows], gap_R1[rows]]).ravel()),
            "customdata": f4(np.hstack([spent_RN[rows], gap_R1[rows]]).ravel()),
            "text": [names[row] for row in rows for _ in steps],
            "line": {"color": colour, "width": 1.5},
            "connectgaps": False,
            "name": name,
            "hovertemplate": f"step %{{x}}: %{{text}} %{{customdata:.2f}} {unit.name}<extra></extra>",
        }

    late = [row for row, place in enumerate(places) if ranks.rank[place] in holding]
    others = [row for row in range(len(places)) if row not in late]
    traces = [lines(others, "ranks", colours.accent)] if others else []
    held = format.listed([names[row] for row in late], 4)
    return figure(
        [*traces, *([lines(late, "ranks that hold the job", colours.alarm)] if late else [])],
        dark=dark,
        title=title,
        subtitle=f"step time; every row spans 0 to {format.duration(largest)}"
        + ("; below each name, how late it is before ranks synchronise" if late_of else ""),
        alt=f"Step times of {format.counted(len(places), 'rank')} of node {node}, one line each."
        + (f" The job waits for {held}." if late else ""),
        height=int(min(900, 80 + 46 * len(places))),
        xaxis=step_axis(dark, extent(times)),
        yaxis=axis(
            dark,
            tickvals=[-row for row in range(len(places))],
            ticktext=[
                _tick(names[row], late_of.get(ranks.rank[place]), row in late)
                for row, place in enumerate(places)
            ],
            # Beside the line, which is above its zero.
            ticklabelshift=_LABEL_SHIFT,
            range=[-len(places) + 0.9, 1.0],
        ),
        hovermode="closest",
        uirevision=f"live/{run}/{node}",
    )


def _lateness(rolling: RollingVerdict | None) -> dict[int, float]:
    """Return how late each rank is, as a part of the step: as on the overview, empty if unknown."""
    if rolling is None or rolling.delays is None:
        return {}
    step_ns = rolling.step_ns or 1.0
    return {
        rank: float(behind) / step_ns
        for rank, behind in zip(rolling.delays.ranks.rank, rolling.delays.behind_R, strict=True)
    }


def _tick(name: str, part: float | None, holds: bool) -> str:
    first = f"<b>▶ {name}</b>" if holds else name
    if part is None or not np.isfinite(part):
        return first
    return f"{first}<br>{lateness_words(part)}"


def live_layers(window: Window | None, node: int, *, run: str = "", dark: bool = False) -> Figure:
    """Return the mean time of each layer over the newest window's sampled steps and the node's ranks."""
    title = LAYERS.title_of(node)
    if window is None:
        return empty_figure("no window is finished yet", dark=dark, title=title, height=180)
    times = _layer_times(window, node)
    if not times:
        why = "no layer is timed; perf.time_layers(model) times the layers of a model that is not sharded"
        return empty_figure(why, dark=dark, title=title, height=180)
    layers = sorted(times, key=lambda layer: -sum(times[layer].values()))[:LAYERS_SHOWN]
    names = [plain(layer, 32) for layer in layers]
    unit = format.unit_for(max(sum(times[layer].values()) for layer in layers))
    shades = palette.stage_colours(["model.fwd_loss_cpu_wall", "model.backward_cpu_wall"], dark).values()

    def bars(which: str, shade: str) -> Trace:
        values = [times[layer].get(which, 0.0) for layer in layers]
        return {
            "type": "bar",
            "orientation": "h",
            "y": list(range(len(layers))),
            "x": [value / unit.ns for value in values],
            "name": which,
            "marker": {"color": shade, "pattern": {"shape": "" if which == "forward" else "/"}},
            "text": [format.duration(value) for value in values],
            "textposition": "none",
            "hovertext": names,
            "hovertemplate": f"%{{hovertext}}, {which}: %{{text}}<extra></extra>",
        }

    first = layers[0]
    return figure(
        [bars(which, shade) for which, shade in zip(_PASSES, shades, strict=True)],
        dark=dark,
        title=title,
        subtitle=f"mean host time per step in window {window.number}, over the node's ranks",
        alt=(
            f"{format.counted(len(times), 'layer')}; {format.clip(first)} takes the most, "
            f"{format.duration(sum(times[first].values()))} per step."
        ),
        notes=(f"The {LAYERS_SHOWN} largest are shown.",) if len(times) > LAYERS_SHOWN else (),
        height=90 + 24 * len(layers),
        barmode="stack",
        xaxis=axis(dark, ticksuffix=f" {unit.name}", nticks=6, rangemode="tozero"),
        yaxis=axis(
            dark, autorange="reversed", showgrid=False, tickvals=list(range(len(layers))), ticktext=names
        ),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=f"live/{run}/layers",
    )


def _layer_times(window: Window, node: int) -> dict[str, dict[str, float]]:
    """Return the mean over the node's ranks and sampled steps by layer and pass, ns."""
    places = [place for place, where in enumerate(window.ranks.node_rank) if where == node]
    found: dict[str, dict[str, float]] = {}
    for name, channel in window.side.items():
        for which in _PASSES:
            if name.startswith("layer.") and name.endswith(f".{which}_ms"):
                value_NR = to_numpy(channel.value_NR[:, places])
                if np.isfinite(value_NR).any():
                    layer = name.removeprefix("layer.").removesuffix(f".{which}_ms")
                    found.setdefault(layer, {})[which] = float(np.nanmean(value_NR)) * _NS_PER_MS
    return found
