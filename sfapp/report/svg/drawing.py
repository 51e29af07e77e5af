"""Draw a Plotly figure of ``sfapp.views.figures`` as SVG, laid out as Plotly does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfapp.report.svg import bars, heatmap, legend, scatter, shapes, text
from sfapp.report.svg.axes import Axis, Tick, axes_of
from sfapp.report.svg.shapes import Area
from sfapp.report.svg.text import Style, number, paint
from sfapp.report.svg.values import unsupported, values
from sfapp.views import palette
from sfapp.views.figures import Figure
from sfapp.views.html_text import html_text

WIDTH = 720
"""Width of a drawing, pixels; text of 12 pixels is readable on A4."""

KINDS = ("heatmap", "bar", "scatter")
"""Supported trace types in drawing order."""

Trace = Mapping[str, Any]


def to_svg(figure: Figure, width: int = WIDTH) -> str:
    """Return a figure as SVG: no script, no external resources, reproducible to the byte.

    Args:
        figure: a figure of ``sfapp.views.figures`` in the light theme.
        width: width in pixels; the figure defines its height.

    Raises:
        ReportError: the figure uses an unsupported feature, which the message names.
    """
    return _SvgDrawing(figure, float(width)).svg()


@dataclass(slots=True)
class _SvgDrawing:
    figure: Figure
    width: float
    axes: dict[str, Axis] = field(init=False)
    patterns: dict[str, str] = field(default_factory=dict)
    clips: dict[str, str] = field(default_factory=dict)

    @property
    def traces(self) -> Sequence[Trace]:
        traces: Sequence[Trace] = self.figure["data"]
        return traces

    @property
    def layout(self) -> Mapping[str, Any]:
        layout: Mapping[str, Any] = self.figure["layout"]
        return layout

    def svg(self) -> str:
        for trace in self.traces:
            if trace["type"] not in KINDS:
                raise unsupported("trace type", trace["type"])
        self.axes = axes_of(self.traces, self.layout)
        self._name_categories()
        stacks = self._stacks()
        bars_by_pair = self._bars()
        self._fix_ranges(stacks, bars_by_pair)
        key = legend.legend_of(self.traces, self.layout, self.width - 24)
        area = self._layout(key)
        parts = [
            *self._shapes(area, below=True),
            *(self._grid(axis, area) for axis in self.axes.values()),
            *self._traces(area, stacks, bars_by_pair),
            *(self._labels(axis, area) for axis in self.axes.values()),
            *self._shapes(area, below=False),
            *(
                heatmap.draw_key(trace, area.left + area.width, area.top, area.top + area.height)
                for trace in self.traces
                if heatmap.has_key(trace)
            ),
            *(shapes.draw_note(note, area) for note in self.layout.get("annotations", ())),
            self._legend(key, area),
        ]
        return self._document("".join(parts))

    # --- what the axes span ----------------------------------------------------------------------------

    def _name_categories(self) -> None:
        """Set the categories of axes, in order of appearance."""
        for trace in self.traces:
            for letter in "xy":
                axis = self._axis(trace, letter)
                column = values(trace.get(letter)) if letter in trace else []
                named = [value for value in column if isinstance(value, str)]
                if named or axis.spec.get("type") == "category":
                    known = axis.categories or []
                    axis.categories = list(dict.fromkeys([*known, *map(str, named)])) or None

    def _axis(self, trace: Trace, letter: str) -> Axis:
        return self.axes[trace.get(f"{letter}axis", letter)]

    def _pair(self, trace: Trace) -> tuple[Axis, Axis]:
        return self._axis(trace, "x"), self._axis(trace, "y")

    def _stacks(self) -> dict[int, tuple[list[float], list[float]]]:
        """Return heights and base of each stacked trace, by its position."""
        tops: dict[str, list[float]] = {}
        found = {}
        for place, trace in enumerate(self.traces):
            group = trace.get("stackgroup")
            if group:
                own = [float(value or 0.0) for value in values(trace["y"])]
                below = tops.get(group, [0.0] * len(own))
                tops[group] = [low + more for low, more in zip(below, own, strict=True)]
                found[place] = tops[group], below
        return found

    def _bars(self) -> list[tuple[Axis, Axis, list[bars.Bar]]]:
        """Return the bars of every pair of axes."""
        pairs: dict[tuple[str, str], list[Trace]] = {}
        for trace in self.traces:
            if trace["type"] == "bar":
                x_axis, y_axis = self._pair(trace)
                pairs.setdefault((x_axis.name, y_axis.name), []).append(trace)
        return [
            (self.axes[x], self.axes[y], bars.bars_of(traces, self.axes[x], self.axes[y], self.layout))
            for (x, y), traces in pairs.items()
        ]

    def _fix_ranges(
        self,
        stacks: Mapping[int, tuple[list[float], list[float]]],
        bars_by_pair: Sequence[tuple[Axis, Axis, list[bars.Bar]]],
    ) -> None:
        for place, trace in enumerate(self.traces):
            if trace["type"] == "heatmap":
                heatmap.reach(trace, *self._pair(trace))
            elif trace["type"] == "scatter":
                heights = stacks[place][0] if place in stacks else scatter.columns(trace)[1]
                scatter.reach(trace, *self._pair(trace), heights)
        for x_axis, y_axis, drawn in bars_by_pair:
            bars.reach(drawn, x_axis, y_axis)
        for axis in self.axes.values():
            axis.fix_range()

    # --- where things lie --------------------------------------------------------------------------------

    def _layout(self, key: legend.Legend) -> Area:
        """Place every axis; margins grow to fit their content."""
        margin = self.layout.get("margin", {})
        height = float(self.layout["height"])
        top, bottom = float(margin.get("t", 28)), float(margin.get("b", 8))
        left, right = float(margin.get("l", 8)), float(margin.get("r", 12))
        if key.is_above:
            top = max(top, key.height + 8)
        keys = [heatmap.key_room(trace) for trace in self.traces if heatmap.has_key(trace)]
        right += max(keys, default=0.0)
        area = Area(left, top, self.width - left - right, height - top - bottom, self.axes)
        for _ in range(2):  # labels depend on the available room, and the room on the labels
            self._place(area)
            self._reach_notes()
            label_room = {True: 0.0, False: 0.0}
            overhang = 0.0
            for axis in self.axes.values():
                ticks = axis.ticks()
                if axis.spec.get("anchor") != "free":
                    label_room[axis.across] = max(label_room[axis.across], axis.label_room(ticks))
                if axis.across and ticks and axis.spec.get("showticklabels", True) and not axis.turn:
                    half = text.width(ticks[-1].text, axis.style.size) / 2
                    overhang = max(overhang, axis.at(ticks[-1].value) + half - (area.left + area.width))
            new_left, new_bottom = left + label_room[False], bottom + label_room[True]
            new_right = max(right, overhang + 2)
            area = Area(
                new_left, top, self.width - new_left - new_right, height - top - new_bottom, self.axes
            )
        self._place(area)
        return area

    def _reach_notes(self) -> None:
        """Make room above annotations on axes without a fixed range."""
        for note in self.layout.get("annotations", ()):
            axis = self.axes.get(note.get("yref", "y"))
            place = None if axis is None else axis.place(note["y"])
            if axis is None or place is None or axis.has_own_range or axis.low > axis.high:
                continue
            length = axis.start - axis.end
            need = shapes.rise(note) / length
            if 0 < need < 0.5:
                axis.high = max(axis.high, axis.low + (place - axis.low) / (1 - need))

    def _place(self, area: Area) -> None:
        for axis in self.axes.values():
            low, high = axis.domain
            if axis.across:
                axis.start, axis.end = area.left + low * area.width, area.left + high * area.width
            else:
                axis.start = area.top + (1 - low) * area.height
                axis.end = area.top + (1 - high) * area.height

    def _foot(self, axis: Axis, area: Area) -> float:
        """Return the vertical position of a horizontal axis' labels."""
        anchor = axis.spec.get("anchor", "y")
        if anchor == "free":
            return area.top + (1 - float(axis.spec.get("position", 0))) * area.height
        return self.axes[anchor].start if anchor in self.axes else area.top + area.height

    # --- what is drawn ------------------------------------------------------------------------------------

    def _grid(self, axis: Axis, area: Area) -> str:
        if not axis.visible:
            return ""
        way = ""
        if axis.spec.get("showgrid", True):
            way = "".join(self._across(axis, tick.value, area) for tick in axis.ticks())
        lines = f'<path d="{way}" {paint("stroke", axis.spec.get("gridcolor", "#E6EAEF"))}/>' if way else ""
        if axis.spec.get("zeroline") and axis.spans(0):
            colour = paint("stroke", axis.spec.get("zerolinecolor", "#444"))
            lines += f'<path d="{self._across(axis, 0, area)}" {colour}/>'
        return lines

    def _across(self, axis: Axis, value: float, area: Area) -> str:
        at = axis.at(value)
        if axis.across:
            return f"M{number(at)} {number(area.top)}V{number(area.top + area.height)}"
        return f"M{number(area.left)} {number(at)}H{number(area.left + area.width)}"

    def _labels(self, axis: Axis, area: Area) -> str:
        if not axis.visible:
            return ""
        ticks = axis.ticks() if axis.spec.get("showticklabels", True) else []
        drawn = [self._label(axis, tick, area) for tick in ticks]
        title = axis.spec.get("title")
        if title:
            drawn.append(self._title(axis, title, ticks, area))
        return "".join(drawn)

    def _label(self, axis: Axis, tick: Tick, area: Area) -> str:
        at, style = axis.at(tick.value), axis.style
        if not axis.across:
            return text.draw(tick.text, area.left - 5, at, style, "end")
        top = self._foot(axis, area) + 5
        if axis.turn:
            return text.draw(tick.text, at, top + style.size / 2, style, "end", axis.turn)
        return text.draw(tick.text, at, top + text.height(tick.text, style.size) / 2, style, "middle")

    def _title(self, axis: Axis, title: Mapping[str, Any], ticks: Sequence[Tick], area: Area) -> str:
        style = Style.of(title.get("font"))
        room = axis.label_room(ticks)
        half = text.LINE * style.size / 2
        middle = (axis.start + axis.end) / 2
        if axis.across:
            return text.draw(title["text"], middle, self._foot(axis, area) + room - half, style, "middle")
        return text.draw(title["text"], area.left - room + half, middle, style, "middle", -90)

    def _traces(
        self,
        area: Area,
        stacks: Mapping[int, tuple[list[float], list[float]]],
        bars_by_pair: Sequence[tuple[Axis, Axis, list[bars.Bar]]],
    ) -> list[str]:
        drawn = []
        for trace in self.traces:
            if trace["type"] == "heatmap":
                pair = self._pair(trace)
                drawn.append(self._clipped(heatmap.draw(trace, *pair, palette.LIGHT.surface), trace, pair))
        for x_axis, y_axis, found in bars_by_pair:
            boxes = "".join(bars.draw(bar, x_axis, y_axis, self.patterns) for bar in found)
            least = float(self.layout.get("uniformtext", {}).get("minsize", bars.LEAST))
            words = "".join(bars.draw_text(bar, x_axis, y_axis, least) for bar in found)
            drawn.append(self._clipped(boxes, {}, (x_axis, y_axis)) + words)
        for place, trace in enumerate(self.traces):
            if trace["type"] == "scatter":
                pair = self._pair(trace)
                heights, below = stacks.get(place, (scatter.columns(trace)[1], None))
                drawn.append(self._clipped(scatter.draw(trace, *pair, heights, below), trace, pair))
        return drawn

    def _clipped(self, drawn: str, trace: Trace, pair: tuple[Axis, Axis]) -> str:
        """Clip at the ends of the axes, unless the trace disables clipping."""
        if not drawn or trace.get("cliponaxis") is False:
            return drawn
        (left, right), (top, bottom) = (sorted((axis.start, axis.end)) for axis in pair)
        # Do not cut markers at the ends of an axis.
        slack = 8.0 if "markers" in trace.get("mode", "") else 1.0
        box = (
            f'x="{number(left - slack)}" y="{number(top - slack)}" '
            f'width="{number(right - left + 2 * slack)}" height="{number(bottom - top + 2 * slack)}"'
        )
        name = self.clips.setdefault(box, f"area{len(self.clips)}")
        return f'<g clip-path="url(#{name})">{drawn}</g>'

    def _shapes(self, area: Area, below: bool) -> list[str]:
        return [
            shapes.draw_shape(shape, area)
            for shape in self.layout.get("shapes", ())
            if (shape.get("layer") == "below") == below
        ]

    def _legend(self, key: legend.Legend, area: Area) -> str:
        if not key.rows:
            return ""
        left = area.left + float(key.spec.get("x", 0)) * area.width
        top = area.top + (1 - float(key.spec.get("y", 1))) * area.height
        if key.is_above:
            # It starts at the left edge, independent of the length of tick labels.
            return legend.draw(
                key, min(left, 8.0), min(top - key.height - 2, area.top - key.height - 2), self.patterns
            )
        return legend.draw(key, left, top, self.patterns)

    def _document(self, body: str) -> str:
        height = number(float(self.layout["height"]))
        meta = self.layout.get("meta", {})
        clips = "".join(f'<clipPath id="{name}"><rect {box}/></clipPath>' for box, name in self.clips.items())
        patterns = "".join(f'<pattern id="{name}" {definition}' for definition, name in self.patterns.items())
        title = html_text(meta.get("title", ""))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{number(self.width)}" height="{height}" viewBox="0 0 {number(self.width)} {height}" '
            f'role="img" font-family="{text.FAMILY}">'
            f"<title>{title}</title><desc>{html_text(meta.get('alt', ''))}</desc>"
            f"<defs>{clips}{patterns}</defs>"
            f'<rect width="100%" height="100%" fill="{palette.LIGHT.surface}"/>{body}</svg>\n'
        )
