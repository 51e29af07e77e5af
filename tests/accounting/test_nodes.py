"""The cross-node summary is TraceML's, by numbers worked out by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import cross_node
from sfapp.errors import WindowError

MS = 1_000_000
NAN = float("nan")

# The terminal of TraceML's design (§9.1): two nodes of four ranks.
TERMINAL = np.array([[132, 131, 139, 135, 134, 141, 137, 133]], dtype=np.float64) * MS
NODES = (0, 0, 0, 0, 1, 1, 1, 1)


def test_two_nodes_of_four_ranks() -> None:
    found = cross_node(TERMINAL, NODES)
    assert found.nodes == (0, 1)
    # 131 132 133 134 | 135 137 139 141
    assert found.median_N.tolist() == [134.5 * MS]
    # 131 132 | 135 139 and 133 134 | 137 141
    assert found.node_median_NK.tolist() == [[133.5 * MS, 135.5 * MS]]
    assert found.worst_N.tolist() == [5]
    assert found.rank_skew_N == pytest.approx((141 - 134.5) / 134.5)
    assert found.slowest_N.tolist() == [1]
    assert found.node_skew_N == pytest.approx((135.5 - 133.5) / 133.5)  # the "+1.5 % vs node0" of the design
    assert found.node_worst_NK.tolist() == [[2, 5]]
    assert found.node_rank_skew_NK[0] == pytest.approx([(139 - 133.5) / 133.5, (141 - 135.5) / 135.5])


def test_each_step_has_its_own_worst_rank_and_slowest_node() -> None:
    found = cross_node([[1, 2, 9, 4], [8, 2, 3, 3], [5, 5, 5, 5]], (3, 3, 7, 7))
    assert found.worst_N.tolist() == [2, 0, 0]
    assert found.slowest_N.tolist() == [1, 0, 0]
    assert found.median_N.tolist() == [3.0, 3.0, 5.0]
    assert found.rank_skew_N == pytest.approx([2.0, 5 / 3, 0.0])
    assert found.node_skew_N == pytest.approx([(6.5 - 1.5) / 1.5, (5 - 3) / 3, 0.0])


def test_a_rank_without_a_time_is_left_out() -> None:
    found = cross_node([[1, NAN, 9, 4], [NAN, NAN, 3, 5], [NAN] * 4], (0, 0, 1, 1))
    assert found.median_N[:2].tolist() == [4.0, 4.0]
    assert found.worst_N.tolist() == [2, 3, -1]
    assert found.slowest_N.tolist() == [1, 1, -1]
    assert found.node_median_NK[1].tolist()[1] == 4.0
    assert math.isnan(found.node_median_NK[1][0])
    assert found.node_worst_NK.tolist() == [[0, 2], [-1, 3], [-1, -1]]
    assert found.node_skew_N[1] == 0.0
    assert math.isnan(found.median_N[2])
    assert math.isnan(found.node_skew_N[2])


def test_one_rank_has_no_skew() -> None:
    found = cross_node([[7]], (0,))
    assert (found.rank_skew_N.tolist(), found.node_skew_N.tolist()) == ([0.0], [0.0])


def test_a_step_that_took_no_time_has_none_to_compare_with() -> None:
    assert math.isnan(cross_node([[0, 0]], (0, 1)).rank_skew_N[0])


@pytest.mark.parametrize(("wall", "nodes"), [([[1, 2]], (0,)), ([1, 2], (0, 0)), ([[]], ())])
def test_shapes_must_fit(wall: list[object], nodes: tuple[int, ...]) -> None:
    with pytest.raises(WindowError, match="step times must be"):
        cross_node(wall, nodes)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(1, 10**9)), min_size=1, max_size=12),
)
def test_it_is_what_the_design_s_own_code_computes(ranks: list[tuple[int, int | None]]) -> None:
    """``MultiNodeAggregator.compute_step_summary`` as it stands in the design."""
    found = cross_node([[NAN if time is None else time for _, time in ranks]], [node for node, _ in ranks])
    per_rank = {rank: time for rank, (_, time) in enumerate(ranks) if time is not None}
    if not per_rank:
        assert found.worst_N.tolist() == [-1]
        return
    per_node = {
        node: statistics.median(times)
        for node in found.nodes
        if (times := [per_rank[rank] for rank in per_rank if ranks[rank][0] == node])
    }
    global_median = statistics.median(per_rank.values())
    worst = max(per_rank, key=lambda rank: per_rank[rank])
    slowest = max(per_node, key=lambda node: per_node[node])
    fastest = min(per_node.values())
    assert found.median_N[0] == global_median
    assert found.worst_N[0] == worst
    assert found.rank_skew_N[0] == pytest.approx((per_rank[worst] - global_median) / global_median)
    assert found.nodes[found.slowest_N[0]] == slowest
    assert found.node_skew_N[0] == pytest.approx((per_node[slowest] - fastest) / fastest)
