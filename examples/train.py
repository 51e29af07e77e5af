"""A small DDP training that knows nothing of sfapp, to copy and to try things on.

    sfapp run --nproc-per-node 4 --ui examples/train.py
    sfapp run --nproc-per-node 4 examples/train.py --slow-rank 3 --slow-from 200

One rank can be made slow from a step on: its batches then take longer.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ.get("RANK", "0"))


class Numbers(Dataset[torch.Tensor]):
    """Random vectors that take a while to fetch, and longer on a rank that is slow."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def __len__(self) -> int:
        return int(self.options.steps)

    def __getitem__(self, step: int) -> torch.Tensor:
        options = self.options
        is_slow = options.slow_rank == RANK and step >= options.slow_from
        time.sleep((options.step_ms / 2 + (options.slow_ms if is_slow else 0)) / 1000)
        return torch.randn(options.batch, 64)


def train(options: argparse.Namespace) -> None:
    """Steps of forward, backward, optimizer; their gradients are averaged over all ranks."""
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    look_every = max(1, round(1000 / max(options.step_ms, 20)))  # steps: about once a second
    for step, batch in enumerate(DataLoader(Numbers(options), batch_size=None)):
        optimizer.zero_grad()
        loss = parallel(batch.to(device)).square().mean()
        time.sleep(options.step_ms / 2000)
        loss.backward()
        optimizer.step()
        looks = options.until is not None and (step + 1) % look_every == 0
        if looks and everybody_sees(options.until, device):
            break
        if step % 100 == 99 and RANK == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)


def everybody_sees(path: Path, device: torch.device | None) -> bool:
    """Whether a file is there, as rank 0 sees it: ranks must stop at the same step."""
    seen = torch.tensor(float(path.exists()), device=device)
    if dist.is_initialized():
        dist.broadcast(seen, src=0)
    return bool(seen)


def main() -> None:
    """Read the options, join the other ranks where there are any, train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=32, help="samples a step and rank")
    parser.add_argument("--step-ms", type=float, default=20, help="what a step takes at least")
    parser.add_argument("--slow-rank", type=int, default=-1, help="the rank to make slow")
    parser.add_argument("--slow-from", type=int, default=0, help="from this step on")
    parser.add_argument("--slow-ms", type=float, default=20, help="by so much a step")
    parser.add_argument("--until", type=Path, help="stop once this file is there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "LOCAL_RANK" in os.environ:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(options)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
