"""Draw the ranks of one node: as a grid, and each rank's stage time over the steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    waits_in,
)
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    f4,
    figure,
    note,
    plain,
    revision,
    step_axis,
)
from sfapp.views.figures.missing_ranks import hatched, missing_hovers, missing_on
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

RANKS = PlotSpec(
    name="node_ranks",
    title="Ranks of a node",
    help=(
        "One tile per rank: its time in the suspect stage, and how often it is the slowest there; without "
        "waits for other ranks, where those were measured. ▲ marks a rank that delays the others. A hatched "
        "tile is a rank that did not report."
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
    help=(
        "All ranks on one scale: a rank with a higher line is slower, not noisier. If waits were "
        "measured, the light part of an area is waiting for other ranks and the dark part own time: a rank "
        "with more own time is slower."
    ),
    source=WindowInput,
    build=lambda given, dark: node_sparklines(given.measures, given.diagnosis, given.node, dark=dark),
    reads=("frontier", "aim", "node"),
    tabs=(Placement("node", 30, 7),),
    report=None,
    notebook="node_sparklines",
    has_step_axis=True,
)

STRAGGLES_FROM = 0.5
"""Part of the eligible steps from which a rank that is slowest at the suspect stage is a straggler."""

_COLUMNS = 8

_FEW_COLUMNS = 4
"""Number of columns for up to sixteen ranks, so that their tiles have room for text on a phone too."""


def stragglers(measures: Measures, diagnosis: Diagnosis) -> frozenset[int]:
    """Return the ranks marked ▲: the suspect, and any rank that is slowest there in half of the eligible
    steps.

    Empty for healthy windows and if a different rank is slowest every step.
    """
    if diagnosis.is_healthy or diagnosis.aim is None:
        return frozenset()
    marked = set() if diagnosis.aim.rank is None else {diagnosis.aim.rank}
    culprit = diagnosis.culprit
    often = culprit is not None and culprit.share >= STRAGGLES_FROM
    if culprit and culprit.rank is not None and often and diagnosis.aim.rank_reason == "no_clear_leader":
        marked.add(culprit.rank)
    return frozenset(marked & set(measures.window.ranks.rank))


def straggling_nodes(measures: Measures, diagnosis: Diagnosis) -> frozenset[int]:
    """Return the nodes that hold a straggler."""
    ranks = measures.window.ranks
    marked = stragglers(measures, diagnosis)
    return frozenset(node for rank, node in zip(ranks.rank, ranks.node_rank, strict=True) if rank in marked)


def lead_shares(measures: Measures, diagnosis: Diagnosis) -> Floats:
    """Return the part of the steps in which each rank sets the frontier at the suspect stage, [R]."""
    active = active_frontier(measures, diagnosis)
    members = stage_members(measures, _stage(measures, diagnosis))
    rows = np.asarray(members)
    largest_N = rows[active.advance_SN[rows].argmax(axis=0)]
    leader_N = active.leader_SN[largest_N, np.arange(measures.steps)]
    return leads_by_row(measures, leader_N) / measures.steps


def _stage(measures: Measures, diagnosis: Diagnosis) -> str:
    return (diagnosis.aim.stage if diagnosis.aim else diagnosis.top_stage) or measures.broad[0]


def ranks_on(measures: Measures, node: int) -> list[int]:
    """Return the positions of the ranks on a node."""
    return [place for place, where in enumerate(measures.window.ranks.node_rank) if where == node]


def node_ranks(measures: Measures, diagnosis: Diagnosis, node: int, *, dark: bool = False) -> Figure:
    """Return the node's ranks as tiles: time in the suspect stage, how often slowest there, ▲ on "
    "stragglers."""
    places = ranks_on(measures, node)
    title = RANKS.title_of(node)
    if not places:
        return empty_figure(f"no rank of node {node} is in this group", dark=dark, title=title)
    stage = _stage(measures, diagnosis)
    missing = missing_on(diagnosis, measures.window.ranks, node)
    tiles = _tiles(measures, diagnosis, places, missing, stage, dark)
    ranks = measures.window.ranks
    marked = stragglers(measures, diagnosis)
    inside = [ranks.rank[place] for place in places if ranks.rank[place] in marked]
    hidden = {"visible": False, "fixedrange": True}
    return figure(
        [_tile_map(tiles, dark), *_missing_tiles(tiles, missing, dark)],
        dark=dark,
        title=title,
        subtitle=(
            f"{host_names(measures, places)}; mean {_own_word(measures, stage)}{format.short_stage(stage)} "
            "time per step, share of steps in which the rank is slowest there"
        ),
        alt=(
            f"Node {node} holds {format.counted(len(places), 'rank')}; "
            + (f"rank {format.ranges(missing)} did not report; " if missing else "")
            + (f"stragglers: rank {format.ranges(inside)}." if inside else "no straggler.")
        ),
        height=30 + 84 * tiles.shape[0],
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
        xaxis=hidden,
        yaxis=hidden | {"autorange": "reversed"},
        # Where a narrow plot lacks room for all texts, those of missing ranks and stragglers stay.
        annotations=[
            *_missing_notes(tiles, missing, dark),
            *sorted(
                (
                    note(text, column, row, dark, font={"size": 12, "color": palette.readable_on(colour)})
                    for (row, column), text, colour in zip(
                        tiles.cells, tiles.texts, tiles.colours, strict=True
                    )
                ),
                key=lambda drawn: "▲" not in drawn["text"],
            ),
        ],
        uirevision=revision(diagnosis, "node", node),
    )


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The ranks of a node in a grid; lists hold one entry per rank.

    Attributes:
        empty: cells of the ranks that did not report, in their order.
        time: mean time in the stage, ns, own time where waits are known.
        full: the time of the scale's last colour.
    """

    cells: list[tuple[int, int]]
    empty: list[tuple[int, int]]
    time: list[float]
    full: float
    scale: list[list[Any]]
    texts: list[str]
    hovers: list[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        cells = [*self.cells, *self.empty]
        return max(row for row, _ in cells) + 1, max(column for _, column in cells) + 1

    @property
    def colours(self) -> list[str]:
        return [palette.at(self.scale, time / self.full) for time in self.time]


def _tiles(
    measures: Measures, diagnosis: Diagnosis, places: list[int], missing: list[int], stage: str, dark: bool
) -> _Tiles:
    whole_R, waited_NR = time_in(measures, stage).mean(axis=0), waits_in(measures, stage)
    # Ranks that wait in a stage for a slow rank take equally long; own time distinguishes them.
    time_R = whole_R if waited_NR is None else whole_R - waited_NR.mean(axis=0)
    total_R = to_numpy(measures.window.duration_SNR.sum(axis=0)).mean(axis=0)
    slowest_R = lead_shares(measures, diagnosis)
    marked = stragglers(measures, diagnosis)
    short = format.short_stage(stage)
    own = _own_word(measures, stage)
    texts, hovers = [], []
    for place in places:
        rank = measures.window.ranks.identity(place)
        mark = "▲ " if rank.rank in marked else ""
        texts.append(
            f"<b>{mark}rank {rank.rank}</b><br>{own}{format.duration(time_R[place])}"
            f"<br>slowest {format.percent(slowest_R[place])}"
        )
        hovers.append(
            f"<b>rank {rank.rank}</b> on {plain(rank.hostname)}, local {rank.local_rank}"
            + (f", role {plain(rank.role)}" if rank.role is not None else "")
            + f"<br>{plain(short)} {format.duration(whole_R[place])} per step"
            + (
                ""
                if waited_NR is None
                else f"<br>own {format.duration(time_R[place])}, "
                f"waiting {format.duration(whole_R[place] - time_R[place])}"
            )
            + f"<br>own step time {format.duration(total_R[place])}"
            + f"<br>slowest at {plain(short)} in {format.percent(slowest_R[place])} of the steps"
            + ("<br>▲ straggler" if mark else "")
        )
    there = [measures.window.ranks.rank[place] for place in places]
    every = sorted((*there, *missing))
    columns = min(_COLUMNS if len(every) > 4 * _FEW_COLUMNS else _FEW_COLUMNS, len(every))
    cell_of = {rank: divmod(index, columns) for index, rank in enumerate(every)}
    return _Tiles(
        cells=[cell_of[rank] for rank in there],
        empty=[cell_of[rank] for rank in missing],
        time=[float(time_R[place]) for place in places],
        # A typical rank has a middle colour, so that a healthy node does not look alarming.
        full=max(float(time_R.max()), 2 * float(np.median(time_R)), 1.0),
        scale=palette.scale(palette.stage_colours(measures.broad, dark)[stage], palette.theme(dark)),
        texts=texts,
        hovers=hovers,
    )


def _own_word(measures: Measures, stage: str) -> str:
    return "" if waits_in(measures, stage) is None else "own "


def _tile_map(tiles: _Tiles, dark: bool) -> Trace:
    unit = format.unit_for(tiles.full)
    z = np.full(tiles.shape, np.nan)
    hover = [[""] * tiles.shape[1] for _ in range(tiles.shape[0])]
    for (row, column), time, text in zip(tiles.cells, tiles.time, tiles.hovers, strict=True):
        z[row, column] = time / unit.ns
        hover[row][column] = text
    return {
        "type": "heatmap",
        "z": f4(z),
        "zmin": 0,
        "zmax": tiles.full / unit.ns,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "colorscale": tiles.scale,
        "showscale": False,
        "xgap": 4,
        "ygap": 4,
    }


def _missing_tiles(tiles: _Tiles, missing: list[int], dark: bool) -> list[Trace]:
    """Return hatched tiles for the ranks that did not report."""
    if not missing:
        return []
    return [
        hatched(
            dark,
            x=[column for _, column in tiles.empty],
            y=[0.92] * len(missing),
            base=[row - 0.46 for row, _ in tiles.empty],
            width=0.96,
            hovertext=missing_hovers(missing),
        )
    ]


def _missing_notes(tiles: _Tiles, missing: list[int], dark: bool) -> list[dict[str, Any]]:
    theme = palette.theme(dark)
    font = {"size": 12, "color": theme.alarm}
    return [
        note(f"<b>rank {rank}</b><br>missing", column, row, dark, font=font, bgcolor=theme.surface)
        for rank, (row, column) in zip(missing, tiles.empty, strict=True)
    ]


def host_names(measures: Measures, places: list[int]) -> str:
    """Return the host names of some ranks, as in the packet."""
    names = sorted({measures.window.ranks.hostname[place] for place in places})
    return format.listed([format.clip(name) for name in names], 3)


def node_sparklines(
    measures: Measures, diagnosis: Diagnosis, node: int, stage: str | None = None, *, dark: bool = False
) -> Figure:
    """Return each rank's time in one stage over the steps, one line per rank on one scale, in one trace; if
    waits are known, own time in a second trace."""
    places = ranks_on(measures, node)
    stage = stage or _stage(measures, diagnosis)
    title = SPARKLINES.title_of(node)
    if not places or not stage_members(measures, stage):
        return empty_figure(f"no rank of node {node} has a stage {stage}", dark=dark, title=title)
    value_NR = time_in(measures, stage)[:, places]
    largest = max(float(value_NR.max()), 1.0)
    ranks = measures.window.ranks
    marked = stragglers(measures, diagnosis)
    short = format.short_stage(stage)
    waited_NR = waits_in(measures, stage)
    lines = [_SparkLine(plain(short), value_NR.T.astype(np.float64), 0.25)]
    if waited_NR is not None:
        lines = [
            _SparkLine(f"{plain(short)} with waiting", value_NR.T.astype(np.float64), 0.12),
            _SparkLine(f"own {plain(short)}", (value_NR - waited_NR[:, places]).T, 0.5),
        ]
    return figure(
        [_sparklines(measures, stage, line, largest, dark) for line in lines],
        dark=dark,
        title=title,
        subtitle=(
            f"{short} per step; every row spans 0 to {format.duration(largest)}"
            + ("" if waited_NR is None else "; dark: own time, light: waiting")
        ),
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
            tickfont={"color": palette.theme(dark).ink, "size": 12},
        ),
        hovermode="closest",
        uirevision=revision(diagnosis, "node", node),
    )


@dataclass(frozen=True, slots=True)
class _SparkLine:
    """A quantity of all ranks: its name, ns [R, N], and the opacity of the area below it."""

    name: str
    value_RN: Floats
    opacity: float


def _sparklines(measures: Measures, stage: str, line: _SparkLine, largest: float, dark: bool) -> Trace:
    """Return the lines of all ranks, one below the other, each filled down to its own zero line."""
    value_RN = line.value_RN
    unit = format.unit_for(largest)
    ranks = len(value_RN)
    step_N = measures.step_N
    row_R1 = np.arange(ranks, dtype=np.float64)[:, None]
    gap_R1 = np.full((ranks, 1), np.nan)
    # Half a step on both sides closes each rank's area.
    ends = np.concatenate([[step_N[0] - 0.5], step_N - 0.5, [step_N[-1] + 0.5] * 2, [np.nan]])
    level_RN = 0.82 * value_RN / largest - row_R1
    y = np.hstack([-row_R1, level_RN, level_RN[:, -1:], -row_R1, gap_R1])
    shown_RN = np.hstack([gap_R1, value_RN, value_RN[:, -1:], gap_R1, gap_R1]) / unit.ns
    first, last = str(step_N[0]), str(step_N[-1])
    recorded = measures.window.stages[stage_members(measures, stage)[0]]
    shade = palette.stage_colours(measures.window.stages, dark)[recorded]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": f4(np.tile(ends, ranks)),
        "y": f4(y.ravel()),
        "customdata": f4(shown_RN.ravel()),
        "line": {"color": shade, "width": 1.5, "shape": "hv"},
        "fill": "toself",
        "fillcolor": palette.alpha(shade, line.opacity),
        "hoveron": "points",
        "hovertemplate": f"step %{{text}}<br>{line.name} %{{customdata:.2f}} {unit.name}<extra></extra>",
        "text": [first, *map(str, step_N.tolist()), last, last, ""] * ranks,
        "connectgaps": False,
        "name": "ranks",
    }
