"""Draw every rank's prefix curve under the frontier (accounting.md §3, §10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import active_frontier, step_index, too_few_rows
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, f4, figure, name_axis, plain, revision
from sfapp.views.figures.crossing_labels import notes_of
from sfapp.views.figures.prefix_curves import Curves, CurvesInput, curves_of
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="prefix_crossings",
    title="Arrival time per stage",
    help=(
        "Each line is the time that one rank has used since the step began; the highest line at a boundary "
        "sets the frontier. Where lines cross, another rank becomes the slowest: the time before and after "
        "the crossing has different causes. Where lines meet, the ranks synchronise."
    ),
    source=WindowInput,
    build=lambda given, dark: prefix_crossings(
        given.measures, given.diagnosis, given.view.step, selected=given.view.ranks, dark=dark
    ),
    reads=("frontier", "aim", "leaders", "step", "ranks"),
    tabs=(Placement("frontier", 30, 6, 440),),
    report=20,
    notebook="crossings",
    shows_one_step=True,
)

ALL_RANKS_UP_TO = 128
"""Number of ranks above which quantile bands replace ranks that are neither slowest nor selected."""

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def prefix_crossings(
    measures: Measures,
    diagnosis: Diagnosis,
    step: int | None = None,
    *,
    selected: Sequence[int] = (),
    dark: bool = False,
) -> Figure:
    """Return prefix curves of all ranks and the frontier; changes of the slowest rank are labelled.

    The lower panel shows the same curves as lead over the slowest rank, so that crossings stay visible if
    ranks differ by little.

    Args:
        step: a logical step number, None for the window's mean.
        selected: global ranks to draw by name.
    """
    if not measures.has_all_rows:
        return empty_figure(too_few_rows(measures), dark=dark, title=PLOT.title)
    index = step_index(measures, step)
    active = active_frontier(measures, diagnosis)
    curves = curves_of(measures, active, index)
    which = "mean step of the window" if index is None else f"step {step}"
    shown = _drawn_alone(measures, diagnosis, curves, selected)
    given = CurvesInput(measures, diagnosis, active, curves, shown, which, dark)
    many = measures.ranks > ALL_RANKS_UP_TO
    traces: list[Trace] = []
    for panel in (0, 1):
        traces += _bands(given, panel) if many else [_all_ranks(given, panel)]
        traces += [_one_rank(given, place, panel) for place in shown]
    traces.append(_frontier(given))
    bands = (
        f"{format.count(measures.ranks)} ranks: bands hold the middle 50 % and 90 % of them; slowest and "
        "selected ranks have their own lines. The frontier is that of all ranks."
    )
    return figure(
        traces,
        dark=dark,
        title=PLOT.title,
        subtitle=f"time since the start of the step by rank, {which}; the slowest rank sets the frontier",
        alt=_in_words(given),
        notes=(bands,) if many else (),
        height=440,
        **_panels(given),
        annotations=notes_of(given),
        hovermode="closest",
        uirevision=revision(diagnosis, diagnosis.frontier),
    )


def _drawn_alone(
    measures: Measures, diagnosis: Diagnosis, curves: Curves, selected: Sequence[int]
) -> dict[int, str]:
    """Return the rank positions with their own lines, by role; the suspect comes last, so that it is on
    top."""
    ranks = measures.window.ranks.rank
    wanted = set(selected)
    sure = curves.sure_leaders(diagnosis.gates.eta_q)
    drawn = {leader: "slowest" for leader in sure if leader is not None} if measures.ranks > 1 else {}
    drawn |= {place: "selected" for place, rank in enumerate(ranks) if rank in wanted}
    aimed = diagnosis.aim.rank if diagnosis.aim else None
    if aimed in ranks:
        drawn.pop(ranks.index(aimed), None)
        drawn[ranks.index(aimed)] = "suspect"
    return drawn


def _all_ranks(given: CurvesInput, panel: int) -> Trace:
    """Return all ranks as one trace, with a gap after each."""
    height_SR = given.height(panel)
    points, ranks = height_SR.shape
    gapped_y = np.vstack([height_SR, np.full(ranks, np.nan)]).T
    gapped_x = np.tile(np.append(np.arange(points, dtype=np.float64), np.nan), ranks)
    texts: list[str] = []
    for place in range(ranks):
        texts += [*_hover(given, place), ""]
    colours = palette.theme(given.dark)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": f4(gapped_x),
        "y": f4(gapped_y.ravel()),
        "yaxis": "y" if panel == 0 else "y2",
        "line": {"color": palette.alpha(colours.rank, 0.8 if ranks <= 16 else 0.45), "width": 1.5},
        "hovertext": texts,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "name": "ranks",
        "connectgaps": False,
    }


def _hover(given: CurvesInput, place: int) -> list[str]:
    """Return the hover text of one rank at each boundary."""
    curves = given.curves
    rank = given.measures.window.ranks.identity(place)
    head = f"<b>rank {rank.rank}</b> on {plain(rank.hostname)} (local {rank.local_rank})"
    if rank.role is not None:
        head += f", role {plain(rank.role)}"
    position_S = curves.position_SR[:, place]
    front_S = curves.frontier_S
    texts = [f"{head}<br>starts the step {_vs_slowest(front_S[0] - position_S[0])}"]
    for stage, name in enumerate(given.measures.window.stages):
        end = stage + 1
        text = (
            f"{head}<br>{plain(format.short_stage(name))} "
            f"{format.duration(position_S[end] - position_S[stage])}"
            f"<br>prefix {format.duration(position_S[end])}"
            f"<br>slack on entry {format.duration(max(0.0, float(front_S[stage] - position_S[stage])))}"
            f"<br>frontier advance {format.duration(front_S[end] - front_S[stage])}"
        )
        is_slowest = curves.leader_S[stage] == place
        text += (
            "<br><b>slowest at this boundary</b>"
            if is_slowest
            else f"<br>{_vs_slowest(front_S[end] - position_S[end])}"
        )
        texts.append(text)
    return texts


def _vs_slowest(ahead: float) -> str:
    return "with the slowest rank" if ahead < 1e3 else f"{format.duration(ahead)} before the slowest rank"


def _one_rank(given: CurvesInput, place: int, panel: int) -> Trace:
    colours = palette.theme(given.dark)
    colour, width, dash = {
        "suspect": (colours.alarm, 3.0, "solid"),
        "slowest": (colours.ink, 1.8, "solid"),
        "selected": (colours.accent, 2.4, "dash"),
    }[given.shown[place]]
    rank = given.measures.window.ranks.rank[place]
    height_SR = given.height(panel)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(range(height_SR.shape[0])),
        "y": f4(height_SR[:, place]),
        "yaxis": "y" if panel == 0 else "y2",
        "line": {"color": colour, "width": width, "dash": dash},
        "hovertext": _hover(given, place),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "name": f"rank {rank}",
        "customdata": [rank] * height_SR.shape[0],
    }


def _bands(given: CurvesInput, panel: int) -> list[Trace]:
    """Return the middle 90 % and 50 % of ranks at each boundary, and the median."""
    height_SR = given.height(panel)
    low, lower, middle, upper, high = np.quantile(height_SR, _QUANTILES, axis=1)
    colours = palette.theme(given.dark)
    points = np.arange(height_SR.shape[0])
    where = "y" if panel == 0 else "y2"
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": f4(np.concatenate([points, points[::-1]])),
            "y": f4(np.concatenate([top, bottom[::-1]])),
            "yaxis": where,
            "fill": "toself",
            "fillcolor": palette.alpha(colours.rank, opacity),
            "line": {"width": 0},
            "hoverinfo": "skip",
            "name": name,
        }
        for name, bottom, top, opacity in (
            ("90 % of ranks", low, high, 0.22),
            ("50 % of ranks", lower, upper, 0.38),
        )
    ]
    unit = given.unit if panel == 0 else given.behind_unit
    traces.append(
        {
            "type": "scatter",
            "mode": "lines",
            "x": f4(points),
            "y": f4(middle),
            "yaxis": where,
            "line": {"color": colours.rank, "width": 1.8, "dash": "dot"},
            "hovertemplate": f"median rank %{{y:.1f}} {unit.name}<extra></extra>",
            "name": "median rank",
        }
    )
    return traces


def _frontier(given: CurvesInput) -> Trace:
    colours = palette.theme(given.dark)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(range(len(given.curves.frontier_S))),
        "y": f4(given.curves.frontier_S / given.unit.ns),
        "line": {"color": colours.ink, "width": 1, "dash": "dot"},
        "marker": {"size": 6, "color": colours.surface, "line": {"color": colours.ink, "width": 1.5}},
        "hoverinfo": "skip",
        "name": "frontier",
    }


def _panels(given: CurvesInput) -> dict[str, Any]:
    stages = given.measures.window.stages
    short = format.short_stages(stages)
    count = len(stages)
    colours = palette.theme(given.dark)
    return {
        "xaxis": name_axis(
            given.dark,
            count,
            tickvals=[place + 0.5 for place in range(count)],
            ticktext=[plain(short[stage], 28) for stage in stages],
            range=[-0.03 * count / 6, count * (1 + 0.13)],
            anchor="y2",
        ),
        "yaxis": axis(given.dark, ticksuffix=f" {given.unit.name}", domain=[0.37, 1], nticks=6),
        "yaxis2": axis(
            given.dark,
            ticksuffix=f" {given.behind_unit.name}",
            domain=[0, 0.27],
            range=[1.08 * float(given.behind_SR.max()) / given.behind_unit.ns or 1.0, 0],
            nticks=4,
        ),
        "shapes": [
            {
                "type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
                "line": {"color": colours.grid, "width": 1},
            }
            for place in range(count + 1)
        ],
    }  # fmt: skip


def _in_words(given: CurvesInput) -> str:
    ranks = given.measures.window.ranks.rank
    sure = given.curves.sure_leaders(given.diagnosis.gates.eta_q)
    led = [
        f"rank {ranks[leader]} at {format.short_stage(stage)}"
        for stage, leader in zip(given.measures.window.stages, sure, strict=True)
        if leader is not None
    ]
    slowest = f"slowest: {format.listed(led, 8)}" if led else "no rank is clearly the slowest"
    return (
        f"Time used by {format.counted(len(ranks), 'rank')} at each boundary in the {given.which}; {slowest}."
    )
