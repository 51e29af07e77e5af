"""Noise between windows: how far healthy windows of a run differ beyond the noise of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ensemble.simulated_jobs import Fault, SimulatedJob, simulate
from sfapp.accounting import diagnose_runs
from sfapp.accounting.noise import LEAST_WINDOWS, WindowSpread, difference_error, window_spread
from sfapp.model.findings import StepNoise
from sfapp.model.stages import BACKWARD

SILENT = StepNoise(640, 0.0, 0.0)
JOB = SimulatedJob(
    seed=0,
    ranks=4,
    sync_stages=(BACKWARD,),
    noise=0.01,
    tails=False,
    memory=0.0,
    common=0.01,
    bias=0.0,
    drift=0.0,
    windows=16,
)


def levels(count: int, seed: int) -> np.ndarray:
    return 100 + np.random.default_rng(seed).standard_normal(count)


def usual_spread(mean_JW: Sequence[np.ndarray]) -> float:
    """Return the root mean square of the spreads of several jobs."""
    return float(np.sqrt(np.mean([window_spread(list(mean_W), SILENT, 40).ns ** 2 for mean_W in mean_JW])))


@pytest.mark.parametrize("count", [6, 8, 16, 32])
def test_the_spread_of_healthy_windows_is_their_standard_deviation(count: int) -> None:
    assert usual_spread([levels(count, seed) for seed in range(400)]) == pytest.approx(1.0, rel=0.15)


def test_noise_of_steps_is_no_spread_between_windows() -> None:
    noise = StepNoise(640, 2 * 40.0, 2 * 40.0)  # a mean of 40 steps then has a standard deviation of 1
    found = [window_spread(list(levels(16, seed)), noise, 40).ns for seed in range(200)]
    assert np.sqrt(np.mean(np.square(found))) < 0.6


@pytest.mark.parametrize("slow", [slice(8, 16), slice(5, 10), slice(2, 16, 3)])
def test_slow_windows_hardly_enlarge_the_spread(slow: slice) -> None:
    """Growth for half of the run, for a third of it, and in every third window."""
    jobs = [levels(16, seed) for seed in range(200)]
    for mean_W in jobs:
        mean_W[slow] += 50.0
    assert usual_spread(jobs) < 2.5


def test_slow_growth_hardly_enlarges_the_spread() -> None:
    assert usual_spread([levels(32, seed) + 2 * np.arange(32) for seed in range(200)]) < 5.0


@given(
    mean_W=st.lists(st.floats(1.0, 1e9), min_size=LEAST_WINDOWS, max_size=40),
    scale=st.sampled_from([0.5, 2.0, 1024.0]),
)
def test_the_spread_has_the_unit_of_the_windows(mean_W: list[float], scale: float) -> None:
    found = window_spread(mean_W, SILENT, 40)
    scaled = window_spread([scale * mean for mean in mean_W], SILENT, 40)
    assert found.windows == scaled.windows == len(mean_W)
    assert scaled.ns == pytest.approx(scale * found.ns, rel=1e-6)
    assert 0.0 <= found.ns <= 10.0 * (max(mean_W) - min(mean_W))


def test_few_windows_show_no_spread() -> None:
    assert window_spread([1.0, 5.0, 9.0, 2.0], SILENT, 40) == WindowSpread()


@given(spread=st.floats(0.0, 1e6), windows=st.integers(LEAST_WINDOWS, 32), steps=st.integers(40, 320))
def test_windows_that_differ_make_a_difference_less_certain(spread: float, windows: int, steps: int) -> None:
    noise = StepNoise(640, 2.0, 2.0)
    alone = difference_error(noise, noise, steps, WindowSpread())
    found = difference_error(noise, noise, steps, WindowSpread(spread, windows))
    assert found.se >= max(alone.se, spread)
    assert found.margin(0.005) >= 0.999 * alone.margin(0.005)


def attention(jobs: Sequence[SimulatedJob]) -> float:
    """Return the part of windows that need attention."""
    found = [one.needs_attention for job in jobs for one in diagnose_runs(simulate(job, waits=True))]
    return float(np.mean(found))


def test_healthy_windows_that_differ_beyond_their_steps_need_no_attention() -> None:
    """Other programs on the same machines make whole windows longer or shorter by 5 %."""
    assert attention([replace(JOB, seed=seed, between=0.05) for seed in range(20)]) <= 0.02


def test_growth_far_beyond_the_noise_between_windows_is_found() -> None:
    fault = Fault("all", BACKWARD, 0, 0.4, first=400, until=560)
    jobs = [replace(JOB, seed=seed, between=0.02, faults=(fault,)) for seed in range(5)]
    for job in jobs:
        found = [one.window for one in diagnose_runs(simulate(job, waits=True)) if one.needs_attention]
        assert found == [10, 11, 12, 13]


def test_noise_between_windows_makes_the_resolution_larger() -> None:
    equal, differing = (
        diagnose_runs(simulate(replace(JOB, between=between), waits=True))[-1] for between in (0.0, 0.05)
    )
    assert equal.resolution is not None
    assert differing.resolution is not None
    assert (equal.resolution.growth or 0.0) < 0.05 < 0.1 < (differing.resolution.growth or 0.0)
    assert differing.reference is not None
    assert differing.reference.between_ns == pytest.approx(0.05 * differing.reference.step_time_ns, rel=0.6)


def test_growth_is_no_less_likely_than_the_one_event_that_would_explain_it() -> None:
    """Steps have heavy tails: 12 standard errors of a mean are one long event, not a chance of 1e-15."""
    fault = Fault("all", BACKWARD, 0, 0.04, first=560, until=640)
    found = diagnose_runs(simulate(replace(JOB, faults=(fault,)), waits=True))[-1]
    growth = next(finding for finding in found.findings if finding.kind == "growth")
    assert growth.needs_attention
    assert growth.chance is not None
    assert 1e-5 < growth.chance < 1e-2
