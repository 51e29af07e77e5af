"""Draw lines, areas, markers and their texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sfapp.report.svg import text
from sfapp.report.svg.axes import Axis
from sfapp.report.svg.text import Style, number, paint
from sfapp.report.svg.values import each, unsupported, values

Point = tuple[float, float]

_SHAPES = ("linear", "hv", "hvh")
_DASHES = {"solid": (), "dot": (1, 1), "dash": (3, 3), "longdash": (5, 5), "dashdot": (3, 1, 1, 1)}


def columns(trace: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return x and y; x defaults to the index."""
    y = values(trace["y"])
    return (values(trace["x"]) if "x" in trace else list(range(len(y)))), y


def reach(trace: Mapping[str, Any], x_axis: Axis, y_axis: Axis, heights: Sequence[float | None]) -> None:
    """Extend the axes by the trace; ``heights`` are already stacked."""
    across, _ = columns(trace)
    marks = "markers" in trace.get("mode", "lines")
    x_axis.extent.add(x_axis.places(across), padded=marks)
    y_axis.extent.add(y_axis.places(heights), padded=True)
    if trace.get("stackgroup"):
        y_axis.extent.add([0.0], padded=False)


def draw(
    trace: Mapping[str, Any],
    x_axis: Axis,
    y_axis: Axis,
    heights: Sequence[Any],
    below: Sequence[float] | None = None,
) -> str:
    """Draw a trace.

    Args:
        heights: y values, already stacked.
        below: base of a stacked trace.
    """
    across, _ = columns(trace)
    pieces = _pieces(x_axis.places(across), y_axis.places(heights), x_axis, y_axis)
    line = trace.get("line", {})
    shape = line.get("shape", "linear")
    if shape not in _SHAPES:
        raise unsupported("line shape", shape)
    mode = trace.get("mode", "lines")
    parts = []
    if below is not None:
        floor = _pieces(x_axis.places(across), list(below), x_axis, y_axis)
        parts.append(_area(pieces, floor, shape, trace))
    elif trace.get("fill") == "toself":
        area = "".join(f"{_path(piece, shape)}Z" for piece in pieces)
        parts.append(f'<path d="{area}" {paint("fill", trace.get("fillcolor", "none"))}/>')
    elif trace.get("fill") not in (None, "none"):
        raise unsupported("fill", trace["fill"])
    if "lines" in mode and line.get("width", 2) > 0:
        way = "".join(_path(piece, shape) for piece in pieces)
        parts.append(f'<path d="{way}" fill="none" {stroke(line)} stroke-linejoin="round"/>')
    if "markers" in mode:
        parts += _markers(trace, x_axis, y_axis, across, heights)
    if "text" in mode:
        parts += _texts(trace, x_axis, y_axis, across, heights)
    return "".join(parts)


def stroke(line: Mapping[str, Any]) -> str:
    """Return a Plotly line as SVG attributes."""
    width = float(line.get("width", 2))
    dash = line.get("dash") or "solid"
    if dash not in _DASHES:
        raise unsupported("line dash", dash)
    unit = max(width, 3.0)
    look = f'{paint("stroke", line.get("color", "#17202E"))} stroke-width="{number(width)}"'
    if _DASHES[dash]:
        look += f' stroke-dasharray="{" ".join(number(part * unit) for part in _DASHES[dash])}"'
    return look


def _pieces(
    across: Sequence[float | None], up: Sequence[float | None], x_axis: Axis, y_axis: Axis
) -> list[list[Point]]:
    """Return the points in pixels, split at gaps."""
    pieces: list[list[Point]] = [[]]
    for x, y in zip(across, up, strict=True):
        if x is None or y is None:
            pieces.append([])
        else:
            pieces[-1].append((x_axis.at(x), y_axis.at(y)))
    return [piece for piece in pieces if piece]


def _stairs(piece: list[Point], shape: str) -> list[Point]:
    """Return the corners of a line, with those of a step line."""
    if shape == "linear":
        return piece
    corners = [piece[0]]
    for (x, y), (next_x, next_y) in pairwise(piece):
        turn = next_x if shape == "hv" else (x + next_x) / 2
        corners += [(turn, y), (turn, next_y)] if shape == "hvh" else [(turn, y)]
        corners.append((next_x, next_y))
    return corners


def _path(piece: list[Point], shape: str) -> str:
    """Return a path rounded to a tenth of a pixel, without empty segments."""
    rounded = [(round(x, 1), round(y, 1)) for x, y in _stairs(piece, shape)]
    kept = [rounded[0], *(after for before, after in pairwise(rounded) if after != before)]
    (x, y), *rest = kept
    way = f"M{number(x)} {number(y)}"
    for next_x, next_y in rest:
        if next_y == y:
            way += f"H{number(next_x)}"
        elif next_x == x:
            way += f"V{number(next_y)}"
        else:
            way += f"L{number(next_x)} {number(next_y)}"
        x, y = next_x, next_y
    return way


def _area(pieces: list[list[Point]], floor: list[list[Point]], shape: str, trace: Mapping[str, Any]) -> str:
    way = "".join(
        f"{_path(top, shape)}L{_path(list(reversed(bottom)), shape)[1:]}Z"
        for top, bottom in zip(pieces, floor, strict=True)
    )
    return f'<path d="{way}" {paint("fill", trace.get("fillcolor", "none"))}/>'


def _markers(
    trace: Mapping[str, Any], x_axis: Axis, y_axis: Axis, across: Sequence[Any], heights: Sequence[Any]
) -> list[str]:
    marker = trace.get("marker", {})
    edge = marker.get("line", {})
    drawn = []
    pairs = zip(x_axis.places(across), y_axis.places(heights), strict=True)
    for place, (x, y) in enumerate(pairs):
        if x is None or y is None or not (x_axis.spans(x) and y_axis.spans(y)):
            continue
        drawn.append(
            mark(
                str(each(marker.get("symbol"), place, "circle")),
                x_axis.at(x),
                y_axis.at(y),
                float(each(marker.get("size"), place, 6)),
                str(each(marker.get("color"), place, "#17202E")),
                str(each(edge.get("color"), place, "#444")),
                float(each(edge.get("width"), place, 0)),
                float(each(marker.get("opacity"), place, 1)),
            )
        )
    return drawn


def mark(
    symbol: str, x: float, y: float, size: float, colour: str, edge: str, width: float, opacity: float = 1.0
) -> str:
    """Draw one marker."""
    open_, shape = symbol.endswith("-open"), symbol.removesuffix("-open")
    look = 'fill="none"' if open_ else paint("fill", colour)
    if open_:
        look += f' {paint("stroke", colour)} stroke-width="{number(width or 1)}"'
    elif width:
        look += f' {paint("stroke", edge)} stroke-width="{number(width)}"'
    if opacity != 1:
        look += f' opacity="{opacity:g}"'
    half = size / 2
    if shape == "circle":
        return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(half)}" {look}/>'
    if shape == "square":
        side = number(size)
        return f'<rect x="{number(x - half)}" y="{number(y - half)}" width="{side}" height="{side}" {look}/>'
    if shape == "diamond":
        far = half * 1.3
        corners = [(x + far, y), (x, y + far), (x - far, y), (x, y - far)]
    elif shape == "triangle-up":
        wide, low = half * 2 / math.sqrt(3), half / 2
        corners = [(x - wide, y + low), (x + wide, y + low), (x, y - half)]
    else:
        raise unsupported("marker", symbol)
    points = " ".join(f"{number(corner_x)},{number(corner_y)}" for corner_x, corner_y in corners)
    return f'<polygon points="{points}" {look}/>'


def _texts(
    trace: Mapping[str, Any], x_axis: Axis, y_axis: Axis, across: Sequence[Any], heights: Sequence[Any]
) -> list[str]:
    style = Style.of(trace.get("textfont"))
    up, _, side = str(trace.get("textposition", "middle center")).partition(" ")
    size = float(each(trace.get("marker", {}).get("size"), 0, 6)) / 2
    drawn = []
    for place, (x, y) in enumerate(zip(x_axis.places(across), y_axis.places(heights), strict=True)):
        if x is None or y is None:
            continue
        label = str(each(trace.get("text"), place, ""))
        lift = {"top": -1, "bottom": 1}.get(up, 0) * (size + text.height(label, style.size) / 2)
        shift = {"right": size, "left": -size}.get(side, 0)
        anchor: text.Anchor = "start" if side == "right" else "end" if side == "left" else "middle"
        drawn.append(text.draw(label, x_axis.at(x) + shift, y_axis.at(y) + lift, style, anchor))
    return drawn
