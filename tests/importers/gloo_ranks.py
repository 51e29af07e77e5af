"""Real ranks of a job over Gloo whose calls torch's Flight Recorder records."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.forked_jobs import run_job
from tests.forked_ranks import forked


def dumped_by(job: Path, folder: Path, ranks: int, special: int) -> None:
    """Run a script as each rank of a job, which writes its dumps to a folder; skip where torch cannot.

    Args:
        job: takes folder and the rank that behaves in another way.
    """
    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"):
        pytest.skip("this torch has no Flight Recorder that records Gloo")
    command = forked(ranks, job, folder, str(special), modules=("torch.distributed",))
    result = run_job(command, timeout=100, environment={"TORCH_FR_BUFFER_SIZE": "2000"})
    assert result.returncode == 0, result.stderr[-3000:]
