"""Draw any plot of a window or of its operators by name, as a view shows it."""

from __future__ import annotations

from sfapp.accounting import Measures
from sfapp.model import Diagnosis
from sfapp.model.view import ViewState
from sfapp.operators import Findings
from sfapp.views.plot_registry import PLOTS, Figure, FindingsInput, WindowInput


def draw_plot(
    name: str, given: WindowInput | FindingsInput, *, dark: bool = False, height: int | None = None
) -> Figure:
    """Return one plot as a view shows it: with its step, ranks, stage, cause, operator and zoom.

    Args:
        name: of a plot in ``PLOTS`` that is drawn from this kind of input.
        height: in pixels; the figure's own if None.

    Raises:
        KeyError: no such plot is drawn from this kind of input.
    """
    spec = PLOTS[name]
    if spec.source is not type(given):
        raise KeyError(f"{name} is drawn from {spec.source.__name__}, not from {type(given).__name__}")
    figure = spec.build(given, dark)
    if height is not None:
        figure["layout"]["height"] = height
    return _zoomed(figure, name, given.view)


def window_plot(
    name: str,
    measures: Measures,
    diagnosis: Diagnosis,
    view: ViewState,
    *,
    dark: bool = False,
    height: int | None = None,
) -> Figure:
    """Return one plot of a window; see ``draw_plot``."""
    return draw_plot(name, WindowInput(measures, diagnosis, view), dark=dark, height=height)


def findings_plot(
    name: str,
    findings: Findings,
    diagnosis: Diagnosis,
    view: ViewState,
    *,
    dark: bool = False,
    height: int | None = None,
) -> Figure:
    """Return one plot of a window's operators; see ``draw_plot``."""
    return draw_plot(name, FindingsInput(findings, diagnosis, view), dark=dark, height=height)


def zoomed_axes(name: str, view: ViewState) -> dict[str, tuple[float, float]]:
    """Return the zoomed axes of a plot: by axis (``x``, ``y2``) its two ends."""
    return {zoom.axis: (zoom.low, zoom.high) for zoom in view.zoom_of(name)}


def _zoomed(figure: Figure, name: str, view: ViewState) -> Figure:
    layout = figure["layout"]
    axes = zoomed_axes(name, view)
    for axis, ends in axes.items():
        key = f"{axis[0]}axis{axis[1:]}"
        settings = layout.get(key, {})
        layout["meta"].setdefault("whole", {})[key] = settings.get("range")
        layout[key] = settings | {"range": list(ends), "autorange": False}
    if axes and "uirevision" in layout:
        # The browser keeps its own zoom as long as the revision stays the same; a new one applies this zoom.
        layout["uirevision"] = f"{layout['uirevision']} {axes}"
    return figure
