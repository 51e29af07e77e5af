"""Compare the frontier with simpler rules over the same durations (accounting.md §5)."""

from __future__ import annotations

from dataclasses import dataclass

from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    Trace,
    axis,
    empty_figure,
    figure,
    legend_above,
    legend_key,
    plain,
    revision,
)
from sfapp.views.figures.routing import below_floor
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="rules",
    title="Comparison with other rules",
    help=(
        "The stages that simpler summaries of the same durations would name. A total above the step counts "
        "waiting twice; a total below it hides slow ranks."
    ),
    source=WindowInput,
    build=lambda given, dark: rules(given.diagnosis, dark=dark),
    reads=("verdict",),
    tabs=(Placement("rules", 10),),
    report=None,
    notebook="rules",
)

RULE_NAMES = {
    "frontier": "frontier",
    "carry_over": "frontier, carry-over",
    "per_stage_max": "per-stage max",
    "per_stage_mean": "per-stage mean",
    "rank_spread": "rank spread",
    "slowest_rank": "slowest rank",
    "rank_0": "rank 0 alone",
}
"""The name of each rule on screen."""


def rules(diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return one stacked bar per rule, its overcount below its name: routed stages solid, others hatched."""
    if diagnosis.shares is None:
        return empty_figure(below_floor(diagnosis), dark=dark, title=PLOT.title)
    lines = rule_lines(diagnosis)
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    short = format.short_stages(diagnosis.stages)
    return figure(
        [
            *(_stage_bars(stage, lines, short[stage], by_stage[stage], dark) for stage in diagnosis.stages),
            *(legend_key(short[stage], by_stage[stage]) for stage in diagnosis.stages),
        ],
        dark=dark,
        title=PLOT.title,
        subtitle="same durations, same τC; solid: in the rule's routing set; below a name: total vs step",
        alt=_in_words(diagnosis),
        height=90 + 44 * len(lines),
        barmode="stack",
        bargap=0.28,
        uniformtext={"minsize": 12, "mode": "hide"},
        margin={"l": 8, "r": 12, "t": 34, "b": 8},
        xaxis=axis(dark, range=[0, 1], tickformat=".0%", fixedrange=True),
        yaxis=axis(
            dark, autorange="reversed", fixedrange=True, ticksuffix=" ",
            tickfont={"color": colours.ink, "size": 12},
            tickvals=[RULE_NAMES[line.rule] for line in lines],
            # Below the name, because next to the bars it would leave no room for them in a narrow plot.
            ticktext=[f"{RULE_NAMES[line.rule]}<br>{_overcount(line.overcount)}" for line in lines],
        ),
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=revision(diagnosis, "rules"),
    )  # fmt: skip


def _stage_bars(stage: str, lines: list[RuleLine], short: str, colour: str, dark: bool) -> Trace:
    """Return the segments of one stage in the bars of all rules."""
    shares = [line.shares[stage] for line in lines]
    is_routed = [stage in line.routing_set for line in lines]
    names = [RULE_NAMES[line.rule] for line in lines]
    return {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": shares,
        "name": plain(short, 28),
        "marker": {
            "color": colour,
            "line": {"color": palette.theme(dark).surface, "width": 1},
            "pattern": {
                "shape": ["" if routed else "/" for routed in is_routed],
                "fillmode": "replace",
                "fgcolor": [palette.alpha(colour, 0.7)] * len(lines),
                "bgcolor": [palette.alpha(colour, 0.12)] * len(lines),
                "size": 7,
                "solidity": 0.35,
            },
        },
        "text": [
            f"<b>{format.percent(share)}</b>" if routed and share >= 0.06 else ""
            for share, routed in zip(shares, is_routed, strict=True)
        ],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": palette.readable_on(colour)},
        "constraintext": "inside",
        "hovertext": [
            f"{name}<br>{plain(short)} {format.percent(share, 1)}"
            f"<br>{'in' if routed else 'not in'} its routing set"
            for name, share, routed in zip(names, shares, is_routed, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [stage] * len(lines),
        "showlegend": False,
    }


@dataclass(frozen=True, slots=True)
class RuleLine:
    """The shares that one rule assigns to stages; ``overcount`` is its total divided by the exposed time."""

    rule: str
    shares: dict[str, float]
    routing_set: tuple[str, ...]
    overcount: float


def rule_lines(diagnosis: Diagnosis) -> list[RuleLine]:
    """Return both frontiers, then the other rules.

    The routing set of the frontier that the diagnosis does not use is derived at the same τC.
    """
    shares = diagnosis.shares or {}
    lines = [RuleLine("frontier", shares, _routing_set(shares, diagnosis), 1.0)]
    if diagnosis.carry_over_shares:
        carried = diagnosis.carry_over_shares
        lines.append(RuleLine("carry_over", carried, _routing_set(carried, diagnosis), 1.0))
    lines += [
        RuleLine(rival.rule, rival.shares, rival.routing_set, rival.overcount) for rival in diagnosis.rivals
    ]
    return lines


def _routing_set(shares: dict[str, float], diagnosis: Diagnosis) -> tuple[str, ...]:
    members: list[str] = []
    reached = 0.0
    for stage in sorted(shares, key=lambda stage: -shares[stage]):
        members.append(stage)
        reached += shares[stage]
        if reached >= diagnosis.gates.tau_c - 1e-12:
            break
    return tuple(members)


def _overcount(value: float) -> str:
    if abs(value - 1) < 0.005:
        return "adds up exactly"
    if value > 1:
        return f"{format.factor(value)}: counts {format.percent(value - 1)} twice"
    return f"{format.factor(value)}: leaves out {format.percent(1 - value)}"


def _in_words(diagnosis: Diagnosis) -> str:
    parts = []
    for line in rule_lines(diagnosis):
        top = max(line.shares, key=lambda stage: line.shares[stage])
        parts.append(f"{RULE_NAMES[line.rule]} {format.short_stage(top)} {format.percent(line.shares[top])}")
    return f"Largest stage by rule: {format.listed(parts, 8)}."
