"""A script that drops models after some steps, and prints what is left of them."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore


def train(steps: int) -> list[weakref.ReferenceType[Any]]:
    model: torch.nn.Module = torch.nn.Linear(2, 2)
    if dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    return [weakref.ref(each) for each in (model, optimizer, *model.parameters())]


if sys.argv[1] == "distributed":
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
dropped = [each for steps in (2, 10, 2, 10) for each in train(steps)]
gc.collect()
print([each() for each in dropped if each() is not None])
