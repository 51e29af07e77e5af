"""Draw the plots of a report in both themes, marking the notes that are pinned to their window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sfapp.accounting import Comparison, Measures
from sfapp.model import Diagnosis
from sfapp.model.incidents import Note, notes_on
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.report.svg.values import without_drag_mark
from sfapp.views import figures
from sfapp.views.plot_registry import PLOTS, ComparisonInput, FindingsInput, InputT, WindowInput

RANKS_IN_FULL = 64
"""Maximum total number of ranks of windows whose operators are shown (those of the first window always are),
so that a page on five windows of 64 ranks stays below a megabyte."""

LEFT_OUT = "its operators are left out to keep the report small; to show them, add their plots to an incident"


@dataclass(frozen=True, slots=True)
class ReportPlot:
    """One plot in both themes, and how to read it.

    Attributes:
        name: of the plot in ``PLOTS``.
    """

    name: str
    light: figures.Figure
    dark: figures.Figure
    hint: str


def report_names(source: type[InputT], given: InputT | None = None) -> tuple[str, ...]:
    """Return the names of the plots that a report shows of one kind of input, in order.

    Args:
        given: leave out plots that do not apply to this input.
    """
    shown = PLOTS.in_report(source)
    return tuple(spec.name for spec in shown if given is None or spec.applies(given))


def window_plots(
    names: Sequence[str], measures: Measures, diagnosis: Diagnosis, view: ViewState, notes: Sequence[Note]
) -> list[ReportPlot]:
    """Draw plots of a window by name.

    Args:
        notes: of the incident; those pinned to this window are marked.
    """
    given = WindowInput(measures, diagnosis, view)
    return [_plot(name, given, notes) for name in names]


def findings_plots(
    names: Sequence[str], findings: Findings, diagnosis: Diagnosis, view: ViewState, notes: Sequence[Note]
) -> list[ReportPlot]:
    """Draw plots of a window's operators by name; see ``window_plots``."""
    given = FindingsInput(findings, diagnosis, view)
    return [_plot(name, given, notes) for name in names]


def comparison_plots(found: Comparison) -> tuple[ReportPlot, ...]:
    """Draw the plots of a comparison that apply to it."""
    given = ComparisonInput(found)
    shown = [spec for spec in PLOTS.in_report(ComparisonInput) if spec.applies(given)]
    return tuple(_in_both_themes(spec.name, partial(spec.build, given)) for spec in shown)


def _plot(name: str, given: WindowInput | FindingsInput, notes: Sequence[Note]) -> ReportPlot:
    here = notes_on(WindowKey(given.diagnosis.run_id, given.diagnosis.window), notes)

    def draw(dark: bool) -> figures.Figure:
        drawn = figures.draw_plot(name, given, dark=dark)
        return figures.with_notes(drawn, name, here, step=given.view.step, dark=dark)

    return _in_both_themes(name, draw)


def _in_both_themes(name: str, draw: Callable[[bool], figures.Figure]) -> ReportPlot:
    return ReportPlot(name, still(draw(False)), still(draw(True)), PLOTS[name].help)


def still(figure: figures.Figure) -> figures.Figure:
    """Return a figure in which nothing can be dragged, without the marks that invite to it."""
    layout = dict(figure["layout"])
    if "shapes" in layout:
        layout["shapes"] = [_without_mark(shape) for shape in layout["shapes"]]
    config = {name: value for name, value in figure["config"].items() if name != "edits"}
    return {**figure, "layout": layout, "config": config}


def _without_mark(shape: Mapping[str, Any]) -> Mapping[str, Any]:
    label = shape.get("label", {})
    if "texttemplate" not in label:
        return shape
    return {**shape, "label": {**label, "texttemplate": without_drag_mark(label["texttemplate"])}}
