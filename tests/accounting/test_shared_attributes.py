"""What late ranks share: an exact test, corrected for all values tried (accounting.md §21)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfapp.accounting import diagnose
from sfapp.accounting.shared_attributes import LateInWindow, shared_attributes, shared_over_windows
from sfapp.model.periods import fitting_periods, known_periods
from sfapp.model.rank_table import AttributeValues
from tests.builders import DATA, MS, ddp_job, window_of


def values_of(columns: dict[str, list[str]]) -> dict[str, AttributeValues]:
    return {name: AttributeValues.of(column) for name, column in columns.items()}


def test_the_attribute_of_all_late_ranks_and_of_no_other_comes_first() -> None:
    attributes = values_of(
        {
            "kernel": ["6.8"] * 12 + ["6.5"] * 4,
            "local_rank": [str(rank % 4) for rank in range(16)],
            "image": ["train:1"] * 16,
        }
    )
    first, *others = shared_attributes(attributes, 16, late=[12, 13, 14, 15])
    assert (first.name, first.value, first.late, first.others) == ("kernel", "6.5", 4, 0)
    # 1 of C(16, 4) = 1,820 draws, times 5 values that late ranks have: of the kernel one, of local ranks four
    assert first.chance == pytest.approx(5 / 1820)
    assert all(one.name == "local_rank" and one.chance == 1.0 for one in others)


def test_one_late_rank_shares_nothing() -> None:
    assert shared_attributes(values_of({"host": list("aabb")}), 4, late=[3]) == ()


def test_ranks_drawn_at_random_share_something_at_most_as_often_as_alpha() -> None:
    random = np.random.default_rng(1)
    attributes = values_of({name: [str(value) for value in random.integers(0, 4, 64)] for name in "abcdef"})
    wrong = 0
    for _ in range(200):
        late = random.choice(64, 8, replace=False).tolist()
        wrong += shared_attributes(attributes, 64, late)[0].chance <= 0.05
    assert wrong <= 17  # expected at most 10; 17 have a chance of 0.02


def test_the_verdict_names_the_host_the_late_ranks_share() -> None:
    extra = {(DATA, rank): 40 * MS for rank in (4, 5, 6, 7)}
    window = window_of(ddp_job(ranks=16, extra=extra), ranks_per_node=4)
    shared = diagnose(window).shared
    assert shared is not None
    assert {(one.name, one.value) for one in shared} == {("host", "node-1"), ("node", "1")}


def test_over_runs_a_rank_counts_once_however_many_windows_it_is_late_in() -> None:
    ranks = window_of(ddp_job(), ranks_per_node=2).ranks
    windows = [LateInWindow(run, ranks, frozenset({2, 3})) for run in ("a", "b", "c") for _ in range(5)]
    first = shared_over_windows(windows)[0]
    assert (first.name, first.value) == ("host", "node-1")
    assert (first.late, first.late_ranks, first.other_ranks) == (6, 6, 18)


def test_known_periods_come_from_the_packet_and_fit_a_spacing_exactly_or_every_few_times() -> None:
    manifest = window_of(ddp_job()).manifest
    extra = {"num_workers": 4, "periods": {"evaluation": 25, "each step": 1, "broken": "often"}}
    periods = known_periods(replace(manifest, extra=extra))
    assert periods == {"the loader's number of workers": 4, "evaluation": 25}
    assert fitting_periods(periods, 50) == {"evaluation": 25}
    assert fitting_periods(periods, 100) == {"evaluation": 25, "the loader's number of workers": 4}
