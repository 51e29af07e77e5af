"""Real ranks of a job over Gloo whose calls torch's Flight Recorder records."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch


def dumped_by(job: Path, folder: Path, ranks: int, special: int) -> None:
    """Run a script as each rank of a job, which writes its dumps to a folder; skip where torch cannot.

    Args:
        job: takes folder, rank, number of ranks, port and the rank that behaves in another way.
    """
    if not hasattr(torch._C._distributed_c10d, "_dump_fr_trace"):
        pytest.skip("this torch has no Flight Recorder that records Gloo")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    command = [sys.executable, str(job), str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank), str(ranks), str(port), str(special)]) for rank in range(ranks)
    ]
    try:
        assert [process.wait(timeout=100) for process in processes] == [0] * ranks
    finally:
        for process in processes:
            process.kill()
            process.wait()
