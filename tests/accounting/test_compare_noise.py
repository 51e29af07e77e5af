"""A comparison says how sure its change is, and a regression check fails only beyond noise (§14, §17)."""

from __future__ import annotations

from sfapp.accounting import Comparison, compare, diagnose
from sfapp.model import Gates
from tests.builders import DATA, MS, ddp_job, window_of


def compared(
    before: int, after: int, *, jitter: int = 1 * MS, steps: int = 40, gates: Gates | None = None
) -> Comparison:
    """Two windows whose ranks all load for so many ns longer."""
    sides = [
        diagnose(
            window_of(
                ddp_job(seed=seed, steps=steps, jitter=jitter, extra={(DATA, "all"): extra}), window=seed
            ),
            gates,
        )
        for seed, extra in enumerate((before, after), 1)
    ]
    return compare(*sides)


def test_a_change_has_an_interval_that_holds_it() -> None:
    found = compared(0, 5 * MS)
    assert found.interval_ns is not None
    low, high = found.interval_ns
    assert low < float(found.main.total_ns) < high
    assert high - low < 1 * MS
    assert found.is_beyond_noise
    document = found.document()
    assert document["interval_ns"] == [low, high]
    assert document["chance"] == found.chance


def test_a_change_within_noise_is_distinguished_from_one_beyond_it() -> None:
    assert not compared(0, MS // 20, jitter=10 * MS).is_beyond_noise
    assert compared(0, 20 * MS, jitter=10 * MS).is_beyond_noise


def test_the_gates_of_the_sides_decide_which_growth_counts() -> None:
    doubtful = compared(0, MS, jitter=10 * MS)
    assert doubtful.chance is not None
    assert 0.01 < doubtful.chance < 0.2
    assert not doubtful.is_beyond_noise
    assert compared(0, MS, jitter=10 * MS, gates=Gates(alpha=0.2)).is_beyond_noise
    assert compared(0, 5 * MS).needs_attention
    small = compared(0, 5 * MS, gates=Gates(min_effect=0.2))
    assert small.is_beyond_noise
    assert not small.is_large_enough
    assert not small.needs_attention


def test_too_few_steps_leave_the_limit_alone_to_decide() -> None:
    found = compared(0, 5 * MS, steps=4)
    assert found.interval_ns is None
    assert found.is_beyond_noise
