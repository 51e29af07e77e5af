"""Draw heatmaps: single cells if there are few, one small image if there are many."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.report.svg import text
from sfapp.report.svg.axes import Axis
from sfapp.report.svg.text import Style, number, paint
from sfapp.report.svg.values import Floats, matrix, values
from sfapp.views import palette
from sfapp.views.html_text import html_text

Trace = Mapping[str, Any]
Bytes = npt.NDArray[np.uint8]

CELLS = 128
"""Largest number of cells without text that are drawn one by one."""

_SHADES = 255
_SHARP = 4
"""Width and height of a cell in the image, dots, so that viewers do not blur it."""

BAR_GAP = 12.0
"""Pixels between the plot and its colour bar."""


def names(trace: Trace, letter: str, size: int) -> list[Any]:
    """Return the values of rows or columns."""
    return values(trace[letter]) if letter in trace else list(range(size))


def edges(places: list[float | None], cells: int) -> list[float]:
    """Return the edges of cells: halfway between their centres, unless the edges are given."""
    middles = [place for place in places if place is not None]
    if len(middles) == cells + 1:
        return middles
    if len(middles) == 1:
        return [middles[0] - 0.5, middles[0] + 0.5]
    between = [(low + high) / 2 for low, high in itertools.pairwise(middles)]
    return [2 * middles[0] - between[0], *between, 2 * middles[-1] - between[-1]]


def grid(trace: Trace, x_axis: Axis, y_axis: Axis) -> tuple[Floats, list[float], list[float]]:
    """Return the numbers, and the edges of columns and rows."""
    table = matrix(trace["z"])
    columns = edges(x_axis.places(names(trace, "x", table.shape[1])), table.shape[1])
    rows = edges(y_axis.places(names(trace, "y", table.shape[0])), table.shape[0])
    return table, columns, rows


def reach(trace: Trace, x_axis: Axis, y_axis: Axis) -> None:
    """Extend the axes by the cells."""
    _, columns, rows = grid(trace, x_axis, y_axis)
    x_axis.extent.add([columns[0], columns[-1]], padded=False)
    y_axis.extent.add([rows[0], rows[-1]], padded=False)


def limits(trace: Trace) -> tuple[float, float]:
    """Return the values at both ends of the colour scale."""
    table = matrix(trace["z"])
    finite = table[np.isfinite(table)]
    low = trace.get("zmin", float(finite.min()) if finite.size else 0.0)
    high = trace.get("zmax", float(finite.max()) if finite.size else 1.0)
    return float(low), float(high) if high > low else float(low) + 1.0


def draw(trace: Trace, x_axis: Axis, y_axis: Axis, surface: str) -> str:
    """Draw the cells and their texts."""
    table, columns, rows = grid(trace, x_axis, y_axis)
    low, high = limits(trace)
    shade = np.round(np.clip((table - low) / (high - low), 0, 1) * (_SHADES - 1))
    gaps = float(trace.get("xgap", 0)), float(trace.get("ygap", 0))
    across = [x_axis.at(edge) for edge in columns]
    down = [y_axis.at(edge) for edge in rows]
    if table.size > CELLS and "texttemplate" not in trace:
        return _picture(trace, shade, across, down) + _gap_lines(gaps, across, down, surface)
    cells = []
    for row, column in np.argwhere(np.isfinite(table)).tolist():
        left, right = sorted((across[column], across[column + 1]))
        top, bottom = sorted((down[row], down[row + 1]))
        colour = palette.at(trace["colorscale"], shade[row, column] / (_SHADES - 1))
        cells.append(
            f'<rect x="{number(left + gaps[0] / 2)}" y="{number(top + gaps[1] / 2)}" '
            f'width="{number(max(0.0, right - left - gaps[0]))}" '
            f'height="{number(max(0.0, bottom - top - gaps[1]))}" {paint("fill", colour)}/>'
        )
        label = _cell_text(trace, row, column)
        if label:
            middle = (left + right) / 2, (top + bottom) / 2
            cells.append(text.draw(label, *middle, Style(12, palette.readable_on(colour)), "middle"))
    return "".join(cells)


def _cell_text(trace: Trace, row: int, column: int) -> str:
    if "texttemplate" not in trace:
        return ""
    return str(trace["text"][row][column])


def _picture(trace: Trace, shade: Floats, across: list[float], down: list[float]) -> str:
    if across[0] > across[-1]:
        shade, across = shade[:, ::-1], across[::-1]
    if down[0] > down[-1]:
        shade, down = shade[::-1], down[::-1]
    shown = np.where(np.isfinite(shade), shade, _SHADES).astype(np.uint8)
    colours = [palette.at(trace["colorscale"], place / (_SHADES - 1)) for place in range(_SHADES)]
    packed = base64.b64encode(_png(shown, colours)).decode("ascii")
    return (
        f'<image x="{number(across[0])}" y="{number(down[0])}" width="{number(across[-1] - across[0])}" '
        f'height="{number(down[-1] - down[0])}" preserveAspectRatio="none" image-rendering="optimizeSpeed" '
        f'xlink:href="data:image/png;base64,{packed}"/>'
    )


def _gap_lines(gaps: tuple[float, float], across: list[float], down: list[float], surface: str) -> str:
    """Draw the gaps between the cells of an image as lines over it."""
    ends_x, ends_y = (across[0], across[-1]), (down[0], down[-1])
    lines = ""
    if gaps[0]:
        way = "".join(f"M{number(x)} {number(ends_y[0])}V{number(ends_y[1])}" for x in across[1:-1])
        lines += f'<path d="{way}" {paint("stroke", surface)} stroke-width="{number(gaps[0])}"/>'
    if gaps[1]:
        way = "".join(f"M{number(ends_x[0])} {number(y)}H{number(ends_x[1])}" for y in down[1:-1])
        lines += f'<path d="{way}" {paint("stroke", surface)} stroke-width="{number(gaps[1])}"/>'
    return lines


def _png(shown: Bytes, colours: list[str]) -> bytes:
    """Return an indexed PNG whose last colour is transparent."""
    table = b"".join(bytes.fromhex(colour[1:7]) for colour in colours) + b"\xff\xff\xff"
    big = np.repeat(shown, _SHARP, axis=1)
    # With the PNG filter "up", a repeated row is all zeros.
    same = b"\x02" + bytes(big.shape[1])
    rows = b"".join(b"\x00" + row.tobytes() + same * (_SHARP - 1) for row in big)
    head = struct.pack(">IIBBBBB", big.shape[1], shown.shape[0] * _SHARP, 8, 3, 0, 0, 0)
    chunks = [
        (b"IHDR", head),
        (b"PLTE", table),
        (b"tRNS", b"\xff" * _SHADES + b"\x00"),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


def has_key(trace: Trace) -> bool:
    """Return whether a trace has a colour bar."""
    return trace["type"] == "heatmap" and bool(trace.get("showscale", True))


def _key_axis(trace: Trace) -> Axis:
    low, high = limits(trace)
    bar = trace.get("colorbar", {})
    kept = {"tickfont": bar.get("tickfont"), "ticksuffix": bar.get("ticksuffix", "")}
    axis = Axis("y", {"nticks": bar.get("nticks", 6)} | kept)
    axis.low, axis.high = low, high
    return axis


def key_room(trace: Trace) -> float:
    """Return the width of the colour bar next to the plot, pixels."""
    bar = trace.get("colorbar", {})
    axis = _key_axis(trace)
    axis.end = 200.0
    labels = max((text.width(tick.text, axis.style.size) for tick in axis.ticks()), default=0.0)
    title = bar.get("title", {})
    named = text.width(title.get("text", ""), Style.of(title.get("font")).size)
    return BAR_GAP + max(float(bar.get("thickness", 30)) + 6 + labels, named)


def draw_key(trace: Trace, left: float, top: float, bottom: float) -> str:
    """Draw the colour bar next to the plot."""
    bar = trace.get("colorbar", {})
    title = bar.get("title", {})
    style = Style.of(title.get("font"))
    thick = float(bar.get("thickness", 30))
    slack = (1 - float(bar.get("len", 1))) / 2 * (bottom - top)
    x, first, last = left + BAR_GAP, top + slack, bottom - slack
    parts = []
    if title:
        parts.append(text.draw(title["text"], x, first + style.size / 2, style))
        first += text.LINE * style.size + 4
    stops = "".join(
        f'<stop offset="{number(float(place))}" stop-color="{html_text(str(colour))}"/>'
        for place, colour in trace["colorscale"]
    )
    box = f'x="{number(x)}" y="{number(first)}" width="{number(thick)}" height="{number(last - first)}"'
    parts.append(
        f'<linearGradient id="key" x1="0" y1="1" x2="0" y2="0">{stops}</linearGradient>'
        f'<rect {box} fill="url(#key)"/>'
    )
    axis = _key_axis(trace)
    axis.start, axis.end = last, first
    parts += [text.draw(tick.text, x + thick + 6, axis.at(tick.value), axis.style) for tick in axis.ticks()]
    return "".join(parts)
