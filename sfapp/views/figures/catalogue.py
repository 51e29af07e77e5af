"""Every plot of a window or its findings by name, as a view asks: one way for page, report and incident.

The names are those of the figure functions and of their reading aids in ``words.HINTS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.view import ViewState
from sfapp.operators import Findings
from sfapp.views.figures.ambiguity import ambiguity_plane
from sfapp.views.figures.base import Figure
from sfapp.views.figures.blame import blame_path
from sfapp.views.figures.collectives import collective_split
from sfapp.views.figures.compare import comparison_bars, comparison_spread, comparison_waterfall
from sfapp.views.figures.crossings import prefix_crossings
from sfapp.views.figures.frequency import operator_frequency
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.handover import handover_matrix
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.node import node_ranks, node_skew, node_sparklines
from sfapp.views.figures.operator_timeline import operator_timeline
from sfapp.views.figures.rank_similarity import straggler_distances, straggler_scores
from sfapp.views.figures.rival_rules import rules
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.figures.verdict_map import routing_over_tau, verdict_regions

Draw = Callable[[Measures, Diagnosis, ViewState, bool], Figure]

COMPARISON_PLOTS: Mapping[str, Callable[..., Figure]] = {
    "comparison_waterfall": comparison_waterfall,
    "comparison_bars": comparison_bars,
    "comparison_spread": comparison_spread,
}
"""Every plot of a comparison by name; called with it and ``dark``. The spread is one of whole runs."""

WINDOW_PLOTS: Mapping[str, Draw] = {
    "frontier_steps": lambda m, d, view, dark: frontier_steps(m, d, view.step, dark=dark),
    "prefix_crossings": lambda m, d, view, dark: prefix_crossings(
        m, d, view.step, selected=view.ranks, dark=dark
    ),
    "step_timeline": lambda m, d, view, dark: step_timeline(m, d, view.step, dark=dark),
    "routing_pareto": lambda m, d, view, dark: routing_pareto(d, dark=dark),
    "ambiguity_plane": lambda m, d, view, dark: ambiguity_plane(d, dark=dark),
    "verdict_regions": lambda m, d, view, dark: verdict_regions(m, d, dark=dark),
    "routing_over_tau": lambda m, d, view, dark: routing_over_tau(d, dark=dark),
    "rank_step_heatmap": lambda m, d, view, dark: rank_step_heatmap(
        m, d, view.stage, view.quantity, step=view.step, dark=dark
    ),
    "handover_matrix": lambda m, d, view, dark: handover_matrix(m, d, dark=dark),
    "rules": lambda m, d, view, dark: rules(d, dark=dark),
    "node_ranks": lambda m, d, view, dark: node_ranks(m, d, _node(m, view), dark=dark),
    "node_sparklines": lambda m, d, view, dark: node_sparklines(m, d, _node(m, view), dark=dark),
    "node_skew": lambda m, d, view, dark: node_skew(m, d, _node(m, view), dark=dark),
}

FINDINGS_PLOTS: Mapping[str, Callable[[Findings, Diagnosis, ViewState, bool], Figure]] = {
    "straggler_distances": lambda f, d, view, dark: straggler_distances(f, d, dark=dark),
    "straggler_scores": lambda f, d, view, dark: straggler_scores(f, d, view, dark=dark),
    "blame_path": lambda f, d, view, dark: blame_path(f, d, view, dark=dark),
    "operator_timeline": lambda f, d, view, dark: operator_timeline(f, d, view, dark=dark),
    "operator_frequency": lambda f, d, view, dark: operator_frequency(f, d, view, dark=dark),
    "collective_split": lambda f, d, view, dark: collective_split(f, d, view.step, dark=dark),
}
"""Every plot of what KAIR found in a window."""


def window_plot(
    name: str,
    measures: Measures,
    diagnosis: Diagnosis,
    view: ViewState,
    *,
    dark: bool = False,
    height: int | None = None,
) -> Figure:
    """One plot of a window as a view shows it: its step, its ranks, its stage, its zoom.

    Args:
        name: one of ``WINDOW_PLOTS``.
        height: in pixels; the figure's own where None.
    """
    return _as_viewed(WINDOW_PLOTS[name](measures, diagnosis, view, dark), name, view, height)


def findings_plot(
    name: str,
    findings: Findings,
    diagnosis: Diagnosis,
    view: ViewState,
    *,
    dark: bool = False,
    height: int | None = None,
) -> Figure:
    """One plot of what KAIR found as a view shows it: its cause, its operator, its ranks, its step, its zoom.

    Args:
        name: one of ``FINDINGS_PLOTS``.
        diagnosis: of the same window; its aim is marked.
        height: in pixels; the figure's own where None.
    """
    return _as_viewed(FINDINGS_PLOTS[name](findings, diagnosis, view, dark), name, view, height)


def _as_viewed(figure: Figure, name: str, view: ViewState, height: int | None) -> Figure:
    layout = figure["layout"]
    if height is not None:
        layout["height"] = height
    axes = zoomed_axes(name, view)
    for axis, ends in axes.items():
        key = f"{axis[0]}axis{axis[1:]}"
        settings = layout.get(key, {})
        layout["meta"].setdefault("whole", {})[key] = settings.get("range")
        layout[key] = settings | {"range": list(ends), "autorange": False}
    if axes and "uirevision" in layout:
        # The browser keeps its own zoom while this stays the same; then it takes the one given here.
        layout["uirevision"] = f"{layout['uirevision']} {axes}"
    return figure


def zoomed_axes(name: str, view: ViewState) -> dict[str, tuple[float, float]]:
    """The axes of a plot that are zoomed in a view: by axis (``x``, ``y2``), its two ends."""
    return {zoom.axis: (zoom.low, zoom.high) for zoom in view.zoom_of(name)}


def _node(measures: Measures, view: ViewState) -> int:
    """The node whose tab is open; the first where none is."""
    return measures.window.ranks.nodes[0] if view.node is None else view.node
