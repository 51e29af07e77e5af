"""Build a plot in its card: title, subtitle, help, the plot, its notes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import nicegui.json
import orjson
from nicegui import events, ui
from nicegui.elements.mixins.text_element import TextElement

from sfapp.app.definitions import defined, show_definitions
from sfapp.app.panels.notes_panel import NotesPanel
from sfapp.app.panels.plot_help import PlotHelp
from sfapp.app.panels.plot_table_view import PlotTableView
from sfapp.app.panels.view_model import Key, TabViewModel
from sfapp.app.theme import box, label_text, with_keys
from sfapp.model.parse import whole_number
from sfapp.model.view import ViewState
from sfapp.operators import Findings
from sfapp.service.judging import JudgedWindow
from sfapp.views.figures import Figure, draw_plot, notes_in, with_notes, zoomed_axes
from sfapp.views.plot_registry import PLOTS, FindingsInput, Placement, PlotSpec, WindowInput

# A click sends the position of the point, not the data of the whole trace.
_CLICKED = """(event) => {
  const point = event.points?.[0];
  if (point) emit({x: point.x, y: point.y, customdata: point.customdata ?? null});
}"""

# Zooming reports 'xaxis.range[0]' and similar keys, or 'xaxis.autorange' when the axis is reset.
_ZOOMED = """(event) => {
  const axes = {};
  for (const [key, value] of Object.entries(event)) {
    const [, axis, end] = key.match(/^([xy]axis\\d?)\\.(range\\[0\\]|range\\[1\\]|range|autorange)$/) ?? [];
    if (!axis) continue;
    if (end === "autorange") axes[axis] = null;
    else if (end === "range") axes[axis] = value;
    else (axes[axis] ??= [null, null])[end === "range[1]" ? 1 : 0] = value;
  }
  if (Object.keys(axes).length) emit(axes);
}"""

# A brush reports the range that it covers; a double click removes it.
_BRUSHED = "(event) => { if (event?.range?.x) emit(event.range.x); }"
_UNBRUSHED = "() => emit(null)"

# A dragged threshold reports each moved coordinate as 'shapes[0].y0'.
_RELAID = """(event) => {
  const moved = Object.entries(event).filter(([key]) => key.startsWith("shapes["));
  if (moved.length) emit(Object.fromEntries(moved));
}"""


HEALTHY = "healthy"
"""Group of the traces that show a run's healthy windows."""

Axes = Mapping[str, tuple[float, float] | None]
"""By axis (``x``, ``y2``): the ends of the visible part, None for the whole axis."""


@dataclass(frozen=True, slots=True)
class PlacedPlot:
    """A plot on a tab of a window page."""

    spec: PlotSpec[Any]
    place: Placement

    @property
    def name(self) -> str:
        return self.spec.name

    def applies(self, model: TabViewModel) -> bool:
        """Return whether the plot is shown for a window."""
        if self.spec.source is not WindowInput:
            return True
        return self.spec.applies(WindowInput(model.measures, model.diagnosis, model.view))

    def key(self, model: TabViewModel) -> Key:
        """Return the key of the plot, which is drawn again when this changes."""
        reads = tuple(part for name in self.spec.reads for part in model.part(name))
        return *model.matrix_key, *reads, notes_in(self.name, model.notes, model.view.step)

    def figure(self, model: TabViewModel) -> Figure:
        """Return the figure at its height here, zoomed as the view says, with the notes pinned to it."""
        key = (*self.key(model), *self.axes(model).items())
        return model.computed.get(f"{self.name} {self.place.height}", key, lambda: self._drawn(model))

    def _drawn(self, model: TabViewModel) -> Figure:
        findings = None if model.examined is None else model.examined.findings
        height = self.place.height
        drawn = draw(self.name, model.judged, findings, model.view, dark=model.dark, height=height)
        # The browser links what is under the pointer between plots (assets/plotly.js).
        drawn["layout"]["meta"] |= {"steps": self.spec.has_step_axis}
        return with_notes(drawn, self.name, model.notes, step=model.view.step, dark=model.dark)

    def axes(self, model: TabViewModel) -> dict[str, tuple[float, float]]:
        """Return its zoomed axes."""
        return zoomed_axes(self.name, model.view)


def draw(
    name: str,
    judged: JudgedWindow,
    findings: Findings | None,
    view: ViewState,
    *,
    dark: bool,
    height: int | None = None,
) -> Figure:
    """Draw any plot of a window or of its operators by name.

    Args:
        findings: needed only by plots of operators.
    """
    if PLOTS[name].source is not FindingsInput:
        given: WindowInput | FindingsInput = WindowInput(judged.measures, judged.diagnosis, view)
    elif findings is None:
        raise ValueError(f"{name} shows findings in operators, and these were not examined")
    else:
        given = FindingsInput(findings, judged.diagnosis, view)
    return draw_plot(name, given, dark=dark, height=height)


@dataclass(frozen=True, slots=True)
class Reactions:
    """The page's handlers for clicks, drags and zooms in plots, the plots' help, and the notes panel."""

    plot_help: PlotHelp
    notes_panel: NotesPanel
    pick_step: Callable[[int | None], Any]
    move_gate: Callable[[str, Any], Any]
    pick_ranks: Callable[[str], Any]
    look: Callable[..., Any]
    zoom: Callable[[str, Axes], Any]


LINKED = ("lanes", "steps")
"""What ``assets/plotly.js`` reads of a figure's ``layout.meta``, to link what is under the pointer."""


@dataclass(frozen=True, slots=True)
class _OpaqueFigure:
    """A figure that NiceGUI serialises without observing it.

    NiceGUI wraps every list and dict of a dict to observe changes, which blocks the event loop for a second
    with two thousand windows. A dataclass is serialised as it is.
    """

    data: list[Any]
    layout: dict[str, Any]
    config: dict[str, Any]


def _without_texts(figure: Figure) -> _OpaqueFigure:
    """Return what the browser needs of a figure.

    The card shows the texts. In the browser, another text would make Plotly draw the whole plot again.
    """
    layout = figure["layout"]
    meta = {name: layout["meta"][name] for name in LINKED if name in layout["meta"]}
    return _OpaqueFigure(figure["data"], {**layout, "meta": meta}, figure["config"])


class SharedFigure(dict[str, Any]):
    """A figure that many pages show, such as fifty browsers that follow one job: serialised once for all."""

    @cached_property
    def as_json(self) -> orjson.Fragment:
        return orjson.Fragment(nicegui.json.dumps(_without_texts(self)))


class PlotElement(ui.plotly):
    """A ``ui.plotly`` whose figures are replaced, never edited in place."""

    def _get_figure_json(self) -> Any:
        return self.figure.as_json if isinstance(self.figure, SharedFigure) else _without_texts(self.figure)


class FigureCard:
    """One plot on the page, built inside the current container; ``redraw`` updates it.

    Attributes:
        card: all of it. plot: the plot's element.
        axes: the zoomed axes in the browser.
    """

    def __init__(
        self,
        figure: Figure,
        span: int = 12,
        *,
        bare: bool = False,
        add_help: Callable[[ui.element], None] | None = None,
        axes: Axes | None = None,
    ) -> None:
        """Build the card.

        Args:
            span: width in columns of the page grid.
            bare: whether to leave out title and subtitle.
            add_help: adds help and buttons, given the head of the card.
            axes: the axes that are zoomed in ``figure``.
        """
        self.figure = figure
        self.axes: Axes = axes or {}
        self._texts: dict[str, TextElement] = {}
        meta = self._meta()
        with box(f"card figure span-{span}", "section") as self.card:
            if not bare:
                self._head(meta, add_help)
            self.plot = PlotElement(figure).classes("plot")
            self.plot.props["role"] = "figure"  # an image has nothing in it to focus
            self.plot.props["aria-label"] = meta["alt"]
            self._texts["notes"] = label_text(_texts(meta)["notes"], "div", "notes")
            self._table = PlotTableView(lambda: self.figure)

    def _head(self, meta: Mapping[str, Any], add_help: Callable[[ui.element], None] | None) -> None:
        with box("card-head") as head, box("grow"):
            texts = _texts(meta)
            self._texts["title"] = defined(texts["title"], "h2")
            self._texts["subtitle"] = defined(texts["subtitle"], "div", "subtitle")
        if add_help is not None:
            add_help(head)

    def redraw(self, figure: Figure, axes: Axes | None = None) -> None:
        """Show another figure in place; the zoom is kept while ``uirevision`` stays the same.

        An equal figure is not sent: a moved gate changes few plots, and drawing one takes 40 ms.
        """
        if figure == self.figure and (axes or {}) == self.axes:
            return
        self.figure = figure
        self.axes = axes or {}
        meta = self._meta()
        texts = _texts(meta)
        for name, element in self._texts.items():
            if element.text != texts[name]:
                element.text = texts[name]
                show_definitions(element)
        self.plot.props["aria-label"] = meta["alt"]
        self.plot.update_figure(figure)
        self._table.refresh()

    def on_click(self, handler: Callable[[Mapping[str, Any]], Any]) -> None:
        """Call back with ``x``, ``y`` and ``customdata`` of a clicked point."""

        def clicked(event: events.GenericEventArguments) -> Any:
            return handler(event.args) if isinstance(event.args, dict) else None

        self.plot.on("plotly_click", clicked, js_handler=_CLICKED)

    def on_drag(self, handler: Callable[[str, float], Any]) -> None:
        """Call back with the name and the new value of a dragged threshold."""

        def relaid(event: events.GenericEventArguments) -> Any:
            moved = self._moved(event.args) if isinstance(event.args, dict) else None
            return handler(*moved) if moved else None

        self.plot.on("plotly_relayout", relaid, js_handler=_RELAID)

    def on_zoom(self, handler: Callable[[Axes], Any]) -> None:
        """Call back with the axes that were zoomed or reset."""

        def zoomed(event: events.GenericEventArguments) -> Any:
            axes = self._zoomed(event.args) if isinstance(event.args, dict) else {}
            # A reset axis may not show its whole range, so it is recorded here and drawn again.
            self.axes = {**self.axes, **axes}
            return handler(axes) if axes else None

        self.plot.on("plotly_relayout", zoomed, js_handler=_ZOOMED)

    def on_brush(self, handler: Callable[[float | None, float | None], Any]) -> None:
        """Call back with the ends of a brush along x, or with None when it is removed."""

        def brushed(event: events.GenericEventArguments) -> Any:
            ends = _ends(event.args)
            return handler(*ends) if ends else None

        self.plot.on("plotly_selected", brushed, js_handler=_BRUSHED)
        self.plot.on("plotly_deselect", lambda: handler(None, None), js_handler=_UNBRUSHED)

    def _meta(self) -> Mapping[str, Any]:
        meta: Mapping[str, Any] = self.figure["layout"]["meta"]
        return meta

    def _moved(self, changes: Mapping[str, Any]) -> tuple[str, float] | None:
        """Return the moved threshold and its value: a horizontal line's y, a vertical line's x."""
        shapes = self.figure["layout"].get("shapes", [])
        for key, value in changes.items():
            written, _, coordinate = key.removeprefix("shapes[").partition("].")
            place = whole_number(written)
            if place is None or place >= len(shapes) or not isinstance(value, int | float):
                continue
            shape = shapes[place]
            if coordinate in ("x0", "y0") and shape.get(f"{coordinate[0]}ref") != "paper" and "name" in shape:
                return shape["name"], round(float(value), 2)
        return None

    def _zoomed(self, changes: Mapping[str, Any]) -> dict[str, tuple[float, float] | None]:
        """Return the changed axes; one that is back at its original ends, zoomed or not, was reset."""
        found: dict[str, tuple[float, float] | None] = {}
        for key, value in changes.items():
            ends = _ends(value)
            if _AXIS.fullmatch(key) and (value is None or ends is not None):
                original = (
                    self.figure["layout"].get(key, {}).get("range"),
                    self._meta().get("whole", {}).get(key),
                )
                found[key.replace("axis", "")] = None if ends in map(_ends, original) else ends
        return found


def _texts(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts around a plot; the subtitle includes the possible interaction."""
    subtitle = "; ".join(filter(None, (meta["subtitle"], meta["interaction"])))
    return {"title": meta["title"], "subtitle": subtitle, "notes": " ".join(meta["notes"])}


_AXIS = re.compile(r"[xy]axis\d?")


def _ends(value: Any) -> tuple[float, float] | None:
    """Return two different numbers, or None, because the browser may send anything."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in value) or value[0] == value[1]:
        return None
    return float(value[0]), float(value[1])


def plot_card(plot: PlacedPlot, model: TabViewModel, reactions: Reactions) -> FigureCard:
    """Build a plot of a window page with its clicks, drags and zooms wired up."""
    span, gates = plot.place.span, plot.spec.gates

    def add_buttons(head: ui.element) -> None:
        with head:
            if any(trace.get("legendgroup") == HEALTHY for trace in figure["data"]):
                _healthy_switch()
            reactions.notes_panel.plot_buttons(plot.name)
        reactions.plot_help.place(plot.name, head, span)

    figure = plot.figure(model)
    card = FigureCard(figure, span, add_help=add_buttons, axes=plot.axes(model))
    if plot.spec.picks_step:
        card.on_click(lambda point: _pick_step(point, reactions))
    if gates:
        card.on_drag(lambda name, value: reactions.move_gate(name, value) if name in gates else None)
    card.on_zoom(lambda axes: reactions.zoom(plot.name, axes))
    return card


def _healthy_switch() -> None:
    """Build the button and the key that hide and show the healthy windows in a plot, as its legend does."""
    switch = with_keys(label_text("Healthy", "button", "key"), "h", "Hide or show the healthy windows")
    switch.on("click", js_handler="(event) => sfapp.switchLegend(event.target, 'healthy')").mark("healthy")


def _pick_step(point: Mapping[str, Any], reactions: Reactions) -> Any:
    step = point.get("customdata") if isinstance(point.get("customdata"), int) else point.get("x")
    return reactions.pick_step(int(step)) if isinstance(step, int | float) else None
