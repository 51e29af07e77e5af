"""Starting training jobs on two ranks and looking at what they left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import sfapp
from sfapp.model import Window
from sfapp.packets import read_windows
from tests.forked_jobs import run_job as run_command
from tests.forked_ranks import HEAVY, forked

DATA = "data.next_wait"
STEPS, DELAY_NS = 6, 100_000_000


def run_job(script: str, root: Path, *job: str, modules: Sequence[str] = HEAVY) -> None:
    """Run a job of this folder on two ranks, forked once modules are imported."""
    command = forked(2, Path(__file__).parent / script, root, *job, modules=modules)
    result = run_command(command, timeout=180)
    assert result.returncode == 0, result.stderr[-5000:]


def only_window(root: Path, run_id: str) -> Window:
    (window,) = (item.window for item in read_windows([root]).windows if item.window.run_id == run_id)
    return window


def is_whole(window: Window) -> None:
    """All steps of both ranks in one packet, next to nothing outside stages."""
    assert window.manifest.gather_ok
    assert window.manifest.faults == ()
    assert window.ranks.rank == (0, 1)
    assert window.step_N.tolist() == list(range(STEPS))
    residual, wall = window.duration_SNR[-1].sum(), window.wall_NR.sum()
    assert int(residual) < 0.1 * int(wall)
    assert window.duration_SNR.sum(axis=0).tolist() == window.wall_NR.tolist()


def likely_cause_is_data_of_rank_1(window: Window) -> None:
    """Check that the 100 ms that rank 1 waits for data are in its data stage, and named."""
    diagnosis = sfapp.diagnose(window)
    data = [place for place, stage in enumerate(window.stages) if stage.startswith(DATA)]
    assert np.median(window.duration_SNR[data, :, 1].sum(axis=0)) >= DELAY_NS
    assert diagnosis.routing_set is not None
    assert DATA in diagnosis.routing_set
    assert diagnosis.aim is not None
    assert (diagnosis.aim.stage, diagnosis.aim.rank) == (DATA, 1)
