"""Operator events: in order, index into their tables, join into one."""

from __future__ import annotations

import numpy as np
import pytest

from sfapp.errors import WindowError
from sfapp.model import Lane, Operators


def events(rank: int, names: tuple[str, ...] = ("a", "b"), is_device: bool = False) -> Operators:
    return Operators.of(
        names=names,
        name_E=[0, 1, 1],
        category_E=[1, 1, 1],
        lanes=[Lane(rank, "thread 1", is_device)],
        lane_E=[0, 0, 0],
        start_ns_E=[5, 0, 0],
        end_ns_E=[6, 2, 9],
        step_E=[1, 0, 0],
    )


def test_events_ascend_and_what_encloses_stands_first() -> None:
    found = events(0)
    assert found.start_ns_E.tolist() == [0, 0, 5]
    assert found.end_ns_E.tolist() == [9, 2, 6]
    assert found.correlation_E.tolist() == [-1, -1, -1]
    assert found.duration_ns_E.tolist() == [9, 2, 1]
    assert (found.ranks, found.steps) == ((0,), (0, 1))


def test_parts_join_into_one_with_shared_tables() -> None:
    joined = Operators.concat([events(1), events(0, ("b", "c")), events(0).select(slice(0))])

    assert joined.ranks == (0, 1)
    assert [joined.name(event) for event in range(6)] == ["c", "c", "b", "b", "b", "a"]
    assert joined.of_rank(1).start_ns_E.tolist() == [0, 0, 5]
    assert np.count_nonzero(joined.step_E == 0) == 4
    assert not len(Operators.concat([]))


def test_a_lane_is_a_thread_or_a_stream_not_both() -> None:
    with pytest.raises(WindowError, match="lane is listed twice"):
        Operators.concat([events(0), events(0, is_device=True)])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("name_E", [0, 1, 2]),
        ("lane_E", [0, 0, 1]),
        ("group_E", [0, -1, -1]),
        ("end_ns_E", [6, -2, 9]),
        ("category_E", [9, 0, 0]),
        ("step_E", [0, 1]),
        ("name_E", [-1, 0, 0]),
        ("lane_E", [0, -1, 0]),
    ],
)
def test_columns_that_do_not_fit_are_refused(column: str, values: list[int]) -> None:
    given = {
        "names": ("a", "b"),
        "name_E": [0, 1, 1],
        "category_E": [1, 1, 1],
        "lanes": [Lane(0, "thread 1", False)],
        "lane_E": [0, 0, 0],
        "start_ns_E": [5, 0, 0],
        "end_ns_E": [6, 2, 9],
    }
    with pytest.raises(WindowError):
        Operators.of(**(given | {column: np.asarray(values)}))
