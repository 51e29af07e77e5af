"""Real ranks of a job over Gloo whose calls torch's Flight Recorder records."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.forked_ranks import forked


def dumped_by(job: Path, folder: Path, ranks: int, special: int) -> None:
    """Run a script as each rank of a job, which writes its dumps to a folder; skip where torch cannot.

    Args:
        job: takes folder and the rank that behaves in another way.
    """
    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"):
        pytest.skip("this torch has no Flight Recorder that records Gloo")
    command = forked(ranks, job, folder, str(special), modules=("torch.distributed",))
    subprocess.run(command, check=True, timeout=100, env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000"})
