"""Without a wait in its own fit, a window takes the sync boundary from its run's other windows (accounting.md
§10).

A rank that is late by the same time in every step of a window leaves nothing for the fit to detect. The job
is the same as in the windows before, so ranks still wait where they waited then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import (
    RunWaits,
    diagnose,
    diagnose_runs,
    judge,
    measure,
    nearest_changes,
    reference_of,
    run_waits,
)
from sfapp.model import DEFAULT_STAGES, Diagnosis, Gates, WaitFit, Window
from tests.builders import (
    BACKWARD,
    CALLBACKS,
    DATA,
    MS,
    OPTIMIZER,
    Ints,
    ddp_job,
    lasting_fault,
    reduced,
    window_of,
)

BACKWARD_AT, CALLBACKS_AT = DEFAULT_STAGES.index(BACKWARD), DEFAULT_STAGES.index(CALLBACKS)


def aims(diagnoses: list[Diagnosis]) -> list[tuple[str, int | None]]:
    return [(found.aim.stage, found.aim.rank) for found in diagnoses if found.aim is not None]


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
@pytest.mark.parametrize("seed", range(4))
def test_a_late_rank_is_named_in_every_window_of_a_lasting_fault(stage: str, ranks: int, seed: int) -> None:
    found = diagnose_runs(lasting_fault(stage, ranks=ranks, seed=seed))
    assert aims(found)[2:] == [(stage, 1)] * 4
    assert all(diagnosis.is_healthy for diagnosis in found[:2])


def test_alone_such_a_window_would_blame_the_waiting_ranks() -> None:
    # what makes the others needed: without them nothing tells a late rank from a slow backward
    window = lasting_fault(ranks=2)[4]
    alone = diagnose(window)
    assert alone.wait_stages == ()
    assert alone.waits_from is None
    assert alone.aim is not None
    assert alone.aim.stage == BACKWARD


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
def test_without_measured_waits_of_a_run_variation_between_syncs_decides(stage: str, ranks: int) -> None:
    # jobs that are late from their first step on
    jobs = [lasting_fault(stage, ranks=ranks, seed=seed, run_id=f"run-{seed}")[3:] for seed in range(12)]
    silent = [[window for window in job if diagnose(window).met_boundary] for job in jobs]
    runs = [windows for windows in silent if len(windows) > 1]
    assert len(runs) > 1
    found = [diagnosis for windows in runs for diagnosis in diagnose_runs(windows)]
    assert {(diagnosis.sync_boundary, diagnosis.waits_from) for diagnosis in found} == {(BACKWARD, "run")}
    assert aims(found) == [(stage, 1)] * len(found)


def test_one_window_alone_is_judged_by_its_own_fit() -> None:
    window = lasting_fault(ranks=2, seed=7)[4]
    assert diagnose(window).met_boundary == BACKWARD
    assert diagnose_runs([window]) == [diagnose(window)]


def test_a_window_records_whether_it_measured_the_wait_itself() -> None:
    windows = lasting_fault(ranks=2)
    found = diagnose_runs(windows)
    assert {diagnosis.waits_from for diagnosis in found} == {"window", "run"}
    for diagnosis in found:
        assert (diagnosis.wait_stages, diagnosis.sync_boundary) == ((BACKWARD,), BACKWARD)
        own = diagnose(windows[diagnosis.window])
        assert (diagnosis.waits_from == "window") == (own.waits_from == "window") == bool(own.wait_stages)


SWAPPED = list(range(len(DEFAULT_STAGES)))
SWAPPED[BACKWARD_AT], SWAPPED[CALLBACKS_AT] = CALLBACKS_AT, BACKWARD_AT


def in_callbacks(seed: int) -> Ints:
    """A job whose ranks synchronise in the callbacks."""
    return ddp_job(seed=seed)[SWAPPED]


def alone(*jobs: Ints) -> list[Diagnosis]:
    return [diagnose(window_of(job, window=number)) for number, job in enumerate(jobs)]


def run_waits_of(diagnoses: list[Diagnosis]) -> RunWaits:
    return run_waits(diagnoses)["run", DEFAULT_STAGES]


def test_a_run_vouches_for_stages_that_a_third_of_its_windows_found() -> None:
    found = alone(ddp_job(seed=0), ddp_job(seed=1), ddp_job(seed=2), in_callbacks(3))
    assert [diagnosis.own_boundary for diagnosis in found] == [BACKWARD] * 3 + [CALLBACKS]
    assert run_waits_of(found) == RunWaits((BACKWARD,), BACKWARD)
    assert run_waits_of(found[1:]) == RunWaits((BACKWARD, CALLBACKS), BACKWARD)
    assert run_waits_of(found[3:]) == RunWaits((CALLBACKS,), CALLBACKS)
    assert run_waits_of(alone(np.ones((6, 40, 2), dtype=np.int64) * MS)) == RunWaits()


def test_windows_with_several_candidates_choose_the_best_sync_boundary() -> None:
    # most windows of this job find but the lesser one of the two stages that its ranks wait in
    one = alone(in_callbacks(0), in_callbacks(1), in_callbacks(2))
    (both,) = alone(ddp_job(seed=4))
    fits = {**(both.wait_fit or {}), CALLBACKS: WaitFit(1.0, 0.01)}
    both = replace(both, wait_fit=fits)
    assert both.own_boundary == BACKWARD
    assert run_waits_of([*one, both]).boundary == CALLBACKS  # backward alone is in one of four
    assert run_waits_of([*one, both, both]) == RunWaits((BACKWARD, CALLBACKS), BACKWARD)


def test_a_stage_that_this_window_alone_waits_in_stands() -> None:
    waits = RunWaits((BACKWARD,), BACKWARD)
    barrier = judge(measure(window_of(in_callbacks(0))).in_run(waits))
    assert (barrier.own_boundary, barrier.sync_boundary, barrier.waits_from) == (CALLBACKS,) * 2 + ("window",)


def test_the_run_knows_better_which_of_its_stages_to_take() -> None:
    waits = RunWaits((BACKWARD, CALLBACKS), BACKWARD)
    lesser = judge(measure(window_of(in_callbacks(0))).in_run(waits))
    assert (lesser.own_boundary, lesser.sync_boundary, lesser.waits_from) == (CALLBACKS, BACKWARD, "run")
    assert lesser.wait_stages == (BACKWARD, CALLBACKS)


def test_what_the_run_knows_does_not_depend_on_the_gates_of_a_view() -> None:
    # under this one no window finds a wait by itself
    windows = lasting_fault(ranks=2)
    for diagnosis in diagnose_runs(windows, Gates(wait_slope=2.0)):
        assert (diagnosis.own_boundary, diagnosis.sync_boundary) == (None, BACKWARD)
        assert diagnosis.waits_from == "run"


def test_the_nearest_change_of_a_gate_keeps_what_the_run_knows() -> None:
    windows = lasting_fault(ranks=2)
    waits = run_waits([diagnose(one) for one in windows])["run", windows[4].stages]
    measures = measure(windows[4]).in_run(waits)
    diagnosis = judge(measures, frontier="carry_over")
    assert diagnosis.top_stage == OPTIMIZER
    (change, *_) = nearest_changes(measures, diagnosis, ["tau_c"])["tau_c"]
    assert change.routing_set[0] == OPTIMIZER


def test_other_runs_and_other_stages_have_no_influence() -> None:
    windows = lasting_fault(ranks=2)
    # each step is like the other: nothing to measure
    late_SNR = np.tile(windows[4].duration_SNR[:, 1:2], (1, 40, 1))
    of_other_stages = window_of(late_SNR, stages=renamed(windows[4]), run_id="run", window=7)
    of_another_run = window_of(late_SNR, run_id="other", window=7)
    of_this_run = window_of(late_SNR, window=4)
    found = diagnose_runs([*windows[:2], of_this_run, of_other_stages, of_another_run])
    known = {(diagnosis.run_id, diagnosis.window): diagnosis.waits_from for diagnosis in found}
    assert known["run", 4] == "run"
    assert known["run", 7] is known["other", 7] is None


def renamed(window: Window) -> tuple[str, ...]:
    return tuple("user.custom" if stage == DATA else stage for stage in window.stages)


def with_a_gap(window: Window) -> Window:
    return window_of(window.duration_SNR, steps=[*range(20), *range(21, 41)], window=4)


def below_the_floor(window: Window) -> Window:
    return window_of(window.duration_SNR // 10_000, window=4)


def of_one_rank(window: Window) -> Window:
    return window_of(window.duration_SNR[:, :, :1], window=4)


@pytest.mark.parametrize("unfit", [with_a_gap, below_the_floor, of_one_rank, reduced])
def test_a_window_that_cannot_be_aligned_stays_as_it_is(unfit: Callable[[Window], Window]) -> None:
    windows = lasting_fault(ranks=2)
    waits = run_waits([diagnose(one) for one in windows])["run", windows[4].stages]
    assert judge(measure(windows[4]).in_run(waits)) != diagnose(windows[4])
    window = unfit(windows[4])
    assert judge(measure(window).in_run(waits)) == diagnose(window)


def test_a_group_is_aligned_at_the_sync_of_all_ranks() -> None:
    # four of eight ranks: that all eight wait for each other is known from all of them
    found = diagnose_runs(lasting_fault(), group="node:0")
    assert aims(found)[2:] == [(OPTIMIZER, 1)] * 4


def test_a_reference_is_aligned_in_its_own_run() -> None:
    # a window that measures no wait itself, picked by another run
    windows = lasting_fault(ranks=2)
    others = lasting_fault(ranks=2, seed=7, run_id="other")
    waits = run_waits([diagnose(one) for one in windows])["run", windows[4].stages]
    aligned = reference_of(measure(windows[4]).in_run(waits))
    assert aligned != reference_of(measure(windows[4]))
    for diagnosis in diagnose_runs([*windows, *others], reference=("run", 4)):
        assert diagnosis.reference == aligned


@pytest.mark.parametrize("group", ["all", "node:0"])
def test_the_waits_of_a_run_do_not_depend_on_a_views_floor(group: str) -> None:
    # above this floor only the windows of the fault stand; those before it measured where ranks wait
    windows = lasting_fault(ranks=4)
    healthy, sick = (diagnose(windows[number]).exposed_makespan_ns for number in (1, 4))
    assert healthy < sick
    found = diagnose_runs(windows, Gates(floor_ns=(healthy + sick) // 2), group=group)
    assert aims(found)[-2:] == [(OPTIMIZER, 1)] * 2
    assert found[1].shares is None


def test_labels_are_left_to_a_windows_own_evidence() -> None:
    windows = lasting_fault(ranks=2)
    for found, window in zip(diagnose_runs(windows), windows, strict=True):
        assert found.labels == diagnose(window).labels
