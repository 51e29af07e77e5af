"""Parts of the training scripts: data set, model and loader with known delays."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from tests.recorder.auto.scripts.sleep_clock import sleep

RANK = int(os.environ.get("RANK", "0"))


class Points(Dataset[torch.Tensor]):
    """Takes its time, on one rank more than on others."""

    def __init__(self, length: int, seconds: float = 0.0) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> torch.Tensor:
        sleep(self.seconds)
        return torch.full((8,), float(place))


class SlowModel(nn.Module):
    """A forward and a backward that last."""

    def __init__(self, forward: float, backward: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.seconds, self.after = forward, backward

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        sleep(self.seconds)
        out: torch.Tensor = self.inner(batch)
        if out.requires_grad:
            out.register_hook(lambda gradient: sleep(self.after))
        return out


def model_of(options: argparse.Namespace) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = SlowModel(0.004, 0.006)
    return DistributedDataParallel(model) if dist.is_initialized() else model


def loader_of(options: argparse.Namespace, batches: int) -> DataLoader[torch.Tensor]:
    return DataLoader(Points(batches * 2, 0.02 if options.slow_rank == RANK else 0.001), batch_size=2)
