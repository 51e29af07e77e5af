"""The recorder in real torchrun jobs: gathering, disagreeing, losing a rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sfapp.packets import LoadedWindow, read_windows

pytestmark = pytest.mark.torchrun

JOB = """
import os, signal, sys, time
import torch, torch.distributed as dist
import sfapp
from sfapp.model import Accumulation

out, what = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
perf = sfapp.Recorder(out, run_id="job", window_steps=5, wrapper="ddp", gather_timeout=5)
def train(steps):
    for _ in range(steps):
        with perf.step():
            with perf.stage("data.next_wait"):
                time.sleep(0.02 if rank == 1 else 0.0)
            with perf.stage("model.backward_cpu_wall"):
                model(torch.ones(2, 8)).sum().backward()
train(5)
if what == "accumulate":
    perf.reconfigure(accumulation=Accumulation(factor=2, ordered=False))
    train(5)
if what == "misalign":
    train(2)
    if rank == 2:  # this rank leaves one step out
        model(torch.ones(2, 8)).sum().backward()
        perf._step_number += 1
        train(2)
    else:
        train(3)
if what == "leave":
    train(3)
    if rank == 2:
        os._exit(0)
if what == "kill":
    train(3)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        train(50)
    except RuntimeError as error:  # the training's own error, not the recorder's
        begin = time.monotonic()
        perf.close()
        print(f"rank {rank} closed after {time.monotonic() - begin:.1f} s", flush=True)
        os._exit(0)
perf.close()
total = torch.ones(1)
if what in ("plain", "accumulate", "misalign"):
    dist.all_reduce(total)  # the training's group still works
print(f"rank {rank} total {int(total)} failures {perf.failures}", flush=True)
"""


def torchrun(tmp_path: Path, what: str, ranks: int = 3) -> tuple[str, list[LoadedWindow]]:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    result = subprocess.run(
        [*command, str(script), str(tmp_path / "packets"), what],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return result.stdout, list(read_windows([tmp_path / "packets"]).windows)


def test_a_window_holds_what_every_rank_measured(tmp_path: Path) -> None:
    printed, windows = torchrun(tmp_path, "plain")
    (window,) = [item.window for item in windows]
    assert window.ranks.rank == (0, 1, 2)
    assert window.manifest.gather_ok
    assert window.manifest.recorder.backend == "gloo"
    # only rank 1 sleeps before backward, and the sleep is where it was measured
    data_R = window.duration_SNR[0].double().mean(dim=0)
    assert float(data_R[1]) > 20e6 > 5e6 > float(data_R[0])
    assert window.manifest.overhead.gather_ns > 0
    assert printed.count("total 3 failures ()") == 3


def test_a_change_of_accumulation_closes_the_window_on_every_rank(tmp_path: Path) -> None:
    _, windows = torchrun(tmp_path, "accumulate")
    assert [item.window.manifest.accumulation.factor for item in windows] == [1, 2]
    assert all(item.window.manifest.gather_ok for item in windows)


def test_ranks_with_different_steps_leave_parts_that_are_cut_to_the_common_ones(tmp_path: Path) -> None:
    _, windows = torchrun(tmp_path, "misalign")
    second = windows[1].window
    assert len(windows[1].packets) == 3
    assert second.manifest.faults == ("step_misaligned",)
    assert not second.manifest.missing_ranks
    # rank 2 had steps 5, 6, 8, 9 when the others closed theirs with 5 to 9
    assert set(second.step_N.tolist()) <= {5, 6, 8, 9}


def test_a_rank_that_leaves_early_is_missing_and_the_others_rows_are_kept(tmp_path: Path) -> None:
    _, windows = torchrun(tmp_path, "leave")
    assert windows[0].window.manifest.gather_ok
    last = windows[1].window
    assert last.manifest.missing_ranks == (2,)
    assert not last.manifest.gather_ok
    assert last.ranks.rank == (0, 1)
    assert len(last.step_N) == 3


def test_a_killed_rank_fails_the_training_and_never_hangs_the_recorder(tmp_path: Path) -> None:
    printed, windows = torchrun(tmp_path, "kill")
    closed = [line for line in printed.splitlines() if "closed after" in line]
    assert all(float(line.split()[-2]) < 25 for line in closed)
    assert windows[0].window.manifest.gather_ok
