"""The built-in examples: what sfapp computes is what the paper prints, and what their stories say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sfapp.accounting import judge, measure
from sfapp.assets import EXAMPLES as FOLDER
from sfapp.assets import assets
from sfapp.model import Gates
from sfapp.model.examples import CROSSINGS, DISPLACED, EXAMPLES, HIDDEN, MEASURED, TWO_RANKS, Example
from sfapp.packets import packet_path, read_window
from sfapp.views.worked_examples import LESSONS, Row, lesson_rows
from tests.builders import BACKWARD, DATA, FORWARD

of_the_paper = pytest.mark.parametrize(
    "example",
    [example for example in EXAMPLES.values() if example.source],
    ids=lambda example: example.run_id,
)
every_example = pytest.mark.parametrize("example", EXAMPLES.values(), ids=lambda example: example.run_id)


def rows_of(example: Example) -> list[Row]:
    measures = measure(example.window())
    return lesson_rows(example, measures, judge(measures))


@of_the_paper
def test_every_number_that_the_paper_prints_is_the_one_computed(example: Example) -> None:
    for row in rows_of(example):
        assert row["frontier"] == row["paper_frontier"]
        assert row["paper_maximum"] in (None, row["maximum"])


def test_the_maxima_of_the_first_figure_are_printed_too() -> None:
    *stages, together = rows_of(DISPLACED)
    assert [row["paper_maximum_text"] for row in stages] == ["6.00 s", "1.00 s", "6.20 s"]
    assert (together["maximum_text"], together["frontier_text"]) == ("13.2 s", "8.20 s")
    assert max(stages, key=lambda row: row["mean"])["stage"] == "backward"


@every_example
def test_the_ambiguity_set_and_the_leaders_are_the_paper_s(example: Example) -> None:
    measures = measure(example.window())
    if example.co_critical:
        assert judge(measures).co_critical_stages == example.co_critical
    if example.leaders:
        assert tuple(measures.leader_SN[:, 0].tolist()) == example.leaders


def test_one_matrix_has_two_verdicts_by_what_is_declared_of_waiting() -> None:
    for example in (DISPLACED, TWO_RANKS):
        measures = measure(example.window())
        assert judge(measures).label_names == ("frontier_accounting", "co_critical")
        assert "likely_sync_wait" in judge(measures, Gates(model_fit="on")).label_names


@every_example
def test_every_sum_in_a_story_is_computed(example: Example) -> None:
    # Given the numbers of the table, and durations and waits of the matrix itself
    computed = {f"{value:.1f}" for row in rows_of(example) for value in _seconds(row)}
    computed |= {f"{value:.1f}" for rank in example.seconds for value in (*rank, sum(rank))}
    for rank, wait in zip(example.seconds, example.wait_s or MEASURED.wait_s, strict=False):
        computed |= {f"{value:.1f}" for value in (wait, rank[-1] - wait)}
    story = " ".join(LESSONS[example.run_id].story)
    # Then every number with a decimal that a story names is among them
    assert set(re.findall(r"\d+\.\d", story)) <= computed


def _seconds(row: Row) -> list[float]:
    return [row[name] / 1e9 for name in ("mean", "maximum", "frontier")]


@every_example
def test_the_packed_example_is_the_window_of_the_table(example: Example) -> None:
    packed, made = read_window(packet_path(assets() / FOLDER, example.run_id, 0)), example.window()
    assert packed.manifest == made.manifest
    assert packed.ranks == made.ranks
    assert np.array_equal(packed.duration_SNR, made.duration_SNR)
    assert np.array_equal(packed.wall_NR, made.wall_NR)
    assert packed.waits.keys() == made.waits.keys()
    for stage, wait_NR in made.waits.items():
        assert np.array_equal(packed.waits[stage], wait_NR)


def test_a_slow_rank_inside_backward_is_named_where_waits_were_measured() -> None:
    hidden, measured = (judge(measure(example.window())) for example in (HIDDEN, MEASURED))
    assert hidden.is_healthy
    assert measured.aim is not None
    assert (measured.aim.stage, measured.aim.rank) == (BACKWARD, 2)
    assert measured.shares == hidden.shares


def test_there_is_a_lesson_for_every_example() -> None:
    assert set(LESSONS) == set(EXAMPLES)
    assert (DISPLACED.stages, TWO_RANKS.stages) == ((DATA, FORWARD, BACKWARD), (DATA, BACKWARD))
    assert CROSSINGS.leaders == (0, 1, 2)
