"""Loops over sharded models: FSDP2, FSDP1 and ZeRO."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer

from tests.recorder.auto.scripts.training_parts import RANK, SlowModel, loader_of, model_of


def sharded(options: argparse.Namespace) -> None:
    """One kind of sharding after the other, each in process groups of its own."""
    for kind in (fsdp2, fsdp1, zero):
        if (
            not dist.is_initialized()
        ):  # of torchrun's store a second group would read the first one's addresses
            store_url = f"file://{Path.cwd()}/{kind.__name__}"
            dist.init_process_group("gloo", init_method=store_url, rank=RANK, world_size=2)
        kind(options)
        dist.destroy_process_group()


def fsdp2(options: argparse.Namespace) -> None:
    model = nn.Sequential(SlowModel(0.004, 0.006), nn.Linear(1, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    sharded_steps(model, torch.optim.SGD(model.parameters(), lr=0.01), options)


def fsdp1(options: argparse.Namespace) -> None:
    model = FullyShardedDataParallel(
        SlowModel(0.004, 0.006),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        device_id=torch.device("cpu"),
    )
    accumulation = 2
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for place, batch in enumerate(loader_of(options, accumulation * options.steps)):
        last = place % accumulation == accumulation - 1
        with contextlib.nullcontext() if last else model.no_sync():
            model(batch).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def zero(options: argparse.Namespace) -> None:
    model = model_of(options)
    kind = torch.optim.Adam
    sharded_steps(model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, lr=0.01), options)


def sharded_steps(model: nn.Module, optimizer: torch.optim.Optimizer, options: argparse.Namespace) -> None:
    for batch in loader_of(options, options.steps):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.002)
