"""A window reduced over simulated ranks: what comes of it, against the same window gathered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.reduction import buffer_of, simulate
from sfapp.accounting import diagnose, measure, reference_of
from sfapp.errors import PacketError, WindowNotFoundError
from sfapp.model import Gates, Parallelism, RankIdentity, RecorderInfo, Window
from sfapp.packets import read_packet, validate_packet, write_packet
from sfapp.packets.compose import whole_draft
from sfapp.packets.job import JobInfo
from sfapp.recorder.transport.gather_errors import GatherRefused
from sfapp.recorder.transport.reduce_algorithm import LONGEST_NS, MOST_ROWS, reduce_window
from sfapp.recorder.transport.reduce_group import reduced_draft

STAGES = ("data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall", "optim.step_cpu_wall")

JOB = JobInfo(
    root=Path("packets"),
    run_id="reduced",
    world_size=1,
    wrapper="ddp",
    parallelism=Parallelism(),
    prefetch="aligned",
    model_fit=False,
    recorder=RecorderInfo(),
)


def place(rank: int) -> RankIdentity:
    return RankIdentity(rank, rank % 4, rank // 4, f"host-{rank // 4}")


def both_ways(spent_RNE: np.ndarray, over_RN: np.ndarray, first_step: int = 0) -> tuple[Window, Window, int]:
    """The same window gathered and reduced, and the bytes that reducing put down on rank 0."""
    ranks = len(spent_RNE)
    job = replace(JOB, world_size=ranks)
    buffers = [
        buffer_of(spent_NE, np.maximum(0, spent_NE.sum(axis=1) + over_N), STAGES, first_step)
        for spent_NE, over_N in zip(spent_RNE, over_RN, strict=True)
    ]
    everyone = [place(rank) for rank in range(ranks)]
    rows = np.stack([buffer.rows() for buffer in buffers])
    gathered = whole_draft(job, buffers[0], rows, (), everyone, 0).window()
    parts = [reduce_window(b, i, ranks, "1") for b, i in zip(buffers, everyone, strict=True)]
    found, received = simulate(parts)
    return gathered, reduced_draft(job, buffers[0], found, 0).window(), received


@st.composite
def jobs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Durations [R, N, E], many of them equal, and what wall times have beyond them or lack [R, N]."""
    ranks, steps = draw(st.integers(2, 12)), draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([2, 50_000_000, 1_800_000_000_000 // steps]))
    spent = random.integers(0, most, (ranks, steps, len(STAGES)), endpoint=True)
    over = random.integers(-min(most, 10_000_000), 10_000_000, (ranks, steps))
    return spent.astype(np.int64), over.astype(np.int64)


@given(job=jobs(), frontier=st.sampled_from(["step", "carry_over"]))
def test_the_accounting_of_a_reduced_window_is_that_of_the_gathered_one_to_the_last_bit(
    job: tuple[np.ndarray, np.ndarray], frontier: str
) -> None:
    gathered, reduced, _ = both_ways(*job)
    full, small = measure(gathered), measure(reduced)

    for name in ("frontier_SN", "advance_SN", "gap_SN", "max_SN", "mean_SN", "first_rank_SN"):
        assert np.array_equal(getattr(full, name), getattr(small, name)), name
    ranks = np.array(small.led_by.rank)
    assert np.array_equal(full.leader_SN, ranks[small.leader_SN])
    carried, carried_small = full.carry(), small.carry()
    assert carried is not None
    assert carried_small is not None
    for name in ("frontier_SN", "advance_SN", "gap_SN", "start"):
        assert np.array_equal(getattr(carried, name), getattr(carried_small, name)), name
    assert np.array_equal(carried.leader_SN, ranks[carried_small.leader_SN])
    assert full.closure == small.closure

    gates = Gates(wait_slope=2, floor_ns=1)
    theirs = diagnose(gathered, gates, frontier=frontier)
    assume(theirs.sync_boundary is None)  # without all rows, ranks cannot be laid together where they wait
    ours = diagnose(reduced, gates, frontier=frontier)
    for name in (
        *("exposed_makespan_ns", "advances_ns", "carry_over_advances_ns", "shares", "carry_over_shares"),
        *("step_time", "routing_set", "leader", "switch_rate", "eligible_steps", "culprits", "ranks"),
        *("closure_residual_share", "overlap_error_share", "missing_ranks", "nodes", "first_step"),
    ):
        assert getattr(theirs, name) == getattr(ours, name), name
    by_rule = {rival.rule: rival for rival in theirs.rivals}
    assert all(rival == by_rule[rival.rule] for rival in ours.rivals)


@given(job=jobs())
def test_rows_that_are_kept_are_those_of_their_ranks(job: tuple[np.ndarray, np.ndarray]) -> None:
    gathered, reduced, _ = both_ways(*job)
    kept = list(reduced.ranks.rank)
    assert np.array_equal(reduced.duration_SNR, gathered.duration_SNR[:, :, kept])
    assert np.array_equal(reduced.wall_NR, gathered.wall_NR[:, kept])
    assert [reduced.ranks.identity(at) for at in range(len(kept))] == [place(rank) for rank in kept]
    assert len(kept) == min(MOST_ROWS, len(gathered.ranks))
    assert 0 in kept


def test_results_that_need_every_ranks_rows_are_absent_with_a_reason() -> None:
    gathered, reduced, _ = both_ways(*late_data(ranks=16))
    found = diagnose(reduced)

    assert "reduced_rows" in found.reasons
    for absent in ("static_gain", "excess", "takeover", "wait_fit", "exposed_imbalance", "severity"):
        assert getattr(found, absent) is None, absent
    assert {rival.rule for rival in found.rivals} == {"per_stage_max", "per_stage_mean", "rank_0"}
    lines = {line.name: line for line in found.aim.evidence} if found.aim else {}
    assert lines["static_gain"].reason == lines["excess"].reason == lines["wait_fit"].reason == "reduced_rows"
    assert not {"direct_exposure", "sync_wait_dependent"} & set(found.label_names)
    assert diagnose(gathered).static_gain is not None


def test_a_reduced_run_still_names_stage_and_rank_against_its_healthy_window() -> None:
    _, healthy, _ = both_ways(*late_data(ranks=16, late_ms=0))
    _, sick, _ = both_ways(*late_data(ranks=16))
    found = diagnose(sick, reference=reference_of(diagnose(healthy)))

    assert found.aim is not None
    assert (found.aim.stage, found.aim.basis, found.aim.rank) == ("data.next_wait", "delta", 11)
    assert found.aim.hostname == "host-2"
    assert found.severity == pytest.approx(0.5, abs=0.1)


def test_leaders_beyond_those_with_rows_are_named_with_their_host_and_the_rest_by_number() -> None:
    spent = np.full((64, 64, len(STAGES)), 1_000_000)
    spent[np.arange(64), np.arange(64), 0] += 50_000_000  # every rank leads one step
    _, reduced, _ = both_ways(spent, np.zeros((64, 64), dtype=np.int64))
    hosts = dict(zip(reduced.led_by.rank, reduced.led_by.hostname, strict=True))

    assert sorted(hosts) == list(range(64))
    known = {rank: host for rank, host in hosts.items() if host}
    assert len(known) == 24
    assert all(host == place(rank).hostname for rank, host in known.items())


def test_rank_0_receives_as_much_from_64_ranks_as_from_1024() -> None:
    received = [both_ways(*late_data(ranks=ranks, steps=20))[2] for ranks in (64, 1_024)]
    assert received[0] == received[1]


def test_a_reduced_packet_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    _, reduced, _ = both_ways(*late_data(ranks=16))
    write_packet(reduced, tmp_path / "00000000.parquet")
    window = read_packet(tmp_path / "00000000.parquet").window

    assert validate_packet(tmp_path / "00000000.parquet") == []
    assert window.manifest == reduced.manifest
    assert window.reduced is not None
    assert reduced.reduced is not None
    for name, plane in reduced.reduced.planes().items():
        assert np.array_equal(window.reduced.planes()[name], plane), name
    assert diagnose(window) == diagnose(reduced)


def test_a_kept_row_that_contradicts_the_frontier_is_refused_with_its_place(tmp_path: Path) -> None:
    _, reduced, _ = both_ways(*late_data(ranks=16))
    duration = reduced.duration_SNR.copy()
    duration[1, 3, 2] += 10**12
    with pytest.raises(PacketError, match=r"rank \d+ lies beyond the frontier"):
        write_packet(replace(reduced, duration_SNR=duration), tmp_path / "00000000.parquet")


def test_a_reduced_window_has_no_groups_but_all_ranks() -> None:
    _, reduced, _ = both_ways(*late_data(ranks=16))
    assert reduced.groups == ("all",)
    with pytest.raises(WindowNotFoundError, match="there are: all"):
        reduced.of_group("node:0")


def test_ranks_with_other_steps_all_refuse_and_report_the_difference() -> None:
    spent = np.ones((5, len(STAGES)), dtype=np.int64)
    wall = spent.sum(axis=1)
    buffers = [buffer_of(spent, wall, STAGES), buffer_of(spent[:4], wall[:4], STAGES)]
    parts = [reduce_window(b, place(rank), 2, "1") for rank, b in enumerate(buffers)]
    with pytest.raises(GatherRefused, match="ranks disagree on steps: 4, 5"):
        simulate(parts)


def test_a_window_too_long_to_be_packed_is_refused() -> None:
    spent = np.full((1, len(STAGES)), LONGEST_NS // 4)
    wall = spent.sum(axis=1)
    parts = [reduce_window(buffer_of(spent, wall, STAGES), place(rank), 2, "1") for rank in range(2)]
    with pytest.raises(GatherRefused, match=r"2\.4 hours is too long"):
        simulate(parts)


def late_data(ranks: int, steps: int = 40, late_ms: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Rank 11's loader is late in every step and the others wait for it in backward."""
    spent = np.tile(np.array([5, 30, 60, 5], dtype=np.int64) * 1_000_000, (ranks, steps, 1))
    spent += np.random.default_rng(0).integers(0, 1_000_000, spent.shape)
    spent[:, :, 2] += late_ms * 1_000_000
    spent[11, :, 0] += late_ms * 1_000_000
    spent[11, :, 2] -= late_ms * 1_000_000
    return spent, np.zeros((ranks, steps), dtype=np.int64)
