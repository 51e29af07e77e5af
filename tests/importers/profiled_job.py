"""Two ranks that train with DistributedDataParallel over Gloo under torch.profiler; rank 1 waits for data.

profiled_job.py FOLDER
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset


class SlowPairs(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that rank 1 waits for."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index % 8 == 0 and dist.get_rank() == 1:
            time.sleep(0.06)
        return torch.randn(128), torch.randn(1)


def main(folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(128, 128) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(128, 1)), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=5, repeat=1),
        on_trace_ready=tensorboard_trace_handler(folder, use_gzip=dist.get_rank() == 0),
    ) as profiler:
        for inputs, targets in DataLoader(SlowPairs(), batch_size=8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            profiler.step()
    dist.barrier()
    # Otherwise its reducer frees the process group later, and waits with the GIL for a thread that needs it.
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
