"""A rank of a job on two nodes that streams: live_rank.py ROOT ENDPOINT RANK SECONDS_A_STEP STEPS."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import sfapp
from sfapp.model import RankIdentity

root, endpoint, number, seconds, steps = sys.argv[1:]
rank = int(number)
with sfapp.Recorder(
    Path(root) / f"left-by-{rank}",
    run_id="streamed",
    window_steps=40,
    identity=RankIdentity(rank, rank % 2, rank // 2, f"node-{rank // 2}"),
    stream=endpoint,
    timeout=5.0,
) as perf:
    for _ in range(int(steps)):
        with perf.step(), perf.stage("data.next_wait"):
            time.sleep(float(seconds))
