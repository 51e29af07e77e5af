"""Ranks that train over NCCL, rank 1 slow inside backward: waits are watched on the host and on the device.

``torchrun --nproc-per-node N gpu_wait_jobs.py FOLDER``
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sfapp import Recorder
from sfapp.model.stages import BACKWARD, FORWARD, OPTIMIZER

STEPS, WIDTH, SLOW_RANK, SLOW_CYCLES = 30, 512, 1, 40_000_000
"""So many cycles of a device are 20 ms and more at 2 GHz."""


class SlowOnDevice(torch.autograd.Function):
    """Identity whose gradient keeps the device of one rank busy."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == SLOW_RANK:
            torch.cuda._sleep(SLOW_CYCLES)
        return gradients[0]


slow_on_device: Callable[[torch.Tensor], torch.Tensor] = SlowOnDevice.apply


class SlowLayer(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return slow_on_device(x)


def main(folder: str) -> None:
    place = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", place)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    layers = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), SlowLayer(), torch.nn.Linear(WIDTH, WIDTH))
    model = DistributedDataParallel(layers.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch, total = torch.ones(64, WIDTH, device=device), torch.zeros(1, device=device)
    with Recorder(folder, run_id="nccl", window_steps=STEPS, event_fraction=0.5, wrapper="ddp") as perf:
        perf.watch_waits(model)
        for _ in range(STEPS):
            with perf.step():
                with perf.stage(FORWARD), perf.cuda_event_sample():
                    loss = model(batch).square().mean()
                with perf.stage(BACKWARD):
                    loss.backward()
                with perf.stage(OPTIMIZER):
                    optimizer.step()
                    optimizer.zero_grad()
                    total += loss.detach()
                    dist.all_reduce(total)
                    total.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
