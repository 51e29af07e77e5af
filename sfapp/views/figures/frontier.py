"""Draw the frontier over the stage boundaries (accounting.md §1, §10)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import (
    ActiveFrontier,
    Floats,
    active_frontier,
    main_leaders,
    mean_rise,
    step_index,
)
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    figure,
    legend_above,
    name_axis,
    note,
    plain,
    revision,
)
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput
from sfapp.views.text.frontiers import frontier_difference

PLOT = PlotSpec(
    name="frontier_steps",
    title="Critical-path time by stage",
    help=(
        "The line shows when the slowest rank reaches each stage boundary. A rise is step time that is "
        "exposed for the first time, and it is charged to that stage. While one rank works and the others "
        "wait, the same seconds pass on every rank: they are charged once, not again to the ranks that wait. "
        "The dotted line adds up per-stage maxima and counts such seconds twice; the dashed line adds up "
        "means and hides slow ranks."
    ),
    source=WindowInput,
    build=lambda given, dark: frontier_steps(given.measures, given.diagnosis, given.view.step, dark=dark),
    reads=("frontier", "aim", "leaders", "step"),
    tabs=(Placement("overview", 10, 7, 400), Placement("frontier", 20, 6, 440)),
    report=10,
    notebook="frontier",
    shows_one_step=True,
)

_LABELLED = 8
"""Maximum number of rises labelled in the plot; hover texts cover all of them."""

_HEADROOM = 1.08
"""End of the axis relative to the highest line, with room for a label above it."""

_INSIDE, _INSIDE_WITH_WORDS = 0.12, 0.24
"""Parts of the axis from which a block has room for its rise, and also for its slowest rank."""

_LINE = 16
"""Height of a line of text in pixels."""

_WORTH_LABELLING = 0.02
"""Smallest difference that is mentioned, as a part of the step."""


@dataclass(frozen=True, eq=False)
class _Stairs:
    """One step, or the mean step, in ns from its start."""

    measures: Measures
    diagnosis: Diagnosis
    active: ActiveFrontier
    step: int | None
    index: int | None
    dark: bool

    @cached_property
    def rise_S(self) -> Floats:
        return mean_rise(self.active.advance_SN, self.index)

    @cached_property
    def top_S(self) -> Floats:
        return self.rise_S.cumsum()

    @cached_property
    def largest_S(self) -> Floats:
        """The running sum of per-stage maxima."""
        return mean_rise(self.measures.max_SN, self.index).cumsum()

    @cached_property
    def typical_S(self) -> Floats:
        """The running sum of per-stage means."""
        return mean_rise(self.measures.mean_SN, self.index).cumsum()

    @cached_property
    def aligned_S(self) -> Floats:
        """The step-aligned frontier."""
        return mean_rise(self.measures.advance_SN, self.index).cumsum()

    @cached_property
    def leaders(self) -> list[tuple[int, float, int]]:
        return main_leaders(self.active, self.index, len(self.measures.led_by))

    @cached_property
    def unit(self) -> format.Unit:
        return format.unit_for(float(max(self.top_S[-1], self.largest_S[-1])))

    @cached_property
    def total(self) -> float:
        return max(1.0, float(self.top_S[-1]))

    @property
    def stages(self) -> tuple[str, ...]:
        return self.measures.window.stages

    @property
    def which(self) -> str:
        return "mean step of the window" if self.index is None else f"step {self.step}"

    def slowest_words(self, place: int) -> str:
        """Return which rank sets a boundary, on two lines; empty if none is clearly the slowest."""
        if self.measures.ranks == 1:
            return ""
        steps = slice(None) if self.index is None else slice(self.index, self.index + 1)
        least_N = self.diagnosis.gates.eta_q * self.measures.makespan_N[steps]
        advance_N = self.active.advance_SN[place, steps]
        sure_N = self.active.gap_SN[place, steps] >= least_N
        if advance_N[sure_N].sum() < 0.5 * advance_N.sum():
            return "ranks<br>synchronise" if self.stages[place] in self.diagnosis.wait_stages else ""
        rank, part, _ = self.leaders[place]
        return (
            f"rank {self.measures.led_by.rank[rank]}<br>is slowest" if part >= 0.5 else "different<br>ranks"
        )


def frontier_steps(
    measures: Measures, diagnosis: Diagnosis, step: int | None = None, *, dark: bool = False
) -> Figure:
    """Return F over the stage boundaries as a staircase, with the sums of per-stage maxima and means for
    reference.

    With the carry-over frontier, the step-aligned one is a third reference; a note says by how much the two
    differ and why.

    Args:
        step: a logical step number, None for the window's mean step.
    """
    active = active_frontier(measures, diagnosis)
    stairs = _Stairs(measures, diagnosis, active, step, step_index(measures, step), dark)
    unit = stairs.unit
    apart = frontier_difference(diagnosis) if stairs.index is None else ""
    highest = max(stairs.total, float(stairs.largest_S[-1])) / unit.ns
    return figure(
        [_blocks(stairs), *_references(stairs), _main_line(stairs)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"{active.words}, {stairs.which}",
        alt=_in_words(stairs),
        notes=(apart,) if apart else (),
        height=360,
        bargap=0,
        margin={"l": 8, "r": 12, "t": 8, "b": 8},
        xaxis=_stage_axis(stairs),
        yaxis=axis(dark, ticksuffix=f" {unit.name}", range=[0, _HEADROOM * highest], nticks=6),
        annotations=_rise_labels(stairs),
        showlegend=True,
        legend=legend_above(
            font={"size": 12, "color": palette.theme(dark).muted}, itemclick=False, itemdoubleclick=False
        ),
        hovermode="closest",
        uirevision=revision(diagnosis, diagnosis.frontier),
    )


def _references(stairs: _Stairs) -> list[Trace]:
    """Return other sums of the same durations, each named after its error."""
    colours = palette.theme(stairs.dark)
    total, largest, typical = stairs.total, float(stairs.largest_S[-1]), float(stairs.typical_S[-1])
    least = _WORTH_LABELLING * total
    name = f"per-stage max {format.duration(largest)}"
    if largest - total > least:
        name += f": counts {format.duration(largest - total)} twice"
    references = [_staircase(stairs, stairs.largest_S, "per-stage max", name, colours.muted, "dot")]
    name = f"per-stage mean {format.duration(typical)}"
    if total - typical > least:
        name += f": hides {format.duration(total - typical)}"
    references.append(_staircase(stairs, stairs.typical_S, "per-stage mean", name, colours.muted, "dash"))
    if stairs.active.carry:
        # Rises are compared, because the staircases are apart after all stages that follow a difference.
        apart_S = mean_rise(stairs.measures.advance_SN, stairs.index) - stairs.rise_S
        place = int(apart_S.argmax())
        name = "step-aligned frontier"
        if apart_S[place] > least:
            stage = plain(format.short_stage(stairs.stages[place]))
            name += f": {format.change(float(apart_S[place]))} in {stage}"
        references.append(
            _staircase(stairs, stairs.aligned_S, "step-aligned frontier", name, colours.accent, "dashdot")
        )
    return references


def _main_line(stairs: _Stairs) -> Trace:
    """Return the frontier itself; the blocks below it carry the hover texts."""
    ink = palette.theme(stairs.dark).ink
    name = f"{stairs.active.words} {format.duration(stairs.total)}"
    trace = _staircase(stairs, stairs.top_S, "", name, ink, "solid")
    del trace["hovertemplate"]
    return trace | {"hoverinfo": "skip", "line": trace["line"] | {"width": 2.5}, "legendrank": 1}


def _blocks(stairs: _Stairs) -> Trace:
    """Return one translucent block per stage, as tall as its advance, on top of the frontier before it."""
    by_stage = palette.stage_colours(stairs.stages, stairs.dark)
    shades = [by_stage[stage] for stage in stairs.stages]
    return {
        "type": "bar",
        "x": [place + 0.5 for place in range(len(shades))],
        "y": (stairs.rise_S / stairs.unit.ns).tolist(),
        "base": ((stairs.top_S - stairs.rise_S) / stairs.unit.ns).tolist(),
        "width": [1.0] * len(shades),
        "marker": {
            "color": [palette.alpha(shade, 0.6 if stairs.dark else 0.5) for shade in shades],
            "line": {"color": shades, "width": 1},
        },
        "customdata": list(stairs.stages),
        "hovertext": [_hover(stairs, place) for place in range(len(shades))],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "name": "advance",
        "showlegend": False,
    }


def _hover(stairs: _Stairs, place: int) -> str:
    rank, part, steps = stairs.leaders[place]
    slowest = stairs.measures.led_by.identity(rank)
    stage = plain(format.short_stage(stairs.stages[place]))
    rise = float(stairs.rise_S[place])
    own = float(stairs.largest_S[place] - (stairs.largest_S[place - 1] if place else 0.0))
    text = f"<b>{stage}</b>: frontier +{format.duration(rise)} ({format.percent(rise / stairs.total)})"
    text += f"<br>slowest: rank {slowest.rank} on {plain(slowest.hostname)}"
    if stairs.index is None:
        text += f"<br>in {format.count(steps)} of {format.counted(stairs.measures.steps, 'step')}"
        text += f", {format.percent(part)} of the rise"
    text += f"<br>frontier after it {format.duration(stairs.top_S[place])}"
    return f"{text}<br>slowest rank's own time in {stage} {format.duration(own)}"


def _staircase(stairs: _Stairs, height_S: Floats, what: str, name: str, colour: str, dash: str) -> Trace:
    values = [round(float(value), 4) for value in height_S / stairs.unit.ns]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [0, *range(len(values) + 1)],
        "y": [0.0, *values, values[-1]],
        "line": {"shape": "hv", "color": colour, "width": 1.5, "dash": dash},
        "name": name,
        "hovertemplate": f"{what} %{{y:.1f}} {stairs.unit.name}<extra></extra>",
    }


def _stage_axis(stairs: _Stairs) -> dict[str, Any]:
    count = len(stairs.stages)
    short = format.short_stages(stairs.stages)
    return name_axis(
        stairs.dark,
        count,
        tickvals=[place + 0.5 for place in range(count)],
        ticktext=[plain(short[stage], 28) for stage in stairs.stages],
        range=[-0.05, count + 0.05],
    )


def _rise_labels(stairs: _Stairs) -> list[dict[str, Any]]:
    """Return the largest rises, then their slowest ranks, inside their block if it is tall enough.

    A rise has no box, which would hide the lines. The browser leaves out words that are wider than a stage.
    """
    count = len(stairs.stages)
    highest = max(stairs.total, float(stairs.largest_S[-1]))
    rises, slowest = [], []
    for place in sorted(sorted(range(count), key=lambda place: -stairs.rise_S[place])[:_LABELLED]):
        rise = float(stairs.rise_S[place])
        if rise < 0.01 * stairs.total:
            continue
        words = stairs.slowest_words(place) if rise >= _WORTH_LABELLING * stairs.total and count <= 12 else ""
        inside = rise / highest >= (_INSIDE_WITH_WORDS if words else _INSIDE)
        at = (place + 0.5, float(stairs.top_S[place]) / stairs.unit.ns, stairs.dark)
        style: dict[str, Any] = {"yanchor": "top" if inside else "bottom", "borderpad": 1}
        rises.append(note(f"<b>{format.change(rise)}</b>", *at, yshift=-4 if inside else 3, **style))
        if words:
            shift = -4 - _LINE if inside else 3 + _LINE
            slowest.append(note(words, *at, name="within", yshift=shift, **style))
    return [*rises, *slowest]


def _in_words(stairs: _Stairs) -> str:
    place = int(stairs.rise_S.argmax())
    rank, part, _ = stairs.leaders[place]
    slowest = f"rank {stairs.measures.led_by.rank[rank]}" if part >= 0.5 else "different ranks"
    text = (
        f"The {stairs.active.words} reaches {format.duration(stairs.total)} in the {stairs.which}; "
        f"the largest rise is {format.duration(stairs.rise_S[place])} in "
        f"{format.short_stage(stairs.stages[place])}, set by {slowest}"
    )
    twice = float(stairs.largest_S[-1]) - stairs.total
    if twice > _WORTH_LABELLING * stairs.total:
        text += f"; adding up per-stage maxima would count {format.duration(twice)} twice"
    return f"{text}."
