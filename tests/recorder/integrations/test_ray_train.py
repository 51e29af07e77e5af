"""Ray Train's workers record their loop: ranks and nodes are those of its process group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.builders import BACKWARD, FORWARD
from tests.recorder.integrations.launching import DELAY_NS, STEPS, only_window

ROOT = Path(__file__).parents[3]


@pytest.mark.torchrun
def test_two_workers_write_one_packet_with_their_waits(tmp_path: Path) -> None:
    pytest.importorskip("ray.train", reason="needs ray[train], which no extra installs", exc_type=ImportError)
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ray_train_job.py")), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    window = only_window(tmp_path / "packets", "ray-train")
    assert (window.manifest.gather_ok, window.manifest.faults) == (True, ())
    assert window.ranks.rank == (0, 1)
    assert window.step_N.tolist() == list(range(STEPS))
    forward = np.median(window.duration_SNR[window.stages.index(FORWARD)], axis=0)
    assert forward[1] >= DELAY_NS > forward[0]
    assert np.median(window.waits[BACKWARD][:, 0]) > DELAY_NS / 2
