"""A training job on CUDA devices that test_gpu.py starts under torchrun, one rank a device.

gpu_jobs.py FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import sfapp
from sfapp.model import Accumulation, RankIdentity
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.transport.gather_group import GatheredWindow
from sfapp.recorder.transport.nccl_gather_group import NcclGatherGroup

WINDOW = 20
FORWARD, BACKWARD = "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"

root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


def train() -> None:
    """Two windows over the recorder's own NCCL group, beside training's."""
    device = torch.device("cuda", rank)
    model = DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
    batch = torch.ones(8, 64, device=device)
    with sfapp.Recorder(
        root, run_id="nccl", window_steps=WINDOW, wrapper="ddp", gather="nccl", event_fraction=1.0
    ) as perf:
        perf.watch_memory(model)
        for _ in range(2 * WINDOW):
            with perf.step():
                with perf.stage(FORWARD), perf.cuda_event_sample():
                    loss = model(batch).square().mean()
                with perf.stage(BACKWARD):
                    loss.backward()
                loss.item()


def gather() -> None:
    """What a recorder alone on its device leaves out: a window's rows through NCCL itself."""
    group = NcclGatherGroup(20.0)
    group.greet(RankIdentity(rank, rank, 0, "here"), "gathered", 3, 7)
    buffer = WindowBuffer.empty(WindowSchema.of((FORWARD, BACKWARD), Accumulation(), None), 3, 4)
    buffer.add(np.array([[step, 1_000, 100 + rank, 200 + step] for step in range(4)]))
    _, found = group.gather([buffer])
    if rank == 0:
        (window,) = found
        assert isinstance(window, GatheredWindow)
        torch.save(window.row_RNC, root / "rows.pt")
    (reason,) = group.confirm(["written"])
    (root / f"confirmed.{rank}").write_text(reason)


if __name__ == "__main__":
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    train()
    gather()
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)  # the training's own group is as it was
    (root / f"total.{rank}").write_text(str(int(total)))
    dist.destroy_process_group()
