"""A rank of a job without torch.distributed: rank_job.py ROOT ENDPOINT RANK STEPS SECONDS_A_STEP.

Half way through, in the middle of a window, it waits for the file ``go on`` in ROOT.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import sfapp
from sfapp.model import RankIdentity
from sfapp.stream import StreamOptions

root, endpoint, rank, steps, seconds = sys.argv[1:]
options = StreamOptions(endpoint=endpoint, batch_seconds=0.05)
with sfapp.Recorder(
    Path(root) / f"left-by-{rank}",
    run_id="run",
    window_steps=10,
    identity=RankIdentity(int(rank), int(rank), 0, "node-0"),
    stream=options,
    timeout=20.0,
) as perf:
    for step in range(int(steps)):
        while step >= int(steps) // 2 + 5 and not (Path(root) / "go on").exists():
            time.sleep(0.01)
        with perf.step(), perf.stage("data.next_wait"):
            time.sleep(float(seconds))
            perf.observe("number", 1000.0 * int(rank) + step)
