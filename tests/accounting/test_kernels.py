"""The compiled kernels and NumPy give the same numbers to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import frontier, kernels
from sfapp.accounting.carry_over import steps_before
from sfapp.accounting.frontier import running_boundaries, walk
from sfapp.accounting.gains import clipped_frontier, clipped_makespan
from sfapp.accounting.kernels import middle_last
from sfapp.accounting.lateness_cost import Slack, saved_by_ranks
from sfapp.accounting.noise import BLOCK, JUMP, LEAST_BLOCKS, continued_fraction, series_noise
from tests.builders import Ints

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the kernels were not compiled")

WIDTHS = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 2047, 2048, 2049, 4100, 5000]))
HIGHEST = st.sampled_from([1, 2, 10, 10**6, 3600 * 10**9, 2**57])


@st.composite
def matrices(draw: st.DrawFn) -> Ints:
    """Durations from idle to years, ns [stages, steps, ranks], with many ties where the highest is small."""
    shape = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(WIDTHS)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    durations = random.integers(0, draw(HIGHEST), shape)
    if draw(st.booleans()):  # some ranks far behind the others
        durations[..., random.integers(0, shape[2], 3)] += draw(HIGHEST)
    return durations


def both_ways(call: Callable[[], Any]) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
    """Return the arrays of a call with the compiled kernels, and with NumPy."""
    compiled = _arrays(call())
    with pytest.MonkeyPatch.context() as without:
        without.setattr(kernels, "compiled", None)
        return compiled, _arrays(call())


def _arrays(found: Any) -> list[npt.NDArray[Any]]:
    if isinstance(found, np.ndarray):
        return [found]
    parts = found if isinstance(found, tuple) else [getattr(found, name) for name in found.__slots__]
    return [array for part in parts for array in _arrays(part)]


def assert_same(call: Callable[[], Any]) -> None:
    for compiled, plain in zip(*both_ways(call), strict=True):
        assert compiled.dtype == plain.dtype
        assert compiled.tobytes() == plain.tobytes()


@given(matrices())
def test_boundaries_and_sums(durations: Ints) -> None:
    before = steps_before(durations.sum(axis=0))
    assert_same(lambda: walk(durations))
    assert_same(lambda: frontier(durations))
    assert_same(lambda: running_boundaries(durations, before))
    assert_same(lambda: running_boundaries(durations, before - before.max()))


@given(matrices(), st.sampled_from(["steps", "ranks", "neither"]))
def test_clipping_to_a_baseline(durations: Ints, varies_over: str) -> None:
    level = np.median(durations, axis=2, keepdims=True)
    if varies_over == "ranks":
        level = np.median(durations, axis=1, keepdims=True)
    elif varies_over == "neither":
        level = np.median(durations, axis=(1, 2), keepdims=True)
    stages, total = len(durations), durations.sum(axis=0)
    assert_same(lambda: clipped_makespan(durations, total, level, range(stages)))
    assert_same(lambda: clipped_makespan(durations, total, level, [stage // 2 for stage in range(stages)]))
    assert_same(lambda: clipped_frontier(durations, level, range(0, stages, 2)))


@given(matrices(), st.booleans())
def test_medians(durations: Ints, are_floats: bool) -> None:
    values = durations - durations.mean() if are_floats else durations
    assert_same(lambda: middle_last(values))
    assert_same(lambda: middle_last(values.swapaxes(0, 2)))


@pytest.mark.parametrize("ordered", [1, -1])
@pytest.mark.parametrize("period", [1, 2, 47, 127, 5000])
def test_medians_of_rows_in_which_a_sample_misleads(ordered: int, period: int) -> None:
    # Values repeat with the sample's own spacing, or rise or fall all along.
    rows = np.tile(np.arange(9_973), (3, 1))[:, ::ordered]
    rows[1:] = rows[1:] % period
    assert_same(lambda: middle_last(np.ascontiguousarray(rows)))


def test_threads_share_the_work_and_change_nothing() -> None:
    durations = np.random.default_rng(0).integers(0, 10**9, (6, 30, 8_192))
    assert durations.size > kernels._PARALLEL_CELLS
    assert_same(lambda: walk(durations))
    assert_same(lambda: middle_last(durations))
    kernels.limit_threads(1)
    try:
        assert_same(lambda: walk(durations))
        assert_same(lambda: middle_last(durations))
    finally:
        kernels.limit_threads(None)


@given(x=st.floats(1e-9, 1.0 - 1e-9), a=st.floats(0.1, 300), b=st.floats(0.1, 300))
def test_the_continued_fraction_of_students_t(x: float, a: float, b: float) -> None:
    assert kernels.compiled.continued_fraction(x, a, b) == continued_fraction(x, a, b)


@given(st.integers(5, 300), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 5.0, 500.0]))
def test_the_noise_of_a_series(steps: int, seed: int, jump: float) -> None:
    random = np.random.default_rng(seed)
    series = random.exponential(1e6, steps)
    series[random.integers(steps) :] += jump * 1e6
    compiled = kernels.compiled.series_noise(series, JUMP, BLOCK, LEAST_BLOCKS)
    assert compiled == series_noise(series)


@given(st.integers(1, 60), st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_the_time_saved_without_late_ranks_and_the_lateness_that_costs(
    steps: int, ranks: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    position = random.integers(0, 50, (steps, ranks)).astype(np.float64)
    some = random.permutation(ranks)[: random.integers(1, ranks)].tolist()
    late = random.integers(-5, 50, (steps, len(some))).astype(np.float64)
    assert_same(lambda: saved_by_ranks(position, late, some))
    slack = Slack.of(position)
    assert_same(lambda: slack.later(np.linspace(0.0, 30.0, 3 * slack.sorted_NR.shape[1]).reshape(3, -1)))
    assert_same(lambda: slack.spread(3.1))
