"""Four ranks that train under one wrapper, rank 2 slow inside backward or forward: waits are watched.

``torchrun --nproc-per-node 4 wait_jobs.py FOLDER WRAPPER-WHERE …``; WRAPPER is ddp, ddpsync (ranks also
synchronise within backward, and the network is slow), fsdp1, fsdp2, zero1, manual, or groups (gradients are
averaged by hand over groups of the script, as in a Megatron loop), WHERE is backward or forward. Each is a
run of its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from sfapp import Recorder

SLOW_RANK, SLOW_SECONDS = 2, 0.06
NETWORK_SECONDS = 0.03
WIDTH, LAYERS = 64, 4


def busy(seconds: float) -> None:
    """Compute for so long, as a slow rank does."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class SlowBackward(torch.autograd.Function):
    """Identity whose gradient takes long to compute on one rank."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == SLOW_RANK:
            busy(SLOW_SECONDS)
        return gradients[0]


class AveragedGradient(torch.autograd.Function):
    """Identity whose gradient is averaged over ranks, as that of SyncBatchNorm is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        averaged = gradients[0].clone()
        dist.all_reduce(averaged)
        return averaged / dist.get_world_size()


slow_backward: Callable[[torch.Tensor], torch.Tensor] = SlowBackward.apply
averaged_gradient: Callable[[torch.Tensor], torch.Tensor] = AveragedGradient.apply


def slow_exchange(_, bucket):  # type: ignore[no-untyped-def]  # torch reads the annotations itself
    """DDP's all-reduce over a slow network."""
    time.sleep(NETWORK_SECONDS)
    world = dist.group.WORLD
    assert world is not None
    return allreduce_hook(world, bucket)


class WaitingBlock(torch.nn.Module):
    """A layer in the middle of which one rank may be slow, and which may average its gradient."""

    averages = False

    def __init__(self, where: str) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.where = where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.linear(x))
        if self.averages:
            x = averaged_gradient(x)
        if self.where == "forward" and dist.get_rank() == SLOW_RANK:
            busy(SLOW_SECONDS)
        if self.where == "backward":
            x = slow_backward(x)
        return x


def model_of(where: str) -> torch.nn.Sequential:
    """Layers of which the middle one holds the fault."""
    torch.manual_seed(0)
    blocks = [WaitingBlock(where if place == LAYERS // 2 else "nowhere") for place in range(LAYERS)]
    return torch.nn.Sequential(*blocks, torch.nn.Linear(WIDTH, 1))


def wrapped(wrapper: str, model: torch.nn.Sequential) -> tuple[Any, Callable[[], None]]:
    """Return the model as it is trained, and what its optimizer step is."""
    if wrapper == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained: Any = model
    elif wrapper == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        trained = FullyShardedDataParallel(
            model, auto_wrap_policy=ModuleWrapPolicy({WaitingBlock}), device_id=torch.device("cpu")
        )
    elif wrapper in ("manual", "groups"):
        trained = model
    else:
        first = model[0]
        assert isinstance(first, WaitingBlock)
        first.averages = wrapper == "ddpsync"
        trained = DistributedDataParallel(model)
    if wrapper == "ddpsync":
        trained.register_comm_hook(None, slow_exchange)
    if wrapper == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer: Any = ZeroRedundancyOptimizer(trained.parameters(), torch.optim.SGD, lr=0.01)
    else:
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return trained, step


def own_groups() -> list[Any]:
    """Return the groups of this rank, of two ranks each: all four have the sum after both."""
    made = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
    return [group for group in made if dist.get_rank(group) >= 0]


def train(folder: str, run_id: str, steps: int = 30) -> None:
    """Record one run."""
    wrapper, where = run_id.split("-")
    model, optimize = wrapped(wrapper, model_of(where))
    groups = [dist.group.WORLD] if wrapper == "manual" else own_groups() if wrapper == "groups" else []
    with Recorder(folder, run_id=run_id, window_steps=steps) as perf:
        perf.watch_waits(model)
        for _ in range(steps):
            with perf.step():
                with perf.stage("data.next_wait"):
                    inputs = torch.randn(8, WIDTH)
                with perf.stage("model.fwd_loss_cpu_wall"):
                    loss = model(inputs).square().mean()
                with perf.stage("model.backward_cpu_wall"):
                    loss.backward()
                    for group in groups:
                        for parameter in model.parameters():
                            dist.all_reduce(parameter.grad, group=group)
                with perf.stage("optim.step_cpu_wall"):
                    optimize()


def main(folder: str, *runs: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for run_id in runs:
        train(folder, run_id)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
