"""One node: its ranks as a grid, each rank's course, and skew inside and against the other nodes."""

from __future__ import annotations

import numpy as np

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.arrays import to_numpy
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import (
    Floats,
    active_frontier,
    leads_by_row,
    stage_members,
    time_in,
    too_few_rows,
)
from sfapp.views.figures.base import (
    Figure,
    axis,
    empty_figure,
    f4,
    figure,
    legend_above,
    note,
    plain,
    revision,
    step_axis,
)
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

RANKS = PlotSpec(
    name="node_ranks",
    title="Ranks of a node",
    help=(
        "One tile per rank: its time in the suspect stage, and how often it is the slowest there. ▲ marks a "
        "rank that delays the others."
    ),
    source=WindowInput,
    build=lambda given, dark: node_ranks(given.measures, given.diagnosis, given.node, dark=dark),
    reads=("frontier", "aim", "node"),
    tabs=(Placement("node", 20),),
    report=None,
    notebook="node_ranks",
)

SPARKLINES = PlotSpec(
    name="node_sparklines",
    title="Stage time per rank of a node",
    help="All ranks on one scale: a rank with a higher line is slower, not noisier.",
    source=WindowInput,
    build=lambda given, dark: node_sparklines(given.measures, given.diagnosis, given.node, dark=dark),
    reads=("frontier", "aim", "node"),
    tabs=(Placement("node", 30, 7),),
    report=None,
    notebook="node_sparklines",
    has_step_axis=True,
)

SKEW = PlotSpec(
    name="node_skew",
    title="Skew of a node",
    help=(
        "Solid: by how much the node's slowest rank exceeds its typical rank. Hatched: by how much the whole "
        "node exceeds the others. A long hatched bar points to the host, a long solid bar to a rank."
    ),
    source=WindowInput,
    build=lambda given, dark: node_skew(given.measures, given.diagnosis, given.node, dark=dark),
    reads=("frontier", "aim", "node"),
    tabs=(Placement("node", 40, 5),),
    report=None,
    notebook="node_skew",
)

STRAGGLES_FROM = 0.5
"""A rank that leads the aim's stage in at least this part of the eligible steps is a straggler."""

_COLUMNS = 8


def stragglers(measures: Measures, diagnosis: Diagnosis) -> frozenset[int]:
    """Global ranks marked ▲: the aim's rank, and who leads the aim's stage in half of the eligible steps.

    Empty in quiet windows, and where ranks rotate.
    """
    if diagnosis.is_quiet or diagnosis.aim is None:
        return frozenset()
    marked = set() if diagnosis.aim.rank is None else {diagnosis.aim.rank}
    culprit = diagnosis.culprit
    often = culprit is not None and culprit.share >= STRAGGLES_FROM
    if culprit and culprit.rank is not None and often and diagnosis.aim.rank_reason == "no_clear_leader":
        marked.add(culprit.rank)
    return frozenset(marked & set(measures.window.ranks.rank))


def straggling_nodes(measures: Measures, diagnosis: Diagnosis) -> frozenset[int]:
    """Nodes that hold a straggler."""
    ranks = measures.window.ranks
    marked = stragglers(measures, diagnosis)
    return frozenset(node for rank, node in zip(ranks.rank, ranks.node_rank, strict=True) if rank in marked)


def lead_shares(measures: Measures, diagnosis: Diagnosis) -> Floats:
    """Part of the steps in which each rank sets the frontier at the aim's stage, [R]."""
    active = active_frontier(measures, diagnosis)
    members = stage_members(measures, _stage(measures, diagnosis))
    rows = np.asarray(members)
    largest_N = rows[active.advance_SN[rows].argmax(axis=0)]
    leader_N = active.leader_SN[largest_N, np.arange(measures.steps)]
    return leads_by_row(measures, leader_N) / measures.steps


def _stage(measures: Measures, diagnosis: Diagnosis) -> str:
    return (diagnosis.aim.stage if diagnosis.aim else diagnosis.top_stage) or measures.broad[0]


def _on(measures: Measures, node: int) -> list[int]:
    return [place for place, where in enumerate(measures.window.ranks.node_rank) if where == node]


def node_ranks(measures: Measures, diagnosis: Diagnosis, node: int, *, dark: bool = False) -> Figure:
    """The node's ranks as tiles: time in the aim's stage, lead share, ▲ on stragglers."""
    places = _on(measures, node)
    title = RANKS.title_of(node)
    if not places:
        return empty_figure(f"no rank of node {node} is in this group", dark=dark, title=title)
    stage = _stage(measures, diagnosis)
    own = time_in(measures, stage).mean(axis=0)
    total = to_numpy(measures.window.duration_SNR.sum(axis=0)).mean(axis=0)
    leads = lead_shares(measures, diagnosis)
    marked = stragglers(measures, diagnosis)
    ranks = measures.window.ranks
    short = format.short_stage(stage)
    columns = min(_COLUMNS, len(places))
    rows = -(-len(places) // columns)
    z = np.full((rows, columns), np.nan)
    text: list[list[str]] = [["" for _ in range(columns)] for _ in range(rows)]
    hover = [["" for _ in range(columns)] for _ in range(rows)]
    unit = format.unit_for(float(own.max()))
    for index, place in enumerate(places):
        row, column = divmod(index, columns)
        z[row, column] = own[place] / unit.ns
        who = ranks.identity(place)
        mark = "▲ " if who.rank in marked else ""
        text[row][column] = (
            f"<b>{mark}rank {who.rank}</b><br>{plain(short, 16)} {format.duration(own[place])}"
            f"<br>leads {format.percent(leads[place])}"
        )
        hover[row][column] = (
            f"<b>rank {who.rank}</b> on {plain(who.hostname)}, local {who.local_rank}"
            + (f", role {plain(who.role)}" if who.role is not None else "")
            + f"<br>{plain(short)} {format.duration(own[place])} a step"
            + f"<br>own step time {format.duration(total[place])}"
            + f"<br>sets the frontier at {plain(short)} in {format.percent(leads[place])} of the steps"
            + ("<br>▲ straggler" if mark else "")
        )
    shades = palette.scale(palette.stage_colours(measures.broad, dark)[stage], palette.theme(dark))
    # A typical rank sits in the middle of the scale, so that a healthy node does not look alarming.
    full = max(float(own.max()), 2 * float(np.median(own)), 1.0)
    words = [
        note(
            text[row][column], column, row, dark,
            font={
                "size": 12,
                "color": palette.readable_on(palette.at(shades, z[row, column] * unit.ns / full)),
            },
        )
        for row in range(rows)
        for column in range(columns)
        if text[row][column]
    ]  # fmt: skip
    heat = {
        "type": "heatmap",
        "z": f4(z),
        "zmin": 0,
        "zmax": full / unit.ns,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "colorscale": shades,
        "showscale": False,
        "xgap": 4,
        "ygap": 4,
    }
    hidden = {"visible": False, "fixedrange": True}
    inside = [ranks.rank[place] for place in places if ranks.rank[place] in marked]
    return figure(
        [heat],
        dark=dark,
        title=title,
        subtitle=f"{host_names(measures, places)}; mean {short} per step, how often the rank is last there",
        alt=(
            f"Node {node} holds {format.counted(len(places), 'rank')}; "
            + (f"stragglers: rank {format.ranges(inside)}." if inside else "no straggler.")
        ),
        height=30 + 84 * rows,
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
        xaxis=hidden,
        yaxis=hidden | {"autorange": "reversed"},
        annotations=words,
        uirevision=revision(diagnosis, "node", node),
    )


def host_names(measures: Measures, places: list[int]) -> str:
    """The host names of some ranks, as they stand in the packet."""
    names = sorted({measures.window.ranks.hostname[place] for place in places})
    return format.listed([format.clip(name) for name in names], 3)


def node_sparklines(
    measures: Measures, diagnosis: Diagnosis, node: int, stage: str | None = None, *, dark: bool = False
) -> Figure:
    """Each rank's time in one stage over the steps, one line a rank, all on one scale, as one trace."""
    places = _on(measures, node)
    stage = stage or _stage(measures, diagnosis)
    members = stage_members(measures, stage)
    title = SPARKLINES.title_of(node)
    if not places or not members:
        return empty_figure(f"no rank of node {node} has a stage {stage}", dark=dark, title=title)
    value_NR = time_in(measures, stage)[:, places]
    largest = max(float(value_NR.max()), 1.0)
    unit = format.unit_for(largest)
    steps = measures.step_N
    rows_R1 = np.arange(len(places), dtype=np.float64)[:, None]
    gap_R1 = np.full((len(places), 1), np.nan)
    # Half a step on both sides closes each rank's area down to its own zero line.
    ends = np.concatenate([[steps[0] - 0.5], steps - 0.5, [steps[-1] + 0.5, steps[-1] + 0.5], [np.nan]])
    level_RN = 0.82 * value_NR.T / largest - rows_R1
    y = np.hstack([-rows_R1, level_RN, level_RN[:, -1:], -rows_R1, gap_R1]).ravel()
    shown_RN = np.hstack([gap_R1, value_NR.T, value_NR.T[:, -1:], gap_R1, gap_R1]) / unit.ns
    ranks = measures.window.ranks
    marked = stragglers(measures, diagnosis)
    colours = palette.theme(dark)
    shade = palette.stage_colours(measures.window.stages, dark)[measures.window.stages[members[0]]]
    short = format.short_stage(stage)
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": f4(np.tile(ends, len(places))),
        "y": f4(y),
        "customdata": f4(shown_RN.ravel()),
        "line": {"color": shade, "width": 1.5, "shape": "hv"},
        "fill": "toself",
        "fillcolor": palette.alpha(shade, 0.25),
        "hoveron": "points",
        "hovertemplate": f"step %{{text}}<br>{plain(short)} %{{customdata:.2f}} {unit.name}<extra></extra>",
        "text": ([str(steps[0]), *map(str, steps.tolist()), str(steps[-1]), str(steps[-1]), ""])
        * len(places),
        "connectgaps": False,
        "name": "ranks",
    }
    return figure(
        [line],
        dark=dark,
        title=title,
        subtitle=f"{short} per step; every row runs from 0 to {format.duration(largest)}",
        alt=f"{short} of {format.counted(len(places), 'rank')} of node {node} over the window's steps.",
        height=int(min(900, 70 + 42 * len(places))),
        margin={"l": 8, "r": 12, "t": 8, "b": 8},
        xaxis=step_axis(dark, measures.steps),
        yaxis=axis(
            dark,
            tickvals=[-row for row in range(len(places))],
            ticktext=[
                f"<b>▲ r{ranks.rank[place]}</b>" if ranks.rank[place] in marked else f"r{ranks.rank[place]}"
                for place in places
            ],
            range=[-len(places) + 0.85, 1.05],
            tickfont={"color": colours.ink, "size": 11},
        ),
        hovermode="closest",
        uirevision=revision(diagnosis, "node", node),
    )


def node_skew(measures: Measures, diagnosis: Diagnosis, node: int, *, dark: bool = False) -> Figure:
    """Per stage: how far the node's slowest rank is from its median rank, and its median from the others'."""
    places = _on(measures, node)
    title = SKEW.title_of(node)
    if not places:
        return empty_figure(f"no rank of node {node} is in this group", dark=dark, title=title)
    if not measures.has_all_rows:
<<<<<<< HEAD
        return absent(too_few_rows(measures), dark=dark, title=title)
    mean_SR = to_numpy(measures.window.duration_SNR).mean(axis=1)
=======
        return empty_figure(too_few_rows(measures), dark=dark, title=title)
    mean_SR = measures.window.duration_SNR.double().mean(dim=1).cpu().numpy()
>>>>>>> a3bb3d5 (Name the active frontier and empty figures after what they are)
    mean_BR = measures.by_broad(mean_SR)
    others = [place for place in range(len(measures.window.ranks)) if place not in set(places)]
    middle_B = np.median(mean_BR[:, places], axis=1)
    inside_B = mean_BR[:, places].max(axis=1) - middle_B
    against_B = middle_B - np.median(mean_BR[:, others], axis=1) if others else None
    largest = max(float(inside_B.max()), 0.0 if against_B is None else float(np.abs(against_B).max()))
    unit = format.unit_for(largest)
    short = format.short_stages(measures.broad)
    by_stage = palette.stage_colours(measures.broad, dark)
    colours = palette.theme(dark)
    names = [plain(short[stage], 28) for stage in measures.broad]
    shades = [by_stage[stage] for stage in measures.broad]

    reach = np.concatenate([inside_B, against_B if against_B is not None else inside_B]) / unit.ns
    lowest, highest = float(reach.min()), max(float(reach.max()), 1e-6)

    def bars(values: Floats, name: str, hollow: bool) -> dict[str, object]:
        return {
            "type": "bar",
            "orientation": "h",
            "y": names,
            "x": (values / unit.ns).tolist(),
            "name": name,
            "marker": {
                "color": shades,
                "line": {"color": shades, "width": 1.2},
                "pattern": {
                    "shape": "/" if hollow else "",
                    "fillmode": "replace",
                    "fgcolor": shades,
                    "bgcolor": [palette.alpha(shade, 0.1) for shade in shades],
                    "size": 6,
                    "solidity": 0.35,
                },
            },
            "text": [format.change(float(value)) for value in values],
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"color": colours.ink, "size": 11},
            "hovertemplate": f"%{{y}}: %{{text}}<extra>{name}</extra>",
        }

    traces = [bars(inside_B, "slowest against the node's median rank", False)]
    notes: tuple[str, ...] = ()
    if against_B is None:
        notes = ("n/a against other nodes: this group holds one node only.",)
    else:
        traces.append(bars(against_B, "node's median against the other nodes'", True))
    top = int(inside_B.argmax())
    return figure(
        traces,
        dark=dark,
        title=title,
        subtitle="mean time per step: inside the node, and against the other nodes",
        alt=(
            f"Inside node {node} ranks differ most in {format.short_stage(measures.broad[top])}, by "
            f"{format.duration(inside_B[top])} a step; "
            + ("there is no other node to compare with." if against_B is None else
               f"against other nodes its median differs by up to {format.duration(np.abs(against_B).max())}.")
        ),
        notes=notes,
        height=110 + 44 * len(names),
        barmode="group",
        bargap=0.3,
        margin={"l": 8, "r": 64, "t": 34, "b": 8},
        xaxis=axis(
            dark, ticksuffix=f" {unit.name}", zeroline=True, zerolinecolor=colours.axis, nticks=6,
            range=[min(1.35 * lowest, -0.2 * highest) if lowest < 0 else 0, 1.25 * highest],
        ),
        yaxis=axis(dark, autorange="reversed", showgrid=False, tickfont={"color": colours.ink, "size": 12}),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=revision(diagnosis, "node", node),
    )  # fmt: skip
