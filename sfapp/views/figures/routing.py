"""Draw the routing set: shares in descending order, their running sum, and τC (accounting.md §5)."""

from __future__ import annotations

from itertools import accumulate

from sfapp.model import Diagnosis
from sfapp.model.reasons import reason_sentence
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import active_shares
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, figure, name_axis, plain, revision
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="routing_pareto",
    title="Routing set",
    help=(
        "Stages by their share of the exposed time. The filled stages together reach the threshold τC: the "
        "delay is very likely in one of them."
    ),
    source=WindowInput,
    build=lambda given, dark: routing_pareto(given.diagnosis, dark=dark),
    reads=("verdict",),
    tabs=(Placement("ambiguity", 20, 5, 420),),
    report=40,
    notebook="routing",
    gates=("tau_c",),
)

_INSIDE_FROM = 0.1
"""Share from which a bar shows its number inside, clear of the running sum."""


def routing_pareto(diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return the shares in descending order with their running sum; the routing set is filled.

    τC is the draggable shape ``tau_c``.
    """
    shares = active_shares(diagnosis)
    if not shares or diagnosis.routing_set is None:
        return empty_figure(below_floor(diagnosis), dark=dark, title=PLOT.title)
    order = sorted(shares, key=lambda stage: -shares[stage])  # sorted is stable: ties keep stage order
    short = format.short_stages(diagnosis.stages)
    named = format.listed([short[stage] for stage in diagnosis.routing_set], 6)
    largest = format.listed([f"{short[stage]} {format.percent(shares[stage])}" for stage in order], 8)
    return figure(
        [_share_bars(diagnosis, shares, order, dark), _running_sum(diagnosis, shares, order, dark)],
        dark=dark,
        title=PLOT.title,
        subtitle=f"smallest set of stages that reaches τC: {named}",
        interaction="drag τC to include more or fewer stages",
        alt=(
            f"Shares of the exposed time, largest first: {largest}. "
            f"The routing set at τC {format.share(diagnosis.gates.tau_c)} is {named}."
        ),
        height=340,
        bargap=0.25,
        margin={"l": 8, "r": 16, "t": 16, "b": 8},
        xaxis=name_axis(dark, len(order), fixedrange=True),
        yaxis=axis(
            dark, range=[0, 1.08], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1], fixedrange=True
        ),
        shapes=[threshold("tau_c", "y", diagnosis.gates.tau_c, "τC", dark, span=(0, 1))],
        hovermode="closest",
        draggable=True,
        uirevision=revision(diagnosis, diagnosis.frontier),
    )  # fmt: skip


def _share_bars(diagnosis: Diagnosis, shares: dict[str, float], order: list[str], dark: bool) -> Trace:
    """Return one bar per stage: filled in the routing set, hatched outside it."""
    members = set(diagnosis.routing_set or ())
    short = format.short_stages(diagnosis.stages)
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    return {
        "type": "bar",
        "x": [plain(short[stage], 28) for stage in order],
        "y": [shares[stage] for stage in order],
        "marker": {
            "color": [by_stage[stage] for stage in order],
            "line": {"color": [by_stage[stage] for stage in order], "width": 1.6},
            "pattern": {
                "shape": ["" if stage in members else "/" for stage in order],
                "fgcolor": [palette.alpha(by_stage[stage], 0.6) for stage in order],
                "bgcolor": [palette.alpha(by_stage[stage], 0.1) for stage in order],
                "fillmode": "replace",
                "size": 7,
                "solidity": 0.3,
            },
        },
        "text": [f"<b>{format.percent(shares[stage])}</b>" for stage in order],
        "textposition": [
            "inside" if stage in members and shares[stage] >= _INSIDE_FROM else "outside" for stage in order
        ],
        "insidetextanchor": "end",
        "constraintext": "none",
        "textangle": 0,
        "cliponaxis": False,
        "outsidetextfont": {"color": palette.theme(dark).ink},
        "insidetextfont": {"color": [palette.readable_on(by_stage[stage]) for stage in order]},
        "customdata": order,
        "hovertext": [
            f"{plain(short[stage])}: {format.percent(shares[stage], 1)} of the exposed time"
            f"<br>{'in' if stage in members else 'not in'} the routing set"
            for stage in order
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _running_sum(diagnosis: Diagnosis, shares: dict[str, float], order: list[str], dark: bool) -> Trace:
    members = set(diagnosis.routing_set or ())
    short = format.short_stages(diagnosis.stages)
    colours = palette.theme(dark)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [plain(short[stage], 28) for stage in order],
        "y": list(accumulate(shares[stage] for stage in order)),
        "line": {"color": colours.ink, "width": 1.5},
        "marker": {
            "size": 8,
            "color": [colours.ink if stage in members else colours.surface for stage in order],
            "line": {"color": colours.ink, "width": 1.5},
        },
        "hovertemplate": "running sum %{y:.1%}<extra></extra>",
    }


def threshold(
    name: str,
    along: str,
    value: float,
    symbol: str,
    dark: bool,
    span: tuple[float, float],
) -> dict[str, object]:
    """Return a gate as a draggable line with a label that follows it.

    Args:
        name: the gate's name, kept as the shape's ``name``.
        along: the axis of the gate: ``y`` gives a horizontal line, ``x`` a vertical one.
        span: start and end of the line, as fractions of the plot.
    """
    colours = palette.theme(dark)
    other = "x" if along == "y" else "y"
    return {
        "type": "line",
        "name": name,
        f"{other}ref": "paper",
        f"{other}0": span[0],
        f"{other}1": span[1],
        f"{along}0": value,
        f"{along}1": value,
        "line": {"color": colours.ink, "width": 2, "dash": "dash"},
        "label": {
            "texttemplate": f"<b>{symbol} %{{{along}0:.2f}}</b> {'⇕' if along == 'y' else '⇔'}",
            "textposition": "end",
            "textangle": 0,
            "xanchor": "right" if along == "y" else "left",
            "yanchor": "bottom" if along == "y" else "top",
            "padding": 4,
            "font": {"size": 12, "color": colours.ink},
        },
    }


def below_floor(diagnosis: Diagnosis) -> str:
    """Return why there are no shares or no gains."""
    if diagnosis.shares is not None:
        return f"no gains: {reason_sentence('reduced_rows')}".removesuffix(".")
    return (
        f"no shares: the window exposes {format.duration(diagnosis.exposed_makespan_ns)} in total, "
        f"less than the denominator floor of {format.duration(diagnosis.gates.floor_ns)}; "
        "lower the floor or record a longer window"
    )
