"""Draw bars: stacked, grouped or on a base, vertical or horizontal, hatched, with their texts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.report.svg import text
from sfapp.report.svg.axes import Axis
from sfapp.report.svg.text import Style, number, paint
from sfapp.report.svg.values import each, unsupported, values

Trace = Mapping[str, Any]

LEAST = 6.0
"""Smallest font size, pixels: a text that needs a smaller one to fit its bar is left out."""

_GAP = 3.0
"""Pixels between a text and the end of its bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: from ``foot`` to ``head`` along its direction, ``left`` to ``right`` across.

    Attributes:
        slot: its interval on the position axis, with the gap to its neighbours.
    """

    trace: Trace
    index: int
    left: float
    right: float
    foot: float
    head: float
    slot: tuple[float, float]


def is_horizontal(trace: Trace) -> bool:
    """Return whether the bars are horizontal."""
    return bool(trace.get("orientation", "v") == "h")


def bars_of(traces: Sequence[Trace], x_axis: Axis, y_axis: Axis, layout: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of all traces on one pair of axes, in axis positions."""
    mode = layout.get("barmode", "group")
    if mode not in ("group", "stack", "overlay"):
        raise unsupported("bar mode", mode)
    lying = [is_horizontal(trace) for trace in traces]
    if len(set(lying)) > 1:
        raise unsupported("bar orientation", "mixed")
    along, up = ("y", "x") if lying and lying[0] else ("x", "y")
    position_axis, size_axis = (y_axis, x_axis) if along == "y" else (x_axis, y_axis)
    positions = [position_axis.places(values(trace[along])) for trace in traces]
    taken = [place for row in positions for place in row if place is not None]
    pitch = _pitch(taken)
    room = pitch * (1 - float(layout.get("bargap", 0.2)))
    # Bars are placed side by side only if two have the same position.
    grouped = mode == "group" and len(set(taken)) < len(taken)
    share = room / len(traces) if grouped else room
    tops: dict[tuple[float, bool], float] = {}
    bars = []
    for order, (trace, places) in enumerate(zip(traces, positions, strict=True)):
        shift = (order - (len(traces) - 1) / 2) * share if grouped else 0.0
        sizes = size_axis.places(values(trace[up]))
        bases = values(trace["base"]) if isinstance(trace.get("base"), Mapping) else trace.get("base")
        for index, (place, size) in enumerate(zip(places, sizes, strict=True)):
            if place is None or size is None:
                continue
            own = each(trace.get("width"), index)
            width = share if own is None else float(own)
            middle = place + (shift if own is None else 0.0)
            foot = float(each(bases, index, 0.0))
            if mode == "stack" and "base" not in trace:
                key = (place, size < 0)
                foot = tops.get(key, 0.0)
                tops[key] = foot + size
            half = pitch / 2 if own is None else width / 2
            slot = place - half, place + half
            bars.append(Bar(trace, index, middle - width / 2, middle + width / 2, foot, foot + size, slot))
    return bars


def _pitch(places: Sequence[float]) -> float:
    """Return the smallest distance between two bars."""
    distinct = sorted(set(places))
    return min((after - before for before, after in itertools.pairwise(distinct)), default=1.0)


def reach(bars: Sequence[Bar], x_axis: Axis, y_axis: Axis) -> None:
    """Extend the axes by the bars."""
    for bar in bars:
        position_axis, size_axis = (y_axis, x_axis) if is_horizontal(bar.trace) else (x_axis, y_axis)
        position_axis.extent.add(bar.slot, padded=False)
        size_axis.extent.add([bar.foot], padded="base" in bar.trace)
        size_axis.extent.add([bar.head], padded=bar.head != 0)


def draw(bar: Bar, x_axis: Axis, y_axis: Axis, patterns: dict[str, str]) -> str:
    """Draw one bar; a pattern that it needs is added to ``patterns`` by its definition."""
    marker = bar.trace.get("marker", {})
    x, y, width, height = _box(bar, x_axis, y_axis)
    if width <= 0 or height <= 0:
        return ""
    edge = marker.get("line", {})
    line = float(each(edge.get("width"), bar.index, 0))
    filled = fill(marker, bar.index, patterns)
    if line:
        colour = str(each(edge.get("color"), bar.index, "#444"))
        filled += f' {paint("stroke", colour)} stroke-width="{number(line)}"'
    box = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f"<rect {box} {filled}/>"


def _box(bar: Bar, x_axis: Axis, y_axis: Axis) -> tuple[float, float, float, float]:
    if is_horizontal(bar.trace):
        ends = (x_axis.at(bar.foot), x_axis.at(bar.head)), (y_axis.at(bar.left), y_axis.at(bar.right))
    else:
        ends = (x_axis.at(bar.left), x_axis.at(bar.right)), (y_axis.at(bar.foot), y_axis.at(bar.head))
    (left, right), (top, bottom) = map(sorted, ends)
    return left, top, right - left, bottom - top


def fill(marker: Mapping[str, Any], index: int, patterns: dict[str, str]) -> str:
    """Return the fill of one bar; a pattern that it needs is added to ``patterns`` by its definition."""
    colour = str(each(marker.get("color"), index, "#444"))
    pattern = marker.get("pattern", {})
    shape = each(pattern.get("shape"), index, "")
    if not shape:
        return paint("fill", colour)
    if shape != "/":
        raise unsupported("pattern", shape)
    front = str(each(pattern.get("fgcolor"), index, colour))
    back = str(each(pattern.get("bgcolor"), index, "rgba(0,0,0,0)"))
    side = float(pattern.get("size", 8))
    stroke = f'{paint("stroke", front)} stroke-width="{number(float(pattern.get("solidity", 0.3)) * side)}"'
    made = (
        f'width="{number(side)}" height="{number(side)}" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="{number(side)}" height="{number(side)}" '
        f'{paint("fill", back)}/><path d="M{number(side / 2)} 0V{number(side)}" {stroke}/></pattern>'
    )
    name = patterns.setdefault(made, f"hatch{len(patterns)}")
    return f'fill="url(#{name})"'


def draw_text(bar: Bar, x_axis: Axis, y_axis: Axis, least: float = LEAST) -> str:
    """Draw the text in a bar or beyond its end.

    Args:
        least: smallest font size, pixels, of a text inside its bar.
    """
    trace = bar.trace
    label = str(each(trace.get("text"), bar.index, "") or "")
    where = each(trace.get("textposition"), bar.index, "none")
    if not label or where == "none":
        return ""
    inside = where == "inside"
    colour = each(trace.get("textfont", {}).get("color"), bar.index, "#17202E")
    size = float(each(trace.get("textfont", {}).get("size"), bar.index, 12))
    kind = "insidetextfont" if inside else "outsidetextfont"
    style = Style(size, str(each(trace.get(kind, {}).get("color"), bar.index, colour)))
    box = _box(bar, x_axis, y_axis)
    if inside:
        return _text_inside(label, style, box, trace, least)
    return _text_beyond(label, style, box, bar)


def _text_inside(
    label: str, style: Style, box: tuple[float, float, float, float], trace: Trace, least: float
) -> str:
    x, y, width, height = box
    scale = min(
        1.0,
        (width - _GAP) / max(1e-9, text.width(label, style.size)),
        (height - 1) / text.height(label, style.size),
    )
    if scale * style.size < least:
        return ""
    style = Style(scale * style.size, style.colour)
    at_end = trace.get("insidetextanchor", "end") == "end"
    if is_horizontal(trace):
        if at_end:
            return text.draw(label, x + width - _GAP, y + height / 2, style, "end")
        return text.draw(label, x + width / 2, y + height / 2, style, "middle")
    middle = y + _GAP + text.height(label, style.size) / 2 if at_end else y + height / 2
    return text.draw(label, x + width / 2, middle, style, "middle")


def _text_beyond(label: str, style: Style, box: tuple[float, float, float, float], bar: Bar) -> str:
    x, y, width, height = box
    falling = bar.head < bar.foot
    if is_horizontal(bar.trace):
        if falling:
            return text.draw(label, x - _GAP, y + height / 2, style, "end")
        return text.draw(label, x + width + _GAP, y + height / 2, style)
    half = text.height(label, style.size) / 2
    return text.draw(label, x + width / 2, y + height + half if falling else y - half, style, "middle")
