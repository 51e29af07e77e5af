"""Collectives: arrival skew or transfer."""

from __future__ import annotations

import pytest

from sfapp.model import Operators
from sfapp.operators import collectives
from tests.operators.lanes import event, operators


def collective(starts: list[float], ends: list[float], ranks: int | None = None) -> Operators:
    events = [
        event(rank, "stream 20", "reduce", start, end, category="collective", group="world", sequence=0)
        for rank, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    absent = [
        event(rank, "stream 20", "reduce", 900, 950, category="collective", group="world", sequence=1)
        for rank in range(ranks or len(starts))
    ]
    return operators(events + absent)


@pytest.mark.parametrize(
    ("starts", "ends", "verdict", "why"),
    [
        ([0, 0, 5], [100, 100, 100], "transfer", ""),
        ([0, 0, 90], [100, 100, 100], "skew", ""),
        ([0, 0, 50], [100, 100, 100], "mixed", ""),
        ([0, 0, 150], [100, 100, 200], "inconclusive", "a rank left before another arrived"),
        ([0, 0.5, 1], [1.5, 1.5, 1.5], "inconclusive", "accuracy of the clocks"),
        ([0], [100], "inconclusive", "only one"),
    ],
)
def test_arrival_skew_is_distinguished_from_transfer(
    starts: list[float], ends: list[float], verdict: str, why: str
) -> None:
    found = collectives(collective(starts, ends, ranks=3))[0]
    assert found.verdict == verdict
    assert why in found.why
    assert found.last_rank == len(starts) - 1


def test_a_collective_without_all_its_ranks_is_inconclusive() -> None:
    assert "2 of its group's 3" in collectives(collective([0, 50], [100, 100], ranks=3))[0].why
