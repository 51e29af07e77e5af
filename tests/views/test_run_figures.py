"""Figures of runs and nodes: stacked windows, history, sparklines, skew."""

from __future__ import annotations

import numpy as np
import pytest

from sfapp.accounting import judge, measure
from sfapp.model.onsets import Episode, StepEstimate
from sfapp.views import figures
from sfapp.views.figures.history import run_history
from sfapp.views.figures.node import node_ranks, node_sparklines
from sfapp.views.figures.node_skew import node_skew
from sfapp.views.figures.window_timeline import window_timeline
from tests.views import simulated_windows as jobs
from tests.views.figure_contents import numbers, texts, trace


def test_windows_stack_to_their_mean_step_and_sick_spans_are_named() -> None:
    rows = jobs.timeline()
    figure = window_timeline(rows, selected=("gpt-small-ddp", 9))
    stacks = [found for found in figure["data"] if found.get("yaxis") is None and found["name"] != "n/a"]
    total = sum(numbers(found["y"]) for found in stacks)
    whole = [place for place, row in enumerate(rows) if row["shares"]]
    assert total[whole] == pytest.approx([rows[place]["step_time_ns"] / 1e6 for place in whole], rel=1e-5)
    assert "callbacks · rank 3 · persistent" in texts(figure)
    assert "data · different ranks" in texts(figure)
    (frame,) = [shape for shape in figure["layout"]["shapes"] if shape.get("name") == "selected"]
    assert (frame["x0"], frame["x1"]) == (8.5, 9.5)


def test_neighbouring_windows_with_one_culprit_are_named_once() -> None:
    assert texts(window_timeline(jobs.timeline())).count("callbacks · rank 3") == 1


def test_the_selected_window_is_labelled_first_however_close_its_neighbours_are() -> None:
    # Given a different late rank in each window, with room for few of their labels
    slow = jobs.timeline()[6]
    rows = [slow | {"window": number, "aim_rank": number, "severity": 9.0 - number} for number in range(9)]
    for number in range(9):
        figure = window_timeline(rows, selected=("gpt-small-ddp", number))
        labels = [note["text"] for note in figure["layout"]["annotations"]]
        assert f"rank {number} " in labels[0]


def test_a_label_stays_within_its_run() -> None:
    # Given a slow window at the end of each of two runs
    healthy, slow = jobs.timeline()[0], jobs.timeline()[6]
    rows = [
        row | {"run_id": run, "window": number}
        for run in ("one", "two")
        for number, row in enumerate([healthy] * 5 + [slow])
    ]
    labels = [note for note in window_timeline(rows)["layout"]["annotations"] if "rank" in note["text"]]
    assert [(note["x"], note["xanchor"]) for note in labels] == [(5.5, "right"), (11.5, "right")]


def test_a_window_without_shares_is_hatched_not_zero() -> None:
    rows = jobs.timeline()
    missing = trace(window_timeline(rows), "n/a")
    assert missing["x"] == [place for place, row in enumerate(rows) if not row["shares"]]
    assert missing["marker"]["pattern"]["shape"] == "/"


def test_windows_without_shares_are_hatched_also_between_areas() -> None:
    rows = jobs.timeline() * 5
    missing = trace(window_timeline(rows), "n/a")
    assert [bool(height) for height in missing["y"]] == [not row["shares"] for row in rows]
    assert missing["fillpattern"]["shape"] == "/"


def test_thousands_of_windows_are_areas_and_small_enough_to_send() -> None:
    rows = [row | {"window": number} for number, row in enumerate(jobs.timeline() * 67)]
    figure = window_timeline(rows)
    assert trace(figure, "data")["type"] == "scatter"
    assert len(rows) > 2000


def test_run_history_shows_the_healthy_step_and_the_suspects() -> None:
    figure = run_history(jobs.timeline(), reference=3, selected=9)
    assert "healthy window 3: 89.7 ms" in texts(figure)
    suspects = trace(figure, "suspect")
    assert set(suspects["y"]) == {3, 5, 6}


def test_steps_that_a_job_ran_twice_are_marked_at_the_windows_of_the_episode() -> None:
    # Window 4 began again at the step of window 2.
    first_steps = (0, 40, 80, 120, 80, 120)
    rows = [
        row | {"first_step": first, "last_step": first + 39}
        for row, first in zip(jobs.timeline(), first_steps, strict=False)
    ]
    episode = Episode(
        run_id="run", kind="rank", stage="data.next_wait", ranks=(3,), hostname=None,
        first_window=5, last_window=5, windows=1, effect=0.4,
        began=StepEstimate(120, 118, 121), ended=StepEstimate(159, 159, 159),
    )  # fmt: skip
    marks = trace(run_history(rows, episodes=[episode]), "began and ended")
    assert [round(place) for place in marks["x"]] == [5, 5]


def test_a_straggler_is_marked_on_its_node_only() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback(), "carry_over")
    assert figures.stragglers(measures, diagnosis) == {3}
    assert figures.straggling_nodes(measures, diagnosis) == {0}
    assert "▲ rank 3" in texts(node_ranks(measures, diagnosis, 0))
    assert "▲" not in texts(node_ranks(measures, diagnosis, 1))


def test_rotating_ranks_and_healthy_windows_have_no_straggler() -> None:
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
