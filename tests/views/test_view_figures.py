"""Every figure, on every kind of window: valid for Plotly, in words too, safe, in both themes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from sfapp.accounting import Measures, compare, judge, measure
from sfapp.model import Diagnosis
from sfapp.model.diagnosis import Frontier
from sfapp.model.view import QUANTITIES, ViewState
from sfapp.views.figures import Figure
from sfapp.views.figures.ambiguity import ambiguity_plane
from sfapp.views.figures.crossings import prefix_crossings
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.handover import handover_matrix
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.history import run_history
from sfapp.views.figures.node import node_ranks, node_sparklines
from sfapp.views.figures.node_skew import node_skew
from sfapp.views.figures.rival_rules import rules
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.figures.verdict_map import routing_over_tau, verdict_regions
from sfapp.views.figures.window_timeline import window_timeline
from sfapp.views.plot_registry import PLOTS, ComparisonInput, RunInput, WindowInput
from tests.views import simulated_windows as jobs

KINDS = sorted(jobs.ALL)


def every_figure(measures: Measures, diagnosis: Diagnosis, dark: bool = False) -> dict[str, Figure]:
    """All figures of one window; a trailing word tells apart two of one kind.

    A plot that is not listed here is drawn from its declaration.
    """
    first, last = int(measures.step_N[0]), int(measures.step_N[-1])
    rank = measures.window.ranks.rank[-1]
    stage = measures.window.stages[-1]
    drawn = {
        "frontier_steps mean": frontier_steps(measures, diagnosis, dark=dark),
        "frontier_steps step": frontier_steps(measures, diagnosis, first, dark=dark),
        "prefix_crossings mean": prefix_crossings(measures, diagnosis, dark=dark),
        "prefix_crossings step": prefix_crossings(measures, diagnosis, last, selected=[rank], dark=dark),
        "step_timeline": step_timeline(measures, diagnosis, first, dark=dark),
        "routing_pareto": routing_pareto(diagnosis, dark=dark),
        "ambiguity_plane": ambiguity_plane(diagnosis, dark=dark),
        "verdict_regions": verdict_regions(measures, diagnosis, dark=dark),
        "routing_over_tau": routing_over_tau(diagnosis, dark=dark),
        "handover_matrix": handover_matrix(measures, diagnosis, dark=dark),
        "handover_matrix last": handover_matrix(measures, diagnosis, stage, dark=dark),
        "rules": rules(diagnosis, dark=dark),
        "node_ranks": node_ranks(measures, diagnosis, 0, dark=dark),
        "node_sparklines": node_sparklines(measures, diagnosis, 0, dark=dark),
        "node_skew": node_skew(measures, diagnosis, 0, dark=dark),
        "node_ranks absent": node_ranks(measures, diagnosis, 99, dark=dark),
        "window_timeline": window_timeline([jobs.timeline_row(diagnosis)], dark=dark),
        "run_history": run_history([jobs.timeline_row(diagnosis)], dark=dark),
    }
    listed = {name.split()[0] for name in drawn} | {"rank_step_heatmap"}
    for given in (WindowInput(measures, diagnosis, ViewState()), RunInput([jobs.timeline_row(diagnosis)])):
        for spec in PLOTS.of(type(given)):
            if spec.name not in listed:
                drawn[spec.name] = spec.build(given, dark)
    found = compare(diagnosis, [diagnosis, replace(diagnosis, window=diagnosis.window + 1)], diagnosis)
    for spec in PLOTS.of(ComparisonInput):
        drawn[spec.name] = spec.build(ComparisonInput(found), dark)
    for quantity in QUANTITIES:
        drawn[f"rank_step_heatmap {quantity}"] = rank_step_heatmap(
            measures, diagnosis, quantity=quantity, step=last, dark=dark
        )
    return drawn


@pytest.mark.parametrize("frontier", ["step", "carry_over"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_valid_for_plotly_and_has_a_text(kind: str, frontier: Frontier) -> None:
    measures, diagnosis = jobs.against_healthy(jobs.ALL[kind](), frontier)
    for name, figure in every_figure(measures, diagnosis, dark=frontier == "step").items():
        go.Figure(figure)  # raises on anything that is not in plotly's schema
        meta = figure["layout"]["meta"]
        assert meta["title"], name
        assert meta["alt"].endswith("."), name
        assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
        assert figure["config"]["displaylogo"] is False
        assert figure["config"]["showSendToCloud"] is False
        assert figure["config"]["responsive"] is True
        json.dumps(figure, allow_nan=False)


def test_words_that_also_stand_in_reports_invite_to_nothing() -> None:
    # Given plots that can be dragged or clicked in the app
    invites = re.compile(r"\b(drag|click)\b", re.IGNORECASE)
    metas = [found["layout"]["meta"] for found in every_figure(*jobs.look(jobs.slow_callback())).values()]
    assert any(invites.search(meta["interaction"]) for meta in metas)
    # Then texts that are used elsewhere too do not mention it
    for meta in metas:
        assert not invites.search(" ".join((meta["subtitle"], *meta["notes"])))
    assert not any(invites.search(spec.help) for spec in PLOTS.of_windows)


def test_light_and_dark_differ_in_colour_only() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    light, dark = every_figure(measures, diagnosis), every_figure(measures, diagnosis, dark=True)
    for name, figure in light.items():
        assert figure["layout"]["meta"] == dark[name]["layout"]["meta"]
        assert figure["layout"]["font"]["color"] != dark[name]["layout"]["font"]["color"]


RAW = {"customdata", "uirevision", "meta", "bdata"}
"""Never drawn as text: click targets, keys, words that the page itself escapes, numbers."""


def drawn_texts(value: Any) -> Iterator[str]:
    """Every string of a figure that Plotly might draw."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in RAW:
                yield from drawn_texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from drawn_texts(inner)


@pytest.mark.parametrize("frontier", ["step", "carry_over"])
def test_names_from_files_stay_text(frontier: Frontier) -> None:
    """Given hosts, stages, roles and a run named like markup, templates and TeX, none of it takes effect."""
    measures, diagnosis = jobs.look(jobs.hostile(), frontier)
    seen = False
    for name, figure in every_figure(measures, diagnosis).items():
        for text in drawn_texts(figure):
            bare = re.sub(r"</?b>|<br>|</?sub>|<extra>|</extra>", "", text)
            assert "<" not in bare, (name, text)
            assert "%{x} $" not in text, (name, text)
            assert "%{y}<b>" not in text, (name, text)
            assert "$" not in text, (name, text)
            assert "<b>bold" not in text, (name, text)
            seen = seen or "&lt;script&gt;" in text
    assert seen


def test_a_click_target_is_the_name_as_it_is_stored() -> None:
    _, diagnosis = jobs.look(jobs.hostile())
    figure = window_timeline([jobs.timeline_row(diagnosis)])
    assert figure["data"][0]["customdata"] == [["<img src=x onerror=alert(1)>", 9]]


def test_zoom_survives_updates_of_one_window_and_ends_with_it() -> None:
    one = frontier_steps(*jobs.look(jobs.slow_callback()))
    stepped = frontier_steps(*jobs.look(jobs.slow_callback()), 420)
    other = frontier_steps(*jobs.look(jobs.healthy()))
    assert one["layout"]["uirevision"] == stepped["layout"]["uirevision"]
    assert one["layout"]["uirevision"] != other["layout"]["uirevision"]


def test_below_the_floor_shares_are_na_and_the_reason_is_given() -> None:
    _, diagnosis = jobs.look(jobs.below_floor())
    for figure in (
        routing_pareto(diagnosis),
        ambiguity_plane(diagnosis),
        rules(diagnosis),
    ):
        (box,) = figure["data"]
        (words,) = figure["layout"]["annotations"]
        assert box["marker"]["pattern"]["shape"] == "/"
        assert "n/a" in words["text"]
        assert "denominator floor" in words["text"].replace("<br>", " ")


def test_a_plot_is_spoken_of_by_the_title_that_stands_over_it() -> None:
    measures = measure(jobs.data_tail())
    diagnosis = judge(measures)
    for spec in PLOTS.of(WindowInput):
        figure = spec.build(WindowInput(measures, diagnosis, ViewState()), False)
        assert figure["layout"]["meta"]["title"] == spec.title_of(0)
