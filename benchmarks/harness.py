"""Compare the duration of calls: alternating runs, medians, and one ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the benchmark table.

    Attributes:
        name: what was measured.
        value: median seconds (or bytes), in ``unit``.
        bar: upper bound, as a ratio to the yardstick or as an absolute value in ``unit``.
        yardstick: median of the yardstick in the same unit; None if the bar is absolute.
    """

    name: str
    value: float
    bar: float
    unit: str = "s"
    yardstick: float | None = None

    @property
    def figure(self) -> float:
        """The value to compare with the bar."""
        return self.value / self.yardstick if self.yardstick else self.value

    @property
    def holds(self) -> bool:
        return self.figure <= self.bar

    def line(self) -> str:
        """Return the row as text."""
        against = f"{_shown(self.yardstick, self.unit)}" if self.yardstick else "–"
        figure = f"{self.figure:.2f} ×" if self.yardstick else _shown(self.value, self.unit)
        bar = f"≤ {self.bar:g} ×" if self.yardstick else f"≤ {_shown(self.bar, self.unit)}"
        verdict = "holds" if self.holds else "MISSED"
        median = _shown(self.value, self.unit)
        return f"{self.name:<64} {median:>10} {against:>10} {figure:>10} {bar:>10}  {verdict}"


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "s":
        return f"{value * 1e3:.2f} ms" if value < 10 else f"{value:.1f} s"
    if unit == "ns":
        return f"{value:.0f} ns"
    if unit == "%":
        return f"{value:.2f} %"
    if value >= 1e7:
        return f"{value / 1e6:.1f} MB"
    return f"{value / 1e3:.1f} kB" if value >= 1e3 else f"{value:.0f} B"


HEADER = f"{'what':<64} {'median':>10} {'yardstick':>10} {'figure':>10} {'bar':>10}"


def timed(call: Callable[[], object]) -> float:
    """Return the duration of one call in seconds."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def side_by_side(*calls: Callable[[], object], runs: int = 9) -> list[float]:
    """Return each call's median duration in seconds; calls alternate, so that drift affects all equally."""
    for call in calls:
        call()
    samples = [[timed(call) for call in calls] for _ in range(runs)]
    return [statistics.median(column) for column in zip(*samples, strict=True)]
