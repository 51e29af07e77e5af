"""Which operation: starts and durations far from the cohort's, by a score that can reach 3."""

from __future__ import annotations

import pytest

from sfapp.model import Operators
from sfapp.operators import outliers
from tests.operators.lanes import Event, event, operators

JITTER = (0.0, 3.0, -2.0, 1.0, -1.0, 2.0, -3.0, 0.5, 1.5, -0.5, 2.5, -1.5)


def step(ranks: int, slow: int, extra: float = 0.0) -> Operators:
    """Two operators a rank; the first of one rank takes longer, which makes its second late."""
    events: list[Event] = []
    for rank in range(ranks):
        end = 100 + JITTER[rank] + (extra if rank == slow else 0.0)
        events += [
            event(rank, "thread 1", "load", 0, end, category="data"),
            event(rank, "thread 1", "work", end, end + 50 - JITTER[rank]),
        ]
    return operators(events)


@pytest.mark.parametrize(("ranks", "score"), [(8, "robust"), (10, "robust"), (11, "z"), (12, "z")])
def test_a_slow_operator_and_its_late_successor_are_found(ranks: int, score: str) -> None:
    found = outliers(step(ranks, slow=3, extra=500))

    assert found.score == score
    assert [(row.rank, row.name) for row in found.rows()] == [(3, "load"), (3, "work")]
    load, work = found.rows(rank=3)
    assert load.duration_score > 3 > abs(load.start_score)
    assert work.start_score > 3
    assert work.late_ns == pytest.approx(500_000, rel=0.1)


def test_below_eleven_ranks_the_plain_score_could_not() -> None:
    found = outliers(step(10, slow=3, extra=500_000), score="z")
    assert len(found) == 0
    assert found.duration.score_E.max() == pytest.approx(9 / 10**0.5, abs=1e-3)

    chosen = outliers(step(10, slow=3, extra=500_000))
    assert len(chosen) == 2
    assert "(R−1)/√R = 2.85" in chosen.why


def test_nothing_is_an_outlier_in_a_healthy_step() -> None:
    assert len(outliers(step(12, slow=3))) == 0


def test_two_ranks_are_no_cohort() -> None:
    found = outliers(step(2, slow=1, extra=500))
    assert (len(found), found.unmatched) == (0, 4)


def test_what_a_rank_does_another_number_of_times_is_not_compared() -> None:
    once = [event(rank, "thread 1", "op", 10, 20 + rank / 10) for rank in range(5)]
    found = outliers(operators([*once, event(4, "thread 1", "op", 30, 900)]))
    assert (len(found), found.unmatched) == (0, 2)


def test_a_microsecond_is_no_evidence() -> None:
    events = [event(rank, "thread 1", "op", 0, 10 + (2.5 if rank == 4 else 0)) for rank in range(5)]
    assert len(outliers(operators(events))) == 0
