"""Training scripts of many kinds, in one: loops.py KIND. Nothing in here knows of sfapp."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ.get("RANK", "0"))


class Points(Dataset[torch.Tensor]):
    """Takes its time, on one rank more than on others."""

    def __init__(self, length: int, seconds: float = 0.0) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((8,), float(place))


class Slow(nn.Module):
    """A forward and a backward that last."""

    def __init__(self, forward: float, backward: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.seconds, self.after = forward, backward

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        out = self.inner(batch)
        if out.requires_grad:
            out.register_hook(lambda gradient: time.sleep(self.after))
        return out


def model_of(options: argparse.Namespace) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = Slow(0.004, 0.006)
    return DistributedDataParallel(model) if dist.is_initialized() else model


def loader_of(options: argparse.Namespace, batches: int) -> DataLoader[torch.Tensor]:
    return DataLoader(Points(batches * 2, 0.02 if options.slow_rank == RANK else 0.001), batch_size=2)


def plain(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader_of(options, options.steps):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.002)


def accumulated(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for place, batch in enumerate(loader_of(options, 4 * options.steps)):
        last = place % 4 == 3
        with contextlib.nullcontext() if last else model.no_sync():
            model(batch).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def evaluated(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = loader_of(options, 3)
    for step, batch in enumerate(loader_of(options, options.steps)):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                for other in held_out:
                    model(other)
            model.train()


def failing(options: argparse.Namespace) -> None:
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(loader_of(options, options.steps)):
        model(batch).square().mean().backward()
        optimizer.step()
        if step == options.steps - 2:
            raise SystemExit(7) if options.exit else RuntimeError("the loss is not finite")


KINDS: dict[str, Callable[[Any], None]] = {
    "plain": plain,
    "accumulated": accumulated,
    "evaluated": evaluated,
    "failing": failing,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--slow-rank", type=int)
    parser.add_argument("--exit", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    KINDS[options.kind](options)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
