"""Draw ranks by two coordinates of the parallel layout; the pattern is the diagnosis (accounting.md §20)."""

from __future__ import annotations

import numpy as np

from sfapp.accounting import Measures, layout_table
from sfapp.model import Diagnosis
from sfapp.model.parallel_layout import LayoutTable
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import too_few_rows
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    colour_key,
    empty_figure,
    f4,
    figure,
    plain,
    revision,
)
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput
from sfapp.views.text.parallel_layout import pattern_sentences

PLOT = PlotSpec(
    name="parallel_layout",
    title="Parallel layout",
    help=(
        "One cell per place in the parallel layout: by how much the own time of its slowest rank exceeds the "
        "median rank's. One dark cell is a worker, the cells of one host are that host, a dark column at the "
        "last pipeline stage is an uneven partitioning, a whole dark row of one data-parallel replica is its "
        "data."
    ),
    source=WindowInput,
    build=lambda given, dark: parallel_layout(given.measures, given.diagnosis, given.view.axes, dark=dark),
    reads=("frontier", "verdict", "axes"),
    tabs=(Placement("ranks", 28),),
    report=65,
    notebook="parallel_layout",
    applies=lambda given: bool(given.measures.window.layout),
)

_LEAST_SCALE = 0.05
"""Least slowdown at the end of the colour scale: smaller differences stay pale."""

_CELLS_WITH_TEXT = 128

_TICKS = 32


def parallel_layout(
    measures: Measures,
    diagnosis: Diagnosis,
    axes: tuple[str, str] | None = None,
    *,
    dark: bool = False,
) -> Figure:
    """Return one cell per pair of coordinates, coloured by the slowdown of its slowest rank.

    Args:
        axes: dimensions of rows and columns; DP × PP if None, or what the layout has instead.
    """
    if not measures.window.layout:
        return empty_figure(
            "The packet has no coordinates of a parallel layout. Pass layout= to the recorder.",
            dark=dark,
            title=PLOT.title,
        )
    if not measures.has_all_rows:
        return empty_figure(too_few_rows(measures), dark=dark, title=PLOT.title)
    table = layout_table(measures, diagnosis, axes)
    if table is None:
        return empty_figure(
            "Own time is not known: the window has one rank or too few steps, or ranks wait in every stage.",
            dark=dark,
            title=PLOT.title,
        )
    down, across = table.dimensions
    if not table.slowdown:
        return empty_figure(
            f"{format.counted(len(table.rows), f'{down} row')} by "
            f"{format.counted(len(table.columns), f'{across} column')} are too many places to draw.",
            dark=dark,
            title=PLOT.title,
        )
    sentences = pattern_sentences(table.pattern, measures.window.layout)
    return figure(
        [_heat(measures, table, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"{down} by {across}: own time per step vs the median rank, slowest rank of each cell",
        alt=" ".join((*sentences, _in_words(table))),
        notes=(*sentences, *_hidden_note(table)),
        height=min(720, max(240, 110 + 24 * len(table.rows))) if len(table.rows) <= _TICKS else 520,
        margin={"l": 8, "r": 8, "t": 12, "b": 8},
        xaxis=_axis(across, len(table.columns), dark),
        yaxis=_axis(down, len(table.rows), dark) | {"autorange": "reversed"},
        hovermode="closest",
        uirevision=revision(diagnosis, "parallel_layout", down, across),
    )


def _heat(measures: Measures, table: LayoutTable, dark: bool) -> Trace:
    colours = palette.theme(dark)
    down, across = table.dimensions
    known = [abs(value) for row in table.slowdown for value in row if value is not None]
    reach = 100 * max(_LEAST_SCALE, *known)
    percent_RC = 100 * np.array(table.slowdown, dtype=np.float64)  # NaN for a cell without ranks
    cells = len(table.rows) * len(table.columns)
    heat: Trace = {
        "type": "heatmap",
        "z": f4(percent_RC),
        "x": [f"{across} {column}" for column in table.columns],
        "y": [f"{down} {row}" for row in table.rows],
        "colorscale": palette.diverging(colours),
        "zmin": -reach,
        "zmax": reach,
        "xgap": 1 if len(table.columns) <= 64 else 0,
        "ygap": 1 if len(table.rows) <= 64 else 0,
        "colorbar": colour_key(dark, "%"),
        "hoverongaps": False,
        "hovertext": [
            [_hover(measures, table, row, column) for column in range(len(table.columns))]
            for row in range(len(table.rows))
        ],
        "hovertemplate": "%{y}, %{x}: %{z:+.1f} %<br>%{hovertext}<extra></extra>",
    }
    if cells <= _CELLS_WITH_TEXT:
        heat |= {
            "text": [["" if each is None else format.percent_change(each) for each in row]
                     for row in table.slowdown],
            "texttemplate": "%{text}",
            "textfont": {"size": 12},
        }  # fmt: skip
    return heat


def _hover(measures: Measures, table: LayoutTable, row: int, column: int) -> str:
    rank = table.rank[row][column]
    if rank is None:
        return ""
    ranks = measures.window.ranks
    place = ranks.place(rank)
    assert place is not None  # the table is of these ranks
    own, late = table.own_ns[row][column], table.late_ns[row][column]
    host = plain(ranks.hostname[place], 40)
    return f"slowest: rank {rank} on {host}<br>own time {format.duration(own)}, {format.change(late)} late"


def _axis(name: str, size: int, dark: bool) -> dict[str, object]:
    """Return an axis of coordinates, which names all of them, or some if there are many."""
    places = list(range(0, size, max(1, -(-size // _TICKS))))
    return axis(
        dark, type="category", showgrid=False, tickvals=places, title=name,
        tickfont={"color": palette.theme(dark).ink, "size": 12},
    )  # fmt: skip


def _hidden_note(table: LayoutTable) -> tuple[str, ...]:
    if not table.hidden:
        return ()
    hidden = format.listed([format.short_stage(stage) for stage in table.hidden])
    return (f"Without {hidden}: ranks wait there for each other, and the packet holds no waits.",)


def _in_words(table: LayoutTable) -> str:
    value, rank = max(
        (value, rank)
        for values, ranks in zip(table.slowdown, table.rank, strict=True)
        for value, rank in zip(values, ranks, strict=True)
        if value is not None and rank is not None
    )
    down, across = table.dimensions
    return (
        f"{format.counted(len(table.rows), f'{down} row')} by "
        f"{format.counted(len(table.columns), f'{across} column')}; rank {rank} has the most own time, "
        f"{format.percent_change(value)} vs the median rank."
    )
