"""Steps that ranks tell of once a second, side by side by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sfapp.accounting import StepTimes, paced_steps
from sfapp.model import RankIdentity, RankTable

Statement = tuple[int, int, int, float]
"""Rank, newest step, how many steps, their mean."""


def table(*ranks: int) -> RankTable:
    return RankTable.of([RankIdentity(rank, rank, 0, "node-0") for rank in ranks])


def paced(ranks: RankTable, statements: Sequence[Statement], most: int = 240) -> StepTimes:
    columns = list(zip(*statements, strict=True)) or [(), (), (), ()]
    rank_M, step_M, steps_M = (np.array(column, dtype=np.int64) for column in columns[:3])
    return paced_steps(ranks, rank_M, step_M, steps_M, columns[3], most)


def test_slow_steps_stand_one_by_one() -> None:
    statements = [(0, 7, 1, 10.0), (1, 7, 1, 12.0), (0, 8, 1, 11.0)]
    times = paced(table(0, 1), statements)
    assert times.steps_each == 1
    assert times.step_N.tolist() == [7, 8]
    assert np.array_equal(times.wall_NR, [[10, 12], [11, np.nan]], equal_nan=True)


def test_fast_steps_are_means_that_end_with_the_step_they_are_named_after() -> None:
    statements = [(0, 9, 10, 10.0), (1, 7, 8, 20.0), (0, 19, 10, 14.0), (1, 19, 12, 24.0)]
    times = paced(table(0, 1), statements)
    assert times.steps_each == 10
    assert times.step_N.tolist() == [9, 19]
    # Of rank 1's steps 0 to 9, eight took 20 and two took 24
    assert times.wall_NR[:, 1].tolist() == pytest.approx([20.8, 24])
    assert times.wall_NR[:, 0].tolist() == [10, 14]


def test_the_newest_step_of_a_rank_is_its_own_also_within_a_row() -> None:
    # Given rank 1, which is at step 13 while a row of rank 0 ends at step 19
    statements = [(0, 9, 10, 10.0), (1, 9, 10, 10.0), (0, 19, 10, 10.0), (1, 13, 4, 10.0)]
    times = paced(table(0, 1, 2), statements)
    assert times.step_N.tolist() == [9, 19]
    assert times.newest_R.tolist() == [19, 13, -1]
    # When it returns to a checkpoint, then its steps from there count
    assert paced(table(0, 1), [*statements, (1, 5, 2, 10.0)]).newest_R.tolist() == [19, 5]


def test_there_are_never_more_rows_than_asked_for() -> None:
    statements = [(0, step, 1, float(step)) for step in range(1000)]
    times = paced(table(0), statements, most=100)
    assert (len(times.step_N), times.steps_each) == (100, 10)
    assert times.wall_NR[:, 0].tolist() == pytest.approx(np.arange(1000).reshape(100, 10).mean(axis=1))


def test_after_going_back_to_a_checkpoint_only_the_new_steps_count() -> None:
    statements = [(0, 5, 1, 50.0), (0, 6, 1, 60.0), (0, 7, 1, 70.0), (0, 6, 1, 61.0)]
    times = paced(table(0), statements)
    assert times.step_N.tolist() == [5, 6]
    assert times.wall_NR[:, 0].tolist() == [50, 61]


def test_a_hole_stays_a_hole_and_strangers_do_not_count() -> None:
    times = paced(table(0, 4), [(4, 10, 1, 1.0), (4, 2**62, 1, 2.0), (3, 5, 1, 9.0)])
    assert len(times.step_N) == 2
    assert np.isnan(times.wall_NR[:, 0]).all()
    assert times.wall_NR[:, 1].tolist() == [1, 2]


def test_no_rank_has_reported() -> None:
    times = paced(table(0), [])
    assert times.wall_NR.shape == (0, 1)
    assert not len(paced(table(), []).step_N)
