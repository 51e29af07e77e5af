"""The plots of a report: in both themes, with the notes that are pinned to their window marked on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sfapp.accounting import Comparison, Measures
from sfapp.model import Diagnosis
from sfapp.model.incidents import Note, notes_on
from sfapp.model.view import ViewState, WindowKey
from sfapp.operators import Findings
from sfapp.views import figures
from sfapp.views import text as words

PLOTS = (
    "frontier_steps",
    "prefix_crossings",
    "step_timeline",
    "routing_pareto",
    "ambiguity_plane",
    "rank_step_heatmap",
)
"""The plots of a window in a report, by their names in ``figures.WINDOW_PLOTS``, in order."""

STRAGGLER_PLOTS = ("straggler_distances", "blame_path", "operator_timeline")
"""What follows them where operator events lie beside the packets, by names in ``figures.FINDINGS_PLOTS``."""

RANKS_IN_FULL = 64
"""Operators are told of the first window, and of more with so many ranks in all: a page on five windows of 64
ranks stays below a megabyte."""

LEFT_OUT = "its operators are left out, to keep the report small; collect plots of them into an incident"


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot in both themes, and how to read it.

    Attributes:
        name: as in ``figures.WINDOW_PLOTS`` or ``figures.FINDINGS_PLOTS``.
    """

    name: str
    light: figures.Figure
    dark: figures.Figure
    hint: str


def window_plots(
    names: Sequence[str], measures: Measures, diagnosis: Diagnosis, view: ViewState, notes: Sequence[Note]
) -> list[Plot]:
    """Plots of a window by their names in ``figures.WINDOW_PLOTS``.

    Args:
        notes: of the incident; those pinned to this window are marked.
    """
    return [
        _noted(
            name,
            lambda name, dark: figures.window_plot(name, measures, diagnosis, view, dark=dark),
            diagnosis,
            view,
            notes,
        )
        for name in names
    ]


def findings_plots(
    names: Sequence[str], findings: Findings, diagnosis: Diagnosis, view: ViewState, notes: Sequence[Note]
) -> list[Plot]:
    """Plots of what KAIR finds in a window, by their names in ``figures.FINDINGS_PLOTS``."""
    return [
        _noted(
            name,
            lambda name, dark: figures.findings_plot(name, findings, diagnosis, view, dark=dark),
            diagnosis,
            view,
            notes,
        )
        for name in names
    ]


def comparison_plot(name: str, found: Comparison) -> Plot:
    """A plot of a comparison, by its name in ``figures.COMPARISON_PLOTS``."""
    light, dark = (figures.COMPARISON_PLOTS[name](found, dark=dark) for dark in (False, True))
    return Plot(name, light, dark, words.HINTS[name])


def _noted(
    name: str,
    draw: Callable[[str, bool], figures.Figure],
    diagnosis: Diagnosis,
    view: ViewState,
    notes: Sequence[Note],
) -> Plot:
    here = notes_on(WindowKey(diagnosis.run_id, diagnosis.window), notes)
    light, dark = (
        figures.with_notes(draw(name, dark), name, here, step=view.step, dark=dark) for dark in (False, True)
    )
    return Plot(name, light, dark, words.HINTS[name])
