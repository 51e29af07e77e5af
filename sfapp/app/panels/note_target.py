"""Compute the view that shows a note's pin: its tab, step, rank, stage and zoom."""

from __future__ import annotations

from dataclasses import replace

from sfapp.model.incidents import Pin
from sfapp.model.view import NOTES, OVERVIEW, TABS, ViewState
from sfapp.views.plot_registry import NODE_TAB, PLOTS


def view_of_pin(pin: Pin, view: ViewState, node: int = 0) -> ViewState:
    """Return the view that shows a note's pin; gates and fields that the pin does not set are kept.

    Args:
        view: the current view.
        node: the node whose tab shows a plot of one node.
    """
    found = replace(
        view,
        tab=_tab(pin, view, node),
        step=view.step if pin.step is None else pin.step,
        stage=view.stage if pin.stage is None else pin.stage,
        ranks=view.ranks if pin.rank is None else (pin.rank,),
    )
    for zoom in pin.region:
        found = found.zoomed(zoom.plot, {zoom.axis: (zoom.low, zoom.high)})
    return found


def _tab(pin: Pin, view: ViewState, node: int) -> str:
    """Return the open tab if it shows the pinned item, else the first tab that does."""
    if pin.plot is not None:
        return next((tab for tab in (view.tab, *TABS, f"node:{node}") if _has(tab, pin.plot)), view.tab)
    if view.tab != NOTES:
        return view.tab
    if pin.step is not None or pin.rank is not None:
        return "frontier"
    return OVERVIEW if pin.stage is None else "ranks"


def _has(tab: str, plot: str) -> bool:
    shown = NODE_TAB if ViewState(tab=tab).node is not None else tab
    return any(spec.name == plot for spec, _ in PLOTS.on_tab(shown))
