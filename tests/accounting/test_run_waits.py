"""Where a window's own fit finds no wait, its run's other windows say where ranks meet (accounting.md §10).

A rank that is late from a window's first step to its last is late by the same all the time: nothing that the
fit could see. The job is the same as in the windows before, so ranks still wait where they waited then.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from builders import BACKWARD, CALLBACKS, DATA, OPTIMIZER, ddp_job, lasting_fault, window_of

from sfapp.accounting import (
    diagnose,
    diagnose_runs,
    judge,
    measure,
    nearest_changes,
    reference_of,
    run_waits,
)
from sfapp.model import DEFAULT_STAGES, Diagnosis, Gates, Window

BACKWARD_AT, CALLBACKS_AT = DEFAULT_STAGES.index(BACKWARD), DEFAULT_STAGES.index(CALLBACKS)


def aims(diagnoses: list[Diagnosis]) -> list[tuple[str, int | None]]:
    return [(found.aim.stage, found.aim.rank) for found in diagnoses if found.aim is not None]


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
@pytest.mark.parametrize("seed", range(4))
def test_a_late_rank_is_named_in_every_window_of_a_lasting_fault(stage: str, ranks: int, seed: int) -> None:
    found = diagnose_runs(lasting_fault(stage, ranks=ranks, seed=seed))
    assert aims(found)[2:] == [(stage, 1)] * 4
    assert all(diagnosis.is_quiet for diagnosis in found[:2])


def test_alone_such_a_window_would_blame_those_who_wait() -> None:
    # what makes the others needed: without them nothing tells a late rank from a slow backward
    window = lasting_fault(ranks=2)[4]
    alone = diagnose(window)
    assert alone.wait_stages == ()
    assert alone.waits_from is None
    assert alone.aim is not None
    assert alone.aim.stage == BACKWARD


def test_a_window_says_whether_it_measured_the_wait_itself() -> None:
    windows = lasting_fault(ranks=2)
    found = diagnose_runs(windows)
    assert {diagnosis.waits_from for diagnosis in found} == {"window", "run"}
    for diagnosis in found:
        assert (diagnosis.wait_stages, diagnosis.sync_boundary) == ((BACKWARD,), BACKWARD)
        own = diagnose(windows[diagnosis.window])
        assert (diagnosis.waits_from == "window") == (own.waits_from == "window") == bool(own.wait_stages)


def test_a_fit_of_its_own_comes_before_what_others_found() -> None:
    window = lasting_fault()[2]
    elsewhere = run_waits([diagnose(one) for one in lasting_fault()])[window.run_id, window.stages]
    assert judge(measure(window).in_run(elsewhere)) == diagnose(window)


def test_what_most_windows_found_is_taken() -> None:
    # two windows in which ranks meet in backward, and one in which they meet in the callbacks instead
    swapped = list(range(len(DEFAULT_STAGES)))
    swapped[BACKWARD_AT], swapped[CALLBACKS_AT] = CALLBACKS_AT, BACKWARD_AT
    jobs = [ddp_job(seed=0), ddp_job(seed=1), ddp_job(seed=2)[swapped]]
    found = [diagnose(window_of(job, run_id="run", window=number)) for number, job in enumerate(jobs)]
    assert [diagnosis.wait_stages for diagnosis in found] == [(BACKWARD,), (BACKWARD,), (CALLBACKS,)]

    def taken(diagnoses: list[Diagnosis]) -> int | None:
        return run_waits(diagnoses)["run", DEFAULT_STAGES].stage(Gates().wait_slope)

    assert taken(found) == taken(found[1:]) == BACKWARD_AT  # of equal ones the first
    assert taken(found[2:]) == CALLBACKS_AT


def test_a_gate_that_no_window_passes_leaves_all_without_a_wait() -> None:
    strict = Gates(wait_slope=2.0)
    for diagnosis in diagnose_runs(lasting_fault(ranks=2), strict):
        assert (diagnosis.wait_stages, diagnosis.sync_boundary, diagnosis.waits_from) == ((), None, None)
    # and moving it on one window of the run says the same
    window = lasting_fault(ranks=2)[4]
    waits = run_waits([diagnose(one) for one in lasting_fault(ranks=2)])["run", window.stages]
    measures = measure(window).in_run(waits)
    assert judge(measures).waits_from == "run"
    assert judge(measures, strict).waits_from is None


def test_the_nearest_change_of_a_gate_keeps_what_the_run_knows() -> None:
    windows = lasting_fault(ranks=2)
    waits = run_waits([diagnose(one) for one in windows])["run", windows[4].stages]
    measures = measure(windows[4]).in_run(waits)
    diagnosis = judge(measures, frontier="carry_over")
    assert diagnosis.top_stage == OPTIMIZER
    (change, *_) = nearest_changes(measures, diagnosis, ["tau_c"])["tau_c"]
    assert change.routing_set[0] == OPTIMIZER


def test_other_runs_and_other_stages_say_nothing() -> None:
    windows = lasting_fault(ranks=2)
    late_SNR = windows[4].duration_SNR
    of_other_stages = window_of(late_SNR, stages=renamed(windows[4]), run_id="run", window=7)
    of_another_run = window_of(late_SNR, run_id="other", window=7)
    found = diagnose_runs([*windows[:2], windows[4], of_other_stages, of_another_run])
    known = {(diagnosis.run_id, diagnosis.window): diagnosis.waits_from for diagnosis in found}
    assert known["run", 4] == "run"
    assert known["run", 7] is known["other", 7] is None


def renamed(window: Window) -> tuple[str, ...]:
    return tuple("user.custom" if stage == DATA else stage for stage in window.stages)


@pytest.mark.parametrize(
    "unfit",
    [
        {"steps": [*range(20), *range(21, 41)]},
        {"durations": torch.ones(6, 40, 2, dtype=torch.int64)},
    ],
    ids=["steps with a gap", "below the floor"],
)
def test_a_window_that_cannot_be_aligned_stays_as_it_is(unfit: dict[str, Any]) -> None:
    windows = lasting_fault(ranks=2)
    waits = run_waits([diagnose(one) for one in windows])["run", windows[4].stages]
    durations = unfit.pop("durations", windows[4].duration_SNR)
    window = window_of(durations, run_id="run", window=4, **unfit)
    assert judge(measure(window).in_run(waits)) == diagnose(window)


def test_a_group_is_aligned_where_all_ranks_meet() -> None:
    # four of eight ranks: that all eight wait for each other is known from all of them
    found = diagnose_runs(lasting_fault(), group="node:0")
    assert aims(found)[2:] == [(OPTIMIZER, 1)] * 4


def test_the_healthy_window_as_a_reference_is_aligned_like_the_others() -> None:
    windows = lasting_fault(ranks=2)
    found = diagnose_runs(windows)
    picked = diagnose_runs(windows, reference=("run", 1))
    waits = run_waits(found)["run", windows[1].stages]
    healthy = reference_of(measure(windows[1]).in_run(waits))
    assert all(diagnosis.reference == healthy for diagnosis in picked)
