"""One rank of a training job that is slow inside waiting stages, started by torchrun: PLAN.json OUT.

The model, the wrappers, every exchange between ranks, the loader and the optimizer are real. A wait of
slightly varying length in each layer represents an accelerator's time. The slow rank computes additionally in
the layers that the plan names: before their gradients are ready, or in forward.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import sfapp
from benchmarks.experiments.plan import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from benchmarks.experiments.routing_job import (
    JITTER,
    PACE,
    RANKS_PER_NODE,
    WIDTH,
    ConstantRows,
    NodeGroups,
    endless,
)
from benchmarks.experiments.waits_plan import (
    BETWEEN,
    BLOCKS,
    PAUSE_EVERY,
    PAUSE_SECONDS,
    PLACES,
    SLOWNESS,
    WARM_UP,
    WaitFault,
    WaitJob,
)
from sfapp.model import RankIdentity

BUCKET_MB = 2 * (WIDTH * WIDTH + WIDTH) * 4 / 2**20 - 1e-4
"""DistributedDataParallel's bucket: two layers. Half of the gradients are sent while backward continues."""

Spend = Callable[[str, int], None]
"""Wait for the time of a stage's layer; layers are counted in the stage's order of computation."""


class InBackward(torch.autograd.Function):
    """Identity whose gradient takes a layer's time to compute."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, spend: Callable[[], None]) -> torch.Tensor:
        ctx.spend = spend
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.spend()
        return gradients[0], None


in_backward: Callable[[torch.Tensor, Callable[[], None]], torch.Tensor] = InBackward.apply


class TimedLayer(nn.Module):
    """A layer that waits for its part of the accelerator's time in forward and in backward."""

    def __init__(self, place: int, spend: Spend) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.in_forward: Callable[[], None] = partial(spend, FORWARD, place)
        self.in_backward: Callable[[], None] = partial(spend, BACKWARD, BLOCKS - 1 - place)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.linear(x))
        self.in_forward()
        return in_backward(x, self.in_backward)


def exchange_by_nodes(nodes, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations itself
    """DDP's all-reduce in three hops, on the thread that computes gradients."""
    summed: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    summed.set_result(nodes.mean(bucket.buffer()))
    return summed


class LayerPair(nn.Sequential):
    """Two layers, sharded together."""


class WaitTraining:
    """The job of one rank."""

    def __init__(self, job: WaitJob, out: Path) -> None:
        self.job, self.out = job, out
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.fault = WaitFault()
        self.delay = 0.0
        self.random = random.Random(f"{job.name} {self.rank}")
        self.matrix = torch.ones(64, 64)
        torch.manual_seed(0)
        layers = [TimedLayer(place, self._spend) for place in range(BLOCKS)]
        network = nn.Sequential(*(LayerPair(*layers[at : at + 2]) for at in range(0, BLOCKS, 2)))
        self.nodes = max(1, self.ranks // RANKS_PER_NODE)
        self.model = self._wrapped(network)
        self.optimizer = self._optimizer()
        self.batches = endless(DataLoader(ConstantRows(), batch_size=4))
        node = self.rank // RANKS_PER_NODE
        self.perf = sfapp.Recorder(
            out,
            run_id=job.name,
            window_steps=job.steps,
            identity=RankIdentity(self.rank, self.rank % RANKS_PER_NODE, node, f"node-{node}"),
            wrapper=job.wrapper,
            timeout=60,
        )
        self.perf.watch_waits(self.model)

    def _wrapped(self, network: nn.Sequential) -> nn.Module:
        if self.job.wrapper == "fsdp1":
            return self._fsdp1(network)
        if self.job.wrapper == "fsdp2":
            return self._fsdp2(network)
        model = DistributedDataParallel(network, bucket_cap_mb=BUCKET_MB)
        if self.nodes > 1:
            model.register_comm_hook(NodeGroups.of(self.ranks), exchange_by_nodes)
        return model

    def _mesh(self) -> Any:
        """Nodes × ranks of a node: parameters are sharded within a node and replicated over nodes."""
        from torch.distributed.device_mesh import init_device_mesh

        shape = (self.nodes, self.ranks // self.nodes)
        return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))

    def _fsdp1(self, network: nn.Sequential) -> nn.Module:
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        policy, device = ModuleWrapPolicy({LayerPair}), torch.device("cpu")
        if self.nodes == 1:
            return FullyShardedDataParallel(network, auto_wrap_policy=policy, device_id=device)
        return FullyShardedDataParallel(
            network,
            device_mesh=self._mesh(),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            auto_wrap_policy=policy,
            device_id=device,
        )

    def _fsdp2(self, network: nn.Sequential) -> nn.Module:
        from torch.distributed.fsdp import fully_shard

        mesh = self._mesh() if self.nodes > 1 else self._mesh()["shard"]
        for unit in network:
            fully_shard(unit, mesh=mesh)
        fully_shard(network, mesh=mesh)
        return network

    def _optimizer(self) -> torch.optim.Optimizer:
        if self.job.wrapper != "zero1":
            return torch.optim.SGD(self.model.parameters(), lr=1e-3)
        from torch.distributed.optim import ZeroRedundancyOptimizer

        group = None
        if self.nodes > 1:  # The state is divided within a node, as parameters are with FSDP.
            every = [
                [*range(first, first + RANKS_PER_NODE)] for first in range(0, self.ranks, RANKS_PER_NODE)
            ]
            group, _ = dist.new_subgroups_by_enumeration(every)
        return ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.SGD, process_group=group, lr=1e-3)

    def _take(self, stage: str, part: float = 1.0) -> None:
        """Wait as long as an accelerator would take for a part of a stage."""
        time.sleep(part * self.job.pace * PACE[stage] * max(0.0, self.random.gauss(1.0, JITTER)))

    def _spend(self, stage: str, place: int) -> None:
        self._take(stage, 1 / BLOCKS)
        if self.fault.stage == stage and self.fault.rank == self.rank:
            self._compute(self.delay * PLACES[self.fault.place][place])

    def _compute(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.matrix @ self.matrix

    def run(self) -> None:
        """Train through all windows, each with its fault."""
        healthy: list[float] = []
        for number, fault in enumerate(self.job.faults):
            if fault.stage is not None and not self.delay:
                self._set_delay(healthy)
            self.fault = fault
            for step in range(self.job.steps):
                begin = time.perf_counter()
                self._step()
                if number >= WARM_UP and not self.delay:
                    healthy.append(time.perf_counter() - begin)
                pauses = fault.stage == BETWEEN and fault.rank == self.rank
                if pauses and step % PAUSE_EVERY == PAUSE_EVERY // 2:
                    time.sleep(PAUSE_SECONDS)
        self.perf.close()
        if self.perf.failures:
            print(*self.perf.failures, sep="\n", file=sys.stderr)

    def _set_delay(self, healthy: list[float]) -> None:
        """Agree on the duration of a healthy step and the resulting delay."""
        typical = torch.tensor(statistics.median(healthy), dtype=torch.float64)
        dist.all_reduce(typical)
        self.delay = SLOWNESS * float(typical) / self.ranks

    def _step(self) -> None:
        perf = self.perf
        with perf.step():
            with perf.stage(DATA):
                batch = next(self.batches)
                self._take(DATA)
            with perf.stage(FORWARD):
                loss = self.model(batch).square().mean()
            with perf.stage(BACKWARD):
                loss.backward()
            with perf.stage(CALLBACKS):
                self._take(CALLBACKS)
            with perf.stage(OPTIMIZER):
                self._take(OPTIMIZER)
                self.optimizer.step()
                self.optimizer.zero_grad()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WaitJob)
    WaitTraining(job, Path(sys.argv[2])).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
