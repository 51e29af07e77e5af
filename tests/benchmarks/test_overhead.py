"""The arithmetic behind docs/evidence/overhead.md, and its job in small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import machine
from benchmarks.overhead import AGAIN, COLUMNS, KINDS, OFF, ON, ORDERS, OverheadEstimate, schedule
from benchmarks.recorder import LONG_STEP_MS, PLANS, judged, overhead, page, permitted, quick


def rounds(count: int, lost: float = 0.0, noise: float = 0.0, seed: int = 0) -> list[list[float]]:
    """Rounds of a second, by kind; with the tool they take what loses that part of the throughput."""
    random = np.random.default_rng(seed)
    factor_K = [1.0, 1 / (1 - lost), 1.0]
    return [[factor * random.normal(1.0, noise) for factor in factor_K] for _ in range(count)]


def test_every_group_of_blocks_has_each_kind_once() -> None:
    kinds = schedule(9)
    assert len(kinds) == 27
    assert all(sorted(kinds[place : place + 3]) == list(KINDS) for place in range(0, 27, 3))


def test_a_steady_drift_of_the_machine_counts_for_no_kind() -> None:
    kinds = np.array(schedule(len(ORDERS)))
    for first in range(0, len(kinds), 6):  # an order and its mirror image
        block = kinds[first : first + 6]
        assert len({np.flatnonzero(block == kind).mean() for kind in KINDS}) == 1


def test_what_is_lost_is_the_share_of_throughput_and_not_of_time() -> None:
    found = OverheadEstimate.of([rounds(10, lost=0.2)], steps=100, late=0)
    assert found.plain.lost == pytest.approx(20)
    assert found.trimmed.lost == pytest.approx(20)
    assert found.plain.upper == pytest.approx(20)
    assert found.noise.lost == 0
    assert found.step_ms == pytest.approx(10)


def test_the_bounds_error_matches_the_noise_of_the_rounds() -> None:
    # given 400 rounds of 1 % noise: without the tool two blocks, with it one
    found = OverheadEstimate.of([rounds(400, lost=0.01, noise=0.01)], steps=100, late=0)
    # then the bound lies 1.645 standard errors above
    standard_error = 100 * 0.01 * np.sqrt(1 + 1 / 2) / np.sqrt(400)
    assert found.plain.upper - found.plain.lost == pytest.approx(1.645 * standard_error, rel=0.15)
    assert abs(found.plain.lost - 1) < 3 * standard_error
    assert found.noise.upper - found.noise.lost == pytest.approx(
        1.645 * 100 * 0.01 * np.sqrt(2 / 400), rel=0.15
    )


def test_the_bound_covers_the_truth_about_as_often_as_claimed() -> None:
    covered = [
        OverheadEstimate.of([rounds(40, 0.01, 0.02, seed)], 100, 0).plain.upper >= 1 for seed in range(100)
    ]
    assert 88 <= sum(covered) <= 99


def test_what_slows_a_whole_round_is_noise_of_no_kind() -> None:
    slowed = np.random.default_rng(0).uniform(1, 3, 50)
    found = OverheadEstimate.of([np.array(rounds(50, lost=0.01)) * slowed[:, None]], steps=100, late=0)
    assert found.plain.upper == pytest.approx(1)
    assert found.noise_bound == pytest.approx(0)


def test_what_counts_as_noise_is_the_same_whichever_half_is_called_the_tool() -> None:
    second_NK = np.array(rounds(20, noise=0.05))
    found = OverheadEstimate.of([second_NK], 100, 0)
    swapped = OverheadEstimate.of([second_NK[:, [AGAIN, ON, OFF]]], 100, 0)
    assert found.noise_bound == swapped.noise_bound > 0
    assert found.noise_bound == max(found.noise.upper, swapped.noise.upper)
    assert found.plain == swapped.plain


def test_one_burst_moves_the_plain_estimate_and_not_the_trimmed_one() -> None:
    second_NK = rounds(40, lost=0.01, noise=0.001)
    without_noise = OverheadEstimate.of([second_NK], 100, 0)
    second_NK[7][ON] *= 5
    found = OverheadEstimate.of([second_NK], 100, 0)
    assert found.plain.lost > without_noise.plain.lost + 5
    assert found.trimmed.lost == pytest.approx(without_noise.trimmed.lost, abs=0.05)
    assert found.trimmed.upper < 1.2 < found.plain.upper


def test_launches_count_by_their_rounds_and_are_listed_one_by_one() -> None:
    found = OverheadEstimate.of([rounds(30, lost=0.02), rounds(10, lost=0.06)], steps=100, late=0)
    assert found.rounds == 40
    assert found.plain.lost == pytest.approx(3, abs=0.1)
    assert found.lost_by_launch == pytest.approx((2, 6))
    assert "2: +2.00 … +6.00 %" in found.line("tool")


def test_noise_is_what_a_long_step_may_lose_and_no_excuse_for_a_short_one() -> None:
    noisy = OverheadEstimate.of([rounds(10, lost=0.05, noise=0.2)], steps=100, late=0)
    assert noisy.noise_bound > 1
    for plan in (plan for plan in PLANS if plan.bar is not None):
        bar = judged(plan, noisy).bar
        assert bar == (noisy.noise_bound if plan.step_ms >= LONG_STEP_MS else plan.bar)


def test_without_a_real_time_policy_every_job_runs_once_under_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "can_use_real_time", lambda: False)
    plans = permitted(PLANS)
    assert not any(plan.real_time for plan in plans)
    assert [plan.bar for plan in plans if plan.bar is not None] == [
        plan.bar for plan in PLANS if plan.bar is not None
    ]
    assert len({(plan.tool, plan.step_ms, plan.compiled) for plan in plans}) == len(plans)
    assert "was not permitted" in page(["a bar"], [COLUMNS], others=0)


@pytest.mark.torchrun
@pytest.mark.parametrize("tool", ["stream", "waits"])
def test_the_job_runs_with_the_recorder_and_without_in_turn(tool: str) -> None:
    plan = next(plan for plan in permitted(PLANS) if plan.tool == tool)
    found = overhead(quick(plan))
    assert found.rounds == 2
    assert 2.0 < found.step_ms < 200
    assert found.plain.lost < 90
    shown = page([judged(plan, found).line()], [COLUMNS, found.line(plan.name)], others=0.25)
    assert (
        ("with waits" in judged(plan, found).name) == plan.name.startswith("with waits") == (tool == "waits")
    )
    assert "other programs used 25% of" in " ".join(shown.split())
    assert f"{found.step_ms:.1f} ms" in shown
