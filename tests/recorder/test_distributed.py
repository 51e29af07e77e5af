"""The recorder in real torchrun jobs: gathering, disagreeing, waiting in vain, losing a rank."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from sfapp.model import Window
from sfapp.model.host_evidence import EVIDENCE_PREFIX, GC, cpu_channel
from sfapp.packets import read_windows
from tests.forked_jobs import run_job
from tests.forked_ranks import forked, forked_torchrun

pytestmark = pytest.mark.torchrun

JOBS = Path(__file__).parent / "gather_jobs.py"


def torchrun(root: Path, job: str, *options: str) -> subprocess.CompletedProcess[str]:
    return completed(forked_torchrun("--standalone", "--nproc-per-node=3", *options, JOBS, root, job))


def completed(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return run_job(command, timeout=120)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One job that runs every scenario which all ranks survive."""
    root = tmp_path_factory.mktemp("packets")
    result = completed(forked(3, JOBS, root, "together"))
    assert result.returncode == 0, result.stderr[-3000:]
    return root


def windows_of(root: Path, run_id: str) -> list[Window]:
    return [item.window for item in read_windows([root]).windows if item.window.run_id == run_id]


def files_of(root: Path, run_id: str, window: Window | None = None) -> list[str]:
    wanted = "" if window is None else f"{window.number:08d}"
    return sorted(path.name for path in (root / run_id).iterdir() if path.name.startswith(wanted))


def test_a_window_holds_what_every_rank_measured(together: Path) -> None:
    (window,) = windows_of(together, "measured")
    assert window.manifest.gather_ok
    assert window.manifest.recorder.backend == "gloo"
    assert window.manifest.overhead.gather_ns > 0
    assert 0 < window.manifest.overhead.record_ns < window.manifest.overhead.train_ns
    assert window.ranks.rank == (0, 1, 2)
    for rank in window.ranks.rank:
        lines = (together / f"measured.rank{rank}.txt").read_text().splitlines()
        measured = torch.tensor([[int(value) for value in line.split()] for line in lines])
        between, data, _, backward = window.duration_SNR[:4, :, rank].tolist()
        assert between == measured[:, 3].tolist()
        assert data == measured[:, 0].tolist()
        assert backward == measured[:, 1].tolist()
        assert window.wall_NR[:, rank].tolist() == measured[:, 2].tolist()


def test_side_channels_come_along_even_where_only_some_ranks_have_them(together: Path) -> None:
    (window,) = windows_of(together, "beside")
    own = [name for name in window.side if not name.startswith(EVIDENCE_PREFIX)]
    assert sorted(own) == ["common", "own.0", "own.1", "own.2"]
    common = window.side["common"]
    assert common.sampled_NR[:, 0].tolist() == [True, False, True, False, True]
    assert common.value_NR[4].tolist() == [4.0, 14.0, 24.0]
    assert window.side["own.1"].sampled_NR.any(axis=0).tolist() == [False, True, False]


@pytest.mark.parametrize("run_id", ["evidence", "evidence-local"])
def test_evidence_shows_the_rank_that_collects_garbage_and_the_one_that_is_blocked(
    together: Path, run_id: str
) -> None:
    """Rank 0 computes, rank 1 sleeps, and rank 2 collects garbage in the same stage."""
    (window,) = windows_of(together, run_id)
    wall_NR = window.duration_SNR[window.stages.index("data.next_wait")] * 1e-6
    computing_NR = window.side[cpu_channel("data.next_wait")].value_NR / wall_NR
    assert (computing_NR[:, 1] < 0.3).all()
    assert (window.side[GC].value_NR[1:, 2] > 0.3 * wall_NR[1:, 2]).all()
    assert (window.side[GC].value_NR[1:, :2] < 0.1 * wall_NR[1:, :2]).all()
    assert window.side[GC].sampled_NR[0].tolist() == [False, False, False]
    assert window.manifest.extra["host_evidence"]["recorded"]
    assert window.attributes["rack"] == ("r0", "r0", "r1")
    assert len(set(window.attributes["kernel"])) == 1


def test_ranks_that_gather_nothing_leave_parts_that_readers_put_together(together: Path) -> None:
    assert files_of(together, "local") == [f"00000000.rank{rank}.parquet" for rank in range(3)]
    (window,) = windows_of(together, "local")
    assert window.ranks.rank == (0, 1, 2)
    assert window.manifest.missing_ranks == ()


def test_where_operations_must_come_from_the_training_s_thread_it_gathers_all_windows_but_the_last(
    together: Path,
) -> None:
    assert files_of(together, "on-training-thread") == [
        "00000000.parquet",
        "00000001.parquet",
        *(f"00000002.rank{rank}.parquet" for rank in range(3)),
    ]
    *whole, last = windows_of(together, "on-training-thread")
    assert all(window.manifest.overhead.gather_ns > 0 for window in whole)
    assert [window.step_N.tolist() for window in whole] == [[*range(5)], [*range(5, 10)]]
    assert last.ranks.rank == (0, 1, 2)
    assert last.manifest.gather_ok


def test_the_training_s_own_group_is_undisturbed(together: Path) -> None:
    assert [(together / f"total.rank{rank}.txt").read_text() for rank in range(3)] == ["3", "3", "3"]


def test_a_change_closes_the_window_on_every_rank(together: Path) -> None:
    first, second, third = windows_of(together, "changes")
    assert [window.manifest.closed_by for window in (first, second, third)] == [
        "accumulation_change",
        "role_change",
        "shutdown",
    ]
    assert [len(window.step_N) for window in (first, second, third)] == [3, 2, 2]
    assert second.manifest.accumulation.factor == 2
    assert second.stages[:2] == ("step.between_cpu_wall", "data.next_wait[0]")
    assert second.ranks.role == (None, None, None)
    assert third.ranks.role == ("even", "odd", "even")
    assert (second.layout, third.layout) == ({}, {"dp": (0, 1, 2), "tp": (0, 0, 0)})
    assert all(window.manifest.gather_ok for window in (first, second, third))


def test_ranks_that_record_different_things_are_never_merged(together: Path) -> None:
    (window,) = windows_of(together, "disagreeing")
    assert "ranks disagree on accumulation: 2 collapsed" in (window.manifest.gather_error or "")
    assert window.manifest.faults == ("schema_mismatch",)
    assert window.manifest.missing_ranks == (1,)


def test_a_rank_that_leaves_a_step_out_costs_that_window_s_step_and_no_other(together: Path) -> None:
    first, second = windows_of(together, "left-out")
    assert files_of(together, "left-out") == [
        "00000000.rank0.parquet",
        "00000000.rank1.parquet",
        "00000000.rank2.parquet",
        "00000001.parquet",
    ]
    assert first.manifest.faults == ("step_misaligned",)
    assert "ranks disagree on steps: 4, 5" in (first.manifest.gather_error or "")
    assert first.step_N.tolist() == [0, 2, 3, 4]
    assert second.manifest.gather_ok
    assert second.step_N.tolist() == [5, 6, 7, 8, 9]


def test_short_windows_are_gathered_many_at_once_and_each_is_as_if_it_were_alone(together: Path) -> None:
    windows = windows_of(together, "several")
    assert [window.number for window in windows] == [*range(31)]
    assert [window.step_N.tolist() for window in windows[:13]] == [[2 * k, 2 * k + 1] for k in range(13)]
    assert [window.number for window in windows if len(files_of(together, "several", window)) > 1] == [13]
    assert windows[13].manifest.faults == ("step_misaligned",)
    assert windows[30].step_N.tolist() == [60]
    assert all(
        window.side["common"].value_NR[0].tolist() == [2 * window.number] * 3 for window in windows[:13]
    )
    own = [name for name in windows[27].side if not name.startswith(EVIDENCE_PREFIX)]
    assert sorted(own) == ["own.0", "own.1", "own.2"]  # of windows that have to be looked at
    took = [window.manifest.overhead.gather_ns for window in windows]
    assert len(set(took[:3])) == 3  # at first each goes alone
    assert [len(set(took[begin:end])) for begin, end in ((3, 5), (5, 7), (7, 10))] == [1, 1, 1]
    assert len(set(took[14:21])) == 1  # then many share one gather


def test_windows_that_wait_for_others_go_when_training_pauses(together: Path) -> None:
    assert [(together / f"paused.rank{rank}.txt").read_text() for rank in range(3)] == ["0", "0", "0"]
    windows = windows_of(together, "paused")
    assert [window.manifest.gather_ok for window in windows] == [True] * 12
    assert len({window.manifest.overhead.gather_ns for window in windows[10:]}) == 1


def test_a_dropped_window_is_reported_and_the_ranks_stay_together(together: Path) -> None:
    *early, last = windows_of(together, "dropped")
    lost = [window for window in early if window.manifest.missing_ranks]
    assert lost
    # on a busy machine the others may run ahead of their writers too; rank 0 does on any
    assert any(0 in window.manifest.missing_ranks for window in lost)
    assert any("dropped_steps" in window.manifest.faults for window in (*early, last))
    assert last.manifest.gather_ok
    assert last.ranks.rank == (0, 1, 2)
    assert last.step_N.tolist() == [30, 31, 32, 33, 34]


def test_ranks_that_wait_in_vain_leave_their_rows_and_go(together: Path) -> None:
    (window,) = windows_of(together, "late")
    assert files_of(together, "late") == [f"00000000.rank{rank}.parquet" for rank in range(3)]
    assert window.ranks.rank == (0, 1, 2)
    assert len(window.step_N) == 3
    assert "within 1 s" in (window.manifest.gather_error or "")
    # all rows are there after all, so nothing is held against the window
    assert window.manifest.gather_ok
    waited = [float((together / f"late.rank{rank}.txt").read_text()) for rank in (1, 2)]
    assert max(waited) < 2.4


def test_a_disk_that_refuses_rank_0_leaves_the_others_parts_every_time(together: Path) -> None:
    assert files_of(together, "refusing-disk") == [
        f"{number:08d}.rank{rank}.parquet" for number in (0, 1) for rank in (1, 2)
    ]
    first, _ = windows_of(together, "refusing-disk")
    assert first.manifest.missing_ranks == (0,)
    assert "rank 0 could not write the window" in (first.manifest.gather_error or "")


def test_rank_0_names_the_run(together: Path) -> None:
    assert files_of(together, "renamed-by-0") == ["00000000.parquet"]
    assert not (together / "renamed-by-1").exists()


def test_a_run_that_is_started_again_goes_on_after_the_windows_it_has(together: Path) -> None:
    assert files_of(together, "again") == ["00000000.parquet", "00000001.parquet"]
    assert not read_windows([together / "again"]).conflicts


def test_after_a_rank_that_stalled_once_ranks_gather_again(together: Path) -> None:
    windows = windows_of(together, "stalled")
    assert [window.ranks.rank for window in windows] == [(0, 1, 2)] * 20  # nothing is lost
    in_parts = [window.number for window in windows if len(files_of(together, "stalled", window)) == 3]
    assert in_parts == list(range(1, in_parts[-1] + 1))
    assert in_parts[-1] in (7, 15)  # the next attempt after it works, and so does all that follows
    assert "no response from the other ranks within 1 s" in (windows[1].manifest.gather_error or "")


def test_a_world_that_shrinks_is_recorded_before_and_after(together: Path) -> None:
    whole, cut_short, *after = windows_of(together, "smaller")
    assert whole.manifest.gather_ok
    assert whole.manifest.world_size == 3
    assert cut_short.ranks.rank == (0, 1, 2)
    assert "the world changed" in (cut_short.manifest.gather_error or "")
    assert [window.manifest.world_size for window in after] == [2]
    assert after[0].manifest.gather_ok
    assert after[0].step_N.tolist() == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("monitor_seconds", [0.1, 6.0], ids=["terminated by torchrun", "left to themselves"])
def test_when_a_rank_dies_the_survivors_save_their_rows_and_fail_as_they_would_have(
    tmp_path: Path, monitor_seconds: float
) -> None:
    begin = time.monotonic()
    result = torchrun(tmp_path, "killed", f"--monitor-interval={monitor_seconds}")
    first, second = windows_of(tmp_path, "killed")
    # the window before is whole, or at least every survivor's part of it is there
    assert {0, 1} <= set(first.ranks.rank)
    assert len(first.step_N) == 5
    assert second.ranks.rank == (0, 1)
    assert second.manifest.missing_ranks == (2,)
    assert second.manifest.closed_by == "shutdown"
    assert 5 in second.step_N.tolist()
    # the job failed for the training's own reason, and soon
    assert result.returncode != 0
    assert "sfapp" not in "".join(line for line in result.stderr.splitlines() if "Error:" in line)
    assert time.monotonic() - begin < monitor_seconds + 30


def test_a_rank_that_fails_ends_at_once_though_the_others_never_answer_it(tmp_path: Path) -> None:
    """And with it the job: its gather is still under way in native code, which may wait for half an hour."""
    begin = time.monotonic()
    result = torchrun(tmp_path, "failing", "--monitor-interval=0.1")
    assert "MemoryError" in result.stderr
    assert time.monotonic() - begin < 40
    _, second = windows_of(tmp_path, "failing")
    assert second.ranks.rank == (0, 1, 2)
    assert {5, 6, 7} <= set(second.step_N.tolist())
