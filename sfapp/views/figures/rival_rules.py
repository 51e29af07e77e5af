"""The five rival rules beside the frontier, on the same matrix (accounting.md §5)."""

from __future__ import annotations

from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.base import (
    Figure,
    axis,
    empty_figure,
    figure,
    legend_above,
    legend_key,
    note,
    plain,
    revision,
)
from sfapp.views.figures.routing import below_floor
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="rules",
    title="Comparison with other rules",
    help=(
        "What simpler summaries of the same durations would name. A total above the step counts waiting "
        "twice; a total below it hides slow ranks."
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
"""What each rule is called in words."""


def rules(diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """One stacked bar a rule: shares, routed stages solid and the rest hatched, overcount at the end."""
    if diagnosis.shares is None:
        return empty_figure(below_floor(diagnosis), dark=dark, title="Rules")
    lines = rule_lines(diagnosis)
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    short = format.short_stages(diagnosis.stages)
    names = [RULE_NAMES[rule] for rule, *_ in lines]
    traces = []
    for stage in diagnosis.stages:
        shares = [values[stage] for _, values, _, _ in lines]
        routed = [stage in chosen for _, _, chosen, _ in lines]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": names,
                "x": shares,
                "name": plain(short[stage], 28),
                "marker": {
                    "color": by_stage[stage],
                    "line": {"color": colours.surface, "width": 1},
                    "pattern": {
                        "shape": ["" if inside else "/" for inside in routed],
                        "fillmode": "replace",
                        "fgcolor": [palette.alpha(by_stage[stage], 0.7)] * len(lines),
                        "bgcolor": [palette.alpha(by_stage[stage], 0.12)] * len(lines),
                        "size": 7,
                        "solidity": 0.35,
                    },
                },
                "text": [
                    f"<b>{format.percent(share)}</b>" if inside and share >= 0.06 else ""
                    for share, inside in zip(shares, routed, strict=True)
                ],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "textfont": {"color": palette.readable_on(by_stage[stage])},
                "constraintext": "inside",
                "hovertext": [
                    f"{name}<br>{plain(short[stage])} {format.percent(share, 1)}"
                    f"<br>{'in' if inside else 'not in'} its routing set"
                    for name, share, inside in zip(names, shares, routed, strict=True)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "customdata": [stage] * len(lines),
                "showlegend": False,
            }
        )
    traces += [legend_key(short[stage], by_stage[stage]) for stage in diagnosis.stages]
    return figure(
        traces,
        dark=dark,
        title=PLOT.title,
        subtitle="same matrix, same τC; solid: in the rule's routing set; right: its total against the step",
        alt=_in_words(diagnosis),
        height=90 + 38 * len(lines),
        barmode="stack",
        bargap=0.28,
        margin={"l": 8, "r": 170, "t": 34, "b": 8},
        xaxis=axis(dark, range=[0, 1], tickformat=".0%", fixedrange=True),
        yaxis=axis(
            dark, autorange="reversed", fixedrange=True, ticksuffix=" ",
            tickfont={"color": colours.ink, "size": 12},
        ),
        annotations=[
            note(
                _overcount(overcount), 1.0, name, dark,
                xref="paper", xanchor="left", xshift=8, font={"size": 11, "color": colours.muted},
            )
            for name, (_, _, _, overcount) in zip(names, lines, strict=True)
        ],
        showlegend=True,
        legend=legend_above(),
        hovermode="closest",
        uirevision=revision(diagnosis, "rules"),
    )  # fmt: skip


def rule_lines(diagnosis: Diagnosis) -> list[tuple[str, dict[str, float], tuple[str, ...], float]]:
    """Rule, shares, routing set, overcount: both frontiers first, then the rivals.

    The routing set of the frontier that the diagnosis is not stated in is derived at the same τC.
    """
    lines = [("frontier", diagnosis.shares or {}, _routed(diagnosis.shares or {}, diagnosis), 1.0)]
    if diagnosis.carry_over_shares:
        carried = diagnosis.carry_over_shares
        lines.append(("carry_over", carried, _routed(carried, diagnosis), 1.0))
    lines += [(rival.rule, rival.shares, rival.routing_set, rival.overcount) for rival in diagnosis.rivals]
    return lines


def _routed(shares: dict[str, float], diagnosis: Diagnosis) -> tuple[str, ...]:
    chosen: list[str] = []
    reached = 0.0
    for stage in sorted(shares, key=lambda stage: -shares[stage]):
        chosen.append(stage)
        reached += shares[stage]
        if reached >= diagnosis.gates.tau_c - 1e-12:
            break
    return tuple(chosen)


def _overcount(value: float) -> str:
    if abs(value - 1) < 0.005:
        return "adds up exactly"
    if value > 1:
        return f"{format.factor(value)}: counts {format.percent(value - 1)} twice"
    return f"{format.factor(value)}: leaves out {format.percent(1 - value)}"


def _in_words(diagnosis: Diagnosis) -> str:
    said = []
    for rule, shares, _, _ in rule_lines(diagnosis):
        top = max(shares, key=lambda stage: shares[stage])
        said.append(f"{RULE_NAMES[rule]} {format.short_stage(top)} {format.percent(shares[top])}")
    return f"Largest stage by rule: {format.listed(said, 8)}."
