"""A training job of four ranks, rank 2 slow at loading, that trains until stopped; not collected by pytest.

capture_jobs.py FOLDER      trains until FOLDER/enough is there
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import sfapp
from sfapp.model.capture import CaptureLimits

SLOW_RANK, SLOW_SECONDS = 2, 0.03
WINDOW = 40

root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


class SlowRows(Dataset[torch.Tensor]):
    """One batch a sample; on one rank it takes long to read."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(SLOW_SECONDS if rank == SLOW_RANK else 0.001)
        return torch.ones(32)


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    enough = torch.zeros(1)
    limits = CaptureLimits(cooldown_seconds=0.0)
    with sfapp.Recorder(root, run_id="job", window_steps=WINDOW, wrapper="ddp", captures=limits) as perf:
        for batch in perf.batches(DataLoader(SlowRows(), batch_size=4)):
            with perf.step():
                # In the step: after it, a profiler that starts later on one rank would be the delay to name.
                enough.fill_(float((root / "enough").exists()))
                dist.all_reduce(enough, op=dist.ReduceOp.MAX)
                with perf.stage("model.fwd_loss_cpu_wall"):
                    loss = model(batch).square().mean()
                with perf.stage("model.backward_cpu_wall"):
                    loss.backward()
                with perf.stage("optim.step_cpu_wall"):
                    optimizer.step()
                    optimizer.zero_grad()
            if enough.item():
                break
    (root / f"rank{rank}.txt").write_text(str(perf.failures))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
