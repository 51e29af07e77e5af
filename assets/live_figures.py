"""Draw the figures of docs/exposed-time.md: as SVG to read anywhere, and live for the documentation site.

    python assets/live_figures.py

The SVG is kept with the documentation. ``docs/live/built`` is for one build of the site: each set of figures
as JSON for every position of its slider, and the plot library. ``docs/live/figures.js`` puts them in the
place of the SVG.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from sfapp.accounting import Measures, judge, measure  # noqa: E402
from sfapp.assets import PLOTLY, assets  # noqa: E402
from sfapp.model import Diagnosis  # noqa: E402
from sfapp.model.examples import DISPLACED, MEASURED, Example  # noqa: E402
from sfapp.model.view import ViewState  # noqa: E402
from sfapp.report.svg import to_svg  # noqa: E402
from sfapp.views import format  # noqa: E402
from sfapp.views.figures import Figure, window_plot  # noqa: E402

FOLDER = ROOT / "docs" / "live"
BUILT = "built"

VIEW = ViewState(frontier="step")
"""The paper's frontier, which the page explains; of one step it equals that which sfapp uses."""

HEIGHTS = {"frontier_steps": 420}
"""Heights in pixels of plots that need more room than in the app, because their axis reaches further."""

LATE_S = tuple(half / 2 for half in range(13))
"""Positions of the slider: how late the loader of rank 0 is, in seconds."""

EXAMPLE_LATE_S = 5.0
"""How late it is in the example."""

_VUE = 'import { toRaw } from "vue";'
"""What ``assets/plotly.js`` needs of the app's framework, which the site does not have."""

_SECONDS_OF = {"s": 1.0, "ms": 1e-3}


@dataclass(frozen=True, eq=False)
class Position:
    """One position of a slider, or the only one.

    Attributes:
        value: what the slider is set to.
        names: of its plots in the registry.
    """

    value: str
    measures: Measures
    diagnosis: Diagnosis
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The step time, what of it each stage exposes, and what a mean over ranks shows."""
        found = self.diagnosis
        shares = found.shares or {}
        stages = (
            f"{format.short_stage(stage)} {format.duration(advance)} ({format.percent(shares[stage], 1)})"
            for stage, advance in found.advances_ns.items()
        )
        means = self.measures.by_broad(self.measures.mean_SN.sum(axis=1))
        mean, stage = max(zip(means, self.measures.broad, strict=True))
        return (
            f"Step time {format.duration(found.exposed_makespan_ns)}. Exposed: {', '.join(stages)}. "
            f"Largest mean over ranks: {format.short_stage(stage)} {format.duration(mean)}."
        )

    def figure(self, name: str, dark: bool) -> Figure:
        """Return a figure as the app draws it, with its own time axis."""
        return window_plot(name, self.measures, self.diagnosis, VIEW, dark=dark, height=HEIGHTS.get(name))


@dataclass(frozen=True, eq=False)
class FigureSet:
    """Figures that share a slider.

    Attributes:
        name: of the file, and the first part of the names of its drawings.
        label: of the slider; empty if there is one position only.
        start: the position of the drawings.
    """

    name: str
    label: str
    start: int
    positions: Sequence[Position]

    @property
    def names(self) -> tuple[str, ...]:
        return self.positions[self.start].names

    def ends_s(self, name: str) -> tuple[float, float]:
        """Return the ends of a plot's time axis, which every position shares."""
        shown = (_time_axis(position.figure(name, False)) for position in self.positions)
        lows, highs = zip(*(axis.ends_s for axis in shown), strict=True)
        return min(lows), max(highs)

    def drawing(self, name: str) -> str:
        """Return one figure as SVG, at the start."""
        return to_svg(_on_seconds(self.positions[self.start].figure(name, False), *self.ends_s(name)))

    def live(self) -> dict[str, Any]:
        """Return the figures of every position in both themes, as ``docs/live/figures.js`` reads them."""
        ends = {name: self.ends_s(name) for name in self.names}

        def figures(position: Position) -> dict[str, dict[str, Figure]]:
            return {
                name: {
                    theme: _on_seconds(position.figure(name, theme == "dark"), *ends[name])
                    for theme in ("light", "dark")
                }
                for name in self.names
            }

        return {
            "label": self.label,
            "start": self.start,
            "positions": [
                {"value": each.value, "text": each.text, "figures": figures(each)} for each in self.positions
            ],
        }


def late_loader(late_s: float) -> Example:
    """Return the example with another delay of rank 0's loader, and the waits inside backward measured.

    Each rank's own work stays the same. The ranks synchronise inside backward, so that all wait there for
    the last one. A delay of ``EXAMPLE_LATE_S`` gives the example's durations.
    """
    arrivals = [data + forward for data, forward, _ in DISPLACED.seconds]
    own = [
        backward - (max(arrivals) - arrival)
        for (_, _, backward), arrival in zip(DISPLACED.seconds, arrivals, strict=True)
    ]
    data = [seconds[0] for seconds in DISPLACED.seconds]
    data[0] += late_s - EXAMPLE_LATE_S
    forward = [seconds[1] for seconds in DISPLACED.seconds]
    arrivals = [sum(each) for each in zip(data, forward, strict=True)]
    waits = [max(arrivals) - arrival for arrival in arrivals]
    backward = [wait + work for wait, work in zip(waits, own, strict=True)]
    seconds = tuple(zip(data, forward, backward, strict=True))
    return replace(
        DISPLACED, run_id="late-loader", source="", seconds=seconds, wait_s=tuple(waits),
        advance_s=(), exposed_s=None, maximum_s=(), maxima_s=None,
    )  # fmt: skip


def position(example: Example, value: str, names: tuple[str, ...]) -> Position:
    """Judge an example as the app does."""
    measures = measure(example.window())
    return Position(value, measures, judge(measures, frontier=VIEW.frontier), names)


def figure_sets() -> tuple[FigureSet, ...]:
    """Return every set of figures of the documentation."""
    both = ("swim_lane", "frontier_steps")
    late = [position(late_loader(late_s), f"{late_s} s", both) for late_s in LATE_S]
    return (
        FigureSet("late-loader", "Delay of rank 0's loader", LATE_S.index(EXAMPLE_LATE_S), late),
        FigureSet("slow-backward", "", 0, [position(MEASURED, "", ("swim_lane",))]),
    )


def drawings() -> Mapping[str, str]:
    """Return every drawing by its file name."""
    return {f"{each.name}.{name}.svg": each.drawing(name) for each in figure_sets() for name in each.names}


def write(folder: Path) -> None:
    """Write the drawings, and what makes them live, to a folder ``live`` of the documentation."""
    for name, text in drawings().items():
        (folder / name).write_text(text, encoding="utf-8")
    built = folder / BUILT
    shutil.rmtree(built, ignore_errors=True)
    (built / PLOTLY).parent.mkdir(parents=True)
    for each in figure_sets():
        text = json.dumps(each.live(), ensure_ascii=False, separators=(",", ":"))
        (built / f"{each.name}.json").write_text(text, encoding="utf-8")
    shutil.copy(assets() / PLOTLY, built / PLOTLY)
    shutil.copy(assets() / "vendor" / "plotly-LICENSE", built / "vendor")
    (built / "plotly.js").write_text(plot_script(), encoding="utf-8")


def plot_script() -> str:
    """Return the app's script for plots without its import of Vue.

    Raises:
        ValueError: the script imports something else now.
    """
    script = (assets() / "plotly.js").read_text(encoding="utf-8")
    if script.count(_VUE) != 1:
        raise ValueError(f"assets/plotly.js has no line {_VUE!r}; change _VUE in assets/live_figures.py")
    return script.replace(_VUE, "const toRaw = (value) => value;")


@dataclass(frozen=True, slots=True)
class _TimeAxis:
    """The time axis of a figure: its name, its unit in seconds, its settings with a title in seconds."""

    name: str
    unit_s: float
    settings: Mapping[str, Any]

    @property
    def ends_s(self) -> tuple[float, float]:
        low, high = self.settings["range"]
        return low * self.unit_s, high * self.unit_s


def _time_axis(figure: Figure) -> _TimeAxis:
    """Return the axis of a figure that shows time: the one with a unit at its numbers or in its title."""
    across, down = figure["layout"]["xaxis"], figure["layout"]["yaxis"]
    if "ticksuffix" in down:
        return _TimeAxis("yaxis", _SECONDS_OF[down["ticksuffix"].strip()], down)
    unit, _, words = across["title"]["text"].partition(" ")
    return _TimeAxis(
        "xaxis", _SECONDS_OF[unit], {**across, "title": {**across["title"], "text": f"s {words}"}}
    )


def _on_seconds(figure: Figure, low_s: float, high_s: float) -> Figure:
    """Return a figure with its time axis in seconds between two ends; nothing else that it shows changes.

    It cannot be zoomed: a finger on it scrolls the page.
    """
    layout, axis = figure["layout"], _time_axis(figure)
    ticks = range(0, int(high_s) + 1, 2)
    suffix = " s" if axis.name == "yaxis" else ""
    seconds = {
        **axis.settings,
        "range": [low_s / axis.unit_s, high_s / axis.unit_s],
        "tickvals": [tick / axis.unit_s for tick in ticks],
        "ticktext": [f"{tick}{suffix}" for tick in ticks],
    }
    seconds.pop("ticksuffix", None)
    axes = {"xaxis": layout["xaxis"], "yaxis": layout["yaxis"], axis.name: seconds}
    fixed = {name: {**settings, "fixedrange": True} for name, settings in axes.items()}
    return {
        **figure,
        "layout": {**layout, **fixed, "dragmode": False},
        "config": {**figure["config"], "displayModeBar": False},
    }


if __name__ == "__main__":
    write(FOLDER)
