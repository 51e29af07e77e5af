"""Figures of the frontier: mean step, crossings, timeline of steps, heatmap."""

from __future__ import annotations

import numpy as np
import pytest

from sfapp.views.figures.crossings import ALL_RANKS_UP_TO, prefix_crossings
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.heatmap_rows import CELLS
from sfapp.views.figures.step_timeline import step_timeline
from tests.views import simulated_windows as jobs
from tests.views.figure_contents import numbers, texts, trace

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
    assert "+61 ms" in texts(figure)
    assert "rank 3 is slowest" in texts(figure)
    assert "ranks synchronise" in texts(figure)
    assert trace(figure, "step-aligned frontier")["name"] == "step-aligned frontier: +58 ms in backward"


@pytest.mark.parametrize("kind", ["slow_callback", "periodic_callback", "grown_callbacks"])
def test_legend_and_note_name_the_same_stage_in_which_the_frontiers_differ(kind: str) -> None:
    # Given a delay that counts twice on the step-aligned frontier, so that its whole step is longer too
    late_NR = 60.0 + 40.0 * np.random.default_rng(5).random((40, 8))
    window = jobs.ddp(extra_SNR={"callbacks": late_NR}) if kind == "grown_callbacks" else jobs.ALL[kind]()
    figure = frontier_steps(*jobs.against_healthy(window, "carry_over"))
    (note,) = figure["layout"]["meta"]["notes"]
    name = trace(figure, "step-aligned frontier")["name"]
    stage = name.rpartition(" in ")[2]
    assert note.startswith(f"Step-aligned: {stage} ")


def test_ranks_that_take_turns_are_not_given_a_leader() -> None:
    figure = frontier_steps(*jobs.look(jobs.rotating_data_tail()))
    assert "+63 ms" in texts(figure)
    assert "different ranks" in texts(figure)


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


def test_carry_over_shows_late_starts_and_syncs() -> None:
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
    leaders = trace(step_timeline(*jobs.look(jobs.data_tail())), "leader")
    turns = trace(step_timeline(*jobs.look(jobs.rotating_data_tail())), "leader")
    assert set(leaders["y"]) == {2}
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


def test_a_heatmap_above_its_limit_is_downsampled_with_a_note_and_keeps_the_worst() -> None:
    subject = jobs.ddp(ranks=4096, steps=80, extra_SNR={"data": jobs.on(1001, 50, 4096, 80)})
    figure = rank_step_heatmap(*jobs.look(subject), "data.next_wait")
    values = numbers(figure["data"][0]["z"])
    assert values.size <= CELLS
    assert np.nanmax(values) > 50
    (note,) = figure["layout"]["meta"]["notes"]
    assert note.startswith("Downsampled from 4,096 × 80")


def test_a_stage_the_window_does_not_have_is_na() -> None:
    figure = rank_step_heatmap(*jobs.look(jobs.tiny()), "no.such_stage")
    assert "n/a" in texts(figure)


def test_labels_of_rises_have_no_boxes_and_words_come_after_every_number() -> None:
    # A box would hide the lines; where room is short, the browser leaves out the last texts first.
    figure = frontier_steps(*jobs.against_healthy(jobs.ALL["slow_callback"](), "carry_over"))
    notes = figure["layout"]["annotations"]
    assert not any("bgcolor" in note for note in notes)
    numbers = [note["text"].startswith("<b>+") for note in notes]
    assert numbers == sorted(numbers, reverse=True)
    assert {note.get("name") for note in notes} == {None, "within"}
