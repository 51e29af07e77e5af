"""Compute ranges, positions and ticks of axes by Plotly's rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfapp.report.svg import text
from sfapp.report.svg.text import Style
from sfapp.report.svg.values import each, formatted, unsupported

PAD = 0.05
"""Padding beyond the outermost mark, as a share of the axis."""

_STEPS = (2, 5, 10)

_MOST_TICKS = 1_000
"""Number of ticks above which a fixed distance between them is not kept; Plotly draws no more either."""

_LEAST_SPAN = 1e-9
"""Half of the shortest axis around a number, as a share of it: above 2^53, a float plus 1 is that float."""

_TYPES = (None, "-", "linear", "category")


def _apart(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis, moved apart where they are the same number."""
    margin = max(1.0, _LEAST_SPAN * abs(low)) if low == high else 0.0
    return low - margin, high + margin


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick: its position on the axis and its text."""

    value: float
    text: str


@dataclass(slots=True)
class Extent:
    """Extent of the traces on an axis; padded ends get room beyond them."""

    low: float = math.inf
    high: float = -math.inf
    pad_low: bool = False
    pad_high: bool = False

    def add(self, numbers: Sequence[float | None], padded: bool) -> None:
        """Extend by numbers."""
        known = [number for number in numbers if number is not None]
        if not known:
            return
        low, high = min(known), max(known)
        if low <= self.low:
            self.low, self.pad_low = low, padded or (self.pad_low and low == self.low)
        if high >= self.high:
            self.high, self.pad_high = high, padded or (self.pad_high and high == self.high)

    def range(self, to_zero: bool) -> tuple[float, float]:
        """Return the range of an axis that shows the whole extent."""
        if self.low > self.high:
            return -1.0, 6.0
        low, high = self.low, self.high
        if to_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            return _apart(low - 1, high + 1)
        span = high - low
        pads_low = self.pad_low and not (to_zero and low == 0)
        return low - (PAD * span if pads_low else 0), high + (PAD * span if self.pad_high else 0)


@dataclass(slots=True)
class Axis:
    """One axis.

    Attributes:
        name: its name in traces: ``x``, ``y2``.
        spec: its part of the layout.
        categories: the categories in order; None for a numeric axis.
        low, high: the range, larger value first if reversed.
        start, end: pixels of ``low`` and ``high``.
    """

    name: str
    spec: Mapping[str, Any]
    categories: list[str] | None = None
    extent: Extent = field(default_factory=Extent)
    low: float = 0.0
    high: float = 1.0
    start: float = 0.0
    end: float = 1.0

    @property
    def across(self) -> bool:
        """Return whether the axis is horizontal."""
        return self.name[0] == "x"

    @property
    def visible(self) -> bool:
        """Return whether the axis is drawn."""
        return bool(self.spec.get("visible", True))

    @property
    def domain(self) -> tuple[float, float]:
        """Return its part of the drawing, as fractions."""
        low, high = self.spec.get("domain", (0, 1))
        return float(low), float(high)

    @property
    def style(self) -> Style:
        """Return the style of its tick labels."""
        return Style.of(self.spec.get("tickfont"))

    @property
    def turn(self) -> float:
        """Return the rotation of tick labels, degrees."""
        return float(self.spec.get("tickangle", 0))

    def place(self, value: Any) -> float | None:
        """Return a value as a position on the axis; a category by its index."""
        if value is None:
            return None
        if isinstance(value, str):
            return (
                float(self.categories.index(value)) if self.categories and value in self.categories else None
            )
        return float(value)

    def places(self, values: Sequence[Any]) -> list[float | None]:
        """Return values as positions on the axis."""
        if self.categories is None:
            return [self.place(value) for value in values]
        known = {name: float(place) for place, name in enumerate(self.categories)}
        return [known.get(value) if isinstance(value, str) else self.place(value) for value in values]

    def at(self, number: float) -> float:
        """Return the pixel of a position."""
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)

    def spans(self, number: float) -> bool:
        """Return whether a position is in range."""
        low, high = sorted((self.low, self.high))
        slack = 1e-9 * (high - low)
        return low - slack <= number <= high + slack

    @property
    def has_own_range(self) -> bool:
        """Return whether the figure fixes the range."""
        return self.spec.get("range") is not None and self.spec.get("autorange") in (None, False)

    def fix_range(self) -> None:
        """Set the range: the fixed one, or the one that shows everything."""
        if self.spec.get("type") not in _TYPES:
            raise unsupported("axis type", self.spec["type"])
        if self.has_own_range:
            fixed = self.spec["range"]
            self.low, self.high = _apart(float(fixed[0]), float(fixed[1]))
            return
        self.low, self.high = self.extent.range(self.spec.get("rangemode") == "tozero")
        if self.spec.get("autorange") == "reversed":
            self.low, self.high = self.high, self.low

    def ticks(self) -> list[Tick]:
        """Return the ticks in range."""
        if not self.visible:
            return []
        tickvals = self.spec.get("tickvals")
        if tickvals is not None:
            texts = self.spec.get("ticktext")
            found = [
                Tick(
                    place,
                    self._with_affixes(str(each(texts, index, "")))
                    if texts
                    else self._tick_text(place, None),
                )
                for index, place in enumerate(self.places(tickvals))
                if place is not None
            ]
        elif self.categories is not None:
            found = self._category_ticks(self.categories)
        else:
            found = self._number_ticks()
        return [tick for tick in found if self.spans(tick.value)]

    def _category_ticks(self, names: list[str]) -> list[Tick]:
        length = abs(self.end - self.start)
        need = 1.5 * self.style.size
        if self.across and not self.turn:
            need = 8 + max((text.width(name, self.style.size) for name in names), default=0)
        every = (
            max(1, math.ceil(len(names) * need / max(length, 1.0))) if len(names) * need > 1.4 * length else 1
        )
        return [Tick(float(place), self._with_affixes(names[place])) for place in range(0, len(names), every)]

    def _number_ticks(self) -> list[Tick]:
        low, high = sorted((self.low, self.high))
        step = float(self.spec.get("dtick") or 0.0)
        if not step or high - low > _MOST_TICKS * step:
            step = self._step(high - low)
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        marks = [Tick(place * step, self._tick_text(place * step, step)) for place in range(first, last + 1)]
        return [tick for tick in marks if tick.text]

    def _step(self, span: float) -> float:
        """Return the next larger round step for the wanted number of ticks."""
        length = abs(self.end - self.start)
        count = self.spec.get("nticks") or min(9, max(4, length / (80 if self.across else 40))) + 1
        rough = span / count
        base = 10.0 ** math.floor(math.log10(rough))
        return base * next(step for step in _STEPS if rough / base <= step)

    def _tick_text(self, value: float, step: float | None) -> str:
        text = formatted(value, self.spec.get("tickformat", ""), step)
        return self._with_affixes(text) if text else ""

    def _with_affixes(self, text: str) -> str:
        return f"{self.spec.get('tickprefix', '')}{text}{self.spec.get('ticksuffix', '')}"

    def label_room(self, ticks: Sequence[Tick]) -> float:
        """Return the pixels that tick labels and title take next to the plot."""
        if not self.visible:
            return 0.0
        room = 0.0
        if self.spec.get("showticklabels", True) and ticks:
            size = self.style.size
            room = max((self._reach(tick.text, size) for tick in ticks), default=0.0) + 5
        title = self.spec.get("title")
        if title:
            room += title.get("standoff", 8) + text.LINE * Style.of(title.get("font")).size
        return room

    def _reach(self, label: str, size: float) -> float:
        """Return how far a label extends from the axis, pixels."""
        long, high = text.width(label, size), text.height(label, size)
        if not self.across:
            return long
        angle = math.radians(abs(self.turn))
        return long * math.sin(angle) + high * math.cos(angle)


def axes_of(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> dict[str, Axis]:
    """Return all axes of a figure by name."""
    names = ["x", "y", *(trace.get(letter + "axis", letter) for trace in traces for letter in "xy")]
    names += [key.replace("axis", "") for key in layout if key.startswith(("xaxis", "yaxis"))]
    return {name: Axis(name, layout.get(f"{name[0]}axis{name[1:]}", {})) for name in sorted(set(names))}
