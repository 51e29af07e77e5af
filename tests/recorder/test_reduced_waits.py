"""A reduced window with measured waits: leaders at the end of own time, against the same window gathered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.reduction import buffer_of, simulate
from sfapp.accounting import diagnose, measure, reference_of
from sfapp.errors import PacketError
from sfapp.model import Gates, RankIdentity, Window
from sfapp.model.window import NOT_MEASURED
from sfapp.packets import read_packet, validate_packet, write_packet
from sfapp.packets.packet_layout import MANIFEST_KEY, TEXT_COLUMNS
from sfapp.packets.write import parquet_bytes
from sfapp.recorder.transport.reduce_algorithm import reduce_window
from tests.accounting.test_own_time import without_waits
from tests.builders import BACKWARD, DATA, FORWARD, MS, reduced, window_of

STAGES = (DATA, FORWARD, BACKWARD, "step.other_cpu_wall")


def waiting_job(slow: int | None = None, ranks: int = 12, steps: int = 20) -> Window:
    """Ranks that meet at the end of backward, one of them slow inside it by 60 ms."""
    own_SNR = np.random.default_rng(0).integers(19 * MS, 21 * MS, (4, steps, ranks))
    own_SNR[3] = 0
    if slow is not None:
        own_SNR[2, :, slow] += 60 * MS
    arrived_NR = own_SNR.sum(axis=0)
    wait_NR = arrived_NR.max(axis=1, keepdims=True) - arrived_NR + MS
    own_SNR[2] += wait_NR
    return replace(window_of(own_SNR, stages=STAGES), waits={BACKWARD: wait_NR})


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Random durations and waits of one or two stages, some of which are not known."""
    ranks, steps = draw(st.integers(2, 12)), draw(st.integers(1, 8))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([2, 50_000_000]))
    duration_SNR = random.integers(0, most, (len(STAGES), steps, ranks), endpoint=True)
    waits = {}
    for stage in draw(st.lists(st.sampled_from(STAGES[:3]), min_size=1, max_size=2, unique=True)):
        wait_NR = (duration_SNR[STAGES.index(stage)] * random.random((steps, ranks))).astype(np.int64)
        unknown_NR = random.random((steps, ranks)) < draw(st.sampled_from([0, 0, 0.1]))
        waits[stage] = np.where(unknown_NR, NOT_MEASURED, wait_NR)
    return replace(window_of(duration_SNR, stages=STAGES), waits=waits)


@given(gathered=windows())
def test_leaders_and_own_advances_are_those_of_the_gathered_window(gathered: Window) -> None:
    window = reduced(gathered)
    full, small = measure(gathered), measure(window)

    ranks = np.array(small.led_by.rank)
    pairs = [(full, small), (full.carry(), small.carry())]
    for theirs, ours in pairs:
        assert theirs is not None
        assert ours is not None
        assert np.array_equal(theirs.leader_SN, ranks[ours.leader_SN])
        for name in ("advance_SN", "own_advance_SN", "gap_SN"):
            assert np.array_equal(getattr(theirs, name), getattr(ours, name)), name
    kept = list(window.ranks.rank)
    assert list(window.waits) == [stage for stage in STAGES if stage in gathered.waits]
    for stage, wait_NR in window.waits.items():
        assert np.array_equal(wait_NR, gathered.waits[stage][:, kept])

    gates = Gates(wait_slope=2, floor_ns=1)
    expected, found = diagnose(gathered, gates), diagnose(window, gates)
    assume(expected.sync_boundary is None)  # without all rows, ranks cannot be laid together where they wait
    for name in ("culprits", "leader", "eligible_steps", "switch_rate", "shares"):
        assert getattr(expected, name) == getattr(found, name), name
    assert (found.wait_advances_ns or {}) == (expected.wait_advances_ns or {})


def test_a_reduced_run_names_the_rank_that_is_slow_inside_backward() -> None:
    healthy = reduced(waiting_job())
    found = diagnose(reduced(waiting_job(slow=7)), reference=reference_of(measure(healthy)))

    assert found.aim is not None
    assert (found.aim.stage, found.aim.rank, found.aim.basis) == (BACKWARD, 7, "delta")
    assert found.aim.hostname == "node-1"
    assert found.wait_advances_ns == {BACKWARD: 20 * MS}
    assert found.own_excess is None  # it needs a median over all ranks


def test_such_a_packet_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    job = waiting_job(slow=7)
    wait_NR = np.array(job.waits[BACKWARD])
    wait_NR[3, 5] = NOT_MEASURED
    window = reduced(replace(job, waits={BACKWARD: wait_NR}))
    write_packet(window, tmp_path / "00000000.parquet")
    found = read_packet(tmp_path / "00000000.parquet").window

    assert validate_packet(tmp_path / "00000000.parquet") == []
    assert found.manifest == window.manifest
    assert found.reduced is not None
    assert found.reduced.own is not None
    assert window.reduced is not None
    assert window.reduced.own is not None
    for name, plane in window.reduced.own.planes().items():
        assert np.array_equal(found.reduced.own.planes()[name], plane), name
        assert (plane[0] == NOT_MEASURED).tolist() == [step == 3 for step in range(20)]
    assert np.array_equal(found.waits[BACKWARD], window.waits[BACKWARD])
    assert diagnose(found) == diagnose(window)
    assert "side_left_out" not in found.manifest.extra


def test_a_wait_that_contradicts_the_frontier_is_refused_with_its_place(tmp_path: Path) -> None:
    window = reduced(waiting_job(slow=7))
    wait_NR = np.array(window.waits[BACKWARD])
    place = window.ranks.rank.index(7)
    wait_NR[4, place] += 5

    with pytest.raises(PacketError, match="rank 7 contradicts the frontier at the end of own time"):
        write_packet(replace(window, waits={BACKWARD: wait_NR}), tmp_path / "00000000.parquet")


def test_an_own_frontier_behind_its_runner_up_is_refused(tmp_path: Path) -> None:
    window = reduced(waiting_job(slow=7))
    assert window.reduced is not None
    assert window.reduced.own is not None
    own = replace(window.reduced.own, carry_second_VN=window.reduced.own.carry_second_VN + 10**12)

    with pytest.raises(PacketError, match="lies behind its runner-up"):
        write_packet(replace(window, reduced=replace(window.reduced, own=own)), tmp_path / "00000000.parquet")


def received(waits: dict[str, int]) -> int:
    """Bytes that rank 0 receives of 100 steps, with waits of these many steps by stage on rank 1."""
    spent_NE = np.full((100, 5), 10 * MS)
    stages = (DATA, FORWARD, BACKWARD, "optim.step_cpu_wall", "callbacks.cpu_wall")
    parts = []
    for rank in range(8):
        measured = {stage: np.arange(100) for stage in waits} if rank == 1 else {}
        buffer = buffer_of(spent_NE, spent_NE.sum(axis=1), stages, waits=measured)
        parts.append(reduce_window(buffer, RankIdentity(rank, rank, 0, "node"), 8, "1"))
    return simulate(parts)[1]


def test_each_stage_with_waits_costs_rank_0_another_eight_kilobytes_at_most() -> None:
    without, one, two = received({}), received({BACKWARD: 1}), received({BACKWARD: 1, FORWARD: 1})

    assert without <= 64_000
    assert one - without <= 8_200
    assert two - one <= 8_200


def test_without_waits_nothing_of_them_is_in_the_packet() -> None:
    window = reduced(without_waits(waiting_job()))

    assert window.reduced is not None
    assert window.reduced.own is None
    assert window.manifest.reduced is not None
    assert window.manifest.reduced.waits == ()
    assert not window.waits


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda about: about["reduced"].update(waits=["elsewhere"]), "reduced.waits holds 'elsewhere'"),
        (lambda about: about["reduced"].update(waits=[BACKWARD] * 2), "or holds it twice"),
        (lambda about: about["reduced"].update(waits=[FORWARD]), "the column is missing"),
        (lambda about: about["reduced"].pop("waits"), ""),
    ],
)
def test_a_manifest_that_lists_other_waits_is_read_or_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    """Without the list, as a reader of an older version sees it, the rest of the packet holds."""
    path = tmp_path / "00000000.parquet"
    write_packet(reduced(waiting_job(slow=7)), path)
    table = pq.read_table(path)
    about = json.loads(pq.read_metadata(path).metadata[MANIFEST_KEY])
    change(about)
    path.write_bytes(parquet_bytes(table, MANIFEST_KEY, json.dumps(about).encode(), TEXT_COLUMNS))

    faults = validate_packet(path)

    assert bool(faults) == bool(reason)
    assert reason in " ".join(map(str, faults))
    if not reason:
        window = read_packet(path).window
        assert window.reduced is not None
        assert window.reduced.own is None
        assert diagnose(window).wait_advances_ns is None
