"""Culprits, severity, reference and aim (accounting.md §12, §13) on simulated data-parallel jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import (
    diagnose,
    diagnose_runs,
    healthy_in_run,
    pooled_reference,
    reference_of,
    with_reference,
)
from sfapp.accounting.leaders import period_of
from sfapp.model import Diagnosis, Window
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, MS, OPTIMIZER, ddp_job, reduced, window_of

HEALTHY = window_of(ddp_job(seed=9), window=1)


def compared(extra: dict, every: int = 1) -> Diagnosis:
    return diagnose(window_of(ddp_job(extra=extra, every=every), window=2), reference=HEALTHY)


@pytest.mark.parametrize("stage", [DATA, FORWARD, CALLBACKS, OPTIMIZER])
def test_a_stage_slow_on_one_rank_is_the_likely_cause_with_that_rank(stage: str) -> None:
    diagnosis = compared({(stage, 3): 60 * MS})
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank, diagnosis.aim.basis) == (stage, 3, "delta")
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.kind == "chronic"
    assert diagnosis.change == pytest.approx(60 / 66, rel=0.1)


@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
def test_a_delay_after_the_last_wait_is_blamed_on_backward_by_step_aligned_shares_alone(stage: str) -> None:
    slow = window_of(ddp_job(extra={(stage, 3): 60 * MS}), window=2)
    diagnosis = diagnose(slow, reference=HEALTHY, frontier="step")
    assert diagnosis.top_stage == BACKWARD
    assert "carry_over" in diagnosis.reasons
    assert diagnosis.sync_boundary == BACKWARD


@pytest.mark.parametrize("stage", [CALLBACKS, OPTIMIZER])
def test_by_default_shares_and_suspect_name_the_stage_of_a_delay_after_the_last_wait(stage: str) -> None:
    diagnosis = compared({(stage, 3): 60 * MS})
    assert diagnosis.frontier == "carry_over"
    assert diagnosis.top_stage == stage
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank) == (stage, 3)


def test_without_consecutive_steps_the_step_aligned_frontier_is_used_and_stated() -> None:
    gaps = replace(HEALTHY, step_N=HEALTHY.step_N * 2)
    diagnosis = diagnose(gaps)
    assert diagnosis.frontier == "step"
    assert "steps_not_consecutive" in diagnosis.reasons
    assert diagnosis.top_stages() == diagnosis.shares


def test_a_stage_slow_on_random_ranks_names_no_rank_but_rotating_ranks() -> None:
    diagnosis = compared({(DATA, "random"): 60 * MS})
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank, diagnosis.aim.rank_reason) == (DATA, None, "rotating")
    assert diagnosis.culprit is not None
    assert diagnosis.culprit.kind == "rotating"


def test_a_backward_slow_on_one_rank_looks_the_same_on_all_ranks() -> None:
    diagnosis = compared({(BACKWARD, 3): 60 * MS})
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank_reason) == (BACKWARD, "all_ranks")


@pytest.mark.parametrize("seed", range(8))
def test_one_slow_rank_of_two_is_not_both_of_them(seed: int) -> None:
    # The median of two ranks is their mean: it grows by just half of what one of them takes longer
    healthy = window_of(ddp_job(ranks=2, seed=100), window=1)
    slow = window_of(ddp_job(ranks=2, seed=seed, extra={(DATA, 1): 60 * MS}), window=2)
    aim = diagnose(slow, reference=healthy).aim
    assert aim is not None
    assert (aim.stage, aim.rank, aim.basis) == (DATA, 1, "delta")


@pytest.mark.parametrize("seed", range(8))
def test_ranks_of_which_just_half_are_slow_are_not_all_ranks(seed: int) -> None:
    slow = ddp_job(seed=seed, extra={(DATA, rank): 60 * MS for rank in range(4, 8)})
    aim = diagnose(window_of(slow, window=2), reference=HEALTHY).aim
    assert aim is not None
    assert (aim.stage, aim.rank, aim.rank_reason) == (DATA, None, "several_ranks")


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_stage_slow_on_all_ranks_is_nobodys(ranks: int) -> None:
    healthy = window_of(ddp_job(ranks=ranks, seed=100), window=1)
    slow = window_of(ddp_job(ranks=ranks, extra={(DATA, "all"): 60 * MS}), window=2)
    aim = diagnose(slow, reference=healthy).aim
    assert aim is not None
    assert (aim.stage, aim.rank_reason) == (DATA, "all_ranks")


def test_a_callback_every_ten_steps_is_periodic_and_leaves_the_median_untouched() -> None:
    diagnosis = compared({(CALLBACKS, 5): 300 * MS}, every=10)
    assert diagnosis.aim is not None
    assert diagnosis.culprit is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank, diagnosis.aim.steps) == (CALLBACKS, 5, "every 10")
    assert (diagnosis.culprit.kind, diagnosis.culprit.period) == ("periodic", 10)
    assert diagnosis.step_time.p50_ns == pytest.approx(67 * MS, rel=0.05)
    assert diagnosis.change is not None
    assert diagnosis.change > 0.3


def test_a_single_hiccup_is_a_one_off_with_its_steps() -> None:
    diagnosis = compared({(DATA, 2): 900 * MS}, every=30)
    assert diagnosis.aim is not None
    assert diagnosis.culprit is not None
    assert (diagnosis.culprit.kind, diagnosis.aim.rank, diagnosis.aim.steps) == ("one-off", 2, (0, 30))


def test_a_healthy_window_has_no_finding_and_aims_at_its_largest_share_only() -> None:
    diagnosis = diagnose(window_of(ddp_job(seed=3)), reference=HEALTHY)
    assert diagnosis.is_healthy
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.basis) == (BACKWARD, "share")


def test_without_a_reference_the_excess_decides() -> None:
    diagnosis = diagnose(window_of(ddp_job(extra={(OPTIMIZER, 3): 60 * MS})))
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank, diagnosis.aim.basis) == (OPTIMIZER, 3, "excess")


def test_deltas_add_up_to_the_change_in_step_time() -> None:
    diagnosis = compared({(DATA, 3): 60 * MS})
    assert diagnosis.delta_ns is not None
    assert diagnosis.reference is not None
    grown = diagnosis.step_time.mean_ns - diagnosis.reference.step_time_ns
    assert sum(diagnosis.delta_ns.values()) == pytest.approx(grown, rel=1e-12)


def with_gap(diagnosed: Window) -> Window:
    """The same window without a row for the steps 20 to 22."""
    steps = diagnosed.step_N
    return replace(diagnosed, step_N=np.where(steps - steps[0] < 20, steps, steps + 3))


@pytest.mark.parametrize(("has_gap", "healthy_has_gap"), [(True, False), (False, True), (True, True)])
def test_deltas_add_up_to_the_change_where_a_window_has_gaps(has_gap: bool, healthy_has_gap: bool) -> None:
    slow = window_of(ddp_job(seed=3, extra={(CALLBACKS, 3): 60 * MS}, every=4), window=3)
    healthy = [window_of(ddp_job(seed=number), window=number) for number in (1, 2)]
    healthy[0] = with_gap(healthy[0]) if healthy_has_gap else healthy[0]
    reference = pooled_reference([reference_of(diagnose(one)) for one in healthy])
    found = with_reference(diagnose(with_gap(slow) if has_gap else slow), reference)
    assert found.delta_ns is not None
    assert found.reference is not None
    assert found.change is not None
    grown = found.change * found.reference.step_time_ns
    assert sum(found.delta_ns.values()) == pytest.approx(grown, rel=1e-12)
    aligned = diagnose(slow).advances_ns
    before = sum(found.reference.advance_ns.values())
    assert found.change == pytest.approx(sum(aligned.values()) / 40 / before - 1, rel=1e-12)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_window_that_its_ranks_reduced_does_not_hide_the_typical_times_of_others(place: int) -> None:
    healthy = [window_of(ddp_job(seed=number), window=number) for number in range(3)]
    whole = [reference_of(diagnose(one)) for index, one in enumerate(healthy) if index != place]
    healthy[place] = reduced(healthy[place])
    reference = pooled_reference([reference_of(diagnose(one)) for one in healthy])
    assert reference.windows == (0, 1, 2)
    assert reference.typical_ns == pooled_reference(whole).typical_ns != {}
    # One that all of them reduced has none
    assert pooled_reference([reference_of(diagnose(healthy[place]))]).typical_ns == {}


def test_a_window_with_gaps_is_no_healthy_one_where_others_have_none() -> None:
    windows = [window_of(ddp_job(seed=number), window=number) for number in range(4)]
    windows[2] = with_gap(windows[2])
    found = healthy_in_run([diagnose(one) for one in windows])
    assert found is not None
    assert found.windows == (1, 3)
    found = healthy_in_run([diagnose(with_gap(one)) for one in windows])
    assert found is not None
    assert found.windows == (1, 2, 3)


def test_the_healthy_window_has_the_lowest_mean_after_the_first_and_is_complete() -> None:
    def window(number: int, extra: int, **manifest: object) -> Diagnosis:
        job = ddp_job(extra={(CALLBACKS, 3): extra}, every=10, seed=number)
        return diagnose(window_of(job, window=number, **manifest))

    run = [
        window(0, 0),
        window(1, 300 * MS),  # its median is as low as that of window 3, its mean is not
        window(2, 0, gather_ok=False),
        window(3, 0),
        window(4, 0, closed_by="flush"),
    ]
    healthy = healthy_in_run(run)
    assert healthy is not None
    assert healthy.windows == (3,)
    assert healthy_in_run(run[:1]) is None


def test_a_stored_diagnosis_takes_another_reference_without_its_matrix() -> None:
    window = window_of(ddp_job(extra={(DATA, 3): 60 * MS}))
    alone = diagnose(window)
    reference = reference_of(diagnose(HEALTHY))
    assert with_reference(alone, reference) == diagnose(window, reference=reference)


def test_runs_are_compared_with_their_own_healthy_window() -> None:
    windows = [
        window_of(ddp_job(seed=seed, extra={(DATA, 1): slow}), run_id=run, window=seed)
        for run in ("a", "b")
        for seed, slow in enumerate((0, 0, 60 * MS))
    ]
    found = diagnose_runs(reversed(windows))
    assert [(d.run_id, d.window) for d in found] == [(r, w) for r in "ab" for w in range(3)]
    assert all(d.reference is not None and d.reference.run_id == d.run_id for d in found)
    assert [d.is_healthy for d in found] == [True, True, False] * 2


def test_a_reference_window_is_cut_to_the_same_group() -> None:
    slow = window_of(ddp_job(extra={(DATA, 3): 60 * MS}))
    diagnosis = diagnose(slow, reference=HEALTHY, group="node:0")
    assert diagnosis.reference is not None
    assert diagnosis.reference.group == "node:0"


@pytest.mark.parametrize(
    ("eligible", "period"),
    [
        ([0, 10, 20, 30], 10),
        ([3, 13, 23, 33, 17], 10),  # one step of jitter beside the spacing
        ([0, 10, 20, 30, 5, 17, 29], None),  # too much of it
        ([0, 1], None),
        (list(range(40)), None),
        (list(range(1, 40, 2)), 2),
        ([4, 5, 6], None),
    ],
)
def test_a_spacing_is_a_period_when_nearly_all_steps_keep_it(eligible: list[int], period: int | None) -> None:
    flags = np.zeros((40), dtype=np.bool_)
    flags[eligible] = True
    assert period_of(flags) == period


@pytest.mark.parametrize(
    ("steps", "late", "period"),
    [
        (range(0, 400, 10), range(3, 40, 5), 50),  # every tenth step has a row
        ([step for step in range(41) if step != 20], [*range(3, 20, 5), *range(22, 40, 5)], 5),  # one failed
    ],
)
def test_a_period_is_a_distance_between_step_numbers(
    steps: Sequence[int], late: Sequence[int], period: int
) -> None:
    job = ddp_job(steps=40)
    job[0, list(late), 2] += 300 * MS
    found = diagnose(window_of(job, steps=list(steps)))
    assert found.culprit is not None
    assert found.aim is not None
    assert (found.culprit.period, found.aim.steps) == (period, f"every {period}")
    assert {step % period for step in found.culprit.steps} == {found.culprit.steps[0] % period}


def test_late_steps_far_apart_take_no_memory_for_the_steps_between() -> None:
    # Rank 2 is late in single steps, and rank 1 leads in others; the two parts of the window are far apart.
    generator = np.random.default_rng(0)
    job = ddp_job(ranks=4, steps=40, jitter=20 * MS)
    job[0, [4, 9, 22, 31], 2] += generator.integers(50, 200, 4) * MS
    job[0, :, 1] += generator.integers(0, 40, 40) * MS
    found = diagnose(window_of(job, steps=[0, *range(2**61, 2**61 + 39)]))
    assert found.main_finding is not None
    assert found.main_finding.steps
    assert found.culprit is not None
    assert found.culprit.period is None
