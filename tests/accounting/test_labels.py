"""Every label and every reason of accounting.md §7 is reached by a window that deserves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import diagnose
from sfapp.model import (
    FORWARD_EVENT,
    LABELS,
    Accumulation,
    Diagnosis,
    Gates,
    Label,
    Parallelism,
    SideChannel,
    Window,
)
from sfapp.model.reasons import REASONS
from tests.builders import BACKWARD, DATA, FORWARD, MS, Ints, by_rank, ddp_job, reduced, window_of

STAGES = (DATA, FORWARD, BACKWARD)


def slow_data(**manifest: object) -> Diagnosis:
    return diagnose(window_of(ddp_job(extra={(DATA, 3): 120 * MS}), **manifest))


def independent_ranks(slow: float = 10.0) -> Ints:
    """Ranks that never wait: clipping the slow rank's backward shortens the step at once."""
    return np.tile(by_rank(*[(1.0, 1.0, 2.0 + (slow if rank == 0 else 0)) for rank in range(4)]), (1, 12, 1))


def with_events(forward_ms: float, ready: float = 1.0, forward_share: float = 1.0) -> Diagnosis:
    steps, ranks = 20, 4
    durations = np.tile(by_rank(*[(1.0, 6.0 * forward_share, 1.0)] * ranks, unit=10 * MS), (1, steps, 1))
    value_NR = np.full((steps, ranks), forward_ms, dtype=np.float64)
    value_NR[int(steps * ready) :] = np.nan
    channel = SideChannel(value_NR, np.ones((steps, ranks), dtype=np.bool))
    return diagnose(window_of(durations, stages=STAGES, side={FORWARD_EVENT: channel}))


@pytest.mark.parametrize("forward_ms", [-1.0, 1e13, 1.7e308, -1.7e308])
def test_events_that_no_device_can_have_measured_count_as_not_ready(forward_ms: float) -> None:
    diagnosis = with_events(forward_ms)
    assert diagnosis.device is not None
    assert (diagnosis.device.ready, diagnosis.device.device_share, diagnosis.device.host_ratio) == (
        0,
        None,
        None,
    )
    assert any(label.label == "forward_event_scope_limited" for label in diagnosis.labels)


def rotating() -> Diagnosis:
    return diagnose(window_of(ddp_job(extra={(DATA, "random"): 120 * MS})))


def spilled() -> Diagnosis:
    steps, ranks = 20, 4
    durations = np.tile(by_rank(*[(1.0, 1.0, 8.0)] * ranks, unit=10 * MS), (1, steps, 1))
    channel = SideChannel(
        np.full((steps, ranks), 60.0, dtype=np.float64), np.ones((steps, ranks), dtype=np.bool)
    )
    return diagnose(window_of(durations, stages=STAGES, side={FORWARD_EVENT: channel}))


def disagreeing() -> Diagnosis:
    # forward leads the frontier and clipping it helps, but the largest raw duration lies in backward
    slow, fast = (0.0, 9.0, 5.0), (0.0, 2.0, 10.0)
    return diagnose(window_of(np.tile(by_rank(slow, fast, fast, fast), (1, 12, 1)), stages=STAGES))


LABEL_CASES: dict[str, Callable[[], Diagnosis]] = {
    "frontier_accounting": lambda: diagnose(window_of(ddp_job())),
    "telemetry_limited": lambda: slow_data(gather_ok=False),
    "role_aware_needed": lambda: diagnose(window_of(ddp_job(), roles=["dp"] * 4 + ["pp"] * 4)),
    "gradient_accumulation_ambiguous": lambda: slow_data(accumulation=Accumulation(factor=4, ordered=False)),
    "direct_exposure": lambda: diagnose(window_of(independent_ranks(), stages=STAGES)),
    "sync_wait_dependent": lambda: slow_data(),
    "likely_sync_wait": lambda: slow_data(),
    "co_critical": rotating,
    "forward_device_supported": lambda: with_events(55.0),
    "forward_spillover_suspected": spilled,
    "forward_host_overhead_suspected": lambda: with_events(10.0),
    "forward_event_scope_limited": lambda: with_events(55.0, ready=0.5),
}

REASON_CASES: dict[str, Callable[[], Diagnosis]] = {
    "denominator_floor": lambda: diagnose(window_of(np.ones((3, 2, 2), dtype=np.int64), stages=STAGES)),
    "gather_failed": lambda: slow_data(gather_ok=False),
    "missing_ranks": lambda: slow_data(world_size=9),
    "closure_residual": lambda: diagnose(window_of(ddp_job(), wall=ddp_job().sum(axis=0) + 20 * MS)),
    "overlap_error": lambda: diagnose(window_of(ddp_job(), wall=ddp_job().sum(axis=0) - 5 * MS)),
    "schema_mismatch": lambda: slow_data(faults=("schema_mismatch",)),
    "step_misaligned": lambda: slow_data(faults=("step_misaligned",)),
    "nonmonotonic_clock": lambda: slow_data(faults=("nonmonotonic_clock",)),
    "dropped_steps": lambda: slow_data(faults=("dropped_steps",)),
    "nested_stages": lambda: slow_data(faults=("nested_stages",)),
    "nested_steps": lambda: slow_data(faults=("nested_steps",)),
    "stage_on_another_thread": lambda: slow_data(faults=("stage_on_another_thread",)),
    "stage_outside_step": lambda: slow_data(faults=("stage_outside_step",)),
    "hook_failed": lambda: slow_data(faults=("hook_failed",)),
    "profiled_steps": lambda: slow_data(faults=("profiled_steps",)),
    "unknown_stage": lambda: slow_data(faults=("unknown_stage",)),
    "reconfigure_refused": lambda: slow_data(faults=("reconfigure_refused",)),
    "prefetch_unaligned": lambda: slow_data(prefetch="unaligned"),
    "optimizers_alternate": lambda: slow_data(faults=("optimizers_alternate",)),
    "loop_unclear": lambda: slow_data(faults=("loop_unclear",)),
    "roles_differ": LABEL_CASES["role_aware_needed"],
    "roles_missing": lambda: slow_data(parallelism=Parallelism(dp=4, tp=2)),
    "accumulation_collapsed": LABEL_CASES["gradient_accumulation_ambiguous"],
    "accumulation_mixed": lambda: slow_data(faults=("accumulation_mixed",)),
    "single_rank": lambda: diagnose(window_of(ddp_job(ranks=1))),
    "carry_over": lambda: diagnose(window_of(ddp_job(extra={("optim.step_cpu_wall", 3): 60 * MS}))),
    "steps_not_consecutive": lambda: diagnose(window_of(ddp_job(steps=4), steps=[0, 1, 5, 6])),
    "share_tie": lambda: diagnose(
        window_of(np.tile(by_rank((5, 5, 1), (5, 5, 1)), (1, 12, 1)), stages=STAGES)
    ),
    "leader_switch": rotating,
    "evidence_disagrees": disagreeing,
    "low_static_gain": lambda: diagnose(window_of(ddp_job())),
    "too_few_events": LABEL_CASES["forward_event_scope_limited"],
}


@pytest.mark.parametrize("label", LABELS)
def test_every_label_is_reached(label: str) -> None:
    assert label in LABEL_CASES[label]().label_names


@pytest.mark.parametrize("reason", REASON_CASES)
def test_every_reason_is_reached(reason: str) -> None:
    found = REASON_CASES[reason]()
    assert reason in found.all_reasons
    for label in found.labels:
        assert set(label.reasons) <= set(LABELS[label.label].reasons)


AIM_REASON_CASES: dict[str, Callable[[], Diagnosis]] = {
    "rotating": rotating,
    "all_ranks": lambda: diagnose(window_of(ddp_job())),
    # Of so few steps noise is not known, so leaders decide.
    "no_eligible_steps": lambda: diagnose(
        window_of(ddp_job(steps=4, extra={(DATA, 3): 120 * MS}), window=1), Gates(gamma_elig=1.0)
    ),
    "one_eligible_step": lambda: diagnose(
        window_of(ddp_job(steps=1, extra={(DATA, 3): 120 * MS}), window=1), Gates(gamma_elig=0.0)
    ),
    "no_clear_leader": lambda: diagnose(
        window_of(two_leaders_in_turn()[:, [0, 1, 2, -1]]), Gates(gamma_switch=1.0)
    ),
    "several_ranks": lambda: diagnose(window_of(two_leaders_in_turn())),
    "no_reference": lambda: diagnose(window_of(ddp_job())),
    "reference_differs": lambda: diagnose(
        window_of(ddp_job()), reference=window_of(independent_ranks(), stages=STAGES)
    ),
    "step_time_not_grown": lambda: diagnose(window_of(ddp_job()), reference=window_of(ddp_job(seed=1))),
    "quiet": lambda: diagnose(window_of(ddp_job())),
    "below_gamma_g": lambda: diagnose(window_of(ddp_job())),
    "no_wait_measured": lambda: diagnose(window_of(independent_ranks(), stages=STAGES)),
    "not_sampled": lambda: diagnose(window_of(ddp_job())),
    "too_few_events": LABEL_CASES["forward_event_scope_limited"],
    "no_device_share": lambda: with_events(1.0),
    "reduced_rows": lambda: diagnose(reduced(window_of(ddp_job()))),
    "waits_measured": lambda: diagnose(slow_inside_backward()),
    "single_rank": REASON_CASES["single_rank"],
    "steps_not_consecutive": REASON_CASES["steps_not_consecutive"],
}


def slow_inside_backward() -> Window:
    """A window whose suspect stage is one with measured waits."""
    own_SNR = np.full((3, 12, 4), 20 * MS)
    own_SNR[2, :, 1] += 60 * MS
    wait_NR = own_SNR[2].max(axis=1, keepdims=True) - own_SNR[2]
    duration_SNR = own_SNR.copy()
    duration_SNR[2] += wait_NR
    return replace(window_of(duration_SNR, stages=STAGES), waits={STAGES[2]: wait_NR})


def two_leaders_in_turn() -> Ints:
    """Rank 1 is slow for the first 24 steps, rank 5 for the last 16: neither leads 80 %, few switches."""
    durations = ddp_job(extra={(DATA, 1): 120 * MS}, steps=24)
    return np.concatenate([durations, ddp_job(extra={(DATA, 5): 120 * MS}, steps=16)], axis=1)


@pytest.mark.parametrize("reason", AIM_REASON_CASES)
def test_every_absence_in_the_aim_has_a_reason(reason: str) -> None:
    aim = AIM_REASON_CASES[reason]().aim
    assert aim is not None
    assert reason in {aim.rank_reason, *(line.reason for line in aim.evidence)}


def test_no_label_or_reason_is_undocumented_or_unreached() -> None:
    assert set(LABEL_CASES) == set(LABELS)
    of_predictions = {"no_waits_recorded", "replay_differs"}  # test_what_if.py
    of_pipelines = {"pipeline_too_large"}  # test_pipelines.py
    of_suppressed = {"within_noise"}
    reached = set(REASON_CASES) | set(AIM_REASON_CASES) | of_predictions | of_pipelines | of_suppressed
    assert reached == set(REASONS)


def test_a_limited_signal_suppresses_strong_labels_with_a_reason() -> None:
    limited = slow_data(gather_ok=False)
    assert "sync_wait_dependent" not in limited.label_names
    assert Label("sync_wait_dependent", ("telemetry_limited",)) in limited.suppressed


def test_a_window_that_needs_no_attention_has_no_strong_label_unless_the_noise_floor_is_off() -> None:
    window = window_of(independent_ranks(slow=2.0), stages=STAGES)
    healthy = diagnose(window, Gates(min_effect=0.5))
    assert not healthy.needs_attention
    assert "direct_exposure" not in healthy.label_names
    assert healthy.suppressed == (Label("direct_exposure", ("within_noise",)),)
    for gates in (Gates(), Gates(min_effect=0.5, noise_floor="off")):
        assert "direct_exposure" in diagnose(window, gates).label_names


@pytest.mark.parametrize(
    ("noise_s", "chance", "is_strong"),
    [(0.3, 2.7e-13, True), (0.9, 7.4e-4, False)],
    ids=["clear", "doubtful"],
)
def test_a_finding_that_a_healthy_window_may_show_carries_no_strong_label(
    noise_s: float, chance: float, is_strong: bool
) -> None:
    noisy = independent_ranks(slow=1.0)
    noise_NR = np.random.default_rng(0).normal(0.0, noise_s * 1e9, noisy.shape[1:])
    noisy[2] += np.abs(noise_NR).astype(np.int64)
    found = diagnose(window_of(noisy, stages=STAGES))
    assert found.main_finding is not None  # at most alpha, so that it needs attention
    assert found.main_finding.chance == pytest.approx(chance, rel=0.1)
    is_suppressed = Label("direct_exposure", ("within_noise",)) in found.suppressed
    assert ("direct_exposure" in found.label_names, is_suppressed) == (is_strong, not is_strong)


def test_diagnosing_one_role_lifts_the_need_for_roles() -> None:
    window = window_of(ddp_job(extra={(DATA, 3): 120 * MS}), roles=["dense"] * 4 + ["expert"] * 4)
    assert "role_aware_needed" in diagnose(window).label_names
    dense = diagnose(window, group="role:dense")
    assert "role_aware_needed" not in dense.label_names
    assert (dense.ranks, dense.group) == (4, "role:dense")
    assert dense.aim is not None
    assert dense.aim.rank == 3


def test_ranks_of_several_roles_are_noticed_even_where_the_kept_rows_have_one() -> None:
    roles = ["dense"] * 40 + ["expert"]
    window = reduced(window_of(np.tile(by_rank(*[(1.0, 2.0, 3.0)] * 41), (1, 12, 1)), roles=roles))
    assert set(window.ranks.role) == {"dense"}
    (label,) = (each for each in diagnose(window).labels if each.label == "role_aware_needed")
    assert label.reasons == ("roles_differ",)


def test_below_the_floor_there_are_advances_and_nothing_else() -> None:
    tiny = REASON_CASES["denominator_floor"]()
    assert tiny.label_names == ("frontier_accounting", "telemetry_limited")
    assert tiny.advances_ns == {DATA: 2, FORWARD: 2, BACKWARD: 2}
    document = tiny.document()
    for absent in ("shares", "static_gain", "excess", "routing_set", "aim", "severity", "leader"):
        assert absent not in document
