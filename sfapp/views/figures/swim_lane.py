"""Draw one step as a swim-lane: own time and waiting of each rank on one time axis (accounting.md §19)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfapp.accounting import Measures
from sfapp.accounting.swim_lane import Block, StageWait, SwimLane, SwimLanes, swim_lanes
from sfapp.model import Diagnosis, broad_stage
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    figure,
    legend_above,
    legend_key,
    note,
    plain,
    revision,
)
from sfapp.views.figures.swim_lane_words import LaneWords, sentence, subtitle
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="swim_lane",
    title="Work and waiting by rank",
    help=(
        "One row per rank, or for several ranks together; time runs to the right. Solid blocks are a rank's "
        "own time in a stage, hatched ones are time in which it waits for other ranks. Arrows lead from the "
        "rank that arrives last to those that it blocks. Each row begins where ranks synchronised in the "
        "step before, so that it also shows delays after that; a dotted mark is where the rank begins "
        "the step itself. The last row is the critical path of the run's healthy windows."
    ),
    source=WindowInput,
    build=lambda given, dark: swim_lane(
        given.measures, given.diagnosis, given.view.step, selected=given.view.ranks, dark=dark
    ),
    reads=("frontier", "aim", "verdict", "step", "ranks"),
    tabs=(Placement("overview", 5),),
    report=5,
    notebook="swim_lane",
    shows_one_step=True,
)

_ROW = 50
"""Height of one row in pixels: a bar, and one line of text between two bars."""

_THICK, _THIN = 0.62, 0.34

_NAMED, _MEASURED = 0.06, 0.20
"""Parts of the axis from which a block has its name, and also its duration."""


@dataclass(frozen=True, eq=False)
class _Drawing:
    """Input of the traces."""

    measures: Measures
    diagnosis: Diagnosis
    found: SwimLanes
    dark: bool

    @cached_property
    def words(self) -> LaneWords:
        return LaneWords(self.measures, self.found, self.diagnosis)

    @cached_property
    def short(self) -> dict[str, str]:
        """Short names by broad stage."""
        return format.short_stages(self.measures.broad)

    @cached_property
    def theme(self) -> palette.Theme:
        return palette.theme(self.dark)

    @cached_property
    def colour(self) -> dict[str, str]:
        """Colours by broad stage."""
        return palette.stage_colours(self.measures.broad, self.dark)

    @cached_property
    def ends_ns(self) -> tuple[float, float]:
        """The ends of the time axis."""
        blocks = [block for lane in self.found.lanes for block in lane.blocks]
        low = min((block.start_ns for block in blocks), default=0.0)
        high = max((block.end_ns for block in blocks), default=1.0)
        return low, max(high, self.found.end_ns)

    @cached_property
    def unit(self) -> format.Unit:
        return format.unit_for(max(abs(end) for end in self.ends_ns))

    def part(self, block: Block) -> float:
        """Return the part of the axis that a block takes."""
        low, high = self.ends_ns
        return block.duration_ns / max(1.0, high - low)

    def at(self, ns: float) -> float:
        """Return a position on the time axis."""
        return round(ns / self.unit.ns, 3)


def swim_lane(
    measures: Measures,
    diagnosis: Diagnosis,
    step: int | None = None,
    *,
    selected: Sequence[int] = (),
    dark: bool = False,
) -> Figure:
    """Return the lanes of one step, or of the mean step, with arrows from late ranks to those that wait.

    Args:
        step: a logical step number, None for the window's mean.
        selected: global ranks to show in rows of their own.
    """
    found = swim_lanes(measures, diagnosis, step, selected)
    drawing = _Drawing(measures, diagnosis, found, dark)
    rows = len(found.lanes)
    low, high = drawing.ends_ns
    room = 0.01 * max(1.0, high - low)
    drawn = figure(
        [*_stages(drawing), *_waiting(drawing), *_healthy(drawing), _step_marks(drawing)],
        dark=dark,
        title=PLOT.title,
        subtitle=subtitle(drawing.words),
        alt=sentence(drawing.words),
        notes=drawing.words.notes,
        height=_ROW * rows + 116,
        barmode="overlay",
        bargap=0,
        margin={"l": 8, "r": 12, "t": 40, "b": 8},
        xaxis=axis(
            dark,
            range=[drawing.at(low - room), drawing.at(high + room)],
            nticks=7,
            title=f"{drawing.unit.name} {drawing.words.axis_title}",
        ),
        yaxis=axis(
            dark,
            range=[rows - 0.5, -0.5],
            showgrid=False,
            fixedrange=True,
            tickvals=list(range(rows)),
            ticktext=[drawing.words.label(lane) for lane in found.lanes],
            tickfont={"color": drawing.theme.ink, "size": 12},
        ),
        # A text that does not fit its block at 12 pixels is left out; hover texts include it.
        uniformtext={"mode": "hide", "minsize": 12},
        annotations=[*_arrows(drawing), *_absent(drawing)],
        showlegend=True,
        legend=legend_above(itemdoubleclick=False),
        hovermode="closest",
        uirevision=revision(diagnosis, "swim_lane"),
    )
    drawn["layout"]["meta"]["lanes"] = True
    return drawn


def _bars(drawing: _Drawing, blocks: Sequence[tuple[int, SwimLane, Block]], name: str) -> Trace:
    """Return blocks as horizontal bars on their lanes, without colours."""
    texts = []
    for _, lane, block in blocks:
        part = drawing.part(block)
        text = plain(drawing.short[broad_stage(block.stage)], 28) if block.kind == "own" else "waits"
        if part >= _MEASURED and lane.kind != "healthy":
            text += f" {format.duration(block.duration_ns)}"
        texts.append(text if part >= _NAMED else "")
    return {
        "type": "bar",
        "orientation": "h",
        "y": [place for place, *_ in blocks],
        "x": [drawing.at(block.duration_ns) for *_, block in blocks],
        "base": [drawing.at(block.start_ns) for *_, block in blocks],
        "width": _THIN if blocks[0][1].kind == "healthy" else _THICK,
        "name": plain(name, 40),
        "text": texts,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "customdata": [lane.ranks[0] if lane.count == 1 else None for _, lane, _ in blocks],
        "hovertext": [drawing.words.hover(lane, block) for _, lane, block in blocks],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _blocks(drawing: _Drawing, kind: str) -> list[tuple[int, SwimLane, Block]]:
    """Return the blocks of one kind with their lanes, without those of the healthy windows."""
    return [
        (place, lane, block)
        for place, lane in enumerate(drawing.found.lanes)
        for block in lane.blocks
        if lane.kind != "healthy" and block.kind == kind
    ]


def _stages(drawing: _Drawing) -> list[Trace]:
    """Return own time, one trace per broad stage."""
    own: defaultdict[str, list[tuple[int, SwimLane, Block]]] = defaultdict(list)
    for each in _blocks(drawing, "own"):
        own[broad_stage(each[2].stage)].append(each)
    traces = []
    for stage, colour in drawing.colour.items():
        blocks = own.get(stage)
        if not blocks:
            continue
        edge = {"color": drawing.theme.surface, "width": 1}
        traces.append(
            _bars(drawing, blocks, drawing.short[stage])
            | {
                "marker": {"color": colour, "line": edge},
                "textfont": {"size": 12, "color": palette.readable_on(colour)},
            }
        )
    return traces


def _waiting(drawing: _Drawing) -> list[Trace]:
    """Return waiting, hatched in the colours of its stages."""
    blocks = _blocks(drawing, "waiting")
    if not blocks:
        return []
    shades = [drawing.colour[broad_stage(block.stage)] for *_, block in blocks]
    surface = drawing.theme.surface
    return [
        _bars(drawing, blocks, "waiting")
        | {
            "marker": {
                "color": [palette.mix(surface, shade, 0.12) for shade in shades],
                "line": {"color": shades, "width": 1},
                "pattern": {
                    "shape": "/",
                    "bgcolor": [palette.mix(surface, shade, 0.10) for shade in shades],
                    "fgcolor": [palette.mix(surface, shade, 0.5) for shade in shades],
                    "fillmode": "replace",
                    "size": 8,
                    "solidity": 0.25,
                },
            },
            "textfont": {"size": 12, "color": drawing.theme.ink},
        }
    ]


def _healthy(drawing: _Drawing) -> list[Trace]:
    """Return the healthy windows' row and its entry in the legend, which hides and shows it."""
    lanes = list(enumerate(drawing.found.lanes))
    blocks = [
        (place, lane, block) for place, lane in lanes if lane.kind == "healthy" for block in lane.blocks
    ]
    if not blocks:
        return []
    shades = [drawing.colour[block.stage] for *_, block in blocks]
    key = legend_key("healthy", drawing.theme.muted)
    key["marker"] |= {"symbol": "square-open", "line": {"color": drawing.theme.muted, "width": 1.5}}
    bars = _bars(drawing, blocks, "healthy") | {
        "marker": {"color": shades, "line": {"color": drawing.theme.muted, "width": 1.5}},
        "textfont": {"size": 12, "color": [palette.readable_on(shade) for shade in shades]},
        "showlegend": False,
        "legendgroup": "healthy",
    }
    return [bars, key | {"legendgroup": "healthy"}]


def _step_marks(drawing: _Drawing) -> Trace:
    """Return a dotted mark on each lane where its step begins."""
    x: list[float | None] = []
    y: list[float | None] = []
    for place, lane in enumerate(drawing.found.lanes):
        if lane.blocks and drawing.found.has_step_before:
            x += [drawing.at(lane.step_start_ns)] * 2 + [None]
            y += [place - 0.36, place + 0.36, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x or [None],
        "y": y or [None],
        "line": {"color": drawing.theme.ink, "width": 1.5, "dash": "dot"},
        "name": "step start",
        "showlegend": bool(x),
        "hoverinfo": "skip",
    }


def _arrows(drawing: _Drawing) -> list[dict[str, Any]]:
    """Return arrows from late ranks to the lanes that wait for them, with hover texts."""
    found, theme = drawing.found, drawing.theme
    notes = []
    for arrow in found.arrows:
        down = 1 if arrow.target > arrow.source else -1
        colour = theme.alarm if found.lanes[arrow.source].kind == "suspect" else theme.ink
        notes.append(
            note(
                "", drawing.at(arrow.end_ns), arrow.target - down * _THICK / 2, drawing.dark,
                showarrow=True, axref="x", ayref="y", ax=drawing.at(arrow.start_ns),
                ay=arrow.source + down * _THICK / 2,
                arrowhead=2, arrowsize=1, arrowwidth=2, arrowcolor=colour,
            )
        )  # fmt: skip
    if found.arrows and (sync := _synchronised(found.waits, found)) is not None:
        low, high = drawing.ends_ns
        is_right = sync.end_ns - low > 0.5 * (high - low)
        first = min(sync.source, sync.target)
        notes.append(
            note(
                "ranks synchronise", drawing.at(sync.end_ns), first + 0.5, drawing.dark,
                xanchor="right" if is_right else "left", xshift=-7 if is_right else 7,
                font={"size": 12, "color": theme.muted},
            )
        )  # fmt: skip
    return notes


def _synchronised(waits: Sequence[StageWait], found: SwimLanes) -> Any:
    """Return the arrow of the longest waiting between neighbouring rows; None if there is none."""
    adjacent = [arrow for arrow in found.arrows if abs(arrow.source - arrow.target) == 1]
    return max(adjacent, key=lambda arrow: arrow.waited_ns, default=None) if waits else None


def _absent(drawing: _Drawing) -> list[dict[str, Any]]:
    """Return the text in the rows of ranks that did not report."""
    low, _ = drawing.ends_ns
    return [
        note(
            "did not report", drawing.at(max(0.0, low)), place, drawing.dark, xanchor="left",
            font={"size": 12, "color": drawing.theme.alarm},
        )
        for place, lane in enumerate(drawing.found.lanes)
        if lane.kind == "missing"
    ]  # fmt: skip
