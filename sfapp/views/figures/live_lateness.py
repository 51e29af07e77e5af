"""Draw how late each rank of a running job is, as a bounded number of tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sfapp.accounting import RankDelays, RollingVerdict
from sfapp.model import RankIdentity, RankTable
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, f4, figure, note, plain

MOST_TILES = 2048
"""Number of ranks above which a tile represents several: it shows the latest of them and the worst mark."""

NAMED_TILES = 32
"""Number of tiles up to which each has room for a text."""

FULL = 0.2
"""Part of the step by which a rank with the full colour is behind."""

_ROWS, _COLUMNS = 32, 64
_HOVER_STAGES = 3
_NAMES = 3

_DETAILED = 256
"""Number of ranks up to which the hover text of each shows its lateness in every stage."""

_ON_TIME = 0.01
"""Part of the step below which a rank among many has no numbers of its own."""

MARKS: Mapping[str, tuple[str, str]] = {
    "absent": ("never reported", "square-x-open"),
    "silent": ("silent", "x"),
    "apart": ("not comparable", "diamond-open"),
    "left": ("disconnected", "line-ew"),
}
"""Name and Plotly symbol of each mark, the worst first."""


@dataclass(frozen=True, slots=True)
class _RankTile:
    """One tile; ``part`` is how far its latest rank is behind, as a part of the step, NaN if not known."""

    row: int
    column: int
    label: str
    part: float
    mark: str
    hover: str


def live_lateness(found: RollingVerdict, ranks: RankTable, *, run: str = "", dark: bool = False) -> Figure:
    """Return every rank as a tile, dark if it is late; one row per node if there are few.

    Args:
        found: a verdict with delays.
        ranks: all ranks that have reported; ranks that never reported are added.
    """
    assert found.delays is not None
    known = _with_absent(ranks, found)
    tiles, ticks = _tiles(found, found.delays, known)
    rows = 1 + max(tile.row for tile in tiles)
    columns = 1 + max(tile.column for tile in tiles)
    height = int(min(560, max(260, 90 + (52 if len(tiles) <= NAMED_TILES else 16) * rows)))
    each = -(-len(known) // MOST_TILES)
    what = "one tile per rank" if each == 1 else f"one tile per {each} ranks, showing the latest of them"
    return figure(
        [_map(tiles, rows, columns, dark), *_marks(tiles, height / max(rows, 1), dark)],
        dark=dark,
        title="Live ranks",
        subtitle=f"time behind the median rank before ranks synchronise, last {found.steps} steps; {what}",
        alt=_in_words(found, known),
        height=height,
        xaxis=axis(dark, showgrid=False, visible=False, range=[-0.5, columns - 0.5], fixedrange=True),
        yaxis=axis(
            dark,
            showgrid=False,
            range=[rows - 0.5, -0.5],
            fixedrange=True,
            tickvals=list(ticks),
            ticktext=list(ticks.values()),
        ),
        showlegend=any(tile.mark for tile in tiles),
        legend={"orientation": "h", "x": 0, "y": -0.02, "yanchor": "top", "xanchor": "left"},
        annotations=_labels(tiles, dark) if len(tiles) <= NAMED_TILES else _names(found, tiles, known, dark),
        shapes=_frames(found, tiles, known, dark),
        uirevision=f"live/{run}",
    )


def _with_absent(ranks: RankTable, found: RollingVerdict) -> RankTable:
    """Return the table with the ranks that never reported, placed as if all nodes had the same number of
    ranks."""
    present = set(ranks.rank)
    absent = [rank for rank in found.roll.absent if rank not in present]
    if not absent:
        return ranks
    later = next((ranks.identity(place) for place in range(len(ranks)) if ranks.node_rank[place]), None)
    size = found.world_size if later is None else (later.rank - later.local_rank) // later.node_rank
    size = max(1, size)
    added = [RankIdentity(rank, rank % size, rank // size, "") for rank in absent]
    return RankTable.of([*(ranks.identity(place) for place in range(len(ranks))), *added])


def _tiles(
    found: RollingVerdict, delays: RankDelays, ranks: RankTable
) -> tuple[list[_RankTile], dict[int, str]]:
    """Return the tiles, and the labels of their rows by row."""
    step_ns = found.step_ns or 1.0
    place_of = {rank: place for place, rank in enumerate(delays.ranks.rank)}
    mark_of = _mark_of(found)
    short = list(format.short_stages(delays.stages).values())
    few = len(ranks) <= _DETAILED
    behind = delays.behind_R.tolist()

    def tile(row: int, column: int, members: Sequence[int]) -> _RankTile:
        if len(members) == 1 and not few:
            rank = ranks.rank[members[0]]
            place = place_of.get(rank)
            if place is not None and rank not in mark_of and behind[place] < _ON_TIME * step_ns:
                # A thousand ranks on time have no numbers, which would be sent every second.
                title = f"{_title(ranks, members)}<br>on time"
                return _RankTile(row, column, f"rank {rank}", behind[place] / step_ns, "", title)
        measured = [place_of[ranks.rank[each]] for each in members if ranks.rank[each] in place_of]
        latest = max(measured, key=lambda place: float(delays.behind_R[place]), default=None)
        marks = [mark_of[ranks.rank[each]] for each in members if ranks.rank[each] in mark_of]
        mark = min(marks, key=list(MARKS).index, default="")
        part = float("nan") if latest is None else float(delays.behind_R[latest]) / step_ns
        number = ranks.rank[members[0]] if latest is None or mark else delays.ranks.rank[latest]
        lines = [_title(ranks, members)]
        lines += [
            f"{count} {MARKS[name][0]}" if len(members) > 1 else MARKS[name][0]
            for name, count in Counter(marks).items()
        ]
        if latest is not None:
            lines += _hover(delays, latest, step_ns, short, few, len(members) > 1)
        return _RankTile(row, column, f"rank {number}", part, mark, "<br>".join(lines))

    if len(ranks) > MOST_TILES:
        each = -(-len(ranks) // MOST_TILES)
        groups = [range(first, min(first + each, len(ranks))) for first in range(0, len(ranks), each)]
        tiles = [tile(index // _COLUMNS, index % _COLUMNS, group) for index, group in enumerate(groups)]
        rows = range(0, 1 + tiles[-1].row, max(1, (1 + tiles[-1].row) // 8))
        return tiles, {row: f"rank {ranks.rank[row * _COLUMNS * each]}" for row in rows}
    return _by_node(ranks, tile)


def _by_node(ranks: RankTable, tile: Any) -> tuple[list[_RankTile], dict[int, str]]:
    """Arrange ranks by node: nodes below each other, in as many adjacent blocks as needed."""
    size = max(ranks.local_rank) + 1
    width = min(size, 32)
    high = -(-size // width)
    per_block = max(1, _ROWS // high)
    nodes = ranks.nodes
    place_of = {node: place for place, node in enumerate(nodes)}
    tiles = []
    for each in range(len(ranks)):
        block, within = divmod(place_of[ranks.node_rank[each]], per_block)
        row = within * high + ranks.local_rank[each] // width
        tiles.append(tile(row, block * (width + 1) + ranks.local_rank[each] % width, (each,)))
    shown = nodes[:per_block]
    every = 1 if len(shown) * high <= 16 else 4
    blocks = -(-len(nodes) // per_block)
    if blocks == 1:
        return tiles, {index * high: f"node {node}" for index, node in enumerate(shown) if index % every == 0}
    last = [min(index + (blocks - 1) * per_block, len(nodes) - 1) for index in range(len(shown))]
    return tiles, {
        index * high: f"nodes {node}…{nodes[last[index]]}"
        for index, node in enumerate(shown)
        if index % every == 0
    }


def _mark_of(found: RollingVerdict) -> dict[int, str]:
    roll = found.roll
    return (
        dict.fromkeys(roll.left, "left")
        | dict.fromkeys(roll.apart, "apart")
        | {rank: "silent" for rank, _ in roll.silent}
        | dict.fromkeys(roll.absent, "absent")
    )


def _title(ranks: RankTable, members: Sequence[int]) -> str:
    first = members[0]
    if len(members) == 1:
        host = f" on {_plain_host(ranks.hostname[first])}" if ranks.hostname[first] else ""
        return f"<b>rank {ranks.rank[first]}</b>{host}, local {ranks.local_rank[first]}"
    return f"<b>ranks {ranks.rank[first]}–{ranks.rank[members[-1]]}</b>"


@lru_cache(maxsize=16_384)
def _plain_host(hostname: str) -> str:
    return plain(hostname)


def _hover(
    delays: RankDelays, place: int, step_ns: float, short: Sequence[str], few: bool, of_many: bool
) -> list[str]:
    """Return lines on one rank: its distance from the median rank, and its lateness by stage."""
    behind = max(0.0, float(delays.behind_R[place]))
    subject = f"rank {delays.ranks.rank[place]} is " if of_many else ""
    lines = [f"{subject}{format.duration(behind)} behind ({format.percent(behind / step_ns)} of the step)"]
    late_B = delays.late_BR[:, place]
    if np.isnan(late_B).all():
        return lines
    order = range(len(short)) if few else np.argsort(-np.abs(late_B))[:_HOVER_STAGES]
    return [*lines, *(f"{plain(short[stage])} {format.change(float(late_B[stage]))}" for stage in order)]


def _map(tiles: Sequence[_RankTile], rows: int, columns: int, dark: bool) -> Trace:
    z = np.full((rows, columns), np.nan)
    hover = [[""] * columns for _ in range(rows)]
    for tile in tiles:
        z[tile.row, tile.column] = np.nan if tile.mark else max(0.0, tile.part)
        hover[tile.row][tile.column] = tile.hover
    colours = palette.theme(dark)
    return {
        "type": "heatmap",
        "z": f4(z),
        "zmin": 0,
        "zmax": FULL,
        "colorscale": palette.scale(colours.alarm, colours),
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "hoverongaps": False,
        "showscale": False,
        "xgap": 3 if len(tiles) <= NAMED_TILES else 1,
        "ygap": 3 if len(tiles) <= NAMED_TILES else 1,
    }


def _marks(tiles: Sequence[_RankTile], row_height: float, dark: bool) -> list[Trace]:
    """Return a trace for each kind of mark on tiles that have one."""
    colours = palette.theme(dark)
    found = []
    for name, (title, symbol) in MARKS.items():
        marked = [tile for tile in tiles if tile.mark == name]
        if marked:
            colour = colours.muted if name == "left" else colours.alarm
            found.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [tile.column for tile in marked],
                    "y": [tile.row - (0.22 if len(tiles) <= NAMED_TILES else 0) for tile in marked],
                    "name": title,
                    "marker": {
                        "symbol": symbol,
                        "size": max(7, min(14, 0.5 * row_height)),
                        "color": colour,
                        "line": {"color": colour, "width": 2},
                    },
                    "text": [tile.hover for tile in marked],
                    "hovertemplate": "%{text}<extra></extra>",
                }
            )
    return found


def _labels(tiles: Sequence[_RankTile], dark: bool) -> list[dict[str, Any]]:
    """Return the text of every tile: its rank, and how late it is."""
    colours = palette.theme(dark)
    scale = palette.scale(colours.alarm, colours)
    found = []
    for tile in tiles:
        if tile.mark:
            colour = colours.muted if tile.mark == "left" else colours.alarm
            found.append(
                note(tile.label, tile.column, tile.row, dark, yshift=-10, font={"size": 12, "color": colour})
            )
            continue
        late = lateness_words(tile.part)
        colour = palette.readable_on(palette.at(scale, max(0.0, tile.part) / FULL))
        text = f"{tile.label}<br>{late}"
        found.append(note(text, tile.column, tile.row, dark, font={"size": 12, "color": colour}))
    return found


def lateness_words(part: float) -> str:
    """Return how late a rank is, as a part of the step."""
    return f"+{format.percent(part)}" if part >= 0.005 else "on time"


def _names(
    found: RollingVerdict, tiles: Sequence[_RankTile], ranks: RankTable, dark: bool
) -> list[dict[str, Any]]:
    """Return the names of the first ranks of the verdict, above or below their small tiles."""
    last = max(tile.row for tile in tiles)
    return [
        note(
            f"rank {rank}",
            tiles[place].column,
            tiles[place].row,
            dark,
            yshift=-16 if tiles[place].row < last else 16,
            bgcolor=palette.alpha(palette.theme(dark).surface, 0.85),
        )
        for rank, place in _named_places(found, ranks)[:_NAMES]
    ]


def _named_places(found: RollingVerdict, ranks: RankTable) -> list[tuple[int, int]]:
    """Return the ranks of the verdict, the latest first, each with the position of its tile."""
    if found.finding is None:
        return []
    each = 1 if len(ranks) <= MOST_TILES else -(-len(ranks) // MOST_TILES)
    place_of = {rank: place for place, rank in enumerate(ranks.rank)}
    return [(rank, place_of[rank] // each) for rank in found.finding.ranks if rank in place_of]


def _frames(
    found: RollingVerdict, tiles: Sequence[_RankTile], ranks: RankTable, dark: bool
) -> list[dict[str, Any]]:
    """Return a frame around the tiles of the ranks that the verdict names."""
    if found.finding is None or len(found.finding.ranks) > NAMED_TILES:
        return []
    places = sorted({place for _, place in _named_places(found, ranks)})
    return [
        {
            "type": "rect",
            "x0": tiles[place].column - 0.5,
            "x1": tiles[place].column + 0.5,
            "y0": tiles[place].row - 0.5,
            "y1": tiles[place].row + 0.5,
            "line": {"color": palette.theme(dark).ink, "width": 2},
            "name": "named",
        }
        for place in places
    ]


def _in_words(found: RollingVerdict, ranks: RankTable) -> str:
    assert found.delays is not None
    latest = int(np.argmax(found.delays.behind_R))
    behind = format.duration(max(0.0, float(found.delays.behind_R[latest])))
    text = (
        f"{format.counted(len(ranks), 'rank')} on {format.counted(len(ranks.nodes), 'node')}; "
        f"rank {found.delays.ranks.rank[latest]} is furthest behind the median rank, by {behind}"
    )
    marks = Counter(_mark_of(found).values())
    marked = [f"{count} {MARKS[name][0]}" for name, count in marks.items()]
    return f"{text}; {', '.join(marked)}." if marked else f"{text}; all ranks report."
