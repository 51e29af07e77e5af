"""Where a series rises: the interval holds the true place, whatever the noise is like (§17)."""

from __future__ import annotations

import numpy as np
import pytest

from sfapp.accounting.change_point import REACH, change_point
from tests.accounting.step_series import autocorrelated


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("tails", [False, True])
def test_the_interval_holds_the_true_place(memory: float, tails: bool) -> None:
    random = np.random.default_rng(11)
    within, located = 0, 0
    for _ in range(60):
        place = int(random.integers(5, 76))
        value_N = autocorrelated(random, 80, memory, tails)
        value_N[place:] += random.choice([2.0, 4.0, 8.0])
        found = change_point(value_N)
        if found is not None:
            located += 1
            within += found.low <= place <= found.high
            assert found.low <= found.place <= found.high
    assert located >= 40
    assert within >= 0.95 * located - 1


def test_a_clear_rise_is_located_exactly() -> None:
    value_N = np.random.default_rng(2).standard_normal(100)
    value_N[37:] += 20.0
    found = change_point(value_N)
    assert found is not None
    assert (found.place, found.low, found.high) == (37, 37, 37)


def test_a_rise_in_a_long_series_is_located_as_in_a_short_one() -> None:
    value_N = np.random.default_rng(5).standard_normal(8 * REACH)
    value_N[700:] += 20.0
    found = change_point(value_N)
    assert found is not None
    assert (found.low, found.high) == (700, 700)


def test_unit_and_level_do_not_matter() -> None:
    value_N = autocorrelated(np.random.default_rng(3), 80, 0.5, tails=False)
    value_N[50:] += 3.0
    found = change_point(value_N)
    scaled = change_point(1e6 * value_N + 1e8)
    assert found is not None
    assert scaled is not None
    assert (scaled.place, scaled.low, scaled.high) == (found.place, found.low, found.high)
    assert scaled.evidence == pytest.approx(found.evidence, abs=1e-3)


def test_one_long_step_does_not_move_the_place() -> None:
    value_N = np.random.default_rng(4).standard_normal(80)
    value_N[50:] += 5.0
    value_N[20] += 200.0
    found = change_point(value_N)
    assert found is not None
    assert found.low <= 50 <= found.high


@pytest.mark.parametrize("kind", ["short", "constant", "noise", "fall"])
def test_nothing_is_located_where_nothing_rises(kind: str) -> None:
    noise_N = np.random.default_rng(8).standard_normal(80)
    value_N = {
        "short": np.array([1.0, 1.0, 9.0, 9.0]),
        "constant": np.full(80, 7.0),
        "noise": noise_N,
        "fall": noise_N - 10.0 * (np.arange(80) >= 40),
    }[kind]
    assert change_point(value_N) is None


def test_a_place_before_the_first_allowed_one_is_not_named() -> None:
    value_N = np.random.default_rng(9).standard_normal(40)
    value_N[3:] += 30.0
    found = change_point(value_N, least=5)
    assert found is None or found.low >= 5
