"""Draw a comparison: each side's step by stage, the change between sides, the spread of windows (§14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from sfapp.accounting import LETTERS, Account, Change, Comparison, Side
from sfapp.views import format, palette
from sfapp.views.figures import base
from sfapp.views.figures.base import Figure, Trace, axis, f4, figure, legend_above, legend_key, note, plain
from sfapp.views.plot_registry import ComparisonInput, Placement, PlotSpec
from sfapp.views.text.compare import headline, side_names

WATERFALL = PlotSpec(
    name="comparison_waterfall",
    title="Change by stage",
    help=(
        "Starts at A's step and adds what each stage adds (solid) or saves (hatched), ending exactly at B's "
        "step, because no second is counted twice. Look at the largest block."
    ),
    source=ComparisonInput,
    build=lambda given, dark: comparison_waterfall(given.comparison, dark=dark),
    reads=(),
    tabs=(Placement("compare", 10, 7, 330),),
    report=10,
    notebook=None,
)

BARS = PlotSpec(
    name="comparison_bars",
    title="Mean step of each side",
    help=(
        "Each bar is one side's mean step, split by stage. The stages that grow from one bar to the next "
        "make up the change."
    ),
    source=ComparisonInput,
    build=lambda given, dark: comparison_bars(given.comparison, dark=dark),
    reads=(),
    tabs=(Placement("compare", 20, 5, 330),),
    report=20,
    notebook=None,
)

SPREAD = PlotSpec(
    name="comparison_spread",
    title="Spread between windows",
    help=(
        "Each dot is one window. Where the dots of two sides overlap, their difference may be no more than "
        "the job's normal variation; triangles are windows that need attention."
    ),
    source=ComparisonInput,
    build=lambda given, dark: comparison_spread(given.comparison, dark=dark),
    reads=(),
    tabs=(Placement("compare", 30),),
    report=30,
    notebook=None,
    applies=lambda given: given.has_several_windows,
)

SMALL = 0.04
"""Stages whose change is below this part of the largest change are drawn as one block."""

TIMES_THE_CHANGE = 6
"""The axis does not start at 0 if the change is at least this many times smaller than the step."""

LANES = 5
"""Rows over which a side's windows are spread, so that dots of equal times do not overlap."""


def comparison_bars(found: Comparison, *, dark: bool = False) -> Figure:
    """Return one stacked bar per side: its mean step, split by stage."""
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(found.stages, dark)
    short = format.short_stages(found.stages)
    names = [plain(name, 40) for name in side_names(found)]
    steps = [float(found.account(side).step_ns) for side in found.sides]
    unit = format.unit_for(max(steps))
    return figure(
        [
            *(_stage_bars(found, stage, names, unit, dark) for stage in found.stages),
            *(legend_key(short[stage], by_stage[stage]) for stage in found.stages),
        ],
        dark=dark,
        title=BARS.title,
        subtitle=f"mean exposed time per step, {_frontier_words(found)}",
        alt=f"{_step_times_in_words(found)}.",
        height=96 + 54 * len(names),
        barmode="stack",
        bargap=0.3,
        uniformtext={"minsize": 12, "mode": "hide"},
        margin={"l": 8, "r": 74, "t": 34, "b": 8},
        xaxis=axis(dark, ticksuffix=f" {unit.name}", rangemode="tozero", nticks=6, fixedrange=True),
        yaxis=axis(
            dark, autorange="reversed", fixedrange=True, ticksuffix=" ",
            tickfont={"color": colours.ink, "size": 12},
        ),
        annotations=[
            note(f"<b>{format.duration(step)}</b>", step / unit.ns, name, dark, xanchor="left", xshift=4)
            for name, step in zip(names, steps, strict=True)
        ],
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=_revision(found, "bars"),
    )  # fmt: skip


def _stage_bars(found: Comparison, stage: str, names: list[str], unit: format.Unit, dark: bool) -> Trace:
    """Return the segments of one stage in the bars of all sides."""
    accounts = [found.account(side) for side in found.sides]
    longest = max(float(account.step_ns) for account in accounts)
    times = [float(account.per_step_ns[stage]) for account in accounts]
    colour = palette.stage_colours(found.stages, dark)[stage]
    short = plain(format.short_stages(found.stages)[stage])
    return {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": [time / unit.ns for time in times],
        "name": plain(format.short_stages(found.stages)[stage], 28),
        "marker": {"color": colour, "line": {"color": palette.theme(dark).surface, "width": 1}},
        "text": [f"<b>{format.duration(time)}</b>" if time >= 0.07 * longest else "" for time in times],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": palette.readable_on(colour)},
        "constraintext": "inside",
        "hovertext": [
            f"{name}<br>{short} {format.duration(time)} per step"
            for name, time in zip(names, times, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }


@dataclass(frozen=True, slots=True)
class _Block:
    """One block of the waterfall, from one level to another, ns: a side's whole step, or one change."""

    name: str
    colour: str
    label: str
    start: float
    end: float
    is_step: bool = False

    @property
    def top(self) -> float:
        return max(self.start, self.end)


def comparison_waterfall(found: Comparison, *, dark: bool = False) -> Figure:
    """Return the change from A's step to B's, and on to C's, stage by stage."""
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(found.stages, dark)
    unit = format.per_step_unit(max(found.account(side).step_ns for side in found.sides))
    blocks = _blocks(found, unit, by_stage, colours.rank)
    levels = [block.end for block in blocks]
    low, high = min(levels), max(levels)
    cut = low > TIMES_THE_CHANGE * (high - low)
    floor = max(0.0, low - 2 * max(high - low, 0.002 * high)) if cut else 0.0
    traces = [_block_bar(place, block, floor, unit) for place, block in enumerate(blocks)]
    ceiling = high + 0.14 * (high - floor)
    notes = ("The axis does not start at 0: the change is small compared with the step.",) if cut else ()
    return figure(
        traces,
        dark=dark,
        title=WATERFALL.title,
        subtitle=f"{unit.name} per step; solid: longer, hatched: shorter; the bars add up exactly",
        alt=f"{headline(found)}. {_step_times_in_words(found)}.",
        notes=notes,
        height=330,
        bargap=0.2,
        margin={"l": 8, "r": 12, "t": 16, "b": 8},
        xaxis=base.name_axis(
            dark, len(blocks), fixedrange=True, tickmode="array", tickvals=list(range(len(blocks))),
            ticktext=[
                f"<b>{plain(block.name, 28)}</b>" if block.is_step else plain(block.name, 28)
                for block in blocks
            ],
        ),
        yaxis=axis(
            dark, ticksuffix=f" {unit.name}", nticks=6, fixedrange=True,
            range=[floor / unit.ns, ceiling / unit.ns],
        ),
        shapes=[
            {
                "type": "line", "x0": place + 0.4, "x1": place + 0.6,
                "y0": block.end / unit.ns, "y1": block.end / unit.ns,
                "line": {"color": colours.muted, "width": 1},
            }
            for place, block in enumerate(blocks[:-1])
        ],
        annotations=[
            note(
                f"<b>{block.label}</b>" if block.is_step else block.label, place, block.top / unit.ns, dark,
                yanchor="bottom", yshift=2, font={"size": 12, "color": colours.ink},
            )
            for place, block in enumerate(blocks)
        ],
        hovermode="closest",
        uirevision=_revision(found, "waterfall"),
    )  # fmt: skip


def _blocks(found: Comparison, unit: format.Unit, by_stage: dict[str, str], neutral: str) -> list[_Block]:
    """Return A, the changes to B, B, and so on; small changes are merged into one block."""
    accounts = [found.account(side) for side in found.sides]
    steps = [
        _Block(letter, neutral, format.adding_up(account.per_step_ns, unit, signed=False)[1], 0.0,
               float(account.step_ns), is_step=True)
        for letter, account in zip(LETTERS, accounts, strict=False)
    ]  # fmt: skip
    changes = [Change(before, after) for before, after in pairwise(accounts)]
    shown = _large_stages(changes)
    blocks = [steps[0]]
    for change, step in zip(changes, steps[1:], strict=True):
        level = change.before.step_ns
        parts = _parts(change, shown, by_stage, neutral)
        texts, _ = format.adding_up({name: delta for name, _, delta in parts}, unit)
        for name, colour, delta in parts:
            blocks.append(_Block(name, colour, texts[name], float(level), float(level + delta)))
            level += delta
        blocks.append(step)
    return blocks


def _parts(
    change: Change, shown: Sequence[str], by_stage: dict[str, str], neutral: str
) -> list[tuple[str, str, Fraction]]:
    """Return name, colour and size of each part of a change: the shown stages, and the rest as one part."""
    deltas = change.delta_ns
    short = format.short_stages(list(deltas))
    parts = [(short[stage], by_stage[stage], deltas[stage]) for stage in shown]
    others = len(deltas) - len(shown)
    if others:
        rest = change.total_ns - sum((deltas[stage] for stage in shown), Fraction())
        parts.append((f"{others} others", neutral, rest))
    return parts


def _large_stages(changes: Sequence[Change]) -> list[str]:
    """Return the stages with a large change between any sides, in stage order; all if one is small."""
    deltas = [change.delta_ns for change in changes]
    sizes = {stage: max(abs(delta[stage]) for delta in deltas) for stage in deltas[0]}
    largest = max(sizes.values())
    large = [stage for stage, size in sizes.items() if size and size >= SMALL * largest]
    return large if len(sizes) - len(large) > 1 else list(sizes)


def _block_bar(place: int, block: _Block, floor: float, unit: format.Unit) -> Trace:
    low = max(floor, min(block.start, block.end))
    colour, shorter = block.colour, block.end < block.start
    return {
        "type": "bar",
        "x": [place],
        "y": [(block.top - low) / unit.ns],
        "base": [low / unit.ns],
        "marker": {
            "color": colour,
            "line": {"color": colour, "width": 1.5},
            "pattern": {
                "shape": "/" if shorter else "",
                "fillmode": "replace",
                "fgcolor": colour,
                "bgcolor": palette.alpha(colour, 0.12),
                "size": 8,
                "solidity": 0.3,
            },
        },
        "hovertext": f"{plain(block.name)}<br>{block.label} {unit.name} per step",
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }


def comparison_spread(found: Comparison, *, dark: bool = False) -> Figure:
    """Return the windows of each side as dots, with their median and the mean of all steps."""
    colours = palette.theme(dark)
    names = side_names(found)
    values = [_window_times(found, side) for side in found.sides]
    unit = format.unit_for(max(max(times) for times in values))
    traces: list[Trace] = []
    for row, (side, times) in enumerate(zip(found.sides, values, strict=True)):
        spread = side.spread(found.split_on)
        if spread is not None and len(times) > 1:
            traces.append(_line([spread.least, spread.most], [row, row], unit, colours.axis, 2))
            traces.append(_line([spread.median] * 2, [row - 0.32, row + 0.32], unit, colours.ink, 2))
        traces.append(_dots(side, times, row, unit, colours))
        traces.append(_mean(found.account(side), row, unit, colours))
    return figure(
        traces,
        dark=dark,
        title=SPREAD.title,
        subtitle="one dot per window: its mean step; vertical line: median; diamond: mean of all steps",
        alt=f"{_spreads_in_words(found)}.",
        height=110 + 74 * len(names),
        margin={"l": 8, "r": 16, "t": 12, "b": 8},
        xaxis=axis(dark, ticksuffix=f" {unit.name}", nticks=8, title="mean exposed step of a window"),
        yaxis=axis(
            dark, range=[len(names) - 0.45, -0.55], fixedrange=True, showgrid=False, ticksuffix=" ",
            tickvals=list(range(len(names))), ticktext=[plain(name, 40) for name in names],
            tickfont={"color": colours.ink, "size": 12},
        ),
        hovermode="closest",
        clickmode="event",
        uirevision=_revision(found, "spread"),
    )  # fmt: skip


def _window_times(found: Comparison, side: Side) -> list[float]:
    accounts = [window.on(found.split_on) for window in side.windows]
    return [float(account.step_ns) for account in accounts if account is not None]


def _line(x: list[float], y: list[float], unit: format.Unit, colour: str, width: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [value / unit.ns for value in x],
        "y": y,
        "line": {"color": colour, "width": width},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _dots(side: Side, times: list[float], row: int, unit: format.Unit, colours: palette.Theme) -> Trace:
    is_healthy = [not window.needs_attention for window in side.windows]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": f4([time / unit.ns for time in times]),
        "y": f4([row + 0.09 * (place % LANES - LANES // 2) for place in range(len(times))]),
        "marker": {
            "size": 9 if len(times) <= 120 else 5,
            "color": [
                palette.severity_colour(window.needs_attention, window.severity, colours)
                for window in side.windows
            ],
            "symbol": ["circle" if healthy else "triangle-up" for healthy in is_healthy],
            "line": {"color": colours.ink, "width": 1},
        },
        "customdata": [[side.run_id, window.window] for window in side.windows],
        "hovertemplate": f"{plain(side.run_id)}, window %{{customdata[1]}}<br>"
        f"%{{x:.4~g}} {unit.name} per step<extra></extra>",
        "showlegend": False,
    }


def _mean(account: Account, row: int, unit: format.Unit, colours: palette.Theme) -> Trace:
    mean = float(account.step_ns)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [mean / unit.ns],
        "y": [row + 0.36],
        "marker": {
            "symbol": "diamond",
            "size": 11,
            "color": colours.accent,
            "line": {"color": colours.ink, "width": 1},
        },
        "hovertext": f"mean of all {format.counted(account.steps, 'step')}: {format.duration(mean)}",
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }


def _frontier_words(found: Comparison) -> str:
    return "carry-over frontier" if found.split_on == "carry_over" else "step-aligned frontier"


def _step_times_in_words(found: Comparison) -> str:
    times = [
        f"{name} takes {format.duration(float(found.account(side).step_ns))} per step"
        for name, side in zip(side_names(found), found.sides, strict=True)
    ]
    return format.listed(times)


def _spreads_in_words(found: Comparison) -> str:
    parts = []
    for name, side in zip(side_names(found), found.sides, strict=True):
        spread = side.spread(found.split_on)
        if spread is not None:
            parts.append(
                f"{name}: {format.counted(len(side.windows), 'window')} from {format.duration(spread.least)} "
                f"to {format.duration(spread.most)}, median {format.duration(spread.median)}"
            )
    return "; ".join(parts)


def _revision(found: Comparison, plot: str) -> str:
    sides = [f"{side.run_id}/{'' if side.window is None else side.window}" for side in found.sides]
    return "/".join(["compare", plot, *sides])
