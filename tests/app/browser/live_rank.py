"""A rank of a job on two nodes that streams: live_rank.py ROOT ENDPOINT RANK SECONDS_A_STEP STEPS.

While the file ``hold`` exists next to ROOT, the ranks wait in backward for rank 3, which reads a batch in a C
call that holds the interpreter lock, until it receives SIGUSR1.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from pathlib import Path

import sfapp
from sfapp.model import RankIdentity

root, endpoint, number, seconds, steps = sys.argv[1:]
rank = int(number)
hold = Path(root).parent / "hold"


def read_batch() -> None:
    time.sleep(float(seconds))
    if rank == 3 and hold.exists():
        ctypes.PyDLL(None).pause()


def wait_for_others() -> None:
    while rank != 3 and hold.exists():
        time.sleep(0.02)


signal.signal(signal.SIGUSR1, lambda number, frame: None)
with sfapp.Recorder(
    Path(root) / "left",
    run_id="streamed",
    window_steps=40,
    identity=RankIdentity(rank, rank % 2, rank // 2, f"node-{rank // 2}"),
    stream=endpoint,
    timeout=5.0,
) as perf:
    for _ in range(int(steps)):
        with perf.step():
            with perf.stage("data.next_wait"):
                read_batch()
            with perf.stage("model.backward_cpu_wall"):
                wait_for_others()
