"""A small DDP training script without any reference to sfapp, as an example and for experiments.

    sfapp run --nproc-per-node 4 --ui examples/train.py
    sfapp run --nproc-per-node 4 examples/train.py --slow-rank 3 --slow-from 200

One rank can be made slow from a given step: its batches then take longer.
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
    """Data set of random vectors that take time to fetch, and longer on the slow rank."""

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
    """Train the model; gradients are averaged over all ranks."""
    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    check_every = max(1, round(1000 / max(options.step_ms, 20)))  # steps, about once a second
    for step, batch in enumerate(DataLoader(Numbers(options), batch_size=None)):
        optimizer.zero_grad()
        loss = parallel(batch.to(device)).square().mean()
        time.sleep(options.step_ms / 2000)
        loss.backward()
        optimizer.step()
        must_check = options.until is not None and (step + 1) % check_every == 0
        if must_check and exists_for_all_ranks(options.until, device):
            break
        if step % 100 == 99 and RANK == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)


def exists_for_all_ranks(path: Path, device: torch.device | None) -> bool:
    """Return whether a file exists on rank 0, the same on all ranks, which must stop at the same step."""
    exists = torch.tensor(float(path.exists()), device=device)
    if dist.is_initialized():
        dist.broadcast(exists, src=0)
    return bool(exists)


def main() -> None:
    """Parse the options, join the process group if there is one, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="number of optimizer steps")
    parser.add_argument("--batch", type=int, default=32, help="samples per step and rank")
    parser.add_argument("--step-ms", type=float, default=20, help="least duration of a step, in ms")
    parser.add_argument("--slow-rank", type=int, default=-1, help="rank to slow down")
    parser.add_argument("--slow-from", type=int, default=0, help="first slow step")
    parser.add_argument("--slow-ms", type=float, default=20, help="extra duration of a slow step, in ms")
    parser.add_argument("--until", type=Path, help="stop once this file exists")
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
