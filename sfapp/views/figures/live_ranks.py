"""Draw the ranks of a running job as tiles: how late each is or, if not known, its step time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfapp.accounting import StepTimes
from sfapp.model import RankIdentity
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, f4, figure, note, plain
from sfapp.views.figures.live import recent_rows
from sfapp.views.figures.live_lateness import live_lateness
from sfapp.views.plot_registry import LiveInput, Placement, PlotSpec
from sfapp.views.text.live import STALE_S

RANKS = PlotSpec(
    name="live_ranks",
    title="Live ranks",
    help=(
        "How far each rank is behind the median rank before ranks synchronise, mean over the last steps: the "
        "darker, the later. Ranks that do not report have a mark of their own. If only step times are "
        "known, blue ranks are faster than the median rank and vermilion ranks slower."
    ),
    source=LiveInput,
    build=lambda given, dark: _ranks(given, dark),
    reads=("history", "newest", "rolling"),
    tabs=(Placement("live", 10, 7),),
    report=None,
    notebook=None,
)

_NAMED_TILES = 64


def _ranks(given: LiveInput, dark: bool) -> Figure:
    if given.rolling is not None and given.rolling.delays is not None:
        return live_lateness(given.rolling, given.times.ranks, run=given.run, dark=dark)
    return live_ranks(given.times, given.silent_s, run=given.run, dark=dark)


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
    """Return the text of every tile; with many tiles, only a mark on those without data."""
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
"""Part of the median above which a rank has the full colour of the scale."""


def _tile_font(above: float, is_stale: bool, dark: bool) -> dict[str, Any]:
    colours = palette.theme(dark)
    if is_stale or not np.isfinite(above):
        return {"size": 12, "color": colours.alarm if is_stale else colours.muted}
    tile = palette.at(palette.diverging(colours), above / (2 * _FULL) + 0.5)
    return {"size": 12, "color": palette.readable_on(tile)}
