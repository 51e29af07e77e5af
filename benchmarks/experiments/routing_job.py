"""One rank of a training job with injected faults, started by torchrun: routing_job.py PLAN.json OUT.

The model, the loader, the exchange of gradients, the sharding and the optimizer are real. Two cores cannot
run many ranks at an accelerator's pace, so an additional wait of slightly varying length represents its time.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import sfapp
from benchmarks.experiments.plan import (
    BACKWARD,
    CALLBACKS,
    DATA,
    FORWARD,
    OPTIMIZER,
    PlannedFault,
    PlannedJob,
)
from sfapp.model import Accumulation, RankIdentity
from sfapp.model.manifest import Wrapper

if TYPE_CHECKING:
    from torch.distributed.fsdp import FullyShardedDataParallel

RANKS_PER_NODE = 8
WIDTH = 32
MICRO_STEPS = 4

PACE = {DATA: 0.010, FORWARD: 0.032, BACKWARD: 0.048, CALLBACKS: 0.002, OPTIMIZER: 0.008}
"""Seconds that an accelerator would take in each stage of a step, at a pace of 1. The loader's part follows
from the paper's shares: 0.43 of a step of 207 + 120 ms are 20 ms more than the delay."""

JITTER = 0.02
"""Standard deviation of each wait, as a part of it: an accelerator and its host vary from step to step.
Without any variation, nothing would show that ranks wait for each other."""

LABEL_OF: dict[str, Wrapper] = {"ddp": "ddp", "accumulation": "ddp", "fsdp": "fsdp1", "zero1": "zero1"}


class ConstantRows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index % 7))


def endless(loader: DataLoader[torch.Tensor]) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


class NodeGroups:
    """An all-reduce in three hops: to the node's first rank, among first ranks, and back.

    Gloo's ring over 32 processes on two cores takes 150 ms for wake-ups, which would be most of a step. This
    takes a quarter of that and matches the topology of clusters.
    """

    def __init__(self, world_size: int) -> None:
        nodes = [[*range(first, first + RANKS_PER_NODE)] for first in range(0, world_size, RANKS_PER_NODE)]
        groups = [dist.new_group(ranks) for ranks in nodes]
        self.world_size = world_size
        self.first = dist.get_rank() // RANKS_PER_NODE * RANKS_PER_NODE
        self.node = groups[dist.get_rank() // RANKS_PER_NODE]
        self.firsts = dist.new_group([ranks[0] for ranks in nodes])

    @classmethod
    def of(cls, world_size: int) -> NodeGroups | None:
        """Return the groups of this rank; None for one node or if nodes are not full."""
        whole = world_size > RANKS_PER_NODE and world_size % RANKS_PER_NODE == 0
        return cls(world_size) if whole else None

    def mean(self, gradient: torch.Tensor) -> torch.Tensor:
        """Replace a tensor by its mean over all ranks."""
        dist.reduce(gradient, self.first, group=self.node)
        if dist.get_rank() == self.first:
            dist.all_reduce(gradient, group=self.firsts)
        dist.broadcast(gradient, self.first, group=self.node)
        return gradient.div_(self.world_size)


class ExperimentTraining:
    """The job of one rank."""

    def __init__(self, job: PlannedJob, out: Path) -> None:
        self.rank = dist.get_rank()
        self.job = job
        self.factor = MICRO_STEPS if job.training == "accumulation" else 1
        torch.manual_seed(0)
        network = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
        self.model = self._wrapped(network)
        self.optimizer = self._optimizer()
        self.batches = endless(DataLoader(ConstantRows(), batch_size=4))
        self.fault = PlannedFault("")
        self.matrix = torch.ones(64, 64)
        self.random = random.Random(f"{job.name} {self.rank}")
        self.perf = sfapp.Recorder(
            out,
            run_id=job.name,
            window_steps=job.steps,
            identity=RankIdentity(
                self.rank,
                self.rank % RANKS_PER_NODE,
                self.rank // RANKS_PER_NODE,
                f"node-{self.rank // RANKS_PER_NODE}",
            ),
            wrapper=LABEL_OF[job.training],
            accumulation=Accumulation(factor=self.factor, sync="last" if self.factor > 1 else "every"),
            timeout=60,
        )

    def _wrapped(self, network: nn.Module) -> DistributedDataParallel | FullyShardedDataParallel:
        if self.job.training == "fsdp":
            from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

            return FullyShardedDataParallel(
                network, sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu")
            )
        model = DistributedDataParallel(network)
        model.register_comm_hook(NodeGroups.of(dist.get_world_size()), self._exchange)
        return model

    def _optimizer(self) -> torch.optim.Optimizer:
        if self.job.training == "zero1":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            return ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.SGD, lr=1e-3)
        return torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def _exchange(self, nodes, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations itself
        """DDP's all-reduce, to which one rank may come late."""
        time.sleep(self._extra("backward/comm"))
        if nodes is None:
            world = dist.group.WORLD
            assert world is not None
            return allreduce_hook(world, bucket)
        summed: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        summed.set_result(nodes.mean(bucket.buffer()))
        return summed

    def _extra(self, *families: str) -> float:
        mine = self.fault.family in families and self.fault.rank == self.rank
        return self.fault.delay_ms / 1e3 if mine else 0.0

    def _take(self, stage: str, *families: str, part: int = 1) -> None:
        """Wait for an accelerator's time and the injected delay; ``part`` is the fraction of the step's
        total."""
        usual = self.job.pace * PACE[stage] * max(0.0, self.random.gauss(1.0, JITTER))
        time.sleep((usual + self._extra(*families)) / part)

    def _compute(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.matrix @ self.matrix

    def run(self) -> None:
        for fault in self.job.faults:
            self.fault = fault
            for _ in range(self.job.steps):
                self._step()
        self.perf.close()
        if self.perf.failures:
            print(*self.perf.failures, sep="\n", file=sys.stderr)

    def _step(self) -> None:
        perf = self.perf
        with perf.step():
            for micro in range(self.factor):
                last = micro == self.factor - 1
                sync = contextlib.nullcontext() if last else self.model.no_sync()
                with perf.micro_step(micro), sync:
                    self._micro_step()
            with perf.stage(CALLBACKS):
                self._take(CALLBACKS, "callback/sync", "callback/host")
                if self.fault.family == "callback/sync":
                    dist.barrier()
            with perf.stage(OPTIMIZER):
                # The update is computed before it is sent (ZeRO-1); the fault follows both.
                self._take(OPTIMIZER)
                self.optimizer.step()
                self.optimizer.zero_grad()
                time.sleep(self._extra("optimizer/host"))

    def _micro_step(self) -> None:
        perf, part = self.perf, self.factor
        with perf.stage(DATA):
            batch = next(self.batches)
            self._take(DATA, "data", part=part)
        with perf.stage(FORWARD):
            loss = self.model(batch).square().mean()
            self._take(FORWARD, "forward/host", part=part)
            self._compute(self._extra("forward/device") / part)
        with perf.stage(BACKWARD):
            self._take(BACKWARD, "backward", part=part)
            loss.backward()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=PlannedJob)
    ExperimentTraining(job, Path(sys.argv[2])).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
