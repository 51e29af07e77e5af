"""The heat map over the parallel layout, and the words for its pattern."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sfapp.accounting import judge, measure
from sfapp.model.parallel_layout import PATTERNS, LayoutPattern, PatternKind
from sfapp.model.view import ViewState
from sfapp.views.figures.base import typed_array
from sfapp.views.figures.parallel_layout import PLOT, parallel_layout
from sfapp.views.plot_registry import PLOTS, WindowInput
from sfapp.views.text.parallel_layout import NO_PATTERN, pattern_sentences
from tests.views import simulated_windows as jobs

LAYOUT = {"dp": (0, 0, 1, 1), "pp": (0, 1, 0, 1)}


def numbers(heat: dict[str, Any]) -> np.ndarray:
    return np.asarray(typed_array(heat["z"]))


def pattern_of(kind: PatternKind, **changed: Any) -> LayoutPattern:
    fields: dict[str, Any] = {
        "also": (),
        "ranks": (1, 3),
        "coordinates": {"pp": 1},
        "hostname": None,
        "late_ns": 12_300_000.0,
        "slowdown": 0.18,
    }
    return LayoutPattern(kind=kind, **(fields | changed))


def test_a_late_rank_is_a_dark_cell_and_named() -> None:
    measures, diagnosis = jobs.look(jobs.many())
    figure = parallel_layout(measures, diagnosis)
    (heat,) = figure["data"]
    percent = numbers(heat)
    # Rank 137 of 200 is the second stage of replica 34
    assert np.unravel_index(percent.argmax(), percent.shape) == (34, 1)
    assert heat["hovertext"][34][1].startswith("slowest: rank 137 on node-17<br>own time")
    assert figure["layout"]["meta"]["notes"][0].startswith(
        "One worker (dp 34, pp 1, on node-17): rank 137 is"
    )
    assert figure["layout"]["meta"]["subtitle"].startswith("dp by pp")


def test_without_late_ranks_no_pattern_is_named() -> None:
    layout = {"dp": range(8)}
    figure = parallel_layout(*jobs.look(jobs.healthy(layout=layout)))
    assert figure["layout"]["meta"]["notes"][0] == NO_PATTERN


def test_a_stage_in_which_waiting_is_unknown_is_left_out_and_named() -> None:
    figure = parallel_layout(*jobs.look(jobs.many()))
    assert any(note.startswith("Without backward: ranks wait") for note in figure["layout"]["meta"]["notes"])


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (jobs.slow_callback, "no coordinates"),
        (jobs.reduced_wide_nodes, "rows of"),
        (lambda: jobs.ddp(steps=3, layout={"dp": range(8)}), "too few steps"),
    ],
)
def test_the_reason_why_there_is_nothing_to_draw_is_given(window: Any, reason: str) -> None:
    figure = parallel_layout(*jobs.look(window()))
    assert reason in figure["layout"]["meta"]["alt"]


def test_the_plot_is_shown_where_there_are_coordinates() -> None:
    def applies(window: Any) -> bool:
        measures = measure(window)
        return PLOTS["parallel_layout"].applies(WindowInput(measures, judge(measures), ViewState()))

    assert applies(jobs.many())
    assert not applies(jobs.slow_callback())
    assert PLOT.report is not None


@pytest.mark.parametrize("kind", PATTERNS)
def test_every_pattern_has_a_sentence_with_its_usual_cause(kind: PatternKind) -> None:
    (sentence,) = pattern_sentences(pattern_of(kind), LAYOUT)
    assert "ranks 1 and 3 are 12.3 ms per step late (+18 % vs the median rank)" in sentence
    assert sentence.endswith(PATTERNS[kind])


def test_the_last_stage_is_called_so() -> None:
    (last,) = pattern_sentences(pattern_of("pipeline_stage"), LAYOUT)
    (first,) = pattern_sentences(pattern_of("pipeline_stage", coordinates={"pp": 0}), LAYOUT)
    assert last.startswith("The last pipeline stage (pp 1): ")
    assert first.startswith("One pipeline stage (pp 0): ")


def test_kinds_with_the_same_ranks_are_named_together() -> None:
    _, second = pattern_sentences(pattern_of("host", also=("pipeline_stage", "data_row")), LAYOUT)
    assert second == (
        "These ranks are also one pipeline stage and one data-parallel replica: which of them is the cause "
        "cannot be distinguished here."
    )
