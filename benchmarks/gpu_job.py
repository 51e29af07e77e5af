"""Training job for ``benchmarks.gpu``, which reports its forward, waits and device waits; started by
torchrun.

gpu_job.py FOLDER BACKEND DEVICE STEPS: BACKEND is ``nccl``, one device a rank, or ``gloo``, all ranks on the
same device; DEVICE is ``cuda`` or ``cpu``. The last of several ranks is slow by 10 ms inside backward.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import sfapp
from benchmarks.gpu_training import Encoder
from sfapp.model.stages import BACKWARD, DATA, FORWARD, OPTIMIZER

SLOW_SECONDS = 0.01


class SlowGpuBackward(torch.autograd.Function):
    """Identity whose gradient takes long to compute on one rank."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, is_slow: bool) -> torch.Tensor:
        ctx.is_slow = is_slow
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.is_slow:
            end = time.perf_counter() + SLOW_SECONDS
            while time.perf_counter() < end:
                pass
        return gradients[0], None


slow_backward: Callable[[torch.Tensor, bool], torch.Tensor] = SlowGpuBackward.apply


def train(root: Path, device: torch.device, steps: int) -> None:
    """Record one window of DistributedDataParallel, with waits and with events in every step."""
    ranks = dist.get_world_size()
    is_slow = ranks > 1 and dist.get_rank() == ranks - 1
    model = DistributedDataParallel(Encoder(width=256, layers=2).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    total = torch.zeros(1, device=device)
    with sfapp.Recorder(
        root, run_id=dist.get_backend(), window_steps=steps, wrapper="ddp", event_fraction=1.0
    ) as perf:
        perf.watch_waits(model)
        for _ in range(steps):
            with perf.step():
                with perf.stage(DATA):
                    batch = torch.randn(16, 64, 256).to(device, non_blocking=True)
                with perf.stage(FORWARD), perf.cuda_event_sample():
                    features = slow_backward(model(batch), is_slow)
                    loss = features.square().mean()
                with perf.stage(BACKWARD):
                    loss.backward()
                with perf.stage(OPTIMIZER):
                    optimizer.step()
                    optimizer.zero_grad()
                    total += loss.detach()
                    dist.all_reduce(total)  # a call that the recorder times
                    total.item()


def main() -> None:
    folder, backend, kind, steps = sys.argv[1:5]
    place = int(os.environ["LOCAL_RANK"]) if backend == "nccl" else 0
    device = torch.device(kind, place) if kind == "cuda" else torch.device(kind)
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, device_id=device if kind == "cuda" and backend == "nccl" else None)
    train(Path(folder), device, int(steps))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
