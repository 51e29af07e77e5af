"""A rank that is slow inside the stage in which ranks wait: own time tells which (accounting.md §15)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfapp.accounting import diagnose, measure, reference_of
from sfapp.model import Diagnosis, Window
from sfapp.model.window import NOT_MEASURED
from tests.builders import BACKWARD, DATA, FORWARD, MS, Ints, window_of

STAGES = (DATA, FORWARD, BACKWARD)


def waiting_job(
    slow: int | None = None, by: int = 60 * MS, transfer: int = 1 * MS, ranks: int = 4, steps: int = 40
) -> Window:
    """Ranks that meet at the end of backward, one of them slow inside it; waits are known."""
    generator = np.random.default_rng(0)
    own = generator.integers(19 * MS, 21 * MS, (3, steps, ranks))
    if slow is not None:
        own[2, :, slow] += by
    arrived_NR = own.sum(axis=0)
    wait_NR = arrived_NR.max(axis=1, keepdims=True) - arrived_NR + transfer
    duration_SNR = own.copy()
    duration_SNR[2] += wait_NR
    window = window_of(duration_SNR, stages=STAGES)
    return replace(window, waits={BACKWARD: wait_NR})


def without_waits(window: Window) -> Window:
    return replace(window, waits={})


def test_a_rank_slow_inside_backward_is_named_only_where_waits_are_known() -> None:
    window = waiting_job(slow=2)
    hidden = diagnose(without_waits(window))
    assert hidden.is_healthy
    found = diagnose(window)
    assert found.aim is not None
    assert (found.aim.stage, found.aim.rank, found.aim.basis) == (BACKWARD, 2, "excess")
    assert found.severity == pytest.approx(60 / 121, abs=0.02)


def test_with_a_healthy_reference_it_is_named_too() -> None:
    healthy = reference_of(measure(waiting_job()))
    found = diagnose(waiting_job(slow=2), reference=healthy)
    hidden = diagnose(
        without_waits(waiting_job(slow=2)), reference=reference_of(measure(without_waits(waiting_job())))
    )
    assert found.aim is not None
    assert hidden.aim is not None
    assert (found.aim.stage, found.aim.rank, found.aim.basis) == (BACKWARD, 2, "delta")
    assert (hidden.aim.stage, hidden.aim.rank_reason) == (BACKWARD, "all_ranks")


def test_a_slow_transfer_is_no_ranks_fault() -> None:
    healthy = reference_of(measure(waiting_job()))
    found = diagnose(waiting_job(transfer=60 * MS), reference=healthy)
    assert found.aim is not None
    assert (found.aim.stage, found.aim.rank_reason) == (BACKWARD, "all_ranks")
    assert found.wait_advances_ns is not None
    assert found.wait_advances_ns[BACKWARD] == 40 * 60 * MS


def test_jitter_inside_backward_is_no_ranks_fault() -> None:
    own_SNR = np.full((3, 40, 8), 20 * MS)
    slow_N = np.random.default_rng(3).integers(8, size=40)
    own_SNR[2, np.arange(40), slow_N] += 15 * MS
    wait_NR = own_SNR[2].max(axis=1, keepdims=True) - own_SNR[2]
    duration_SNR = own_SNR.copy()
    duration_SNR[2] += wait_NR
    found = diagnose(replace(window_of(duration_SNR, stages=STAGES), waits={BACKWARD: wait_NR}))
    assert found.is_healthy


def test_a_step_in_which_one_rank_has_no_wait_is_not_split() -> None:
    window = waiting_job(slow=2)
    wait_NR = np.asarray(window.waits[BACKWARD]).copy()
    wait_NR[::2, 1] = NOT_MEASURED
    found, whole, split = (
        measure(replace(window, waits=waits)) for waits in ({BACKWARD: wait_NR}, {}, dict(window.waits))
    )
    assert (found.leader_SN[2, ::2] == whole.leader_SN[2, ::2]).all()
    assert (found.leader_SN[2, 1::2] == split.leader_SN[2, 1::2]).all()
    assert (split.leader_SN[2] == 2).all()


def test_a_group_of_ranks_keeps_its_waits() -> None:
    window = waiting_job(slow=2, ranks=8)
    found = diagnose(window.of_group("node:0"))
    assert found.aim is not None
    assert found.aim.rank == 2


@st.composite
def split_windows(draw: st.DrawFn) -> Window:
    shape = (3, draw(st.integers(1, 12)), draw(st.integers(1, 5)))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    duration_SNR: Ints = generator.integers(0, 50 * MS, shape)
    waits = {}
    for place, stage in enumerate(STAGES):
        if draw(st.booleans()):
            wait_NR = (duration_SNR[place] * generator.random(shape[1:])).astype(np.int64)
            unknown = generator.random(shape[1:]) < draw(st.sampled_from((0.0, 0.1)))
            waits[stage] = np.where(unknown, NOT_MEASURED, wait_NR)
    return replace(window_of(duration_SNR, stages=STAGES), waits=waits)


BROAD_NUMBERS = (
    *("advances_ns", "carry_over_advances_ns", "shares", "carry_over_shares", "routing_set", "static_gain"),
    *("excess", "carry_over_excess", "takeover", "wait_fit", "sync_boundary", "step_time", "rivals"),
    "closure_residual_share",
)


@given(window=split_windows())
def test_no_split_changes_a_broad_number_or_the_leader_of_another_stage(window: Window) -> None:
    split, whole = measure(window), measure(without_waits(window))
    found, plain = diagnose(window), diagnose(without_waits(window))
    for name in BROAD_NUMBERS:
        assert getattr(found, name) == getattr(plain, name), name
    elsewhere = [place for place, stage in enumerate(STAGES) if stage not in window.waits]
    assert (split.leader_SN[elsewhere] == whole.leader_SN[elsewhere]).all()
    assert (split.advance_SN == whole.advance_SN).all()
    for frontier in (split, split.carry()):
        if frontier is not None:
            assert (frontier.own_advance_SN >= 0).all()
            assert (frontier.own_advance_SN <= frontier.advance_SN).all()


@given(window=split_windows())
def test_leaders_are_those_of_the_expanded_list(window: Window) -> None:
    complete = {stage: np.maximum(np.asarray(wait_NR), 0) for stage, wait_NR in window.waits.items()}
    window = replace(window, waits=complete)
    planes, own_ends = [], {}
    for place, stage in enumerate(STAGES):
        wait_NR = complete.get(stage)
        own_NR = window.duration_SNR[place] if wait_NR is None else window.duration_SNR[place] - wait_NR
        own_ends[place] = len(planes)
        planes += [own_NR] if wait_NR is None else [own_NR, wait_NR]
    prefix = np.cumsum(planes, axis=0)
    found = measure(window)
    for place, end in own_ends.items():
        assert (found.leader_SN[place] == prefix[end].argmax(axis=-1)).all()


def test_a_verdict_with_waits_survives_its_json() -> None:
    found = diagnose(waiting_job(slow=2))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnosis) == found
