"""An interactive panel for a notebook: the app's main controls, a verdict card and plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import ipywidgets
import plotly.graph_objects as go

from sfapp.errors import SfappError
from sfapp.model import Baseline, Diagnosis, Gates
from sfapp.model.gates import GATE_BY_NAME
from sfapp.model.view import ViewState
from sfapp.notebook import card
from sfapp.notebook.window import WindowView, titled
from sfapp.service.verdicts import judge_measures, measure_window
from sfapp.views import figures
from sfapp.views import text as words
from sfapp.views.figures.ambiguity import ambiguity_plane
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.glossary import FIRST_GATES
from sfapp.views.html_text import html_text

MEAN = "mean"


class Explorer:
    """Panel with sliders for τC, γA and γG, selectors for frontier, baseline and step, a card and plots.

    Attributes:
        panel: the widget that the notebook shows.
        controls: the widgets by name, to set them from code.
        diagnosis: the current verdict.
    """

    def __init__(self, view: WindowView) -> None:
        self._view = view
        self._measures = view.measures
        self.diagnosis = view.diagnosis
        self.controls = self._make_controls()
        self._card = ipywidgets.HTML()
        self._message = ipywidgets.HTML()
        self._shown = self._draw()
        self.plots: dict[str, go.FigureWidget] = {
            name: go.FigureWidget(figure["data"], titled(figure)) for name, figure in self._shown.items()
        }
        self._reset = ipywidgets.Button(description="Reset")
        self._reset.on_click(lambda _: self.reset())
        for control in self.controls.values():
            control.observe(self._moved, "value")
        rail = ipywidgets.VBox([*self.controls.values(), self._reset, self._message])
        plots = ipywidgets.VBox(list(self.plots.values()))
        self.panel = ipywidgets.VBox([self._card, ipywidgets.HBox([rail, plots])])
        self._show_card()

    def reset(self) -> None:
        """Reset every control to the values that the window was opened with."""
        for name, control in self._make_controls().items():
            self.controls[name].value = control.value

    def _make_controls(self) -> dict[str, Any]:
        diagnosis = self._view.diagnosis
        sliders = {
            name: ipywidgets.FloatSlider(
                value=getattr(diagnosis.gates, name),
                min=GATE_BY_NAME[name].low,
                max=GATE_BY_NAME[name].high,
                step=GATE_BY_NAME[name].step,
                description=GATE_BY_NAME[name].symbol,
                tooltip=GATE_BY_NAME[name].help,
            )
            for name in FIRST_GATES
        }
        steps = [(MEAN, MEAN), *((str(step), step) for step in self._view.window.step_N.tolist())]
        choosers = {
            "frontier": ipywidgets.ToggleButtons(
                options=[("step", "step"), ("carry-over", "carry_over")], value=diagnosis.frontier
            ),
            "baseline": ipywidgets.Dropdown(
                options=[
                    (name.replace("_", " "), name)
                    for name in get_args(Baseline)
                    if name != "reference" or self._view.reference is not None
                ],
                value=diagnosis.baseline,
                description="baseline",
            ),
            "step": ipywidgets.SelectionSlider(options=steps, value=MEAN, description="step"),
        }
        return {**sliders, **choosers}

    def _moved(self, change: Mapping[str, Any]) -> None:
        """Judge again after a control has changed; measure again only for another baseline."""
        values = {name: control.value for name, control in self.controls.items()}
        try:
            moved = {name: values[name] for name in FIRST_GATES}
            gates: Gates = self._view.diagnosis.gates.with_values(**moved)
            view = ViewState(
                gates=gates,
                frontier=values["frontier"],
                baseline=values["baseline"],
                group=self._measures.window.group,
            )
            reference = self._view.reference
            if view.baseline != self._measures.baseline:
                window, waits = self._measures.window, self._measures.run_waits
                self._measures = measure_window(window, view, reference, waits)
            self.diagnosis = judge_measures(self._measures, view, reference)
        except SfappError as error:
            self._message.value = f"<span {card.NOT_TYPESET}>{html_text(str(error))}</span>"
            return
        self._message.value = ""
        drawn = self._draw()
        for name, figure in drawn.items():
            show(self.plots[name], self._shown[name], figure)
        self._shown = drawn
        self._show_card()

    def _draw(self) -> dict[str, figures.Figure]:
        diagnosis: Diagnosis = self.diagnosis
        chosen = self.controls["step"].value
        step = None if chosen == MEAN else chosen
        return {
            "frontier": frontier_steps(self._measures, diagnosis, step),
            "routing": routing_pareto(diagnosis),
            "ambiguity": ambiguity_plane(diagnosis),
        }

    def _show_card(self) -> None:
        view = self._view
        self._card.value = card.markup(words.verdict(self.diagnosis, view.window.ranks, view.missing_rows))


def show(widget: go.FigureWidget, old: figures.Figure, new: figures.Figure) -> None:
    """Update a widget to another figure: only the differences, in at most one message to the browser."""
    if new["data"] == old["data"] and new["layout"] == old["layout"]:
        return
    before, after = titled(old), titled(new)
    with widget.batch_update():
        if [trace["type"] for trace in old["data"]] == [trace["type"] for trace in new["data"]]:
            for shown, was, trace in zip(widget.data, old["data"], new["data"], strict=True):
                if trace != was:
                    shown.update(trace, overwrite=True)
        else:
            widget.data = ()
            widget.add_traces(new["data"])
        widget.layout.update(_changed(before, after), overwrite=True)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a layout that differ; None for those that are removed."""
    gone = {key: None for key in before if key not in after}
    return gone | {key: value for key, value in after.items() if key not in before or before[key] != value}
