"""``gather="reduce"`` in a real torchrun job over Gloo, beside a gather of the same steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfapp.accounting import measure
from sfapp.model import Window
from sfapp.packets import read_windows
from tests.forked_jobs import run_job
from tests.forked_ranks import forked

pytestmark = pytest.mark.torchrun

RANKS = 8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packets")
    job = Path(__file__).parent / "reduce_jobs.py"
    result = run_job(forked(RANKS, job, folder), timeout=180)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


def window(root: Path, run_id: str, number: int) -> Window:
    found = [each.window for each in read_windows([root / run_id]).windows if each.window.number == number]
    return found[0]


def test_ranks_find_the_frontier_that_a_gather_would_have_brought(root: Path) -> None:
    full, small = measure(window(root, "gathered", 0)), measure(window(root, "reduced", 0))

    assert (full.frontier_SN == small.frontier_SN).all()
    assert (full.gap_SN == small.gap_SN).all()
    ranks = np.array(small.led_by.rank)
    assert np.array_equal(full.leader_SN, ranks[small.leader_SN])
    carried, reduced = full.carry(), small.carry()
    assert carried is not None
    assert reduced is not None
    assert (carried.frontier_SN == reduced.frontier_SN).all()
    assert full.closure == small.closure


def test_leaders_of_a_stage_with_waits_are_taken_at_the_end_of_own_time(root: Path) -> None:
    gathered, reduced = window(root, "gathered", 0), window(root, "reduced", 0)
    full, small = measure(gathered), measure(reduced)

    backward = gathered.stages.index("model.backward_cpu_wall")
    assert list(reduced.waits) == ["model.backward_cpu_wall"]
    assert (full.own_advance_SN[backward] < full.advance_SN[backward]).any()
    assert (full.own_advance_SN == small.own_advance_SN).all()
    kept = list(reduced.ranks.rank)
    for stage, wait_NR in reduced.waits.items():
        assert np.array_equal(wait_NR, gathered.waits[stage][:, kept])


def test_the_packet_holds_the_rows_of_a_few_ranks_and_the_list_of_all(root: Path) -> None:
    full, small = window(root, "gathered", 0), window(root, "reduced", 0)
    kept = list(small.ranks.rank)

    assert len(kept) == 6
    assert {0, 5} <= set(kept)
    assert np.array_equal(small.duration_SNR, full.duration_SNR[:, :, kept])
    places = [full.ranks.identity(rank) for rank in kept]
    assert [small.ranks.identity(place) for place in range(6)] == [
        replace(place, attributes={}) for place in places
    ]
    assert list(small.layout["dp"]) == [rank // 2 for rank in kept]
    assert small.manifest.reduced is not None
    assert (small.manifest.reduced.ranks, small.manifest.world_size) == (RANKS, RANKS)
    assert small.manifest.missing_ranks == ()
    assert [path.name for path in (root / "reduced").glob("00000000*")] == ["00000000.parquet"]


def test_where_one_rank_has_fewer_steps_every_rank_leaves_its_part_with_the_reason(root: Path) -> None:
    second = window(root, "reduced", 1)

    assert second.reduced is None
    assert second.ranks.rank == tuple(range(RANKS))
    assert second.manifest.gather_error == "ranks disagree on steps: 10, 12"
    assert "step_misaligned" in second.manifest.faults


def test_what_one_rank_saw_go_wrong_reaches_the_packet(root: Path) -> None:
    manifest = window(root, "reduced", 0).manifest
    assert manifest.faults == ("stage_outside_step",)
    assert manifest.extra["faults_seen"] == {"stage_outside_step": "rank 5"}
