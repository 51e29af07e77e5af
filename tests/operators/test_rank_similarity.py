"""Which worker: the rank whose completions come at other times is scored highest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import ks_2samp

from sfapp.errors import WindowError
from sfapp.model import Operators
from sfapp.operators import ks_distances, rank_similarity
from tests.operators.lanes import event, operators


def job(late: dict[int, float], ranks: int = 6, steps: int = 3) -> Operators:
    """Steps of 1 ms in ten operators; some ranks begin each so many µs late."""
    return operators(
        [
            event(rank, "thread 1", f"op {op}", at, at + 90, step=step)
            for rank in range(ranks)
            for step in range(steps)
            for op in range(10)
            for at in [2_000 * step + 100 * op + late.get(rank, 0.0)]
        ]
    )


@settings(max_examples=40, deadline=None)
@given(arrays.arrays(np.int64, st.tuples(st.integers(2, 5), st.integers(1, 30)), elements=st.integers(0, 9)))
def test_distances_are_those_of_scipy(count_RT: np.ndarray) -> None:
    count_RT[:, 0] += 2  # of samples of nothing or of one scipy has no p-value
    found = ks_distances(count_RT)
    windows = np.arange(count_RT.shape[1])
    for one in range(len(count_RT)):
        for other in range(len(count_RT)):
            samples = [np.repeat(windows, count_RT[rank]) for rank in (one, other)]
            expected = ks_2samp(*samples, method="asymp").statistic
            assert found[one, other] == pytest.approx(expected, abs=1e-12)


def test_the_late_rank_leads_the_heatmap() -> None:
    found = rank_similarity(job({4: 400}))

    assert found.ranks[found.order_R[0]] == 4
    assert found.score_R[4] == pytest.approx(0.4)  # it has done four operators of ten less, all the time
    assert found.score_R[0] == pytest.approx(0.4 / 5)
    assert np.array_equal(found.distance_RR, found.distance_RR.T)
    assert (found.count_RT.sum(axis=1) == 30).all()


def test_a_stall_in_one_step_of_many_is_seen() -> None:
    steady = job({}, steps=10)
    stalled = steady.rank_E == 2
    stalled &= steady.step_E == 7
    moved = Operators.of(
        names=steady.names,
        name_E=steady.name_E,
        category_E=steady.category_E,
        lanes=steady.lanes,
        lane_E=steady.lane_E,
        step_E=steady.step_E,
        start_ns_E=steady.start_ns_E + 300_000 * stalled,
        end_ns_E=steady.end_ns_E + 300_000 * stalled,
    )
    found = rank_similarity(moved)
    assert found.ranks[found.order_R[0]] == 2


def test_the_length_of_a_window_is_explained() -> None:
    long = [event(rank, "thread 1", "op", 0, 50_000) for rank in range(3)]
    assert (
        rank_similarity(operators(long)).window_ns,
        "median step" in rank_similarity(operators(long)).why,
    ) == (50_000, True)
    short = operators([event(rank, "thread 1", "op", 0, 5) for rank in range(3)])
    assert (rank_similarity(short).window_ns, "1 µs" in rank_similarity(short).why) == (1_000, True)
    assert rank_similarity(short, window_ns=7_000).why == "as requested"
    stretched = [event(rank, "thread 1", "op", 0, 3_000, step=step) for rank in (0, 1) for step in range(5)]
    stretched.append(event(1, "thread 1", "op", 3_000, 9_000_000, step=4))
    found = rank_similarity(operators(stretched))
    assert "longest step" in found.why
    assert found.count_RT.shape[1] <= 10_000


def test_more_distances_than_can_be_held_are_refused() -> None:
    with pytest.raises(WindowError, match="at most 8,192"):
        ks_distances(np.zeros((8_193, 1), np.int64))


def test_one_rank_or_no_event_has_no_distance() -> None:
    assert rank_similarity(job({}, ranks=1)).score_R.tolist() == [0.0]
    assert not rank_similarity(operators([])).ranks
