"""Every plot can be read as a table, and the table has what the plot shows."""

from __future__ import annotations

import pytest

from sfapp.model.view import ViewState
from sfapp.views.figures.frontier import frontier_steps
from sfapp.views.figures.heatmap import rank_step_heatmap
from sfapp.views.figures.node import node_ranks
from sfapp.views.figures.plot_table import MOST_COLUMNS, MOST_ROWS, plot_table
from sfapp.views.figures.step_timeline import step_timeline
from sfapp.views.plot_registry import PLOTS, PlotSpec, WindowInput
from tests.accounting.simulated_pipelines import pipeline_window, work
from tests.views import simulated_windows as jobs


@pytest.mark.parametrize("spec", PLOTS.of(WindowInput), ids=lambda spec: spec.name)
def test_every_plot_of_a_window_has_a_sentence_and_a_table(spec: PlotSpec[WindowInput]) -> None:
    subject = pipeline_window(*work()) if spec.name == "pipeline" else jobs.hand_overs()
    measures, diagnosis = jobs.look(subject)
    found = plot_table(spec.build(WindowInput(measures, diagnosis, ViewState()), False))
    assert found.sentence
    assert found.rows
    assert all(len(row) == len(found.columns) for row in found.rows)
    assert not any("<b>" in cell or "<br" in cell for row in found.rows for cell in row)


def test_bars_have_a_row_per_place_and_a_column_per_stage() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    found = plot_table(step_timeline(measures, diagnosis))
    assert len(found.rows) == 40
    assert found.rows[0][0] == "400"


def test_cells_have_their_ranks_and_steps() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    found = plot_table(rank_step_heatmap(measures, diagnosis))
    assert found.columns[1] == "400"
    assert found.rows[3][0] == "rank 3 on node-0"
    assert float(found.rows[3][1]) > 60


def test_tiles_are_read_from_their_words() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    found = plot_table(node_ranks(measures, diagnosis, 0))
    assert found.rows[3][0].startswith("rank 3 on node-0")
    assert "▲ straggler" in found.rows[3][1]


def test_large_tables_are_cut_with_a_notice() -> None:
    measures, diagnosis = jobs.look(jobs.ddp(ranks=8, steps=300))
    found = plot_table(step_timeline(measures, diagnosis))
    assert (len(found.rows), found.left_out) == (MOST_ROWS, "Shown are the first 200 of 300 rows.")
    wide = plot_table(rank_step_heatmap(measures, diagnosis))
    assert len(wide.columns) == MOST_COLUMNS


def test_the_frontier_is_read_by_stage() -> None:
    measures, diagnosis = jobs.look(jobs.slow_callback())
    assert any(
        "callbacks" in cell for row in plot_table(frontier_steps(measures, diagnosis)).rows for cell in row
    )
