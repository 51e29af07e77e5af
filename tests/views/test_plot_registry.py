"""One declaration per plot: complete for every module, and picked up by every surface."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sfapp.accounting import judge, measure
from sfapp.app.panels.live_tabs import tables_of
from sfapp.app.panels.plot_card import PlacedPlot
from sfapp.app.panels.tabs import items_of, placed_items
from sfapp.model import GATE_DOCS, Diagnosis
from sfapp.model.view import TABS, ViewState
from sfapp.notebook import Figures
from sfapp.report.plots import report_names, window_plots
from sfapp.views import figures
from sfapp.views import text as words
from sfapp.views.figures import Figure
from sfapp.views.figures.base import empty_figure
from sfapp.views.plot_registry import (
    LIVE_NODE_TAB,
    LIVE_TAB,
    NODE_TAB,
    PLOTS,
    FindingsInput,
    Placement,
    PlotRegistry,
    PlotSpec,
    PlotSpecError,
    RunInput,
    WindowInput,
)
from tests.views import simulated_windows as jobs

HELPERS = {
    "active_frontier",
    "base",
    "crossing_labels",
    "draw",
    "heatmap_rows",
    "live_lateness",
    "missing_ranks",
    "notes",
    "plot_table",
    "prefix_curves",
    "swim_lane_words",
    "timeline_lanes",
    "window_spans",
    "window_traces",
}
"""Modules of the package that draw no plot of their own: a new plot is not listed here, a new helper is."""


def draw_toy(given: WindowInput, dark: bool) -> Figure:
    return empty_figure(f"toy of step {given.view.step}", dark=dark, title="Toy plot")


TOY = PlotSpec(
    name="toy_plot",
    title="Toy plot",
    help="How to read the toy.",
    source=WindowInput,
    build=draw_toy,
    reads=("step",),
    tabs=(Placement("frontier", 35, span=6),),
    report=35,
    notebook="toy",
)


@pytest.fixture
def toy() -> Iterator[PlotSpec[WindowInput]]:
    with PLOTS.extended(TOY):
        yield TOY
    assert TOY.name not in PLOTS


def tab_plots(tab: str) -> list[str]:
    return [item.name for item in items_of(tab, None, False) if isinstance(item, PlacedPlot)]


def declared_by(module: str) -> list[PlotSpec[Any]]:
    values = vars(importlib.import_module(f"{figures.__name__}.{module}")).values()
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return [each for each in flat if isinstance(each, PlotSpec)]


def test_every_module_of_figures_declares_its_plots() -> None:
    modules = {info.name for info in pkgutil.iter_modules(figures.__path__)}
    assert modules >= HELPERS
    for module in modules - HELPERS:
        assert declared_by(module), f"{module} declares no plot"
        assert all(PLOTS[spec.name] is spec for spec in declared_by(module))
    assert not [module for module in HELPERS if declared_by(module)]


@pytest.mark.parametrize("name", [spec.name for spec in PLOTS])
def test_every_declaration_is_complete(name: str) -> None:
    spec = PLOTS[name]
    assert spec.help.endswith(".")
    assert len(inspect.signature(spec.build).parameters) == 2
    # A plot is shown on a tab; those of a run are placed by their pages.
    assert spec.tabs or spec.source is RunInput


def test_the_order_does_not_depend_on_that_of_declaration() -> None:
    specs = list(PLOTS)
    assert list(PlotRegistry(reversed(specs))) == specs


def test_a_new_plot_is_on_its_tab(toy: PlotSpec[WindowInput]) -> None:
    names = tab_plots("frontier")
    assert names == [spec.name for spec, _ in PLOTS.on_tab("frontier")]
    assert names.index("prefix_crossings") < names.index("toy_plot") < names.index("step_timeline")


@pytest.mark.parametrize("tab", [*TABS, NODE_TAB])
def test_no_plot_has_the_position_of_a_table(tab: str) -> None:
    placed = placed_items(tab, 0 if tab == NODE_TAB else None, True)
    positions = [position for position, _ in placed]
    assert len(set(positions)) == len(positions), f"tab {tab} has two items at one of {positions}"


@pytest.mark.parametrize(("tab", "node"), [(LIVE_TAB, None), (LIVE_NODE_TAB, 0)])
def test_no_live_plot_has_the_position_of_a_table(tab: str, node: int | None) -> None:
    assert not {place.position for _, place in PLOTS.on_tab(tab)} & set(tables_of(node))


def test_a_new_plot_has_its_title_and_help(toy: PlotSpec[WindowInput]) -> None:
    assert words.plot_title("toy_plot") == "Toy plot"
    assert words.plot_help("toy_plot") == "How to read the toy."
    assert toy in PLOTS.of_windows


def test_a_new_plot_is_in_reports(toy: PlotSpec[WindowInput]) -> None:
    names = report_names(WindowInput)
    assert names.index("step_timeline") < names.index("toy_plot") < names.index("routing_pareto")
    measures, diagnosis = jobs.look(jobs.healthy())
    (plot,) = window_plots(("toy_plot",), measures, diagnosis, ViewState(step=3), ())
    assert plot.hint == toy.help
    assert "toy of step 3" in str(plot.light)
    assert plot.light != plot.dark


def test_a_new_plot_is_a_notebook_method(toy: PlotSpec[WindowInput]) -> None:
    found = Figures(*jobs.look(jobs.healthy()))
    assert "toy" in dir(found)
    assert str(inspect.signature(found.toy)) == "(step=None)"
    assert found.toy.__doc__ == "Toy plot.\n\nHow to read the toy."
    assert "toy of step 7" in found.toy(7).to_json()


def test_a_notebook_names_the_plots_that_there_are() -> None:
    found = Figures(*jobs.look(jobs.healthy()))
    with pytest.raises(AttributeError, match=r"no plot is called 'toy'; there are .*frontier, .*crossings"):
        found.toy()
    with pytest.raises(TypeError, match="unexpected keyword argument 'ranks'"):
        found.frontier(ranks=(3,))


def test_a_declaration_without_a_field_fails_with_its_name() -> None:
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'help'"):
        PlotSpec(
            name="toy", title="Toy", source=WindowInput, build=draw_toy, reads=(), tabs=(), report=None,
            notebook=None,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": " "}, "plot 'toy_plot': title is empty"),
        ({"help": ""}, "help is empty"),
        ({"name": "Toy plot"}, "snake_case"),
        ({"source": str}, "source must be one of WindowInput"),
        ({"reads": ("frontier", "moon")}, "reads 'moon', which is none of frontier"),
        ({"tabs": (Placement("moon", 1),)}, "tab 'moon' is none of overview"),
        ({"tabs": (Placement("rules", 1, span=13),)}, "span 13"),
        ({"source": FindingsInput}, "drawn from operator findings, which tab 'frontier' does not have"),
        ({"gates": ("tau_x",)}, "'tau_x' is no gate"),
        ({"notebook": "a b"}, "no identifier"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PlotSpecError, match=message):
        replace(TOY, **change)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"name": "frontier_steps"}, "declared twice"),
        ({"notebook": "frontier"}, "share the notebook name frontier"),
        ({"tabs": (Placement("frontier", 20),)}, "share the position 20 on tab frontier"),
    ],
)
def test_plots_that_clash_are_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(PlotSpecError, match=message), PLOTS.extended(replace(TOY, **other)):
        pass
    assert TOY.name not in PLOTS


@pytest.mark.parametrize("gate", [doc.name for doc in GATE_DOCS])
def test_a_plot_that_changes_with_a_gate_declares_it(gate: str) -> None:
    # Given a window under default gates, and under one gate at its highest value
    measures = measure(jobs.hand_overs())
    default = judge(measures)
    highest = next(doc.high for doc in GATE_DOCS if doc.name == gate)
    moved = judge(measures, default.gates.with_values(**{gate: type(getattr(default.gates, gate))(highest)}))
    # Then each plot that differs reads something that has changed
    changed = {"verdict", "leaders"} if gate in ("eta_q", "gamma_elig") else {"verdict"}
    if suspect_of(moved) != suspect_of(default):
        changed.add("aim")
    if (moved.frontier, moved.sync_boundary) != (default.frontier, default.sync_boundary):
        changed.add("frontier")
    for spec in PLOTS.of(WindowInput):
        before, after = (
            spec.build(WindowInput(measures, diagnosis, ViewState()), False) for diagnosis in (default, moved)
        )
        assert before == after or changed & set(spec.reads), spec.name


def suspect_of(diagnosis: Diagnosis) -> object:
    aim = diagnosis.aim
    return aim and (aim.stage, aim.rank), diagnosis.top_stage, diagnosis.is_healthy
