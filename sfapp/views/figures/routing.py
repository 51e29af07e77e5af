"""Shares in order with their running sum, and where τC cuts the routing set (accounting.md §5)."""

from __future__ import annotations

from sfapp.model import Diagnosis
from sfapp.model.reasons import reason_sentence
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import active_shares
from sfapp.views.figures.base import Figure, axis, empty_figure, figure, plain, revision
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
    tabs=(Placement("overview", 30, 4, 340), Placement("ambiguity", 20, 5, 420)),
    report=40,
    notebook="routing",
    gates=("tau_c",),
)

_ROOM = 0.1
"""Bars of at least this share hold their number inside, clear of the running sum."""


def routing_pareto(diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """The shortest run of leading stages that reaches τC, filled; τC is the draggable shape ``tau_c``."""
    shares = active_shares(diagnosis)
    if not shares or diagnosis.routing_set is None:
        return empty_figure(below_floor(diagnosis), dark=dark, title=PLOT.title)
    colours = palette.theme(dark)
    order = sorted(shares, key=lambda stage: -shares[stage])  # sorted is stable: ties keep stage order
    short = format.short_stages(diagnosis.stages)
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    members = set(diagnosis.routing_set)
    running = 0.0
    reached = [running := running + shares[stage] for stage in order]
    bars = {
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
            "inside" if stage in members and shares[stage] >= _ROOM else "outside" for stage in order
        ],
        "insidetextanchor": "end",
        "textangle": 0,
        "cliponaxis": False,
        "outsidetextfont": {"color": colours.ink},
        "insidetextfont": {
            "color": [palette.readable_on(by_stage[stage]) for stage in order],
        },
        "customdata": order,
        "hovertext": [
            f"{plain(short[stage])}: {format.percent(shares[stage], 1)} of the exposed time"
            f"<br>{'in' if stage in members else 'not in'} the routing set"
            for stage in order
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": bars["x"],
        "y": reached,
        "line": {"color": colours.ink, "width": 1.5},
        "marker": {
            "size": 8,
            "color": [colours.ink if stage in members else colours.surface for stage in order],
            "line": {"color": colours.ink, "width": 1.5},
        },
        "hovertemplate": "together %{y:.1%}<extra></extra>",
    }
    named = format.listed([short[stage] for stage in diagnosis.routing_set], 6)
    return figure(
        [bars, line],
        dark=dark,
        title=PLOT.title,
        subtitle=f"smallest set of stages reaching τC: {named}",
        interaction="drag τC to ask for more or less",
        alt=(
            f"Shares of the exposed time, largest first: "
            f"{format.listed([f'{short[s]} {format.percent(shares[s])}' for s in order], 8)}. "
            f"The routing set at τC {format.share(diagnosis.gates.tau_c)} is {named}."
        ),
        height=340,
        bargap=0.25,
        margin={"l": 8, "r": 16, "t": 16, "b": 8},
        xaxis=axis(
            dark, showgrid=False, fixedrange=True, tickfont={"color": colours.ink, "size": 12},
            tickangle=0 if len(order) <= 7 else -40,
        ),
        yaxis=axis(
            dark, range=[0, 1.08], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1], fixedrange=True
        ),
        shapes=[threshold("tau_c", "y", diagnosis.gates.tau_c, "τC", dark, span=(0, 1))],
        hovermode="closest",
        draggable=True,
        uirevision=revision(diagnosis, diagnosis.frontier),
    )  # fmt: skip


def threshold(
    name: str,
    along: str,
    value: float,
    symbol: str,
    dark: bool,
    span: tuple[float, float],
) -> dict[str, object]:
    """A gate as a line that can be dragged; its label follows the drag by itself.

    Args:
        name: the gate's name, kept as the shape's ``name``.
        along: the axis the gate lives on: ``y`` gives a horizontal line, ``x`` a vertical one.
        span: start and end across, in paper fractions.
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
    """Why there are no shares, or no gains."""
    if diagnosis.shares is not None:
        return f"no gains: {reason_sentence('reduced_rows')}".removesuffix(".")
    return (
        f"no shares: the window exposes {format.duration(diagnosis.exposed_makespan_ns)} in total, "
        f"less than the denominator floor of {format.duration(diagnosis.gates.floor_ns)}; "
        "lower the floor or record a longer window"
    )
