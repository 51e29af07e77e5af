"""Identities and bounds of accounting.md §1, §4 and §10: exact, on arbitrary matrices."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import frontier, judge, measure, measure_many, rivals
from sfapp.accounting.carry_over import carry_over, steps_before
from sfapp.accounting.frontier import running_boundaries
from sfapp.model import Gates
from tests.builders import Ints, window_of


@st.composite
def matrices(draw: st.DrawFn, min_steps: int = 1, min_ranks: int = 1) -> Ints:
    """Arbitrary non-negative ns [stages, steps, ranks], from idle to an hour a stage, ties included."""
    shape = (
        draw(st.integers(1, 6)),
        draw(st.integers(min_steps, 14)),
        draw(st.integers(min_ranks, 9)),
    )
    seed = draw(st.integers(0, 2**32 - 1))
    high = draw(st.sampled_from([2, 10, 10**6, 10**9, 3600 * 10**9]))
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, high, shape, generator=generator).numpy()


@given(matrices())
def test_advances_add_up_to_the_makespan_without_any_rounding(duration_SNR: Ints) -> None:
    frontier_SN, advance_SN, _ = frontier(duration_SNR)
    assert np.array_equal(advance_SN.sum(axis=0), frontier_SN[-1])
    assert int(advance_SN.min()) >= 0


@given(matrices())
def test_an_advance_is_the_largest_duration_after_slack(duration_SNR: Ints) -> None:
    frontier_SN, advance_SN, _ = frontier(duration_SNR)
    prefix_SNR = duration_SNR.cumsum(axis=0)
    for stage in range(duration_SNR.shape[0]):
        before = (frontier_SN[stage - 1][:, None] - prefix_SNR[stage - 1]) if stage else 0
        slack_NR = before + np.zeros_like(duration_SNR[0])
        assert int(slack_NR.min()) >= 0
        assert np.array_equal(advance_SN[stage], (duration_SNR[stage] - slack_NR).max(axis=-1))


@given(matrices())
def test_maxima_overcount_and_means_undercount_within_their_bounds(duration_SNR: Ints) -> None:
    stages, _, ranks = duration_SNR.shape
    makespan_N = frontier(duration_SNR)[0][-1]
    maxima_N = duration_SNR.max(axis=-1).sum(axis=0)
    assert bool((makespan_N <= maxima_N).all())
    assert bool((maxima_N <= min(ranks, stages) * makespan_N).all())
    summed_N = duration_SNR.sum(axis=(0, 2))  # ranks × the mean, so that the comparison stays in integers
    assert bool((makespan_N <= summed_N).all())
    assert bool((summed_N <= ranks * makespan_N).all())


@given(matrices(), st.integers(1, 1000), st.integers(0, 2**32 - 1))
def test_a_bounded_error_moves_prefixes_and_advances_by_bounded_amounts(
    duration_SNR: Ints, epsilon: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    error_SNR = torch.randint(-epsilon, epsilon + 1, duration_SNR.shape, generator=generator).numpy()
    frontier_SN, advance_SN, _ = frontier(duration_SNR)
    moved_SN, moved_advance_SN, _ = frontier((duration_SNR + error_SNR).clip(min=0))
    for stage in range(duration_SNR.shape[0]):
        place = stage + 1
        assert int(abs((moved_SN - frontier_SN)[stage]).max()) <= place * epsilon
        assert int(abs((moved_advance_SN - advance_SN)[stage]).max()) <= (2 * place - 1) * epsilon


@given(matrices())
def test_the_leader_holds_the_frontier_and_is_the_lowest_of_equals(duration_SNR: Ints) -> None:
    found = running_boundaries(duration_SNR)
    prefix_SNR = duration_SNR.cumsum(axis=0)
    assert np.array_equal(prefix_SNR.max(axis=-1), found.frontier_SN)
    for stage in range(prefix_SNR.shape[0]):
        for step in range(prefix_SNR.shape[1]):
            ranks = prefix_SNR[stage, step]
            assert int(found.leader_SN[stage, step]) == int(np.argmax(ranks))
            second = sorted(ranks.tolist())[-2] if len(ranks) > 1 else int(ranks[0])
            assert int(found.second_SN[stage, step]) == second


@given(matrices(min_ranks=2), st.lists(st.integers(-(10**9), 10**9), min_size=9, max_size=9))
def test_carry_over_adds_up_whatever_the_offsets(duration_SNR: Ints, offsets: list[int]) -> None:
    offset_R = np.array(offsets[: duration_SNR.shape[2]])
    found = carry_over(duration_SNR, steps_before(duration_SNR.sum(axis=0)), offset_R)
    last = int(found.boundaries.frontier_SN[-1, -1])
    assert int(found.advance_SN.sum()) == last - found.start
    assert int(found.advance_SN.min()) >= 0


@given(matrices(min_ranks=2))
def test_shares_gains_and_excess_stay_inside_their_ranges(duration_SNR: Ints) -> None:
    diagnosis = judge(measure(window_of(duration_SNR, stages=_names(duration_SNR))), Gates(floor_ns=0))
    if diagnosis.shares is None:
        assert diagnosis.exposed_makespan_ns == 0
        return
    assert sum(diagnosis.advances_ns.values()) == diagnosis.exposed_makespan_ns
    assert abs(sum(diagnosis.shares.values()) - 1) < 1e-9
    assert abs(sum((diagnosis.carry_over_shares or {"": 1.0}).values()) - 1) < 1e-9
    assert all(-1e-12 <= gain <= 1 for gain in (diagnosis.static_gain or {}).values())
    assert all(0 <= value <= share + 1e-12 for value, share in _pairs(diagnosis.excess, diagnosis.shares))


@given(matrices(min_ranks=2))
def test_takeovers_add_up_to_the_static_gain_of_the_clipped_stage(duration_SNR: Ints) -> None:
    measures = measure(window_of(duration_SNR, stages=_names(duration_SNR)))
    diagnosis = judge(measures, Gates(floor_ns=0))
    if diagnosis.takeover is None or diagnosis.static_gain is None or diagnosis.top_stage is None:
        return
    assert abs(sum(diagnosis.takeover.values()) + diagnosis.static_gain[diagnosis.top_stage]) < 1e-9


@given(matrices())
def test_every_rival_is_normalised_and_routed(duration_SNR: Ints) -> None:
    measures = measure(window_of(duration_SNR, stages=_names(duration_SNR)))
    for rival in rivals(measures, tau_c=0.8):
        total = sum(rival.shares.values())
        assert total == 0 or abs(total - 1) < 1e-9
        assert bool(rival.routing_set) == bool(total)


@given(matrices(), st.integers(0, 3))
def test_a_window_measured_among_others_is_measured_the_same(duration_SNR: Ints, others: int) -> None:
    windows = [
        window_of(np.roll(duration_SNR, shift, axis=1), stages=_names(duration_SNR), window=shift)
        for shift in range(others + 1)
    ]
    together = [judge(measures, Gates(floor_ns=0)) for measures in measure_many(windows)]
    alone = [judge(measure(window), Gates(floor_ns=0)) for window in windows]
    for one, other in zip(together, alone, strict=True):
        assert one.labels == other.labels
        assert one.advances_ns == other.advances_ns
        assert one.carry_over_advances_ns == other.carry_over_advances_ns
        assert one.static_gain == other.static_gain
        assert one.aim == other.aim


def _names(duration_SNR: Ints) -> list[str]:
    return [f"stage.{letter}" for letter in "abcdef"[: duration_SNR.shape[0]]]


def _pairs(left: dict | None, right: dict | None) -> list[tuple[float, float]]:
    return [((left or {})[key], (right or {})[key]) for key in left or {}]
