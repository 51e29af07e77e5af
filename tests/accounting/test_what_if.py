"""Replaying a window with a stage fixed predicts the step time that fixing leaves (accounting.md §15)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import BACKWARD, DATA, FORWARD, MS, Ints, window_of

from sfapp.accounting import WhatIf, diagnose, judge, measure, what_if
from sfapp.errors import WindowNotFoundError
from sfapp.model import Window

STAGES = (DATA, FORWARD, BACKWARD)
RANKS, STEPS = 4, 40


def own_times() -> Ints:
    return np.random.default_rng(0).integers(19 * MS, 21 * MS, (3, STEPS, RANKS))


def job(own_SNR: Ints, transfer: int = MS) -> Window:
    """Ranks that meet at the end of backward in every step; waits are known."""
    arrived_NR = own_SNR.sum(axis=0)
    wait_NR = arrived_NR.max(axis=1, keepdims=True) - arrived_NR + transfer
    duration_SNR = own_SNR.copy()
    duration_SNR[2] += wait_NR
    return replace(window_of(duration_SNR, stages=STAGES), waits={BACKWARD: wait_NR})


def predicted(window: Window, stage: str, rank: int | None = None) -> WhatIf:
    measures = measure(window)
    found = what_if(measures, judge(measures), stage, rank)
    assert found is not None
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_the_prediction_is_the_step_of_the_job_without_the_fault(stage: str) -> None:
    slow = own_times()
    slow[STAGES.index(stage), :, 1] += 30 * MS
    found = predicted(job(slow), stage, rank=1)
    healthy = diagnose(job(own_times()))
    assert found.predicted_ns is not None
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.predicted_ns == pytest.approx(healthy.step_time.mean_ns, rel=0.02)
    assert found.step_ns == diagnose(job(slow)).step_time.mean_ns


def test_of_two_ranks_the_slow_one_is_fixed_whole() -> None:
    # the mean of two ranks would keep half of the delay
    slow = own_times()[:, :, :2].copy()
    healthy = diagnose(job(slow)).step_time.mean_ns
    slow[2, :, 1] += 30 * MS
    found = predicted(job(slow), BACKWARD, rank=1)
    assert found.predicted_ns == pytest.approx(healthy, rel=0.02)


def test_two_faults_are_not_fixed_by_fixing_one() -> None:
    slow = own_times()
    slow[0, :, 1] += 30 * MS
    slow[2, :, 3] += 30 * MS
    one, both = predicted(job(slow), DATA, 1), diagnose(job(own_times()))
    assert one.saved_ns is not None
    assert one.saved_ns < 3 * MS  # rank 3 is as late
    assert both.step_time.mean_ns < one.step_ns - 25 * MS


def test_fixing_what_all_ranks_need_saves_nothing() -> None:
    slow = own_times()
    slow[1] += 30 * MS
    found = predicted(job(slow), FORWARD)
    assert found.saved_ns == pytest.approx(0, abs=2 * MS)


def test_without_a_choice_the_suspect_is_fixed() -> None:
    slow = own_times()
    slow[2, :, 2] += 60 * MS
    measures = measure(job(slow))
    found = what_if(measures, judge(measures))
    assert found is not None
    assert (found.stage, found.rank) == (BACKWARD, 2)
    assert found.saved_ns == pytest.approx(60 * MS, rel=0.05)


def test_nothing_is_predicted_without_waits() -> None:
    found = predicted(replace(job(own_times()), waits={}), DATA)
    assert (found.predicted_ns, found.reason) == (None, "no_waits_recorded")


def test_nothing_is_predicted_where_steps_are_missing() -> None:
    window = replace(job(own_times()), step_N=np.arange(STEPS) * 2)
    assert predicted(window, DATA).reason == "steps_not_consecutive"


def test_a_replay_that_misses_the_window_predicts_nothing() -> None:
    # waits that were not waits for each other: the replay lets ranks go on together that did not
    own = np.random.default_rng(1).integers(0, 40 * MS, (3, STEPS, RANKS))
    waits = {BACKWARD: np.full((STEPS, RANKS), 20 * MS)}
    duration_SNR = own.copy()
    duration_SNR[2] += 20 * MS
    found = predicted(replace(window_of(duration_SNR, stages=STAGES), waits=waits), DATA)
    assert (found.predicted_ns, found.reason) == (None, "replay_differs")
    assert found.error is not None
    assert found.error > 0.05


def test_an_unknown_stage_or_rank_is_refused() -> None:
    window = job(own_times())
    with pytest.raises(WindowNotFoundError, match="no stage 'nothing'"):
        predicted(window, "nothing")
    with pytest.raises(WindowNotFoundError, match="no rows of rank 9"):
        predicted(window, DATA, 9)
