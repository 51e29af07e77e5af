"""Draw how the verdict depends on its gates: over (γA, γG), and over τC (accounting.md §5, §7)."""

from __future__ import annotations

from collections.abc import Sequence

from sfapp.accounting import Measures, Region, StageVerdict, routing_intervals, verdict_map
from sfapp.model import Diagnosis
from sfapp.model.labels import label_words
from sfapp.model.reasons import reason_words
from sfapp.views import format, palette
from sfapp.views.figures.base import Figure, Trace, axis, empty_figure, figure, note, plain, revision
from sfapp.views.figures.routing import below_floor, threshold
from sfapp.views.plot_registry import Placement, PlotSpec, WindowInput

MAP = PlotSpec(
    name="verdict_regions",
    title="Verdict map",
    help=(
        "Each field is one verdict: moving γA or γG within it changes nothing, crossing an edge changes the "
        "labels. The further the dot is from an edge, the less the verdict depends on these two gates."
    ),
    source=WindowInput,
    build=lambda given, dark: verdict_regions(given.measures, given.diagnosis, dark=dark),
    reads=("verdict",),
    tabs=(Placement("ambiguity", 30, 7),),
    report=None,
    notebook="verdict_map",
    gates=("gamma_a", "gamma_g"),
)

STEPS = PlotSpec(
    name="routing_over_tau",
    title="Routing set over τC",
    help=(
        "A bar begins where the stages before it no longer add up to τC. The further the line is from the "
        "next edge, the less the choice of τC matters."
    ),
    source=WindowInput,
    build=lambda given, dark: routing_over_tau(given.diagnosis, dark=dark),
    reads=("verdict",),
    tabs=(Placement("ambiguity", 40, 5),),
    report=None,
    notebook="routing_over_tau",
    gates=("tau_c",),
)

_ABOVE_ZERO = [0.2, 0.4, 0.6, 0.8, 1.0]
"""Ticks of the upright axis: the corner has that of the other one, and a label needs the room next to it."""

_THIN = 0.12
"""Height below which a region has no room for its label, which is then placed next to it on a leader line."""

_CLEARANCE = 0.15
"""Minimum horizontal distance between labels on leader lines."""

_EDGE = 0.3
"""Distance from an end of the axis within which a label on a leader line leads away from it."""


def verdict_regions(measures: Measures, diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return the labels and the stages that they name for every γA and γG; both gates are draggable."""
    found = verdict_map(measures, diagnosis)
    if found is None:
        return empty_figure(below_floor(diagnosis), dark=dark, title=MAP.title)
    gates = diagnosis.gates
    here = found.at(gates.gamma_a, gates.gamma_g)
    regions = found.regions
    listed = [f"{_where(region)}: {_in_words(region.verdict, diagnosis)}" for region in regions]
    return figure(
        [_filled(region, diagnosis, dark) for region in regions],
        dark=dark,
        title=MAP.title,
        subtitle="the verdict for every γA and γG; the dot marks the current gates",
        interaction="drag either line",
        alt=f"Now: {_in_words(here, diagnosis)}. {'; '.join(listed)}.",
        height=420,
        margin={"l": 8, "r": 16, "t": 12, "b": 8},
        xaxis=axis(
            dark, range=[0, 1], tickformat=".0%", title="γA, the share to exceed", fixedrange=True,
            showgrid=False,
        ),
        yaxis=axis(
            dark, range=[0, 1], tickformat=".0%", title="γG, the gain to reach", fixedrange=True,
            showgrid=False, tickvals=_ABOVE_ZERO,
        ),
        shapes=[
            threshold("gamma_a", "x", gates.gamma_a, "γA", dark, span=(0, 1)),
            threshold("gamma_g", "y", gates.gamma_g, "γG", dark, span=(0, 1)),
            _dot(diagnosis, dark),
        ],
        annotations=[
            *(_label(region, diagnosis, dark) for region in regions if _height(region) >= _THIN),
            *_led_labels([region for region in regions if _height(region) < _THIN], diagnosis, dark),
            _name_of_dot(diagnosis, here, dark),
        ],
        hovermode="closest",
        draggable=True,
        uirevision=revision(diagnosis, diagnosis.frontier),
    )  # fmt: skip


def _height(region: Region) -> float:
    return region.gamma_g[1] - region.gamma_g[0]


def _lines(verdict: StageVerdict, diagnosis: Diagnosis) -> list[str]:
    """Return the labels, their reasons and the stages that they name, one line each, as plain text."""
    lines = [" + ".join(label_words(label.label) for label in verdict.labels) or "no stage label"]
    reasons = [reason for label in verdict.labels for reason in label.reasons]
    if reasons:
        lines.append(" + ".join(map(reason_words, reasons)))
    if verdict.suppressed:
        lines.append(f"suppressed: {' + '.join(label_words(label.label) for label in verdict.suppressed)}")
    short = format.short_stages(diagnosis.stages)
    if verdict.stages:
        lines.append(format.listed([short[stage] for stage in verdict.stages], 3))
    return lines


def _in_words(verdict: StageVerdict, diagnosis: Diagnosis) -> str:
    return ", ".join(_lines(verdict, diagnosis))


def _where(region: Region) -> str:
    across, up = (
        f"{format.percent(low, 1)} to {format.percent(high, 1)}"
        for low, high in (region.gamma_a, region.gamma_g)
    )
    return f"γA {across}, γG {up}"


def _filled(region: Region, diagnosis: Diagnosis, dark: bool) -> Trace:
    """Return one region, with its verdict as hover text."""
    colours = palette.theme(dark)
    names = {label.label for label in region.verdict.labels}
    colour = colours.good if "direct_exposure" in names else colours.warn if names else colours.muted
    (left, right), (bottom, top) = region.gamma_a, region.gamma_g
    words = "<br>".join(plain(line, 60) for line in (*_lines(region.verdict, diagnosis), _where(region)))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [left, right, right, left, left],
        "y": [bottom, bottom, top, top, bottom],
        "fill": "toself",
        "fillcolor": palette.alpha(colour, 0.22 if dark else 0.16),
        "line": {"color": colours.axis, "width": 1},
        "hoveron": "fills",
        "hoverinfo": "text",
        "text": words,
    }


def _label(region: Region, diagnosis: Diagnosis, dark: bool) -> dict[str, object]:
    (left, right), (bottom, top) = region.gamma_a, region.gamma_g
    first, *rest = (plain(line, 36) for line in _lines(region.verdict, diagnosis))
    text = "<br>".join((f"<b>{first}</b>", *rest))
    middle = (left + right) / 2, (bottom + top) / 2
    # A narrow region has its label turned upright.
    return note(
        text, *middle, dark, textangle=0 if right - left >= 0.25 else -90, font={"size": 12},
        bgcolor=palette.alpha(palette.theme(dark).surface, 0.85), borderpad=4,
    )  # fmt: skip


def _led_labels(thin: Sequence[Region], diagnosis: Diagnosis, dark: bool) -> list[dict[str, object]]:
    """Return the labels of low regions, which overlap neither each other nor the dot."""
    colours = palette.theme(dark)
    occupied = [diagnosis.gates.gamma_a]
    notes = []
    for region in thin:
        (left, right), (bottom, top) = region.gamma_a, region.gamma_g
        x = max(
            (left + (right - left) * part for part in (0.2, 0.5, 0.8)),
            key=lambda place: min(min(abs(place - other) for other in occupied), _CLEARANCE),
        )
        occupied.append(x)
        middle = (bottom + top) / 2
        # The box of a label near an edge leads away from the ticks and from the end of the axis.
        side = "left" if x < _EDGE else "right" if x > 1 - _EDGE else "center"
        first, *rest = (plain(line, 36) for line in _lines(region.verdict, diagnosis)[:2])
        notes.append(
            note(
                "<br>".join((f"<b>{first}</b>", *rest)), x, middle, dark, showarrow=True, arrowhead=0,
                arrowwidth=1, arrowcolor=colours.ink, xanchor=side, ax=0, ay=-64 if middle < 0.5 else 64,
                font={"size": 12}, bgcolor=palette.alpha(colours.surface, 0.85), borderpad=3,
            )
        )  # fmt: skip
    return notes


def _dot(diagnosis: Diagnosis, dark: bool) -> dict[str, object]:
    """Return the dot of the current gates: a shape, because a moved trace draws the whole plot again."""
    colours = palette.theme(dark)
    gates = diagnosis.gates
    return {
        "type": "circle", "layer": "below", "xsizemode": "pixel", "ysizemode": "pixel",
        "xanchor": gates.gamma_a, "yanchor": gates.gamma_g, "x0": -6, "x1": 6, "y0": -6, "y1": 6,
        "fillcolor": colours.accent, "line": {"color": colours.surface, "width": 2},
    }  # fmt: skip


def _name_of_dot(diagnosis: Diagnosis, verdict: StageVerdict, dark: bool) -> dict[str, object]:
    gates = diagnosis.gates
    side, shift = ("left", 7) if gates.gamma_a < 0.7 else ("right", -7)
    # Labels of low regions stand above the line of the dot.
    where = "top" if gates.gamma_g >= _THIN / 2 else "bottom"
    return note(
        "current gates", gates.gamma_a, gates.gamma_g, dark, xanchor=side, xshift=shift, yanchor=where,
        hovertext=plain(_in_words(verdict, diagnosis), 120),
    )  # fmt: skip


def routing_over_tau(diagnosis: Diagnosis, *, dark: bool = False) -> Figure:
    """Return one row per stage, filled over the τC at which it is in the routing set; τC is draggable."""
    joins = _joining_tau(diagnosis)
    if not joins:
        return empty_figure(below_floor(diagnosis), dark=dark, title=STEPS.title)
    short = format.short_stages(diagnosis.stages)
    order = [*joins, *(stage for stage in diagnosis.stages if stage not in joins)]
    ranges = [_tau_range(joins.get(stage)) for stage in order]
    listed = format.listed([f"{short[stage]} {text}" for stage, text in zip(order, ranges, strict=True)], 8)
    return figure(
        [_tau_bars(diagnosis, joins, order, ranges, dark)],
        dark=dark,
        title=STEPS.title,
        subtitle="filled where the stage is in the routing set",
        interaction="drag τC across an edge to add or remove a stage",
        alt=f"In the routing set, by τC: {listed}. τC is {format.share(diagnosis.gates.tau_c)}.",
        height=420,
        bargap=0.35,
        margin={"l": 8, "r": 16, "t": 16, "b": 8},
        xaxis=axis(dark, range=[0, 1.02], tickformat=".0%", title="τC", fixedrange=True),
        yaxis=axis(
            dark, autorange="reversed", showgrid=False, fixedrange=True,
            tickfont={"color": palette.theme(dark).ink, "size": 12},
        ),
        shapes=[threshold("tau_c", "x", diagnosis.gates.tau_c, "τC", dark, span=(0, 1))],
        annotations=_tau_notes(diagnosis, joins, order, ranges, dark),
        hovermode="closest",
        draggable=True,
        uirevision=revision(diagnosis, diagnosis.frontier),
    )  # fmt: skip


def _joining_tau(diagnosis: Diagnosis) -> dict[str, float]:
    """Return the τC from which each stage is in the routing set; stages that are never in it are left out."""
    joins: dict[str, float] = {}
    for interval in routing_intervals(diagnosis):
        for stage in interval.stages:
            joins.setdefault(stage, interval.low)
    return joins


def _tau_range(low: float | None) -> str:
    if low is None:
        return "never"
    return f"above {format.percent(low, 1)}" if low else "always"


def _tau_bars(
    diagnosis: Diagnosis, joins: dict[str, float], order: list[str], ranges: list[str], dark: bool
) -> Trace:
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    names = [plain(format.short_stages(diagnosis.stages)[stage], 28) for stage in order]
    return {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "base": [joins.get(stage, 1.0) for stage in order],
        "x": [1.0 - joins.get(stage, 1.0) for stage in order],
        "marker": {"color": [by_stage[stage] for stage in order]},
        "customdata": order,
        "hovertext": [f"{name}: in the set {text}" for name, text in zip(names, ranges, strict=True)],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _tau_notes(
    diagnosis: Diagnosis, joins: dict[str, float], order: list[str], ranges: list[str], dark: bool
) -> list[dict[str, object]]:
    """Return the range of each stage, left of its bar if there is room, else inside."""
    colours = palette.theme(dark)
    by_stage = palette.stage_colours(diagnosis.stages, dark)
    short = format.short_stages(diagnosis.stages)
    notes = []
    for stage, text in zip(order, ranges, strict=True):
        low = joins.get(stage, 1.0)
        is_outside = low >= 0.2
        colour = colours.muted if is_outside else palette.readable_on(by_stage[stage])
        notes.append(
            note(
                text, max(0.0, low), plain(short[stage], 28), dark,
                xanchor="right" if is_outside else "left", xshift=-6 if is_outside else 6,
                # The line of τC may run behind the text.
                bgcolor=colours.surface if is_outside else None, font={"size": 12, "color": colour},
            )
        )  # fmt: skip
    return notes
