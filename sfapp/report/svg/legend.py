"""Draw the legend: in rows above the plot, or in a column inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfapp.report.svg import bars, scatter, text
from sfapp.report.svg.text import Style, number
from sfapp.report.svg.values import each

Trace = Mapping[str, Any]

_SAMPLE = 26.0
_GAP = 6.0
_APART = 16.0


@dataclass(frozen=True, slots=True)
class Legend:
    """Entries of a legend, in rows that fit its width."""

    spec: Mapping[str, Any]
    style: Style
    rows: tuple[tuple[Trace, ...], ...]

    @property
    def height(self) -> float:
        """Return the height of all rows, pixels."""
        return len(self.rows) * self.pitch

    @property
    def pitch(self) -> float:
        """Return the distance between rows, pixels."""
        return 1.5 * self.style.size

    @property
    def is_above(self) -> bool:
        """Return whether the legend is above the plot, where it needs room."""
        return bool(self.rows) and self.spec.get("orientation") == "h"


def legend_of(traces: Sequence[Trace], layout: Mapping[str, Any], room: float) -> Legend:
    """Return the legend of a figure, without rows if it has none."""
    spec = layout.get("legend", {})
    style = Style.of(spec.get("font"))
    if not layout.get("showlegend", False):
        return Legend(spec, style, ())
    shown = [
        trace
        for trace in traces
        if trace["type"] != "heatmap" and trace.get("showlegend", True) and trace.get("name")
    ]
    shown.sort(key=lambda trace: trace.get("legendrank", 1000))
    if spec.get("orientation") != "h":
        return Legend(spec, style, tuple((trace,) for trace in shown))
    rows: list[list[Trace]] = [[]]
    used = 0.0
    for trace in shown:
        need = _width(trace, style)
        if rows[-1] and used + need > room:
            rows.append([])
            used = 0.0
        rows[-1].append(trace)
        used += need
    return Legend(spec, style, tuple(tuple(row) for row in rows if row))


def _width(trace: Trace, style: Style) -> float:
    return _sample_width(trace) + _GAP + text.width(trace["name"], style.size) + _APART


def _sample_width(trace: Trace) -> float:
    return (
        _SAMPLE
        if trace["type"] == "scatter"
        and "lines" in trace.get("mode", "lines")
        and not trace.get("stackgroup")
        else 12.0
    )


def draw(legend: Legend, left: float, top: float, patterns: dict[str, str]) -> str:
    """Draw the legend with its upper left corner at (left, top)."""
    parts = []
    for place, row in enumerate(legend.rows):
        x, middle = left, top + (place + 0.5) * legend.pitch
        for trace in row:
            wide = _sample_width(trace)
            parts.append(_sample(trace, x, middle, wide, patterns))
            parts.append(text.draw(trace["name"], x + wide + _GAP, middle, legend.style))
            x += _width(trace, legend.style)
    return "".join(parts)


def _sample(trace: Trace, x: float, middle: float, wide: float, patterns: dict[str, str]) -> str:
    marker = trace.get("marker", {})
    edge = marker.get("line", {})
    if trace["type"] == "bar" or trace.get("stackgroup"):
        fill = (
            bars.fill(marker, 0, patterns)
            if trace["type"] == "bar"
            else text.paint("fill", trace["fillcolor"])
        )
        framed = float(each(edge.get("width"), 0, 0))
        if framed > 1:
            colour = str(each(edge.get("color"), 0, "#444"))
            fill += f' {text.paint("stroke", colour)} stroke-width="{number(framed)}"'
        return f'<rect x="{number(x)}" y="{number(middle - 5.5)}" width="11" height="11" {fill}/>'
    parts = []
    mode = trace.get("mode", "lines")
    if "lines" in mode:
        way = f"M{number(x)} {number(middle)}H{number(x + wide)}"
        parts.append(f'<path d="{way}" fill="none" {scatter.stroke(trace.get("line", {}))}/>')
    if "markers" in mode:
        parts.append(
            scatter.mark(
                str(each(marker.get("symbol"), 0, "circle")),
                x + wide / 2,
                middle,
                min(11.0, float(each(marker.get("size"), 0, 6))),
                str(each(marker.get("color"), 0, "#17202E")),
                str(each(edge.get("color"), 0, "#444")),
                float(each(edge.get("width"), 0, 0)),
            )
        )
    return "".join(parts)
