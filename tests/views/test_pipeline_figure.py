"""The bars of pipeline stages, and the sentences on them."""

from __future__ import annotations

import numpy as np
import pytest

from sfapp.accounting import judge, measure
from sfapp.model import Window
from sfapp.model.view import ViewState
from sfapp.views.figures.pipeline import PLOT, pipeline_stages
from sfapp.views.plot_registry import WindowInput
from tests.accounting.simulated_pipelines import pipeline_window, work
from tests.views import simulated_windows as jobs


def slow_last() -> Window:
    forward, backward = work()
    backward[:, 3] *= 1.5
    return pipeline_window(forward, backward, merged=True)


def test_own_and_idle_time_of_a_stage_add_up_to_the_step() -> None:
    measures = measure(slow_last())
    diagnosis = judge(measures)
    figure = pipeline_stages(measures, diagnosis)
    bars = {trace["name"]: np.array(trace["y"]) for trace in figure["data"]}
    assert figure["data"][0]["x"] == ["pp 0", "pp 1", "pp 2", "pp 3"]
    assert sum(bars.values()) == pytest.approx([diagnosis.step_time.mean_ns / 1e6] * 4, abs=0.01)
    assert bars["idle"].argmin() == bars["backward"].argmax() == 3
    assert "rank 3: own time" in figure["data"][0]["hovertext"][3]


def test_the_notes_name_what_bounds_the_step_and_what_balance_would_bring() -> None:
    measures = measure(slow_last())
    bounding, idle, prediction, *_ = pipeline_stages(measures, judge(measures))["layout"]["meta"]["notes"]
    assert bounding.startswith("Pipeline stage 3 (rank 3) bounds the step: ")
    assert "with 8 micro-steps, 27 % is the bubble of a balanced pipeline" in idle
    assert "with stage 3 as fast as the median of the others" in prediction
    assert "(replay of 1F1B, off by <0.1 %)" in prediction


def test_without_a_pipeline_the_plot_is_left_out() -> None:
    def applies(window: Window) -> bool:
        measures = measure(window)
        return PLOT.applies(WindowInput(measures, judge(measures), ViewState()))

    assert applies(slow_last())
    assert not applies(jobs.slow_callback())
    figure = pipeline_stages(*jobs.look(jobs.slow_callback()))
    assert "no pipeline" in figure["layout"]["meta"]["alt"]
