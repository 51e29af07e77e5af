"""Means of autocorrelated steps: their errors, checked against scipy and against simulation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfapp.accounting.late_ranks import lateness, persistently_late, stages_lateness
from sfapp.accounting.noise import (
    WindowSpread,
    difference_error,
    long_run,
    pooled,
    step_noise,
    student_t_quantile,
    student_t_sf,
    without_jump,
)
from sfapp.model.findings import StepNoise


@given(value=st.floats(-50, 50), df=st.floats(0.2, 500))
def test_student_t_is_that_of_scipy(value: float, df: float) -> None:
    assert student_t_sf(value, df) == pytest.approx(stats.t.sf(value, df), rel=1e-6, abs=1e-12)


@given(chance=st.floats(1e-9, 0.5), df=st.floats(1, 500))
def test_its_quantile_is_that_of_scipy_with_few_digits_of_freedom(chance: float, df: float) -> None:
    digits = 10.0 ** (1 - np.floor(np.log10(df)))
    df = np.floor(df * digits) / digits
    assert student_t_quantile(chance, df) == pytest.approx(stats.t.isf(chance, df), rel=1e-4, abs=1e-4)


def series(rho: float, count: int, steps: int, seed: int = 0) -> np.ndarray:
    """Series of steps with an autocorrelation, standard deviation 1: [steps, count]."""
    random = np.random.default_rng(seed)
    value = np.empty((steps, count))
    value[0] = random.standard_normal(count)
    for step in range(1, steps):
        value[step] = rho * value[step - 1] + np.sqrt(1 - rho**2) * random.standard_normal(count)
    return value


def noise_of(value_NR: np.ndarray) -> StepNoise:
    found = [step_noise(column) for column in value_NR.T]
    return pooled([noise for noise in found if noise is not None])


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_error_of_a_mean_is_that_of_many_means(rho: float) -> None:
    value = series(rho, count=4000, steps=40)
    predicted = np.sqrt(long_run(noise_of(value), 40).variance / 40)
    truth = value.mean(axis=0).std()
    # Blocks overstate a long memory somewhat, on the safe side.
    assert 0.95 * truth <= predicted <= 1.5 * truth


def test_memory_beneath_independent_noise_shows_in_blocks() -> None:
    value = series(0.9, count=4000, steps=40) + 3 * series(0.0, count=4000, steps=40, seed=1)
    noise = noise_of(value)
    blind = StepNoise(noise.steps, noise.lag1, noise.lag2)
    truth = value.mean(axis=0).std()
    assert np.sqrt(long_run(noise, 40).variance / 40) == pytest.approx(truth, rel=0.25)
    assert np.sqrt(long_run(blind, 40).variance / 40) < 0.75 * truth


@pytest.mark.parametrize("spike", [0, 1, 25, 39])
def test_a_lasting_jump_is_no_noise_but_a_spike_is(spike: int) -> None:
    value = series(0.0, count=1, steps=40)
    jumped, spiked = value.copy(), value.copy()
    jumped[25:] += 200.0
    spiked[spike] += 200.0
    assert without_jump(value) is value
    assert without_jump(jumped).std() == pytest.approx(value.std(), rel=0.2)
    assert without_jump(spiked) is spiked


def test_too_few_steps_give_no_noise_estimate() -> None:
    assert step_noise([1.0, 2.0, 3.0, 4.0]) is None


def test_equal_steps_have_no_error() -> None:
    noise = step_noise(np.full(20, 5.0))
    assert noise is not None
    error = difference_error(noise, noise, 20, WindowSpread())
    assert (error.se, error.chance(1.0), error.chance(0.0)) == (0.0, 0.0, 1.0)


def test_a_window_noisier_than_usual_counts_as_noisy_as_it_is() -> None:
    calm, rough = step_noise(series(0.0, 1, 40)[:, 0]), step_noise(10 * series(0.0, 1, 40, seed=1)[:, 0])
    assert calm is not None
    assert rough is not None
    equal = WindowSpread()
    assert difference_error(rough, calm, 40, equal).se > 5 * difference_error(calm, calm, 40, equal).se


def late_ranks(seed: int, late: float) -> npt.NDArray[np.bool_]:
    """Return which of 32 ranks with some memory are late on average in 20 steps, rank 3 being later."""
    own_NR = series(0.6, count=32, steps=20, seed=seed)
    own_NR[:, 3] += late
    return persistently_late(stages_lateness(lateness(own_NR)[None])[0], 2.5e-3 / (6 * 32))


def test_the_noise_of_other_ranks_helps_to_find_a_late_rank_in_a_short_window() -> None:
    assert np.mean([late_ranks(seed, 8.0)[3] for seed in range(100)]) >= 0.65
    assert np.mean([late_ranks(seed, 0.0).any() for seed in range(300)]) <= 0.01


def late_by_varying_times(seed: int, late: float, memory: float) -> npt.NDArray[np.bool_]:
    """Return which of 8 ranks with a long memory are late on average in 30 steps; rank 3 has much more noise
    of its own.

    Args:
        memory: autocorrelation of that noise.
    """
    own_NR = series(0.8, count=8, steps=30, seed=seed)
    own_NR[:, 3] += late + 4.0 * series(memory, count=1, steps=30, seed=seed + 1000)[:, 0]
    return persistently_late(stages_lateness(lateness(own_NR)[None])[0], 2.5e-3 / (6 * 8))


def test_a_rank_late_by_varying_times_is_found_although_all_ranks_have_a_long_memory() -> None:
    assert np.mean([late_by_varying_times(seed, 12.0, 0.0)[3] for seed in range(100)]) >= 0.6


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_a_rank_with_more_noise_than_others_is_not_late_for_that(memory: float) -> None:
    assert np.mean([late_by_varying_times(seed, 0.0, memory).any() for seed in range(400)]) <= 0.01
