"""The wait fit against an independent regression, gains against brute force, groups and micro-steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sfapp.accounting import diagnose, judge, measure, measure_many, reference_of
from sfapp.accounting.measures import Measures
from sfapp.errors import GateError, WindowError, WindowNotFoundError
from sfapp.model import Accumulation, Gates, expand_stages
from tests.builders import BACKWARD, DATA, FORWARD, MS, by_rank, ddp_job, window_of


def test_slopes_do_not_depend_on_how_many_windows_are_measured_together() -> None:
    """Sums that are added up in another order differ in their last bits, also on pages and in JSON."""
    duration_WSNR = np.random.default_rng(3).integers(MS, 9 * MS, (16, 3, 60, 200))
    windows = [window_of(each, stages=[DATA, FORWARD, BACKWARD]) for each in duration_WSNR]
    together = [measures.wait_slope_S for measures in measure_many(windows)]
    assert np.array_equal(together, [measure(window).wait_slope_S for window in windows])


def test_the_wait_fit_is_the_within_rank_regression_of_time_on_slack() -> None:
    duration_SNR = ddp_job(extra={(DATA, "random"): 60 * MS}, jitter=4 * MS)
    measures = measure(window_of(duration_SNR))
    d = duration_SNR.astype(float)
    total_NR = d.sum(axis=0)
    before_NR = np.cumsum(total_NR, axis=0) - total_NR
    reached_SNR = before_NR + np.cumsum(d, axis=0)
    flat = reached_SNR.max(axis=-1).T.reshape(-1)  # boundaries in order (t, s)
    for stage in range(6):
        ahead = np.concatenate([[0.0], flat])[np.arange(40) * 6 + stage]
        start_NR = reached_SNR[stage] - d[stage]
        x = ahead[:, None] - start_NR
        y = d[stage]
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        if np.isnan(measures.wait_slope_S[stage]):
            continue
        slope = (x * y).sum() / (x * x).sum()
        error = np.sqrt(((y - slope * x) ** 2).sum() / (40 * 8 - 8 - 1) / (x * x).sum())
        assert measures.wait_slope_S[stage] == pytest.approx(slope, rel=1e-9)
        assert measures.wait_se_S[stage] == pytest.approx(error, rel=1e-6)
    assert measures.wait_slope_S[2] == pytest.approx(1.0, abs=0.05)


def test_waits_are_found_at_syncs_and_nowhere_else() -> None:
    assert diagnose(window_of(ddp_job(extra={(DATA, "random"): 60 * MS}))).wait_stages == (BACKWARD,)
    independent = torch.randint(
        1 * MS, 50 * MS, (3, 40, 8), generator=torch.Generator().manual_seed(1)
    ).numpy()
    assert diagnose(window_of(independent, stages=(DATA, FORWARD, BACKWARD))).wait_stages == ()


@pytest.mark.parametrize("steps", [9, 10])
def test_the_wait_fit_needs_ten_steps(steps: int) -> None:
    fit = diagnose(window_of(ddp_job(extra={(DATA, "random"): 60 * MS}, steps=steps))).wait_fit
    assert fit is not None
    assert (fit[BACKWARD] is not None) == (steps >= 10)


@pytest.mark.parametrize("baseline", ["rank_median", "cohort_median", "reference"])
def test_static_gain_is_the_makespan_saved_by_clipping_one_stage(baseline: str) -> None:
    duration_SNR = ddp_job(extra={(FORWARD, "random"): 40 * MS}, seed=4)
    reference = reference_of(measure(window_of(ddp_job(seed=5))))
    diagnosis = diagnose(window_of(duration_SNR), baseline=baseline, reference=reference)
    d = duration_SNR.astype(float)
    level = {
        "rank_median": np.median(d, axis=1, keepdims=True),
        "cohort_median": np.median(d, axis=2, keepdims=True),
        "reference": np.array(list(reference.stage_median_ns.values())).reshape(-1, 1, 1),
    }[baseline]
    clipped = np.minimum(d, level)
    makespan = d.sum(axis=0).max(axis=-1).sum()
    for index, stage in enumerate(diagnosis.stages):
        changed = d.copy()
        changed[index] = clipped[index]
        expected = (makespan - changed.sum(axis=0).max(axis=-1).sum()) / makespan
        assert (diagnosis.static_gain or {})[stage] == pytest.approx(expected, abs=1e-12)


def test_the_baseline_reference_needs_a_reference_with_the_same_stages() -> None:
    with pytest.raises(WindowError, match="needs a healthy window"):
        measure(window_of(ddp_job()), "reference")
    other = reference_of(measure(window_of(by_rank((1, 1), (1, 1)), stages=("a", "b"))))
    with pytest.raises(WindowError, match=r"has no stage 'data\.next_wait'"):
        measure(window_of(ddp_job()), "reference", other)


def test_moving_gates_never_touches_the_matrix_again() -> None:
    measures = measure(window_of(ddp_job(extra={(DATA, "random"): 60 * MS})))
    judge(measures)
    # given a matrix that can no longer be read
    object.__setattr__(measures.window, "duration_SNR", None)
    object.__setattr__(measures, "_baseline_SNR", None)
    # then every gate can still be moved, the frontier excepted whose s1 was never looked at
    for gate, value in (("tau_c", 0.5), ("gamma_a", 0.9), ("gamma_g", 0.0), ("eta_q", 0.3), ("eta_a", 0.5)):
        assert judge(measures, Gates().with_values(**{gate: value})).gates != Gates()


def test_micro_steps_are_kept_apart_until_advances_are_added_up() -> None:
    # given two micro-steps in which different ranks are late to the data
    stages = expand_stages((DATA, FORWARD, BACKWARD), (DATA, FORWARD, BACKWARD), 2)
    assert stages == tuple(f"{name}[{micro}]" for micro in (0, 1) for name in (DATA, FORWARD, BACKWARD))
    slow_first = (5, 1, 1, 1, 1, 1)
    slow_second = (1, 1, 5, 5, 1, 1)
    window = window_of(
        np.tile(by_rank(slow_first, slow_second), (1, 12, 1)),
        stages=stages,
        accumulation=Accumulation(factor=2, ordered=True, sync="every"),
    )
    measures = measure(window)
    diagnosis = judge(measures)
    # then the frontier is taken on six boundaries and reported on three stages
    assert measures.frontier_SN.shape == (6, 12)
    assert diagnosis.stages == (DATA, FORWARD, BACKWARD)
    assert diagnosis.recorded_stages == stages
    per_step = {stage: advance // 12 for stage, advance in diagnosis.advances_ns.items()}
    assert per_step == {DATA: 10_000_000_000, FORWARD: 2_000_000_000, BACKWARD: 2_000_000_000}
    assert "gradient_accumulation_ambiguous" not in diagnosis.label_names


def test_groups_are_named_when_one_is_missing() -> None:
    window = window_of(ddp_job(), roles=["dp"] * 8)
    assert window.groups == ("all", "role:dp", "node:0", "node:1")
    with pytest.raises(WindowNotFoundError, match="there are: all, role:dp, node:0, node:1"):
        diagnose(window, group="role:pp")


def test_totals_too_large_to_add_up_are_refused() -> None:
    huge = np.full((3, 4, 2), 2**61, dtype=np.int64)
    with pytest.raises(WindowError, match="more than the accounting can hold"):
        measure(window_of(huge, stages=(DATA, FORWARD, BACKWARD), wall=huge[0]))


@pytest.mark.parametrize(
    "values", [{"tau_c": 1.5}, {"gamma_a": float("nan")}, {"max_missing_ranks": 0.5}, {"eta": 1}]
)
def test_gates_refuse_values_that_mean_nothing(values: dict[str, float]) -> None:
    with pytest.raises(GateError):
        Gates().with_values(**values)


def test_measures_take_the_device_as_a_parameter() -> None:
    on_cpu: Measures = measure(window_of(ddp_job()).to("cpu"))
    assert judge(on_cpu) == diagnose(window_of(ddp_job()), device="cpu")
