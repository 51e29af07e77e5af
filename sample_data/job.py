"""The job behind sample_data/packets: 8 processes, Gloo DDP, a small transformer, faults on schedule.

Started by record.py under torchrun. The transformer, its backward, the all-reduce, the optimizer step and the
data loader are real. Two cores cannot run eight ranks at an accelerator's pace, so the time an accelerator
would take is a wait of fixed length beside them, and a fault is a longer wait in one stage.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import sfapp
from sfapp.model import Parallelism, RankIdentity

RANKS_PER_NODE = 4
VOCABULARY, LENGTH, WIDTH = 128, 16, 16

# Seconds an accelerator would take in each stage of a healthy step.
PACE = {"data": 0.003, "forward": 0.024, "backward": 0.045, "callbacks": 0.002, "optimizer": 0.006}

# Extra seconds in a stage: (rank, step in the window, step in the run) -> seconds.
Extra = Callable[[int, int, int], float]


def on_rank(rank: int, seconds: float, every: int = 1) -> Extra:
    """One rank is slow, in every step or in every ``every``-th."""
    return lambda who, place, step: seconds if who == rank and place % every == every - 1 else 0.0


def on_random_rank(seconds: float, ranks: int = 8) -> Extra:
    """Each step another rank is slow; all ranks draw the same one."""
    return lambda who, place, step: seconds if random.Random(step).randrange(ranks) == who else 0.0


HEALTHY: dict[str, Extra] = {}

# One entry a window: what is injected. The names are explained in README.md.
SCHEDULES: dict[str, list[tuple[str, dict[str, Extra]]]] = {
    "gpt-small-ddp": [
        ("warm-up", HEALTHY),
        ("healthy", HEALTHY),
        ("healthy", HEALTHY),
        ("data tail, fixed rank", {"data": on_rank(3, 0.08)}),
        ("data tail, random rank", {"data": on_random_rank(0.08)}),
        ("healthy", HEALTHY),
        ("slow forward", {"forward": on_rank(5, 0.08)}),
        ("slow backward", {"backward": on_rank(2, 0.08)}),
        ("callback every 10 steps", {"callbacks": on_rank(6, 0.6, every=10)}),
        ("callback with a barrier", {"callbacks": on_rank(4, 0.08), "barrier": on_rank(-1, 0)}),
        ("host-only callback", {"callbacks": on_rank(3, 0.08)}),
        ("slow optimizer", {"optimizer": on_rank(1, 0.08)}),
        ("A1: healthy", HEALTHY),
        ("B: data tail", {"data": on_rank(0, 0.08)}),
        ("A2: fault removed", HEALTHY),
        ("healthy", HEALTHY),
    ],
    "gpt-small-rank-lost": [("healthy", HEALTHY), ("rank 7 leaves", HEALTHY)],
    "moe-two-roles": [
        ("warm-up", HEALTHY),
        ("two roles, healthy", HEALTHY),
        ("two roles, slow data on a dense rank", {"data": on_rank(2, 0.08)}),
    ],
}


class Tokens(Dataset[torch.Tensor]):
    """Random token sequences, the same on every run."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(0, VOCABULARY, (LENGTH,), generator=generator)


class SmallTransformer(nn.Module):
    """A language model of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.layer(self.embed(tokens[:, :-1])))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def endless(loader: DataLoader[torch.Tensor]) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


class Job:
    """One rank's part of the job: the model, the loader, the recorder, and what is injected."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.rank = dist.get_rank()
        self.steps = arguments.steps
        two_roles = arguments.schedule == "moe-two-roles"
        role = ("dense" if self.rank % 2 == 0 else "expert") if two_roles else None
        # Experts route and compute more in forward, dense ranks in backward: together they take as long.
        self.skew = {"dense": {"backward": 0.012}, "expert": {"forward": 0.012}}.get(role or "", {})
        node = self.rank // RANKS_PER_NODE
        self.perf = sfapp.Recorder(
            arguments.out,
            run_id=arguments.schedule,
            window_steps=arguments.steps,
            identity=RankIdentity(self.rank, self.rank % RANKS_PER_NODE, node, f"node-{node}", role),
            wrapper="ddp",
            parallelism=Parallelism(dp=dist.get_world_size(), ep=4 if two_roles else 1),
            prefetch="aligned",
            timeout=10,
        )
        torch.manual_seed(0)
        self.model = nn.parallel.DistributedDataParallel(SmallTransformer())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.batches = endless(DataLoader(Tokens(), batch_size=2))

    def train(self, window: int, faults: dict[str, Extra], steps: int) -> None:
        """The steps of one window with these faults."""
        for place in range(steps):
            self.train_step(faults, place, window * self.steps + place)

    def train_step(self, faults: dict[str, Extra], place: int, step: int) -> None:
        def wait(stage: str) -> None:
            """Take the time an accelerator would, and what is injected."""
            extra = faults[stage](self.rank, place, step) if stage in faults else 0.0
            time.sleep(PACE[stage] + self.skew.get(stage, 0.0) + extra)

        perf = self.perf
        with perf.step():
            with perf.stage("data.next_wait"):
                tokens = next(self.batches)
                wait("data")
            with perf.stage("model.fwd_loss_cpu_wall"):
                loss = self.model(tokens)
                wait("forward")
            with perf.stage("model.backward_cpu_wall"):
                wait("backward")
                loss.backward()
            with perf.stage("callbacks.cpu_wall"):
                wait("callbacks")
                if "barrier" in faults:
                    dist.barrier()
            with perf.stage("optim.step_cpu_wall"):
                self.optimizer.step()
                self.optimizer.zero_grad()
                wait("optimizer")


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = Job(arguments)
    schedule = SCHEDULES[arguments.schedule][: arguments.windows]
    for window, (_, faults) in enumerate(schedule):
        lost = arguments.schedule == "gpt-small-rank-lost" and window == len(schedule) - 1
        job.train(window, faults, arguments.steps // 2 if lost else arguments.steps)
        if lost and job.rank == dist.get_world_size() - 1:
            # A rank that is gone before the window's gather: the others are left with their own rows.
            os._exit(0)
    job.perf.close()
    if job.rank == 0:
        written, failures = job.perf.written, job.perf.failures
        print(f"{arguments.schedule}: {len(written)} packets", *failures, sep="\n", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--schedule", choices=tuple(SCHEDULES), required=True)
    parser.add_argument("--steps", type=int, default=40, help="steps a window")
    parser.add_argument("--windows", type=int, default=None, help="only the first so many windows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
