"""Draw share vs gain of each stage, with the range of the gain (accounting.md §4, §7)."""

from __future__ import annotations

from typing import Any

from sfapp.model import Diagnosis
from sfapp.views import format, palette
from sfapp.views.figures.active_frontier import active_shares
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, figure, note, plain, revision
from sfapp.views.figures.routing import below_floor, threshold
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

PLOT = PlotSpec(
    name="ambiguity_plane",
    title="Ambiguity plane",
    help=(
        "Further right: the stage holds more of the exposed time. Further up: clipping that stage alone "
        "shortens the step more. The bar extends to the gain if the waits caused by the stage vanish too; "
        "a long bar means that the result depends on waiting."
    ),
    source=WindowInput,
    build=lambda given, dark: ambiguity_plane(given.diagnosis, dark=dark),
    reads=("verdict",),
    tabs=(Placement("ambiguity", 10, 7, 420),),
    report=50,
    notebook="ambiguity",
    gates=("gamma_a", "gamma_g"),
)

_LETTER = 0.022
"""Approximate width of a letter of a stage's name, as a part of the plot's width."""


def ambiguity_plane(diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return A (or A') vs G with a bar from G to the excess X for each stage; γA and γG can be dragged.

    Shapes named ``gamma_a`` and ``gamma_g`` are the gates; the shaded bands are the tolerances ηA and ηG.
    """
    shares = active_shares(diagnosis)
    gains = diagnosis.static_gain
    if not shares or gains is None:
        return empty_figure(below_floor(diagnosis), dark=dark, title=PLOT.title)
    excess = _excess(diagnosis)
    gates = diagnosis.gates
    order = sorted(shares, key=lambda stage: -shares[stage])
    right = min(1.04, max(0.6, 1.18 * shares[order[0]], gates.gamma_a + 0.12))
    top = min(1.04, max(0.3, 1.18 * max(*gains.values(), *excess.values()), gates.gamma_g + 0.1))
    return figure(
        [
            _intervals(diagnosis, shares, gains, excess, dark),
            _points(diagnosis, order, shares, gains, excess, dark),
        ],
        dark=dark,
        title=PLOT.title,
        subtitle="bars span the static gain to the gain if waits vanish",
        interaction="drag γA and γG",
        alt=_in_words(diagnosis, order, shares, gains, excess),
        height=360,
        margin={"l": 8, "r": 16, "t": 12, "b": 8},
        xaxis=axis(
            dark, range=[-0.02, right], tickformat=".0%", title="share of the exposed time", zeroline=False
        ),
        yaxis=axis(dark, range=[-0.035 * top / 0.3, top], tickformat=".0%", title="gain"),
        shapes=[
            *_zones(diagnosis, shares, gains, right, top, dark),
            threshold("gamma_a", "x", gates.gamma_a, "γA", dark, span=(0, 1)),
            threshold("gamma_g", "y", gates.gamma_g, "γG", dark, span=(0, 1)),
        ],
        annotations=[
            # In a narrow plot, the first texts take precedence.
            *_names(diagnosis, order, shares, gains, right, top, dark),
            *_takeovers(diagnosis, order[0], shares, gains, dark),
            *_widest(shares, gains, excess, right, dark),
            *_zone_words(diagnosis, right, top, dark),
        ],
        hovermode="closest",
        draggable=True,
        uirevision=revision(diagnosis, diagnosis.frontier),
    )


def _excess(diagnosis: Diagnosis) -> dict[str, float]:
    carried = diagnosis.frontier == "carry_over" and diagnosis.carry_over_excess
    return (diagnosis.carry_over_excess if carried else diagnosis.excess) or {}


def gain_sets(diagnosis: Diagnosis) -> tuple[set[str], set[str]]:
    """Return C_A and C_G: stages tied in share with s1, and tied in gain (or taking over from s1)."""
    shares, gains, gates = active_shares(diagnosis) or {}, diagnosis.static_gain or {}, diagnosis.gates
    largest_share, largest_gain = max(shares.values()), max(gains.values())
    tied = {stage for stage, share in shares.items() if share >= largest_share - gates.eta_a}
    if largest_gain >= gates.gamma_g:
        return tied, {stage for stage, gain in gains.items() if gain >= largest_gain - gates.eta_g}
    takeover = diagnosis.takeover or {}
    top = diagnosis.top_stage
    return tied, {stage for stage, change in takeover.items() if stage != top and change >= gates.eta_a}


def _intervals(
    diagnosis: Diagnosis,
    shares: dict[str, float],
    gains: dict[str, float],
    excess: dict[str, float],
    dark: bool,
) -> Trace:
    """Return one line trace for all bars from G to X, with a cap at X."""
    x: list[float | None] = []
    y: list[float | None] = []
    cap = 0.008
    for stage, share in shares.items():
        low, high = gains[stage], excess.get(stage, gains[stage])
        x += [share, share, None, share - cap, share + cap, None]
        y += [low, high, None, high, high, None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": palette.theme(dark).muted, "width": 3},
        "hoverinfo": "skip",
        "name": "[G, X]",
    }


def _points(
    diagnosis: Diagnosis,
    order: list[str],
    shares: dict[str, float],
    gains: dict[str, float],
    excess: dict[str, float],
    dark: bool,
) -> Trace:
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    in_share, in_gain = gain_sets(diagnosis)
    outlined = in_share | in_gain
    takeover = diagnosis.takeover or {}
    hover = []
    for stage in order:
        text = f"<b>{plain(format.short_stage(stage))}</b><br>share {format.percent(shares[stage], 1)}"
        text += f"<br>static gain {format.percent(gains[stage], 1)}"
        text += f"<br>gain if waits vanish {format.percent(excess.get(stage), 1)}"
        text += f"<br>takes over {format.percent(takeover.get(stage), 1)} if the top stage is clipped"
        if stage in in_share:
            text += f"<br>within ηA of the largest share ({_c('A')})"
        if stage in in_gain:
            text += f"<br>within reach by gain or takeover ({_c('G')})"
        hover.append(text)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [shares[stage] for stage in order],
        "y": [gains[stage] for stage in order],
        "marker": {
            "size": 15,
            "color": [by_stage[stage] for stage in order],
            "symbol": ["diamond" if stage in in_gain - in_share else "circle" for stage in order],
            "line": {
                "color": [colours.ink if stage in outlined else colours.surface for stage in order],
                "width": [2.5 if stage in outlined else 1 for stage in order],
            },
        },
        "customdata": order,
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
        "name": "stages",
    }


def _c(index: str) -> str:
    return f"C<sub>{index}</sub>"


def _zones(
    diagnosis: Diagnosis,
    shares: dict[str, float],
    gains: dict[str, float],
    right: float,
    top: float,
    dark: bool,
) -> list[dict[str, Any]]:
    """Return the quarters and the tolerance bands below the largest share and gain."""
    colours = palette.theme(dark)
    gates = diagnosis.gates
    strength = 0.13 if dark else 0.09

    def rect(x0: float, x1: float, y0: float, y1: float, colour: str, opacity: float) -> dict[str, Any]:
        return {
            "type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "layer": "below",
            "line": {"width": 0}, "fillcolor": palette.alpha(colour, opacity),
        }  # fmt: skip

    largest_share, largest_gain = max(shares.values()), max(gains.values())
    zones = [
        rect(gates.gamma_a, max(right, 1.04), gates.gamma_g, max(top, 1.04), colours.good, strength),
        rect(gates.gamma_a, max(right, 1.04), -0.2, gates.gamma_g, colours.warn, strength),
        rect(largest_share - gates.eta_a, largest_share, -0.2, max(top, 1.04), colours.accent, 0.10),
    ]
    if largest_gain >= gates.gamma_g:
        zones.append(
            rect(-0.1, max(right, 1.04), largest_gain - gates.eta_g, largest_gain, colours.accent, 0.10)
        )
    return zones


def _zone_words(diagnosis: Diagnosis, right: float, top: float, dark: bool) -> list[dict[str, Any]]:
    colours = palette.theme(dark)
    small = {"size": 12}
    return [
        # The label is placed below the name of γA.
        note("direct exposure", right, top, dark, xanchor="right", yanchor="top", yshift=-16,
             font=small | {"color": colours.good}),
        note("waits or co-critical", right, -0.03 * top / 0.3, dark, xanchor="right", yanchor="bottom",
             font=small | {"color": colours.warn}),
        note("no stage stands out", 0, top, dark, xanchor="left", yanchor="top",
             font=small | {"color": colours.muted}),
    ]  # fmt: skip


def _names(
    diagnosis: Diagnosis,
    order: list[str],
    shares: dict[str, float],
    gains: dict[str, float],
    right: float,
    top: float,
    dark: bool,
) -> list[dict[str, Any]]:
    """Return stage names next to their points, raised where they would overlap."""
    occupied: list[tuple[float, float, float]] = []
    labels = []
    short = format.short_stages(diagnosis.stages)
    for stage in order:
        if shares[stage] < 0.01 and gains[stage] < 0.01:
            continue
        name = plain(short[stage], 24)
        reach = (_LETTER * len(name) + 0.03) * right
        x, y = shares[stage], gains[stage] / top
        for lift in range(8):
            sides = ("left", "right") if x + reach < right else ("right",)
            side = next((side for side in sides if _is_free(occupied, x, y + 0.05 * lift, side, reach)), None)
            if side:
                break
        else:
            continue
        start = x if side == "left" else x - reach
        occupied.append((start, start + reach, y + 0.05 * lift))
        aside, above = 10 if side == "left" else -10, 5 + lift * 16
        place: dict[str, Any] = {"xshift": aside, "yshift": above}
        if lift > 1:  # far from its point, so a line connects them
            place = {
                "showarrow": True, "ax": aside, "ay": -above, "arrowhead": 0, "arrowwidth": 1, "standoff": 8,
                "arrowcolor": palette.theme(dark).muted,
            }  # fmt: skip
        font = {"size": 12}
        labels.append(
            note(f"<b>{name}</b>", x, gains[stage], dark, xanchor=side, yanchor="bottom", font=font, **place)
        )
    return labels


def _is_free(occupied: list[tuple[float, float, float]], x: float, y: float, side: str, reach: float) -> bool:
    start = x if side == "left" else x - reach
    return start > -0.02 and all(
        start > high or start + reach < low or abs(y - level) > 0.045 for low, high, level in occupied
    )


def _takeovers(
    diagnosis: Diagnosis, top: str, shares: dict[str, float], gains: dict[str, float], dark: bool
) -> list[dict[str, Any]]:
    """Return arrows from s1 to the stages that would limit the step next."""
    colours = palette.theme(dark)
    arrows = []
    for stage, change in (diagnosis.takeover or {}).items():
        if stage == top or change < diagnosis.gates.eta_a:
            continue
        arrows.append(
            {
                "x": shares[stage], "y": gains[stage], "ax": shares[top], "ay": gains[top],
                "axref": "x", "ayref": "y", "showarrow": True, "arrowhead": 2, "arrowwidth": 1.5,
                "arrowcolor": colours.accent, "standoff": 10, "startstandoff": 10, "text": "",
                "hovertext": f"takes over {format.percent(change)} once the top stage is clipped",
            }
        )  # fmt: skip
    return arrows


def _widest(
    shares: dict[str, float], gains: dict[str, float], excess: dict[str, float], right: float, dark: bool
) -> list[dict[str, Any]]:
    """Return a label on the bar with the widest range."""
    stage = max(excess, key=lambda stage: excess[stage] - gains[stage])
    if excess[stage] - gains[stage] < 0.05:
        return []
    text = f"{format.percent(excess[stage])} if waits vanish"
    return [
        note(
            text, shares[stage], excess[stage], dark, xanchor="right", xshift=-9,
            font={"size": 12, "color": palette.theme(dark).muted},
            bgcolor=palette.alpha(palette.theme(dark).surface, 0.85),
        )
    ]  # fmt: skip


def _in_words(
    diagnosis: Diagnosis,
    order: list[str],
    shares: dict[str, float],
    gains: dict[str, float],
    excess: dict[str, float],
) -> str:
    top = order[0]
    return (
        f"{format.short_stage(top)} has the largest share, {format.percent(shares[top])} "
        f"(γA {format.share(diagnosis.gates.gamma_a)}), with a static gain of {format.percent(gains[top])} "
        f"(γG {format.share(diagnosis.gates.gamma_g)}) and {format.percent(excess.get(top))} if waits vanish."
    )
