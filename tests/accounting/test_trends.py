"""Runs that became slower are named with an interval that covers the truth; noise is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from sfapp.accounting.trends import RunPart, trend_groups
from sfapp.model.trends import TrendGroup

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def part(
    run_id: str, value: str | None, step_ms: float, *, kind: str = "64 ranks", lost: float = 0.0, day: int = 0
) -> RunPart:
    """One hour of 64 ranks, in 3,600,000 / ``step_ms`` healthy steps."""
    at = BEGAN + timedelta(days=day)
    return RunPart(run_id, kind, value, 10, 64.0, 64.0 * lost, 3.6e12, round(3.6e6 / step_ms), at, at)


def by_value(parts: list[RunPart], *, in_order: bool = False) -> dict[str, TrendGroup]:
    return {group.value: group for group in trend_groups(parts, in_order=in_order)}


def runs_of_images(seed: int, slower: float) -> list[RunPart]:
    """60 runs of two kinds that differ by a factor of 20, with two images; the new one is slower."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(60):
        kind, step_ms = (("8 ranks", 100.0), ("512 ranks", 2000.0))[number % 2]
        is_new = draw.random() < 0.4
        factor = np.exp(draw.normal(0.0, 0.03)) * (1.0 + slower * is_new)
        image = "new" if is_new else "old"
        found.append(part(f"run-{number}", image, step_ms * factor, kind=kind, lost=draw.uniform(0.0, 0.02)))
    return found


def test_a_slower_image_is_named_with_an_interval_that_covers_the_truth() -> None:
    covered = 0
    for seed in range(50):
        step = by_value(runs_of_images(seed, 0.08))["new"].step
        assert step is not None
        assert step.verdict == "slower"
        covered += step.low <= 0.08 <= step.high
    assert covered >= 45


def test_without_a_difference_few_are_named() -> None:
    found = [by_value(runs_of_images(seed, 0.0))["new"] for seed in range(200)]
    assert sum(group.step is not None and group.step.verdict != "none" for group in found) <= 15
    assert sum(group.lost is not None and group.lost.verdict != "none" for group in found) <= 15


def test_one_kind_gives_the_interval_of_welch() -> None:
    draw = np.random.default_rng(5)
    new, old = draw.uniform(0.1, 0.3, 7), draw.uniform(0.1, 0.2, 11)
    parts = [part(f"new-{place}", "new", 100.0, lost=each) for place, each in enumerate(new)]
    parts += [part(f"old-{place}", "old", 100.0, lost=each) for place, each in enumerate(old)]
    lost = by_value(parts)["new"].lost
    expected = ttest_ind(new, old, equal_var=False).confidence_interval(1 - 0.05 / 2)  # two values
    assert lost is not None
    # Degrees of freedom are rounded down to two digits, which widens the interval a little.
    assert (lost.low, lost.high) == pytest.approx((expected.low, expected.high), abs=0.002)


def test_kinds_of_runs_are_compared_among_themselves_only() -> None:
    parts = [part(f"small-{number}", "old", 100.0 + number / 10, kind="8 ranks") for number in range(5)]
    parts += [part(f"large-{number}", "new", 300.0 + number / 10, kind="512 ranks") for number in range(5)]
    found = by_value(parts)
    assert (found["old"].step, found["new"].step) == (None, None)
    assert found["new"].step_ns == pytest.approx(300.2e6, rel=1e-4)


def test_runs_that_go_on_are_compared_with_themselves() -> None:
    draw = np.random.default_rng(2)
    before = draw.uniform(50.0, 5000.0, 8)
    after = before * np.exp(draw.normal(0.05, 0.01, 8))
    parts = [part(f"run-{number}", "2026-03-01", each) for number, each in enumerate(before)]
    parts += [part(f"run-{number}", "2026-03-02", each, day=1) for number, each in enumerate(after)]
    first, second = trend_groups(parts, in_order=True)
    assert first.step is None
    assert second.step is not None
    assert (second.step.verdict, second.step.same_runs, second.step.runs) == ("slower", True, 8)
    expected = ttest_rel(np.log(after), np.log(before)).confidence_interval(0.95)
    assert second.step.low == pytest.approx(np.expm1(expected.low), abs=2e-3)
    assert second.step.high == pytest.approx(np.expm1(expected.high), abs=2e-3)


def test_a_few_runs_that_go_on_do_not_hide_that_new_runs_are_slower() -> None:
    parts = [part(f"old-{number}", "2026-03-01", 100.0 + number % 3) for number in range(30)]
    parts += [part(f"old-{number}", "2026-03-02", 100.0 + number % 3, day=1) for number in range(6)]
    parts += [part(f"new-{number}", "2026-03-02", 130.0 + number % 3, day=1) for number in range(20)]
    step = trend_groups(parts, in_order=True)[1].step
    assert step is not None
    assert (step.verdict, step.same_runs) == ("slower", False)


def test_a_day_is_compared_with_earlier_days_and_those_not_shown() -> None:
    parts = [part(f"hidden-{number}", None, 100.0 + number) for number in range(4)]
    parts += [part(f"first-{number}", "2026-03-01", 100.5 + number) for number in range(4)]
    parts += [part(f"later-{number}", "2026-03-02", 150.0 + number, day=1) for number in range(4)]
    first, second = trend_groups(parts, in_order=True)
    assert first.step is not None
    assert second.step is not None
    assert (first.step.other_runs, second.step.other_runs) == (4, 8)
    assert (first.step.verdict, second.step.verdict) == ("none", "slower")


def test_the_number_of_windows_of_a_run_changes_nothing() -> None:
    parts = runs_of_images(1, 0.08)
    longer = parts + [each for each in parts if each.value == "new" for _ in range(5)]
    assert by_value(longer)["new"].step == by_value(parts)["new"].step


def test_a_run_without_healthy_windows_still_counts_for_lost_time() -> None:
    parts = [part(f"old-{number}", "old", 100.0 + number, lost=0.01) for number in range(4)]
    parts += [
        RunPart(f"new-{number}", "64 ranks", "new", 3, 64.0, 32.0 + number, 0.0, 0) for number in range(4)
    ]
    new = by_value(parts)["new"]
    assert (new.step, new.step_ns) == (None, None)
    assert new.lost is not None
    assert new.lost.verdict == "slower"


@pytest.mark.parametrize("step_ms", [1e-9, 1e12])
def test_absurd_steps_give_finite_numbers(step_ms: float) -> None:
    parts = [part(f"old-{number}", "old", 100.0) for number in range(2)]
    parts += [
        RunPart(f"new-{number}", "64 ranks", "new", 1, 1.0, 0.0, step_ms * 1e6 * 10.0**number, 1)
        for number in range(2)
    ]
    step = by_value(parts)["new"].step
    assert step is not None
    assert np.isfinite([step.estimate, step.low, step.high]).all()
