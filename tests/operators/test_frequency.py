"""How often an operator occurs over time: what is missing or rare stands out."""

from __future__ import annotations

import numpy as np

from sfapp.operators import Frequency, frequency
from tests.operators.lanes import event, operators


def ticks(missing: dict[int, range], ranks: int = 4, count: int = 200) -> list[tuple[int, int]]:
    return [
        (rank, tick)
        for rank in range(ranks)
        for tick in range(count)
        if tick not in missing.get(rank, range(0))
    ]


def counted(missing: dict[int, range]) -> Frequency:
    return frequency(
        operators([event(rank, "thread 1", "tick", 10 * t, 10 * t + 4) for rank, t in ticks(missing)]), "tick"
    )


def test_a_gap_of_one_rank_is_a_band() -> None:
    found = counted({1: range(50, 80)})
    gap = next(band for band in found.bands if band.rank == 1)
    assert gap.is_gap or gap.found < 5
    assert 480_000 <= gap.start_ns <= 560_000
    assert 740_000 <= gap.end_ns <= 820_000
    assert {band.rank for band in found.bands} == {1}


def test_a_rare_stretch_is_degraded_but_no_gap() -> None:
    every_third = [t for t in range(60, 120) if t % 3]
    events = [
        event(rank, "thread 1", "tick", 10 * t, 10 * t + 4)
        for rank, t in ticks({})
        if not (rank == 2 and t in every_third)
    ]
    bands = frequency(operators(events), "tick").bands
    assert {band.rank for band in bands} == {2}
    assert not any(band.is_gap for band in bands)
    assert sum(band.found for band in bands) <= 0.5 * sum(band.expected for band in bands)


def test_a_stretch_that_all_ranks_miss_is_nobodys() -> None:
    found = counted(dict.fromkeys(range(4), range(100, 130)))
    assert {band.rank for band in found.bands} == {None}
    assert any(band.is_gap for band in found.bands)


def test_an_even_operator_has_no_bands_and_its_window_is_explained() -> None:
    found = counted({})
    assert not found.bands
    assert np.median(found.count_RT) == 5
    assert "five" in found.why or "5 occurrences" in found.why


def test_a_name_that_never_occurs_has_no_ranks() -> None:
    found = frequency(operators([event(0, "thread 1", "tick", 0, 1)]), "tock")
    assert (found.ranks, found.bands) == ((), ())
    assert not frequency(operators([]), "tock").ranks
