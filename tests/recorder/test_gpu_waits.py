"""Waits on a CUDA device, over NCCL: test_device_waits.py and auto/test_script_waits.py with real events.

Needs one device; with two, the slow rank is found by the other's wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sfapp.model import Window
from sfapp.model.stages import BACKWARD, FORWARD_EVENT, OPTIMIZER
from sfapp.packets import read_window
from sfapp.recorder.side_channels.device_waits import device_wait_channel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torchrun,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

JOB = Path(__file__).parent / "gpu_wait_jobs.py"
SCRIPT = Path(__file__).parent / "auto" / "scripts" / "nccl_loop.py"
MS = 1e6


def torchrun(*arguments: str | Path) -> None:
    """Run a job of two ranks, or of one where there is only one device."""
    ranks = min(2, torch.cuda.device_count())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    result = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Window:
    root = tmp_path_factory.mktemp("packets")
    torchrun(JOB, root)
    return read_window(root)


@pytest.mark.parametrize("stage", [BACKWARD, OPTIMIZER])
def test_waits_over_nccl_are_timed_in_every_sampled_step(window: Window, stage: str) -> None:
    channel = window.side[device_wait_channel(stage)]
    assert channel.sampled_NR[:, 0].tolist() == [step % 2 == 1 for step in range(len(window.step_N))]
    # Each step has a wait of training's own for the device, so that all but the last have happened.
    values_R = channel.value_NR[1:-1:2]
    assert np.isfinite(values_R).all()
    assert (values_R >= 0).all()
    assert "side_faults" not in window.manifest.extra


def test_waits_on_the_device_lie_within_the_step(window: Window) -> None:
    device_N = window.side[device_wait_channel(BACKWARD)].value_NR[1:-1:2]
    assert (device_N < window.wall_NR[1:-1:2] / MS).all()
    assert window.side[FORWARD_EVENT].sampled_NR.any()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="with one device no rank waits for another")
def test_the_rank_that_is_not_slow_waits_on_its_device(window: Window) -> None:
    wait_R = np.nanmedian(window.side[device_wait_channel(BACKWARD)].value_NR, axis=0)
    assert wait_R[0] > wait_R[1] + 10.0  # rank 1 is slow by 20 ms inside backward


def test_an_unmodified_script_is_sampled_too(tmp_path: Path) -> None:
    recorded = ("-m", "sfapp.recorder.auto", "--run-id", "run", "--event-fraction", "0.5", "--out", tmp_path)
    torchrun(*recorded, SCRIPT)
    window = read_window(tmp_path)
    for stage in (BACKWARD, OPTIMIZER):
        channel = window.side[device_wait_channel(stage)]
        assert channel.sampled_NR[2:, 0].tolist() == [step % 2 == 1 for step in window.step_N[2:].tolist()]
        values_R = channel.value_NR[3:-1:2]
        assert np.isfinite(values_R).all()
        assert (values_R >= 0).all()
    assert "side_faults" not in window.manifest.extra
