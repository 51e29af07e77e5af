"""The frontier over the stage boundaries: where the step's time is first exposed (accounting.md §1, §10)."""

from __future__ import annotations

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, figure, note, plain, revision
from sfapp.views.figures.chosen import Chosen, Floats, chosen, main_leaders, mean_rise, step_index

_LABELLED = 8
"""Rises named in the plot; more are left to the hover."""


def frontier_steps(
    measures: Measures, diagnosis: Diagnosis, step: int | None = None, *, dark: bool = False
) -> Figure:
    """F over the stage boundaries as a staircase, with per-stage max and mean as ghosts.

    Args:
        step: a logical step number, None for the window's mean step.
    """
    index = step_index(measures, step)
    taken = chosen(measures, diagnosis)
    advance_S = mean_rise(taken.advance_SN, index)
    top_S = advance_S.cumsum()
    largest_S = mean_rise(measures.max_SN, index).cumsum()
    typical_S = mean_rise(measures.mean_SN, index).cumsum()
    unit = format.unit_for(float(max(top_S[-1], largest_S[-1])))
    colours = palette.theme(dark)
    traces = [
        _rises(measures, taken, index, advance_S, unit, dark),
        _staircase(largest_S / unit.ns, "per-stage max", colours.muted, "dot", 1.5, unit),
        _staircase(typical_S / unit.ns, "per-stage mean", colours.muted, "dash", 1.2, unit),
    ]
    if taken.carry:
        aligned_S = mean_rise(measures.advance_SN, index).cumsum()
        traces.append(
            _staircase(aligned_S / unit.ns, "step-aligned frontier", colours.accent, "dashdot", 1.5, unit)
        )
    traces.append(_staircase(top_S / unit.ns, taken.words, colours.ink, "solid", 2.5, unit))
    which = "mean step of the window" if index is None else f"step {step}"
    overcount = float(largest_S[-1] - top_S[-1])
    return figure(
        traces,
        dark=dark,
        title="Where the step's time is first exposed",
        subtitle=f"{taken.words}, {which}",
        alt=_in_words(measures, taken, index, advance_S, which, overcount),
        height=360,
        bargap=0,
        xaxis=_stage_axis(measures, dark),
        yaxis=axis(dark, ticksuffix=f" {unit.name}", rangemode="tozero", nticks=6),
        annotations=[
            *_rise_labels(measures, taken, index, advance_S, unit, dark),
            *_ghost_labels(top_S, largest_S, typical_S, unit, dark),
        ],
        hovermode="closest",
        uirevision=revision(diagnosis, diagnosis.frontier),
    )


def _rises(
    measures: Measures, taken: Chosen, index: int | None, advance_S: Floats, unit: format.Unit, dark: bool
) -> Trace:
    """One translucent block a stage, as tall as its advance, standing on the frontier before it."""
    window = measures.window
    by_stage = palette.stage_colours(window.stages, dark)
    shades = [by_stage[stage] for stage in window.stages]
    top_S = advance_S.cumsum()
    leaders = main_leaders(taken, index, measures.ranks)
    total = max(float(top_S[-1]), 1.0)
    largest_S = mean_rise(measures.max_SN, index)
    hover = []
    for place, stage in enumerate(window.stages):
        rank, part, steps = leaders[place]
        led = f"{plain(format.short_stage(stage))}: frontier +{format.duration(advance_S[place])}"
        who = window.ranks.identity(rank)
        led += f" ({format.percent(float(advance_S[place]) / total)})"
        led += f"<br>last to arrive: rank {who.rank} on {plain(who.hostname)}"
        if index is None:
            led += f"<br>in {format.count(steps)} of {format.counted(measures.steps, 'step')}"
            led += f", {format.percent(part)} of the rise"
        led += f"<br>frontier after it {format.duration(top_S[place])}"
        led += (
            f"<br>slowest rank's own {plain(format.short_stage(stage))} {format.duration(largest_S[place])}"
        )
        hover.append(led)
    return {
        "type": "bar",
        "x": [place + 0.5 for place in range(len(shades))],
        "y": (advance_S / unit.ns).tolist(),
        "base": ((top_S - advance_S) / unit.ns).tolist(),
        "width": [1.0] * len(shades),
        "marker": {
            "color": [palette.alpha(shade, 0.55 if dark else 0.5) for shade in shades],
            "line": {"color": shades, "width": 1},
        },
        "customdata": list(window.stages),
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "name": "advance",
    }


def _staircase(height_S: Floats, name: str, colour: str, dash: str, width: float, unit: format.Unit) -> Trace:
    values = [round(float(value), 4) for value in height_S]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [0, *range(len(values) + 1)],
        "y": [0.0, *values, values[-1]],
        "line": {"shape": "hv", "color": colour, "width": width, "dash": dash},
        "name": name,
        "hovertemplate": f"{name} %{{y:.1f}} {unit.name}<extra></extra>" if dash != "solid" else None,
        "hoverinfo": "skip" if dash == "solid" else "all",
    }


def _stage_axis(measures: Measures, dark: bool) -> dict[str, object]:
    stages = measures.window.stages
    short = format.short_stages(stages)
    return axis(
        dark,
        tickvals=[place + 0.5 for place in range(len(stages))],
        ticktext=[plain(short[stage], 28) for stage in stages],
        range=[-0.05, len(stages) + 0.05],
        showgrid=False,
        tickangle=0 if len(stages) <= 8 else -45,
        tickfont={"color": palette.theme(dark).ink, "size": 12 if len(stages) <= 8 else 10},
    )


def _rise_labels(
    measures: Measures, taken: Chosen, index: int | None, advance_S: Floats, unit: format.Unit, dark: bool
) -> list[dict[str, object]]:
    """The largest rises, named with their leader."""
    leaders = main_leaders(taken, index, measures.ranks)
    top_S = advance_S.cumsum()
    worth = sorted(range(len(advance_S)), key=lambda place: -advance_S[place])[:_LABELLED]
    least = 0.01 * float(top_S[-1])
    labels = []
    for place in sorted(worth):
        if advance_S[place] < least:
            continue
        rank, part, _ = leaders[place]
        who = f"rank {measures.window.ranks.rank[rank]} leads" if part >= 0.5 else "ranks take turns"
        if measures.ranks == 1:
            who = ""
        text = f"<b>{format.change(float(advance_S[place]))}</b>"
        if who and advance_S[place] >= 2 * least:
            text += f"<br>{who}"
        labels.append(
            note(
                text, place + 0.5, float(top_S[place]) / unit.ns, dark,
                yanchor="bottom", yshift=3, align="center", font={"size": 11 if len(advance_S) > 8 else 12},
            )
        )  # fmt: skip
    return labels


def _ghost_labels(
    top_S: Floats, largest_S: Floats, typical_S: Floats, unit: format.Unit, dark: bool
) -> list[dict[str, object]]:
    """What the ghosts end at: the overcount of maxima, the shortfall of means."""
    right = len(top_S)
    colours = palette.theme(dark)
    labels = []
    total = float(top_S[-1])
    if largest_S[-1] - total > 0.02 * total:
        text = (
            f"per-stage max {format.duration(largest_S[-1])}: "
            f"counts {format.duration(largest_S[-1] - total)} twice"
        )
        labels.append((text, largest_S[-1], "bottom"))
    if total - typical_S[-1] > 0.02 * total:
        text = (
            f"per-stage mean {format.duration(typical_S[-1])}: hides {format.duration(total - typical_S[-1])}"
        )
        labels.append((text, typical_S[-1], "top"))
    return [
        note(
            text, right, float(height) / unit.ns, dark,
            xanchor="right", yanchor=anchor, font={"size": 11, "color": colours.muted},
        )
        for text, height, anchor in labels
    ]  # fmt: skip


def _in_words(
    measures: Measures, taken: Chosen, index: int | None, advance_S: Floats, which: str, overcount: float
) -> str:
    place = int(advance_S.argmax())
    rank, part, _ = main_leaders(taken, index, measures.ranks)[place]
    who = f"rank {measures.window.ranks.rank[rank]}" if part >= 0.5 else "changing ranks"
    text = (
        f"The {taken.words} reaches {format.duration(advance_S.sum())} in the {which}; "
        f"the largest rise is {format.duration(advance_S[place])} in "
        f"{format.short_stage(measures.window.stages[place])}, set by {who}"
    )
    if overcount > 0.02 * float(advance_S.sum()):
        text += f"; adding up per-stage maxima would count {format.duration(overcount)} twice"
    return f"{text}."
