"""Replaying a window with a stage fixed predicts the step time that fixing leaves (accounting.md §15)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import WhatIf, diagnose, judge, measure, what_if, what_if_of
from sfapp.errors import WindowNotFoundError
from sfapp.model import Fix, Window
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, MS, Ints, ddp_job, reduced, window_of

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


def fixed(window: Window, fix: Fix) -> WhatIf:
    measures = measure(window)
    return what_if_of(measures, judge(measures), fix)


def test_a_rank_is_fixed_in_every_stage_it_is_late_in() -> None:
    slow = own_times()
    slow[0, :, 1] += 10 * MS
    slow[2, :, 1] += 20 * MS
    found = fixed(job(slow), Fix(rank=1))
    assert found.saved_ns == pytest.approx(30 * MS, abs=2 * MS)
    assert found.fix == Fix(rank=1)


def test_a_node_is_fixed_with_all_its_ranks() -> None:
    # Given two late ranks on one node, and one that is less late on another
    own = np.random.default_rng(0).integers(19 * MS, 21 * MS, (3, STEPS, 8))
    own[0, :, 1] += 30 * MS
    own[0, :, 2] += 30 * MS
    own[0, :, 5] += 10 * MS
    # Then fixing one rank brings nothing, and fixing the node leaves the other node's delay
    one, node = fixed(job(own), Fix(DATA, rank=1)), fixed(job(own), Fix(DATA, node=0))
    assert one.saved_ns == pytest.approx(0, abs=2 * MS)
    assert node.saved_ns == pytest.approx(20 * MS, abs=2 * MS)


def test_everything_typical_leaves_no_difference_between_ranks() -> None:
    slow = own_times()
    slow[0, :, 1] += 30 * MS
    found = fixed(job(slow), Fix())
    typical_ns = measure(job(slow)).own.most_SN.sum(axis=0).mean() + MS
    assert found.predicted_ns == pytest.approx(typical_ns, rel=1e-6)


FAULTS = [{(DATA, 1): 30 * MS}, {(CALLBACKS, 1): 30 * MS}, {(DATA, "random"): 30 * MS}]


@pytest.mark.parametrize("extra", FAULTS)
def test_without_a_replay_a_stage_lies_between_static_gain_and_excess(extra: dict) -> None:
    measures = measure(window_of(ddp_job(extra=extra)))
    diagnosis = judge(measures)
    (stage, _), *_ = extra
    found = what_if_of(measures, diagnosis, Fix(stage))
    assert found.reason == "no_waits_recorded"
    assert diagnosis.static_gain is not None
    assert diagnosis.carry_over_excess is not None
    makespan_ns = diagnosis.exposed_makespan_ns / diagnosis.steps
    assert found.step_ns - found.least_ns == pytest.approx(diagnosis.carry_over_excess[stage] * found.step_ns)
    assert found.step_ns - found.most_ns == pytest.approx(diagnosis.static_gain[stage] * makespan_ns)


@pytest.mark.parametrize("fix", [Fix(DATA, rank=1), Fix(rank=1), Fix(DATA, node=0), Fix(), Fix(DATA, rank=3)])
def test_the_range_holds_what_a_replay_would_have_predicted(fix: Fix) -> None:
    slow = own_times()
    slow[0, :, 1] += 30 * MS
    replayed = fixed(job(slow), fix)
    bounded = fixed(replace(job(slow), waits={}), fix)
    assert replayed.predicted_ns is not None
    assert bounded.least_ns is not None
    assert bounded.most_ns is not None
    margin = 0.02 * replayed.step_ns  # the excess is over the median, the replay clips to the lower middle
    assert bounded.least_ns - margin <= replayed.predicted_ns <= bounded.most_ns + margin


def test_a_rank_that_never_is_the_slowest_has_nothing_to_bring() -> None:
    found = fixed(window_of(ddp_job(extra={(DATA, 1): 30 * MS})), Fix(DATA, rank=3))
    assert found.least_ns == found.most_ns == found.step_ns


def test_a_reduced_window_has_neither_prediction_nor_range_whichever_rank_is_asked_for() -> None:
    window = reduced(window_of(ddp_job(ranks=16, extra={(DATA, 9): 30 * MS})))
    without_rows = next(rank for rank in range(16) if rank not in window.ranks.rank)
    found = fixed(window, Fix(DATA, rank=without_rows))
    assert (found.reason, found.predicted_ns, found.least_ns) == ("reduced_rows", None, None)


def test_a_single_rank_has_no_typical_one_to_be_compared_with() -> None:
    found = fixed(window_of(ddp_job(ranks=1)), Fix(DATA))
    assert (found.reason, found.least_ns) == ("single_rank", None)


def test_an_unknown_node_is_refused() -> None:
    with pytest.raises(WindowNotFoundError, match="no rows of node 7"):
        fixed(job(own_times()), Fix(node=7))


def test_a_window_without_any_time_is_not_replayed() -> None:
    window = job(own_times())
    nothing = np.zeros_like(window.duration_SNR)
    window = replace(window, duration_SNR=nothing, wall_NR=nothing[0], waits={BACKWARD: nothing[0]})
    measures = measure(window)
    found = what_if_of(measures, judge(measures), Fix())
    assert (found.predicted_ns, found.error, found.reason) == (None, None, "denominator_floor")
