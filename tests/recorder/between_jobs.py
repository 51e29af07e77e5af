"""Four ranks under DistributedDataParallel, rank 2 late between its steps; not collected by pytest.

``torchrun --nproc-per-node 4 between_jobs.py FOLDER RUN …``; each RUN is a run of its own:
periodic (a pause after every tenth step), once (after one step), evaluating (all ranks, after every tenth).
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sfapp import Recorder

LATE_RANK, PAUSE_SECONDS = 2, 0.2
STEPS, EVERY, FIRST = 40, 10, 4


def pause(run_id: str, step: int) -> None:
    """Do what a training loop does outside of its steps: collect garbage, validate, write a checkpoint."""
    if step % EVERY != FIRST or (run_id == "once" and step != FIRST):
        return
    if run_id == "evaluating" or dist.get_rank() == LATE_RANK:
        time.sleep(PAUSE_SECONDS)


def train(folder: str, run_id: str) -> None:
    """Record one run of one window."""
    model = DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Recorder(folder, run_id=run_id, window_steps=STEPS, wrapper="ddp") as perf:
        for step in range(STEPS):
            with perf.step():
                with perf.stage("data.next_wait"):
                    inputs = torch.randn(8, 64)
                with perf.stage("model.fwd_loss_cpu_wall"):
                    loss = model(inputs).square().mean()
                    time.sleep(0.004)
                with perf.stage("model.backward_cpu_wall"):
                    loss.backward()
                with perf.stage("optim.step_cpu_wall"):
                    optimizer.step()
                    optimizer.zero_grad()
            pause(run_id, step)


def main(folder: str, *runs: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for run_id in runs:
        train(folder, run_id)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
