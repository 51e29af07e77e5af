"""Lanes of a swim-lane: blocks on one axis, waiting measured or inferred, arrows from late ranks (§19)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfapp.accounting import Measures, judge, measure, reference_of
from sfapp.accounting.swim_lane import SwimLane, SwimLanes, swim_lanes
from sfapp.accounting.swim_lane_rows import BANDS_FROM
from sfapp.model import DEFAULT_STAGES, Diagnosis, Window
from sfapp.model.arrays import to_numpy
from sfapp.model.window import NOT_MEASURED
from tests.builders import BACKWARD, CALLBACKS, DATA, FORWARD, MS, Ints, ddp_job, reduced, window_of


def judged(window: Window, reference: Window | None = None) -> tuple[Measures, Diagnosis]:
    measures = measure(window)
    healthy = None if reference is None else reference_of(measure(reference))
    return measures, judge(measures, None, "carry_over", healthy)


def lanes_of(window: Window, step: int | None = None, selected: tuple[int, ...] = ()) -> SwimLanes:
    return swim_lanes(*judged(window), step, selected)


def spent(lane: SwimLane, kind: str = "", stage: str = "") -> float:
    """Time of the step that is shown: of one kind or stage, or all of it."""
    return sum(
        block.duration_ns
        for block in lane.blocks
        if not block.is_before
        and block.kind in (kind or block.kind)
        and block.stage == (stage or block.stage)
    )


def slow(stage: str, ms: int = 60, **settings: int) -> Window:
    return window_of(ddp_job(extra={(stage, 3): ms * MS}, **settings))


def with_waits(duration_SNR: Ints) -> Window:
    """The job with the waiting in backward measured."""
    arrived_NR = duration_SNR[:2].sum(axis=0)
    wait_NR = np.minimum(arrived_NR.max(axis=1, keepdims=True) - arrived_NR, duration_SNR[2])
    return replace(window_of(duration_SNR), waits={BACKWARD: wait_NR})


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Any durations, with measured waits in some stage or none; not every wait is known."""
    steps, ranks = draw(st.integers(1, 12)), draw(st.integers(1, 9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    duration_SNR = generator.integers(0, draw(st.sampled_from([3, 1_000, 10**9])), (6, steps, ranks))
    if draw(st.booleans()):
        duration_SNR = ddp_job(ranks=ranks, steps=steps, seed=int(generator.integers(100)))
    window = window_of(duration_SNR)
    if not draw(st.booleans()):
        return window
    stage = draw(st.integers(0, 5))
    wait_NR = (duration_SNR[stage] * generator.random((steps, ranks))).astype(np.int64)
    wait_NR[generator.random((steps, ranks)) < 0.02] = NOT_MEASURED
    return replace(window, waits={DEFAULT_STAGES[stage]: wait_NR})


@settings(max_examples=60)
@given(windows(), st.booleans())
def test_blocks_of_a_lane_follow_each_other_from_its_start_to_the_end_of_its_step(
    window: Window, is_mean: bool
) -> None:
    found = lanes_of(window, None if is_mean else int(window.step_N[-1]))
    for lane in found.lanes:
        for one, next_ in zip(lane.blocks, lane.blocks[1:], strict=False):
            assert one.end_ns == pytest.approx(next_.start_ns, abs=1)
            assert one.duration_ns > 0
        shown = [block for block in lane.blocks if not block.is_before]
        if shown:
            assert shown[0].start_ns == pytest.approx(lane.step_start_ns, abs=1)
            assert lane.end_ns - lane.step_start_ns == pytest.approx(spent(lane), rel=1e-9, abs=1)
        assert not any(block.is_before for block in lane.blocks) or found.has_step_before


@settings(max_examples=60)
@given(windows())
def test_own_time_and_waiting_of_a_rank_are_its_recorded_durations_to_the_nanosecond(window: Window) -> None:
    step = len(window.step_N) - 1
    selected = window.ranks.rank
    found = lanes_of(window, int(window.step_N[step]), selected)
    alone = [lane for lane in found.lanes if lane.count == 1]
    assert {lane.ranks[0] for lane in alone} == set(selected)
    for lane in alone:
        place = window.ranks.rank.index(lane.ranks[0])
        for stage, name in enumerate(window.stages):
            duration = int(window.duration_SNR[stage, step, place])
            assert spent(lane, stage=name) == pytest.approx(duration, abs=1e-3)
            waits = window.waits.get(name)
            if waits is not None and (to_numpy(waits)[step] != NOT_MEASURED).all():
                assert spent(lane, "waiting", name) == pytest.approx(int(waits[step, place]), abs=1e-3)


@settings(max_examples=60)
@given(windows(), st.booleans())
def test_a_step_ends_with_its_slowest_rank_and_lasts_as_long_as_its_frontier(
    window: Window, is_mean: bool
) -> None:
    measures, diagnosis = judged(window)
    step = None if is_mean else int(window.step_N[-1])
    found = swim_lanes(measures, diagnosis, step, window.ranks.rank)
    last = max(lane.end_ns for lane in found.lanes)
    if step is not None:
        assert last == pytest.approx(found.end_ns, abs=1)
    else:  # different ranks may be the last in different steps
        assert last <= found.end_ns + 1
    if diagnosis.sync_boundary is not None and step is None and found.carried_in is None:
        assert found.end_ns - found.start_ns == pytest.approx(diagnosis.step_time.mean_ns, abs=1)


@settings(max_examples=30)
@given(windows())
def test_a_group_is_the_mean_of_its_ranks(window: Window) -> None:
    found = lanes_of(window)
    alone = lanes_of(window, selected=window.ranks.rank)
    lane_of = {lane.ranks[0]: lane for lane in alone.lanes if lane.count == 1}
    for lane in found.lanes:
        members = [lane_of[rank] for rank in lane.ranks]
        for name in window.stages:
            mean = sum(spent(member, stage=name) for member in members) / len(members)
            assert spent(lane, stage=name) == pytest.approx(mean, rel=1e-6, abs=1)
    assert sum(lane.count for lane in found.lanes) == len(window.ranks)


def test_a_late_callback_blocks_the_others_in_the_next_step() -> None:
    found = lanes_of(slow(CALLBACKS), 20)
    late, *others = found.lanes
    assert (late.kind, late.ranks) == ("suspect", (3,))
    # The callback of the step before begins where ranks synchronised, and the others already wait.
    callback = next(block for block in late.blocks if block.stage == CALLBACKS)
    assert callback.is_before
    assert callback.start_ns == pytest.approx(0, abs=1 * MS)
    assert callback.duration_ns == pytest.approx(61 * MS, abs=2 * MS)
    assert late.step_start_ns > 60 * MS
    assert spent(late, "waiting") == pytest.approx(0, abs=1 * MS)
    for lane in others:
        assert spent(lane, "waiting", BACKWARD) == pytest.approx(60 * MS, abs=3 * MS)
    assert [(arrow.stage, arrow.source, arrow.target) for arrow in found.arrows] == [
        (BACKWARD, 0, 1), (BACKWARD, 0, 2)
    ]  # fmt: skip
    assert all(arrow.start_ns == pytest.approx(arrow.end_ns, abs=1 * MS) for arrow in found.arrows)


def test_waiting_for_a_delay_before_the_window_does_not_enter_the_mean_step() -> None:
    duration_SNR = ddp_job()
    diagnosis = judged(window_of(duration_SNR))[1]
    healthy = swim_lanes(measure(window_of(duration_SNR)), diagnosis)
    # Given others that wait 600 ms in the first backward for a rank that began late
    duration_SNR[2, 0] += 600 * MS
    duration_SNR[2, 0, 5] -= 600 * MS
    measures = measure(window_of(duration_SNR, first_step=360))
    found = swim_lanes(measures, diagnosis)
    # Then the mean step is that of the other steps: it begins where ranks synchronised
    assert (healthy.carried_in, found.carried_in) == (None, 360)
    usual = spent(healthy.lanes[-1], stage=BACKWARD)
    for lane in found.lanes:
        assert lane.blocks[0].start_ns == pytest.approx(0, abs=3 * MS)
        assert spent(lane, stage=BACKWARD) == pytest.approx(usual, abs=5 * MS)
    # And the first step itself still shows the wait
    first = swim_lanes(measures, diagnosis, 360)
    assert max(spent(lane, stage=BACKWARD) for lane in first.lanes) > 600 * MS


def test_a_first_step_like_others_stays_in_the_mean_step() -> None:
    duration_SNR = ddp_job()
    diagnosis = judged(window_of(duration_SNR))[1]
    duration_SNR[3, 9::10, 5] += 600 * MS
    duration_SNR[2, ::10] += 600 * MS
    duration_SNR[2, ::10, 5] -= 600 * MS
    assert swim_lanes(measure(window_of(duration_SNR)), diagnosis).carried_in is None


def test_waiting_that_was_not_measured_is_called_inferred() -> None:
    duration_SNR = ddp_job(extra={(DATA, 3): 60 * MS})
    for window, is_inferred in ((window_of(duration_SNR), True), (with_waits(duration_SNR), False)):
        found = lanes_of(window)
        waits = [block for lane in found.lanes for block in lane.blocks if block.kind == "waiting"]
        assert waits
        assert {block.is_inferred for block in waits} == {is_inferred}
        assert found.main_wait is not None
        assert (found.main_wait.late, found.main_wait.is_inferred) == (3, is_inferred)


def test_only_measured_waits_reveal_a_rank_that_is_slow_inside_backward() -> None:
    duration_SNR = ddp_job()
    duration_SNR[2] += 60 * MS
    wait_NR = np.full(duration_SNR.shape[1:], 60 * MS)
    wait_NR[:, 5] = 0
    measured = lanes_of(replace(window_of(duration_SNR), waits={BACKWARD: wait_NR}))
    assert measured.main_wait is not None
    assert measured.main_wait.late == 5
    assert measured.lanes[0].ranks == (5,)
    hidden = lanes_of(window_of(duration_SNR))
    assert hidden.arrows == ()


def test_ranks_that_take_turns_get_no_arrow_in_the_mean_step_and_one_in_each_step() -> None:
    window = window_of(ddp_job(extra={(DATA, "random"): 60 * MS}))
    mean = lanes_of(window)
    assert mean.main_wait is not None
    assert (mean.main_wait.late, mean.arrows) == (None, ())
    one = lanes_of(window, 11)
    assert one.main_wait is not None
    late = one.main_wait.late
    assert {one.lanes[arrow.source].ranks for arrow in one.arrows} == {(late,)}


def test_the_first_step_has_no_step_before_it() -> None:
    found = lanes_of(slow(CALLBACKS), 0)
    assert not found.has_step_before
    assert not any(block.is_before for lane in found.lanes for block in lane.blocks)


def test_without_a_known_synchronisation_every_rank_begins_at_zero_and_nothing_waits() -> None:
    window = window_of(ddp_job(extra={(DATA, 3): 60 * MS}), steps=[*range(20), *range(30, 50)])
    found = lanes_of(window)
    assert found.sync_stage is None
    assert {lane.step_start_ns for lane in found.lanes} == {0.0}
    assert {block.kind for lane in found.lanes for block in lane.blocks} == {"own"}
    assert found.arrows == ()


def test_measured_waits_lay_ranks_together_where_steps_have_gaps() -> None:
    window = with_waits(ddp_job(extra={(DATA, 3): 60 * MS}))
    gaps = replace(window, step_N=np.array([*range(20), *range(30, 50)]))
    found = lanes_of(gaps, 35)
    ends = [max(b.end_ns for b in lane.blocks if b.stage == BACKWARD) for lane in found.lanes]
    assert found.sync_stage == BACKWARD
    assert max(ends) - min(ends) == pytest.approx(0, abs=1 * MS)
    assert found.arrows


def test_a_reduced_window_shows_the_rows_that_it_keeps() -> None:
    window = reduced(with_waits(ddp_job(extra={(DATA, 3): 60 * MS})))
    found = lanes_of(window)
    assert sum(lane.count for lane in found.lanes) == len(window.ranks)
    assert found.lanes[0].ranks == (3,)
    assert found.arrows


def test_suspect_slowest_and_selected_ranks_have_rows_and_the_rest_is_folded() -> None:
    found = lanes_of(slow(DATA, ranks=32), selected=(30, 31))
    assert [(lane.kind, lane.ranks) for lane in found.lanes[:3]] == [
        ("suspect", (3,)), ("selected", (30,)), ("selected", (31,))
    ]  # fmt: skip
    assert [lane.kind for lane in found.lanes[3:]] == ["typical", "others"]
    assert found.lanes[-1].count == 32 - 4


def test_selected_ranks_beyond_the_rows_are_counted() -> None:
    found = lanes_of(slow(DATA, ranks=32), selected=tuple(range(10, 26)))
    assert sum(lane.kind == "selected" for lane in found.lanes) == 12
    assert found.left_out == 4


def test_a_slow_node_has_a_row_of_its_own() -> None:
    extra = {(DATA, rank): 60 * MS for rank in range(8, 16)}
    found = lanes_of(window_of(ddp_job(ranks=24, extra=extra), ranks_per_node=8))
    (node,) = [lane for lane in found.lanes if lane.kind == "node"]
    suspects = {lane.ranks[0] for lane in found.lanes if lane.kind in ("suspect", "slowest")}
    assert node.name == "1"
    assert {*node.ranks} | suspects == {*range(8, 16)}
    assert spent(node, stage=DATA) == pytest.approx(62 * MS, abs=1 * MS)


def test_ranks_of_different_roles_are_not_folded_together() -> None:
    roles = ["dense"] * 4 + ["expert"] * 4
    found = lanes_of(window_of(ddp_job(), roles=roles))
    assert [lane.name for lane in found.lanes if lane.kind == "role"] == ["dense", "expert"]


def test_many_ranks_become_quantiles_next_to_the_suspect() -> None:
    found = lanes_of(slow(DATA, ranks=BANDS_FROM, steps=12))
    assert [(lane.kind, lane.name) for lane in found.lanes] == [
        ("suspect", ""), ("band", "max"), ("band", "p99"), ("band", "median"), ("band", "min")
    ]  # fmt: skip
    before = [spent(lane, stage=DATA) + spent(lane, stage=FORWARD) for lane in found.lanes]
    assert before == sorted(before, reverse=True)


def test_a_rank_that_did_not_report_has_an_empty_row() -> None:
    window = slow(DATA)
    window = replace(window, manifest=replace(window.manifest, missing_ranks=(8,), world_size=9))
    found = lanes_of(window)
    assert [(lane.kind, lane.ranks, lane.blocks) for lane in found.lanes if lane.kind == "missing"] == [
        ("missing", (8,), ())
    ]


def test_the_healthy_windows_are_the_last_row_from_the_same_moment_on() -> None:
    measures, diagnosis = judged(slow(CALLBACKS), window_of(ddp_job(), window=7))
    found = swim_lanes(measures, diagnosis)
    healthy = found.lanes[-1]
    assert (healthy.kind, healthy.count) == ("healthy", 0)
    assert healthy.blocks[0].start_ns == 0
    assert healthy.blocks[0].stage == CALLBACKS
    assert diagnosis.reference is not None
    assert spent(healthy) == pytest.approx(diagnosis.reference.step_time_ns, rel=1e-9)


def test_a_window_that_is_its_own_reference_has_no_healthy_row() -> None:
    window = window_of(ddp_job())
    found = swim_lanes(*judged(window, window))
    assert "healthy" not in {lane.kind for lane in found.lanes}
