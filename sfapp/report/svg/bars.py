"""Bars: stacked, side by side or on a base of their own, upright or lying, hatched, with their texts."""

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

_LEAST = 6.0
"""A text that would have to be smaller than this to fit into its bar is left out."""

_GAP = 3.0
"""Pixels between a text and the end of its bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar along its own direction: from ``foot`` to ``head``, ``left`` to ``right`` across.

    Attributes:
        slot: what it takes of the axis across, the gap to its neighbours included.
    """

    trace: Trace
    index: int
    left: float
    right: float
    foot: float
    head: float
    slot: tuple[float, float]


def is_lying(trace: Trace) -> bool:
    return bool(trace.get("orientation", "v") == "h")


def bars_of(traces: Sequence[Trace], x_axis: Axis, y_axis: Axis, layout: Mapping[str, Any]) -> list[Bar]:
    """The bars of all traces on one pair of axes, in numbers along these axes."""
    mode = layout.get("barmode", "group")
    if mode not in ("group", "stack", "overlay"):
        raise unsupported("bar mode", mode)
    lying = [is_lying(trace) for trace in traces]
    if len(set(lying)) > 1:
        raise unsupported("bar orientation", "mixed")
    along, up = ("y", "x") if lying and lying[0] else ("x", "y")
    position_axis, size_axis = (y_axis, x_axis) if along == "y" else (x_axis, y_axis)
    positions = [position_axis.places(values(trace[along])) for trace in traces]
    taken = [place for row in positions for place in row if place is not None]
    pitch = _pitch(taken)
    room = pitch * (1 - float(layout.get("bargap", 0.2)))
    # Bars share a place only where two of them want it.
    beside = mode == "group" and len(set(taken)) < len(taken)
    share = room / len(traces) if beside else room
    tops: dict[tuple[float, bool], float] = {}
    bars = []
    for order, (trace, places) in enumerate(zip(traces, positions, strict=True)):
        shift = (order - (len(traces) - 1) / 2) * share if beside else 0.0
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
    """The smallest distance between two bars."""
    distinct = sorted(set(places))
    return min((after - before for before, after in itertools.pairwise(distinct)), default=1.0)


def reach(bars: Sequence[Bar], x_axis: Axis, y_axis: Axis) -> None:
    """Tell the axes what the bars reach."""
    for bar in bars:
        position_axis, size_axis = (y_axis, x_axis) if is_lying(bar.trace) else (x_axis, y_axis)
        position_axis.extent.add(bar.slot, padded=False)
        size_axis.extent.add([bar.foot], padded="base" in bar.trace)
        size_axis.extent.add([bar.head], padded=bar.head != 0)


def draw(bar: Bar, x_axis: Axis, y_axis: Axis, patterns: dict[str, str]) -> str:
    """One bar; a pattern it needs is added to ``patterns``, by its definition."""
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
    if is_lying(bar.trace):
        ends = (x_axis.at(bar.foot), x_axis.at(bar.head)), (y_axis.at(bar.left), y_axis.at(bar.right))
    else:
        ends = (x_axis.at(bar.left), x_axis.at(bar.right)), (y_axis.at(bar.foot), y_axis.at(bar.head))
    (left, right), (top, bottom) = map(sorted, ends)
    return left, top, right - left, bottom - top


def fill(marker: Mapping[str, Any], index: int, patterns: dict[str, str]) -> str:
    """How one bar is filled; a pattern it needs is added to ``patterns``, by its definition."""
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


def draw_text(bar: Bar, x_axis: Axis, y_axis: Axis) -> str:
    """What stands in a bar or beyond its end."""
    trace = bar.trace
    said = str(each(trace.get("text"), bar.index, "") or "")
    where = each(trace.get("textposition"), bar.index, "none")
    if not said or where == "none":
        return ""
    inside = where == "inside"
    colour = each(trace.get("textfont", {}).get("color"), bar.index, "#17202E")
    size = float(each(trace.get("textfont", {}).get("size"), bar.index, 12))
    kind = "insidetextfont" if inside else "outsidetextfont"
    style = Style(size, str(each(trace.get(kind, {}).get("color"), bar.index, colour)))
    box = _box(bar, x_axis, y_axis)
    if inside:
        return _text_inside(said, style, box, trace)
    return _text_beyond(said, style, box, bar)


def _text_inside(said: str, style: Style, box: tuple[float, float, float, float], trace: Trace) -> str:
    x, y, width, height = box
    scale = min(
        1.0,
        (width - _GAP) / max(1e-9, text.width(said, style.size)),
        (height - 1) / text.height(said, style.size),
    )
    if scale * style.size < _LEAST:
        return ""
    style = Style(scale * style.size, style.colour)
    at_end = trace.get("insidetextanchor", "end") == "end"
    if is_lying(trace):
        if at_end:
            return text.draw(said, x + width - _GAP, y + height / 2, style, "end")
        return text.draw(said, x + width / 2, y + height / 2, style, "middle")
    middle = y + _GAP + text.height(said, style.size) / 2 if at_end else y + height / 2
    return text.draw(said, x + width / 2, middle, style, "middle")


def _text_beyond(said: str, style: Style, box: tuple[float, float, float, float], bar: Bar) -> str:
    x, y, width, height = box
    falling = bar.head < bar.foot
    if is_lying(bar.trace):
        if falling:
            return text.draw(said, x - _GAP, y + height / 2, style, "end")
        return text.draw(said, x + width + _GAP, y + height / 2, style)
    half = text.height(said, style.size) / 2
    return text.draw(said, x + width / 2, y + height + half if falling else y - half, style, "middle")
