"""A small DDP job as a user of TraceML writes it; reading data takes rank 1 longer."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
import traceml_ai
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ClassifiedRows(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index >= len(self):
            raise IndexError
        time.sleep(0.005 if dist.get_rank() == 1 else 0)
        return torch.randn(64), index % 2


dist.init_process_group("gloo")
traceml_ai.init(mode="auto")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch, target in DataLoader(ClassifiedRows(), batch_size=4):
    with traceml_ai.trace_step(model):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), target).backward()
        optimizer.step()
dist.destroy_process_group()
