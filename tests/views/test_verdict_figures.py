"""Figures of the verdict: routing set, ambiguity plane, rules, changes of the slowest rank."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sfapp.model import Gates
from sfapp.views.figures.ambiguity import ambiguity_plane
from sfapp.views.figures.handover import handover_matrix
from sfapp.views.figures.rival_rules import rules
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.verdict_map import verdict_regions
from tests.views import simulated_windows as jobs
from tests.views.figure_contents import numbers, texts, trace


def test_members_of_the_routing_set_are_filled_and_the_others_hatched() -> None:
    _, diagnosis = jobs.look(jobs.slow_callback(), "carry_over")
    bars, line = routing_pareto(diagnosis)["data"]
    assert bars["customdata"][:2] == ["callbacks.cpu_wall", "model.backward_cpu_wall"]
    assert bars["marker"]["pattern"]["shape"] == ["", "", "/", "/", "/", "/"]
    assert line["y"][-1] == pytest.approx(1)


GATES = {"tau_c", "gamma_a", "gamma_g"}


@pytest.mark.parametrize(
    ("draw", "gate", "along"),
    [
        (routing_pareto, "tau_c", "y"),
        (ambiguity_plane, "gamma_a", "x"),
        (ambiguity_plane, "gamma_g", "y"),
    ],
)
def test_a_threshold_is_a_named_shape_that_can_be_dragged(draw: Any, gate: str, along: str) -> None:
    gates = Gates().with_values(**{gate: 0.33})
    _, diagnosis = jobs.look(jobs.slow_callback(), gates=gates)
    figure = draw(diagnosis)
    (line,) = [shape for shape in figure["layout"]["shapes"] if shape.get("name") == gate]
    assert figure["config"]["edits"] == {"shapePosition": True}
    assert all(
        shape.get("layer") == "below"
        for shape in figure["layout"]["shapes"]
        if shape.get("name") not in GATES
    )
    assert line[f"{along}0"] == line[f"{along}1"] == 0.33
    assert f"%{{{along}0:.2f}}" in line["label"]["texttemplate"]
    assert figure["layout"]["editrevision"] is False


def test_the_plane_outlines_the_ambiguity_set_and_draws_takeovers() -> None:
    _, diagnosis = jobs.look(jobs.hand_overs())
    figure = ambiguity_plane(diagnosis)
    points = trace(figure, "stages")
    outlined = {
        stage
        for stage, width in zip(points["customdata"], points["marker"]["line"]["width"], strict=True)
        if width > 1
    }
    assert outlined == set(diagnosis.co_critical_stages or ())
    arrows = [note for note in figure["layout"]["annotations"] if note["showarrow"] and not note["text"]]
    assert len(arrows) == sum(
        change >= diagnosis.gates.eta_a
        for stage, change in (diagnosis.takeover or {}).items()
        if stage != diagnosis.top_stage
    )


def test_a_name_that_had_to_be_moved_away_from_its_point_has_a_line_to_it() -> None:
    _, diagnosis = jobs.look(jobs.slow_callback())
    crowded = dict(zip(diagnosis.stages, (0.10, 0.11, 0.12, 0.13, 0.14, 0.40), strict=True))
    figure = ambiguity_plane(
        replace(diagnosis, shares=crowded, static_gain=dict.fromkeys(crowded, 0.02), takeover=None)
    )
    names = [note for note in figure["layout"]["annotations"] if note.get("text", "").startswith("<b>")]
    risen = {note["text"]: -note["ay"] if note["showarrow"] else note["yshift"] for note in names}
    assert len(set(risen.values())) > 2  # some beside their points, some above others' names
    assert [note["showarrow"] for note in names] == [rise > 21 for rise in risen.values()]


def test_rules_show_both_frontiers_five_rivals_and_their_overcount() -> None:
    _, diagnosis = jobs.look(jobs.slow_callback())
    figure = rules(diagnosis)
    assert len(figure["data"][0]["y"]) == 7
    assert "per-stage max<br>×1.41: counts 41 % twice" in figure["layout"]["yaxis"]["ticktext"]
    for place in range(7):
        assert sum(found["x"][place] for found in figure["data"] if found["type"] == "bar") == pytest.approx(
            1
        )


def test_the_frontier_of_the_diagnosis_has_its_own_routing_set_among_the_rules() -> None:
    from sfapp.views.figures.rival_rules import rule_lines

    for frontier in ("step", "carry_over"):
        _, diagnosis = jobs.look(jobs.slow_callback(), frontier)
        name = "frontier" if frontier == "step" else "carry_over"
        (line,) = [line for line in rule_lines(diagnosis) if line.rule == name]
        assert line.routing_set == diagnosis.routing_set


def test_hand_overs_are_counted_between_sure_leaders_only() -> None:
    measures, diagnosis = jobs.look(jobs.hand_overs())
    (cells,) = handover_matrix(measures, diagnosis)["data"]
    assert numbers(cells["z"]).tolist() == [[0, 12, 0], [0, 0, 12], [0, 0, 0]]
    (cells,) = handover_matrix(measures, diagnosis, "model.backward_cpu_wall")["data"]
    assert numbers(cells["z"]).tolist() == [[0, 0, 0], [0, 0, 12], [0, 0, 0]]


def test_random_changes_of_the_leader_are_left_out_with_a_note() -> None:
    figure = handover_matrix(*jobs.look(jobs.healthy()))
    assert "none" in texts(figure)
    assert "no change at any boundary between ranks that are clearly the slowest." in texts(figure)
    assert re.search(
        r"\d+ changes not counted: the slowest rank was less than ηQ, 2 (%|&#37;) of the step, behind",
        texts(figure),
    )


def test_a_thin_region_of_the_verdict_map_has_its_words_on_a_leader_line() -> None:
    # Given a window whose verdict changes only where next to no gain is asked for
    figure = verdict_regions(*jobs.look(jobs.slow_callback()))
    # Then the thin region at the bottom says its verdict too, beside it
    led = [found for found in figure["layout"]["annotations"] if found["showarrow"]]
    assert led
    assert all("stages or ranks tied" in found["text"] and found["y"] < 0.06 for found in led)
    # And clear of the dot that stands for the gates
    assert all(abs(found["x"] - Gates().gamma_a) > 0.1 for found in led)


def test_labels_on_leader_lines_lead_away_from_the_ends_of_the_axis() -> None:
    # A centred box would lie on the ticks.
    figure = verdict_regions(*jobs.look(jobs.slow_callback(), "carry_over"))
    led = [note for note in figure["layout"]["annotations"] if note.get("showarrow")]
    assert led
    for note in led:
        expected = "left" if note["x"] < 0.3 else "right" if note["x"] > 0.7 else "center"
        assert note["xanchor"] == expected
