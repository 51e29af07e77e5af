"""Draw shapes and annotations: thresholds, frames, bands, text and arrows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sfapp.report.svg import text
from sfapp.report.svg.axes import Axis
from sfapp.report.svg.scatter import stroke
from sfapp.report.svg.text import Anchor, Style, number, paint
from sfapp.report.svg.values import filled, unsupported

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Area:
    """Position of the plot in pixels, and its axes by name."""

    left: float
    top: float
    width: float
    height: float
    axes: Mapping[str, Axis]

    def x(self, ref: str, value: Any) -> float | None:
        """Return a horizontal pixel, from an axis or as a fraction of the area."""
        if ref == "paper":
            return self.left + float(value) * self.width
        return self._on(ref, value)

    def y(self, ref: str, value: Any) -> float | None:
        """Return a vertical pixel, from an axis or as a fraction of the area from below."""
        if ref == "paper":
            return self.top + (1 - float(value)) * self.height
        return self._on(ref, value)

    def _on(self, ref: str, value: Any) -> float | None:
        axis = self.axes[ref]
        place = axis.place(value)
        return None if place is None else axis.at(place)

    def shows(self, ref: str, value: Any) -> bool:
        """Return whether a value is in the range of its axis."""
        if ref == "paper":
            return True
        place = self.axes[ref].place(value)
        return place is not None and self.axes[ref].spans(place)


def draw_shape(shape: Spec, area: Area) -> str:
    """Draw a line, a rectangle or a dot."""
    if shape["type"] == "circle":
        return _dot(shape, area)
    x_ref, y_ref = shape.get("xref", "x"), shape.get("yref", "y")
    xs = [area.x(x_ref, shape["x0"]), area.x(x_ref, shape["x1"])]
    ys = [area.y(y_ref, shape["y0"]), area.y(y_ref, shape["y1"])]
    if None in xs or None in ys:
        return ""
    (x0, x1), (y0, y1) = _kept(xs, x_ref, area, True), _kept(ys, y_ref, area, False)
    line = shape.get("line", {})
    look = stroke(line) if line.get("width", 2) > 0 else ""
    if shape["type"] == "line":
        if not (area.shows(x_ref, shape["x0"]) and area.shows(y_ref, shape["y0"])):
            return ""
        drawn = f'<path d="M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}" fill="none" {look}/>'
        return drawn + _label(shape, x1, y1)
    if shape["type"] != "rect":
        raise unsupported("shape", shape["type"])
    left, right = sorted((x0, x1))
    top, bottom = sorted((y0, y1))
    if right <= left or bottom <= top:
        return ""
    fill = paint("fill", shape["fillcolor"]) if shape.get("fillcolor") else 'fill="none"'
    box = (
        f'x="{number(left)}" y="{number(top)}" width="{number(right - left)}" height="{number(bottom - top)}"'
    )
    return f"<rect {box} {fill} {look}/>".replace(" />", "/>")


def _dot(shape: Spec, area: Area) -> str:
    """Draw a circle of a fixed size around a point."""
    if (shape.get("xsizemode"), shape.get("ysizemode")) != ("pixel", "pixel"):
        raise unsupported("shape", "circle without a fixed size")
    x_ref, y_ref = shape.get("xref", "x"), shape.get("yref", "y")
    x, y = area.x(x_ref, shape["xanchor"]), area.y(y_ref, shape["yanchor"])
    if (
        x is None
        or y is None
        or not (area.shows(x_ref, shape["xanchor"]) and area.shows(y_ref, shape["yanchor"]))
    ):
        return ""
    radius = (float(shape["x1"]) - float(shape["x0"])) / 2
    look = f"{paint('fill', shape['fillcolor'])} {stroke(shape['line'])}"
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" {look}/>'


def _kept(ends: list[float | None], ref: str, area: Area, across: bool) -> tuple[float, float]:
    """Clamp both ends of a shape to its axis."""
    first, last = (float(end) for end in ends if end is not None)
    if ref == "paper":
        return first, last
    axis = area.axes[ref]
    low, high = sorted((axis.start, axis.end))
    # A frame may extend half a line width beyond the outermost mark.
    return max(low - 1, min(high + 1, first)), max(low - 1, min(high + 1, last))


def _label(shape: Spec, x: float, y: float) -> str:
    """Draw the label at the end of a threshold."""
    label = shape.get("label")
    if not label:
        return ""
    words = filled(label["texttemplate"], shape)
    style = Style.of(label.get("font"))
    pad, half = float(label.get("padding", 3)), text.height(words, style.size) / 2
    right = label.get("xanchor") == "right"
    middle = y - pad - half if label.get("yanchor") == "bottom" else y + pad + half
    return text.draw(words, x - pad if right else x + pad, middle, style, "end" if right else "start")


def draw_note(note: Spec, area: Area) -> str:
    """Draw an annotation with its arrow, if any; nothing if it points outside the plot."""
    x_ref, y_ref = note.get("xref", "x"), note.get("yref", "y")
    if not (area.shows(x_ref, note["x"]) and area.shows(y_ref, note["y"])):
        return ""
    x, y = area.x(x_ref, note["x"]), area.y(y_ref, note["y"])
    if x is None or y is None:
        return ""
    x, y = x + note.get("xshift", 0), y - note.get("yshift", 0)
    if not note.get("showarrow", True):
        return _words(note, x, y, (x_ref, y_ref))
    if "axref" in note:
        tail_x, tail_y = area.x(note["axref"], note["ax"]), area.y(note["ayref"], note["ay"])
        if tail_x is None or tail_y is None:
            return ""
    else:
        tail_x, tail_y = x + float(note.get("ax", -10)), y + float(note.get("ay", -30))
    return _arrow(note, (tail_x, tail_y), (x, y)) + _words(note, tail_x, tail_y, ("x", "y"), tail=True)


def rise(note: Spec) -> float:
    """Return how far an annotation extends above its position, pixels."""
    high = text.height(note.get("text", ""), Style.of(note.get("font")).size) if note.get("text") else 0.0
    above = {"top": 0.0, "bottom": high}.get(note.get("yanchor", "auto"), high / 2)
    lift = float(note.get("yshift", 0))
    if note.get("showarrow", True) and "ayref" not in note:
        lift -= float(note.get("ay", -30))
    return lift + above + 2


def _words(note: Spec, x: float, y: float, refs: tuple[str, str], tail: bool = False) -> str:
    words = note.get("text", "")
    if not words:
        return ""
    style = Style.of(note.get("font"))
    wide, high = text.width(words, style.size), text.height(words, style.size)
    turn = float(note.get("textangle", 0))
    pad = float(note.get("borderpad", 1))
    if turn in (-90, 90):
        middle_x, middle_y = x, y
        box_wide, box_high = high, wide
    else:
        across = _auto(note.get("xanchor", "auto"), note["x"], refs[0], ("left", "center", "right"))
        up = _auto(note.get("yanchor", "auto"), note["y"], refs[1], ("bottom", "middle", "top"))
        left = {"left": x + pad, "center": x - wide / 2, "right": x - wide - pad}[across]
        middle_x = left + wide / 2
        middle_y = {"top": y + pad + high / 2, "middle": y, "bottom": y - pad - high / 2}[up]
        box_wide, box_high = wide, high
    parts = []
    if note.get("bgcolor"):
        box = (
            f'x="{number(middle_x - box_wide / 2 - pad)}" y="{number(middle_y - box_high / 2 - pad)}" '
            f'width="{number(box_wide + 2 * pad)}" height="{number(box_high + 2 * pad)}"'
        )
        parts.append(f"<rect {box} {paint('fill', note['bgcolor'])}/>")
    align = note.get("align", "center")
    if turn or align == "center":
        # One line stands on the side that it is held at, so that another font moves its loose end only.
        single = not turn and len(text.lines_of(words)) == 1
        side = note.get("xanchor") if single else None
        anchor: Anchor = "start" if side == "left" else "end" if side == "right" else "middle"
        spot = {"start": middle_x - wide / 2, "end": middle_x + wide / 2}.get(anchor, middle_x)
    else:
        anchor = "start" if align == "left" else "end"
        spot = middle_x - wide / 2 if align == "left" else middle_x + wide / 2
    parts.append(text.draw(words, spot, middle_y, style, anchor, turn))
    return "".join(parts)


def _auto(anchor: str, value: Any, ref: str, sides: tuple[str, str, str]) -> str:
    """Return the anchor by Plotly's rule for ``auto``: by the third of the paper, centred on an axis."""
    if anchor != "auto":
        return anchor
    if ref != "paper":
        return sides[1]
    return sides[0] if value < 1 / 3 else sides[2] if value > 2 / 3 else sides[1]


def _arrow(note: Spec, tail: tuple[float, float], tip: tuple[float, float]) -> str:
    """Draw the line from a note's text to its point, with a head unless the note has none."""
    length = math.dist(tail, tip)
    colour = note.get("arrowcolor", "#17202E")
    width = float(note.get("arrowwidth", 1.5))
    start, end = float(note.get("startstandoff", 0)), float(note.get("standoff", 0))
    if note.get("text"):
        start = max(start, _out_of_words(note, tail, tip))
    if length <= start + end + 1:
        return ""
    step_x, step_y = (tip[0] - tail[0]) / length, (tip[1] - tail[1]) / length
    from_x, from_y = tail[0] + start * step_x, tail[1] + start * step_y
    to_x, to_y = tip[0] - end * step_x, tip[1] - end * step_y
    look = f'{paint("stroke", colour)} stroke-width="{number(width)}"'
    drawn = f'<path d="M{number(from_x)} {number(from_y)}L{number(to_x)} {number(to_y)}" fill="none" {look}/>'
    if note.get("arrowhead", 1):
        back_x, back_y = to_x - 4.5 * width * step_x, to_y - 4.5 * width * step_y
        side_x, side_y = -2 * width * step_y, 2 * width * step_x
        corners = [(to_x, to_y), (back_x + side_x, back_y + side_y), (back_x - side_x, back_y - side_y)]
        points = " ".join(f"{number(a)},{number(b)}" for a, b in corners)
        drawn += f'<polygon points="{points}" {paint("fill", colour)}/>'
    return drawn


def _out_of_words(note: Spec, tail: tuple[float, float], tip: tuple[float, float]) -> float:
    """Return how far the line runs inside the text that it starts from."""
    style = Style.of(note.get("font"))
    words = note["text"]
    wide, high = text.width(words, style.size) + 4, text.height(words, style.size) + 2
    anchor = note.get("xanchor", "auto")
    left = {"left": tail[0], "right": tail[0] - wide}.get(anchor, tail[0] - wide / 2)
    top = {"top": tail[1], "bottom": tail[1] - high}.get(note.get("yanchor", "auto"), tail[1] - high / 2)
    length = math.dist(tail, tip)
    inside = 0.0
    while inside < length:
        x = tail[0] + (tip[0] - tail[0]) * inside / length
        y = tail[1] + (tip[1] - tail[1]) * inside / length
        if not (left <= x <= left + wide and top <= y <= top + high):
            break
        inside += 1.0
    return inside
