"""A training job that records the same steps twice, gathered and reduced; started under torchrun.

reduce_jobs.py FOLDER
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import sfapp

BACKWARD = "model.backward_cpu_wall"
STAGES = ("data.next_wait", "model.fwd_loss_cpu_wall", BACKWARD, "optim.step_cpu_wall")
WINDOW = 12

root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


def record(gathered: sfapp.Recorder, reduced: sfapp.Recorder, steps: int) -> None:
    """The same numbers into both, as if each had timed them."""
    draw = random.Random(rank)
    for _ in range(steps):
        spent = {stage: draw.randrange(1_000_000, 9_000_000) for stage in STAGES}
        spent["data.next_wait"] += 20_000_000 * (rank == 5)
        waits = {BACKWARD: draw.randrange(spent[BACKWARD])}
        for perf in (gathered, reduced):
            perf.add_step(sum(spent.values()) + 50_000, [spent], waits=[waits])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    settings: dict[str, Any] = {"window_steps": WINDOW, "stages": STAGES, "timeout": 10.0, "roles": "dp"}
    settings["layout"] = {"dp": rank // 2, "pp": rank % 2}
    gathered = sfapp.Recorder(root, run_id="gathered", **settings)
    # Other names on other ranks: the run is called as rank 0 calls it.
    reduced = sfapp.Recorder(root, run_id="reduced" if rank == 0 else f"r{rank}", gather="reduce", **settings)
    if rank == 5:  # a fault, seen by one rank alone
        with reduced.stage("data.next_wait"):
            pass
    record(gathered, reduced, WINDOW)
    record(gathered, reduced, WINDOW - 2 * (rank == 3))  # rank 3 ends early: its window is short
    gathered.close()
    reduced.close()
    dist.barrier()
    dist.destroy_process_group()
