"""What figures show of a window: numbers, names, marks."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simulated_windows as jobs

from sfapp.accounting import judge, measure
from sfapp.model import Gates
from sfapp.views import figures
from sfapp.views.figures.ambiguity import ambiguity_plane
from sfapp.views.figures.crossings import ALL_RANKS_UP_TO, prefix_crossings
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.handover import handover_matrix
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.heatmap_rows import CELLS
from sfapp.views.figures.history import run_history
from sfapp.views.figures.node import node_ranks, node_sparklines
from sfapp.views.figures.node_skew import node_skew
from sfapp.views.figures.rival_rules import rules
from sfapp.views.figures.routing import routing_pareto
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.figures.verdict_map import verdict_regions
from sfapp.views.figures.window_timeline import window_timeline


def numbers(spec: Any) -> np.ndarray:
    """A typed array, or a list, as numbers."""
    if not isinstance(spec, dict):
        return np.asarray(spec, dtype=np.float64)
    flat = np.frombuffer(base64.b64decode(spec["bdata"]), dtype="<f4")
    return flat.reshape([int(part) for part in spec["shape"].split(",")]) if "shape" in spec else flat


def texts(figure: figures.Figure) -> str:
    """All annotations, one after the other."""
    return " | ".join(note.get("text", "").replace("<br>", " ") for note in figure["layout"]["annotations"])


def trace(figure: figures.Figure, name: str) -> dict[str, Any]:
    return next(found for found in figure["data"] if found.get("name", "").startswith(name))


# ---- frontier ---------------------------------------------------------------------------------------


def test_the_motivating_example_charges_data_and_shows_the_overcount() -> None:
    figure = frontier_steps(*jobs.look(jobs.tiny()))
    blocks = figure["data"][0]
    assert blocks["y"] == pytest.approx([6.0, 1.0, 1.2])
    names = [found["name"] for found in figure["data"]]
    assert "step-aligned frontier 8.20 s" in names
    assert "per-stage max 13.2 s: counts 5.00 s twice" in names
    assert "rank 0 is slowest" in texts(figure)


def test_each_rise_stands_on_the_frontier_before_it() -> None:
    figure = frontier_steps(*jobs.look(jobs.slow_callback()))
    blocks = figure["data"][0]
    tops = np.add(blocks["base"], blocks["y"])
    assert blocks["base"][1:] == pytest.approx(tops[:-1])


def test_carry_over_names_the_callback_and_keeps_step_aligned_as_a_ghost() -> None:
    figure = frontier_steps(*jobs.look(jobs.slow_callback(), "carry_over"))
    assert "+61 ms</b> rank 3 is slowest" in texts(figure)
    assert "ranks synchronise" in texts(figure)
    assert trace(figure, "step-aligned frontier")["name"] == "step-aligned frontier: +59 ms at backward"


def test_ranks_that_take_turns_are_not_given_a_leader() -> None:
    figure = frontier_steps(*jobs.look(jobs.rotating_data_tail()))
    assert "+63 ms</b> different ranks" in texts(figure)


def test_a_chosen_step_is_shown_instead_of_the_mean() -> None:
    measures, diagnosis = jobs.look(jobs.one_off())
    mean, sick = (
        frontier_steps(measures, diagnosis),
        frontier_steps(measures, diagnosis, 417),
    )
    assert mean["layout"]["meta"]["subtitle"] == "step-aligned frontier, mean step of the window"
    assert sick["layout"]["meta"]["subtitle"] == "step-aligned frontier, step 417"
    assert sick["data"][0]["y"][0] > 30 * mean["data"][0]["y"][1]


# ---- crossings --------------------------------------------------------------------------------------


def test_all_ranks_are_one_trace_with_a_gap_after_each() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    ranks = trace(prefix_crossings(measures, diagnosis, 420), "ranks")
    y = numbers(ranks["y"]).reshape(8, 8)
    assert np.isnan(y[:, -1]).all()
    assert np.isfinite(y[:, :-1]).all()
    expected = measures.window.duration_SNR[:, 20, :].sum(axis=0) / 1e6
    assert y[:, -2] == pytest.approx(expected, rel=1e-6)


def test_hand_overs_are_named_where_curves_cross() -> None:
    figure = prefix_crossings(*jobs.look(jobs.hand_overs()), 405)
    assert "rank 0 → rank 1" in texts(figure)
    assert "rank 1 → rank 2" in texts(figure)
    crossing = next(
        note for note in figure["layout"]["annotations"] if note.get("text", "").startswith("rank 0 →")
    )
    assert 1 < crossing["x"] < 2


def test_carry_over_shows_who_starts_late_and_where_ranks_meet() -> None:
    figure = prefix_crossings(*jobs.look(jobs.slow_callback(), "carry_over"), 420)
    assert "rank 3 starts 59." in texts(figure)
    assert "behind the others" in texts(figure)
    assert "ranks synchronise: they wait in backward (slope 1.00" in texts(figure)
    start = numbers(trace(figure, "ranks")["y"]).reshape(8, 8)[:, 0]
    assert start[3] == pytest.approx(0, abs=0.5)
    assert np.delete(start, 3) == pytest.approx(np.full(7, -60), abs=2)


def test_many_ranks_become_bands_with_leaders_and_selected_drawn_by_name() -> None:
    measures, diagnosis = jobs.look(jobs.many(200))
    assert measures.ranks > ALL_RANKS_UP_TO
    figure = prefix_crossings(measures, diagnosis, 410, selected=[11])
    names = {found["name"] for found in figure["data"]}
    assert {"90 % of ranks", "50 % of ranks", "median rank", "rank 137", "rank 11"} <= names
    assert "ranks" not in names
    (note,) = figure["layout"]["meta"]["notes"]
    assert "200 ranks: bands" in note


# ---- steps, heatmap ---------------------------------------------------------------------------------


def test_a_click_on_a_bar_gives_its_step_and_the_chosen_step_is_framed() -> None:
    figure = step_timeline(*jobs.look(jobs.gaps()), 431)
    assert figure["data"][0]["customdata"] == [*range(400, 420), *range(430, 450)]
    (frame,) = figure["layout"]["shapes"]
    assert (frame["x0"], frame["x1"]) == (430.5, 431.5)


def test_the_strip_below_shows_a_level_row_for_one_rank_and_scatter_for_turns() -> None:
    chronic = trace(step_timeline(*jobs.look(jobs.data_tail())), "leader")
    turns = trace(step_timeline(*jobs.look(jobs.rotating_data_tail())), "leader")
    assert set(chronic["y"]) == {2}
    assert len(set(turns["y"])) == 8


def test_stacked_advances_add_up_to_the_step() -> None:
    measures, diagnosis = jobs.look(jobs.accumulation())
    figure = step_timeline(measures, diagnosis)
    total = sum(numbers(found["y"]) for found in figure["data"] if found["type"] == "bar")
    assert total == pytest.approx(measures.makespan_N / 1e6, rel=1e-6)


def test_more_steps_than_pixels_are_drawn_as_areas() -> None:
    figure = step_timeline(*jobs.look(jobs.ddp(ranks=2, steps=700)))
    assert {found["type"] for found in figure["data"]} == {"scatter"}


def test_the_heatmap_shows_durations_of_every_rank_and_step() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    (heat,) = rank_step_heatmap(measures, diagnosis, "callbacks.cpu_wall")["data"]
    assert numbers(heat["z"]) == pytest.approx(measures.window.duration_SNR[3].T / 1e6, rel=1e-6)
    assert heat["y"][3] == "rank 3 on node-0"


def test_slack_and_lead_follow_the_slack_identity() -> None:
    measures, diagnosis = jobs.look(jobs.rotating_data_tail())
    stage = "model.fwd_loss_cpu_wall"
    (slack,) = rank_step_heatmap(measures, diagnosis, stage, "slack")["data"]
    (lead,) = rank_step_heatmap(measures, diagnosis, stage, "lead")["data"]
    own = measures.window.duration_SNR[1].T / 1e6
    assert (own - numbers(slack["z"])).max(axis=0) == pytest.approx(measures.advance_SN[1] / 1e6, abs=1e-3)
    assert ((numbers(lead["z"]) > 0).sum(axis=0) == 1).all()


def test_carry_over_slack_is_zero_for_the_rank_that_leads() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback(), "carry_over")
    (slack,) = rank_step_heatmap(measures, diagnosis, "data.next_wait", "slack")["data"]
    values = numbers(slack["z"])
    assert values.min() >= 0
    assert values[3] == pytest.approx(np.zeros(40), abs=0.5)
    after_the_first = np.delete(values, 3, axis=0)[:, 1:]
    assert after_the_first == pytest.approx(np.full((7, 39), 60), abs=3)


def test_a_heatmap_past_its_cap_is_downsampled_keeps_the_worst_and_says_so() -> None:
    subject = jobs.ddp(ranks=4096, steps=80, extra_SNR={"data": jobs.on(1001, 50, 4096, 80)})
    figure = rank_step_heatmap(*jobs.look(subject), "data.next_wait")
    values = numbers(figure["data"][0]["z"])
    assert values.size <= CELLS
    assert values.max() > 50
    (note,) = figure["layout"]["meta"]["notes"]
    assert note.startswith("Downsampled from 4,096 × 80")


def test_a_stage_the_window_does_not_have_is_na() -> None:
    figure = rank_step_heatmap(*jobs.look(jobs.tiny()), "no.such_stage")
    assert "n/a" in texts(figure)


# ---- routing, ambiguity, rules, hand-overs ----------------------------------------------------------


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
        _, diagnosis = jobs.look(jobs.slow_callback(), frontier)  # type: ignore[arg-type]
        name = "frontier" if frontier == "step" else "carry_over"
        (line,) = [line for line in rule_lines(diagnosis) if line.rule == name]
        assert line.routing_set == diagnosis.routing_set


def test_hand_overs_are_counted_between_sure_leaders_only() -> None:
    measures, diagnosis = jobs.look(jobs.hand_overs())
    (cells,) = handover_matrix(measures, diagnosis)["data"]
    assert numbers(cells["z"]).tolist() == [[0, 12, 0], [0, 0, 12], [0, 0, 0]]
    (cells,) = handover_matrix(measures, diagnosis, "model.backward_cpu_wall")["data"]
    assert numbers(cells["z"]).tolist() == [[0, 0, 0], [0, 0, 12], [0, 0, 0]]


def test_chance_hand_overs_are_left_out_and_said() -> None:
    figure = handover_matrix(*jobs.look(jobs.healthy()))
    assert "none" in texts(figure)
    assert "too close to call" in texts(figure)


# ---- windows and runs -------------------------------------------------------------------------------


def test_windows_stack_to_their_mean_step_and_sick_spans_are_named() -> None:
    rows = jobs.timeline()
    figure = window_timeline(rows, selected=("gpt-small-ddp", 9))
    stacks = [found for found in figure["data"] if found.get("yaxis") is None and found["name"] != "n/a"]
    total = sum(numbers(found["y"]) for found in stacks)
    whole = [place for place, row in enumerate(rows) if row["shares"]]
    assert total[whole] == pytest.approx([rows[place]["step_time_ns"] / 1e6 for place in whole], rel=1e-5)  # type: ignore[operator]
    assert "callbacks · rank 3 · persistent" in texts(figure)
    assert "data · different ranks" in texts(figure)
    (frame,) = [shape for shape in figure["layout"]["shapes"] if shape.get("name") == "selected"]
    assert (frame["x0"], frame["x1"]) == (8.5, 9.5)


def test_neighbouring_windows_with_one_culprit_are_named_once() -> None:
    assert texts(window_timeline(jobs.timeline())).count("callbacks · rank 3") == 1


def test_a_window_without_shares_is_hatched_not_zero() -> None:
    rows = jobs.timeline()
    missing = trace(window_timeline(rows), "n/a")
    assert missing["x"] == [place for place, row in enumerate(rows) if not row["shares"]]
    assert missing["marker"]["pattern"]["shape"] == "/"


def test_thousands_of_windows_are_areas_and_small_enough_to_send() -> None:
    rows = [row | {"window": number} for number, row in enumerate(jobs.timeline() * 67)]
    figure = window_timeline(rows)
    assert trace(figure, "data")["type"] == "scatter"
    assert len(rows) > 2000


def test_run_history_shows_the_healthy_step_and_the_ranks_aimed_at() -> None:
    figure = run_history(jobs.timeline(), reference=3, selected=9)
    assert "healthy window 3: 89.7 ms" in texts(figure)
    suspects = trace(figure, "suspect")
    assert set(suspects["y"]) == {3, 5, 6}


# ---- nodes ------------------------------------------------------------------------------------------


def test_a_straggler_is_marked_on_its_node_only() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback(), "carry_over")
    assert figures.stragglers(measures, diagnosis) == {3}
    assert figures.straggling_nodes(measures, diagnosis) == {0}
    assert "▲ rank 3" in texts(node_ranks(measures, diagnosis, 0))
    assert "▲" not in texts(node_ranks(measures, diagnosis, 1))


def test_rotating_ranks_and_quiet_windows_have_no_straggler() -> None:
    for subject in (jobs.rotating_data_tail(), jobs.healthy(), jobs.slow_everywhere()):
        assert not figures.stragglers(*jobs.look(subject))


def test_sparklines_are_one_trace_closed_down_to_each_ranks_zero() -> None:
    measures, diagnosis = jobs.look(jobs.data_tail())
    (line,) = node_sparklines(measures, diagnosis, 1)["data"]
    y = numbers(line["y"]).reshape(4, -1)
    assert np.isnan(y[:, -1]).all()
    assert y[:, 0].tolist() == [0, -1, -2, -3]
    assert len(line["text"]) == y.size == len(numbers(line["customdata"]))


def test_skew_against_other_nodes_is_na_with_one_node() -> None:
    measures = measure(jobs.ddp(ranks=4))
    figure = node_skew(measures, judge(measures), 0)
    assert figure["layout"]["meta"]["notes"] == ["n/a vs other nodes: this group holds one node only."]


def test_skew_inside_a_node_is_its_slowest_rank_against_its_median() -> None:
    figure = node_skew(*jobs.look(jobs.data_tail()), 0)
    inside, against = figure["data"][:2]
    assert inside["x"][0] == pytest.approx(70, abs=1)
    assert against["x"][0] == pytest.approx(0, abs=1)


def test_nodes_show_own_time_where_waits_are_known() -> None:
    measures, diagnosis = jobs.look(jobs.slow_inside_backward())
    tiles = node_ranks(measures, diagnosis, 0)
    assert "▲ rank 2 own 119.0 ms" in texts(tiles).replace("</b>", "").replace("<b>", "")
    hovers = [text for row in tiles["data"][0]["hovertext"] for text in row]
    assert "backward 124.0 ms per step<br>own 119.0 ms, waiting 5.0" in hovers[2]
    whole, own = node_sparklines(measures, diagnosis, 0)["data"]
    shown, mine = (np.nanmax(numbers(each["customdata"])) for each in (whole, own))
    assert 122 < shown < 130
    assert 115 < mine < shown - 4
    assert "own backward" in own["hovertemplate"]
    inside = node_skew(measures, diagnosis, 0)["data"][0]
    assert inside["x"][2] == pytest.approx(60, abs=2)


def test_a_thin_region_of_the_verdict_map_has_its_words_on_a_leader_line() -> None:
    # Given a window whose verdict changes only where next to no gain is asked for
    figure = verdict_regions(*jobs.look(jobs.slow_callback()))
    # Then the thin region at the bottom says its verdict too, beside it
    led = [found for found in figure["layout"]["annotations"] if found["showarrow"]]
    assert led
    assert all("stages or ranks tied" in found["text"] and found["y"] < 0.06 for found in led)
    # And clear of the dot that stands for the gates
    assert all(abs(found["x"] - Gates().gamma_a) > 0.1 for found in led)
