"""Training loops of every style, as docs/recorder.md shows them; started under torchrun, not collected.

loop_styles.py FOLDER     one run for each style, on 2 ranks; rank 1 waits 100 ms for each step's data
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import sfapp
from sfapp.errors import RecorderError
from sfapp.model import Accumulation
from sfapp.recorder import wrapper_of
from sfapp.recorder.integrations.megatron import StragglerDetector
from sfapp.recorder.integrations.nvrx import Detector

STEPS, DELAY, MICRO_STEPS = 6, 0.1, 2
WIDTH = 64

root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


class MicroStepSamples(Dataset[torch.Tensor]):
    """Samples that rank 1 waits for."""

    def __init__(self, micro_steps: int = 1) -> None:
        self._micro_steps = micro_steps

    def __len__(self) -> int:
        return STEPS * self._micro_steps

    def __getitem__(self, place: int) -> torch.Tensor:
        if place >= len(self):
            raise IndexError(place)
        if rank == 1 and place % self._micro_steps == 0:
            time.sleep(DELAY)
        return torch.full((WIDTH,), 0.5)


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(inplace=True), torch.nn.Linear(WIDTH, 8)
    )


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def loader(micro_steps: int = 1) -> DataLoader[torch.Tensor]:
    return DataLoader(MicroStepSamples(micro_steps), batch_size=1)


def recorder(run_id: str, model: Any, optimizer: Any, **options: Any) -> sfapp.Recorder:
    wrapper = wrapper_of(model, optimizer)
    return sfapp.Recorder(root, run_id=run_id, window_steps=STEPS, wrapper=wrapper, timeout=20.0, **options)


# ---- the loops -------------------------------------------------------------------------------------


def train(perf: sfapp.Recorder, model: Any, optimizer: Any, loader: Any) -> None:
    for batch in perf.batches(loader):
        with perf.step():
            with perf.stage("model.fwd_loss_cpu_wall"):
                loss = model(batch).square().mean()
            with perf.stage("model.backward_cpu_wall"):
                loss.backward()
            with perf.stage("optim.step_cpu_wall"):
                optimizer.step()
                optimizer.zero_grad()


def train_by_hand(perf: sfapp.Recorder, model: Any, optimizer: Any, loader: Any) -> None:
    batches = iter(loader)
    for _ in range(STEPS):
        with perf.step():
            with perf.stage("data.next_wait"):
                batch = next(batches)
            with perf.stage("model.fwd_loss_cpu_wall"):
                loss = model(batch).square().mean()
            with perf.stage("model.backward_cpu_wall"):
                loss.backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
            with perf.stage("optim.step_cpu_wall"):
                optimizer.step()
                optimizer.zero_grad()


def train_accumulating(perf: sfapp.Recorder, model: Any, optimizer: Any, loader: Any) -> None:
    batches = iter(perf.batches(loader))
    for _ in range(STEPS):
        with perf.step():
            for micro in range(MICRO_STEPS):
                last = micro == MICRO_STEPS - 1
                exchange = contextlib.nullcontext() if last else model.no_sync()
                with perf.micro_step(micro, sync=last), exchange:
                    batch = next(batches)
                    with perf.stage("model.fwd_loss_cpu_wall"):
                        loss = model(batch).square().mean() / MICRO_STEPS
                    with perf.stage("model.backward_cpu_wall"):
                        loss.backward()
            with perf.stage("optim.step_cpu_wall"):
                optimizer.step()
                optimizer.zero_grad()


# ---- the styles ------------------------------------------------------------------------------------


def plain() -> None:
    model = network()
    optimizer = sgd(model)
    with recorder("plain", model, optimizer) as perf:
        perf.time_layers(model)
        train_by_hand(perf, model, optimizer, loader())


def ddp() -> None:
    model = DistributedDataParallel(network())
    optimizer = sgd(model)
    with recorder("ddp", model, optimizer) as perf:
        perf.watch_memory(model)
        perf.time_layers(model)
        train(perf, model, optimizer, loader())


def fsdp2() -> None:
    model = network()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = sgd(model)
    with recorder("fsdp2", model, optimizer) as perf:
        perf.watch_memory(model)
        refused(perf, model, "fsdp2")
        train(perf, model, optimizer, loader())


def fsdp1() -> None:
    model = FullyShardedDataParallel(
        network(), sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu")
    )
    optimizer = sgd(model)
    with recorder("fsdp1", model, optimizer) as perf:
        perf.watch_memory(model)
        refused(perf, model, "fsdp1")
        train(perf, model, optimizer, loader())


def zero1() -> None:
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.01)
    with recorder("zero1", model, optimizer) as perf:
        train(perf, model, optimizer, loader())


def accumulating() -> None:
    model = DistributedDataParallel(network())
    optimizer = sgd(model)
    accumulation = Accumulation(factor=MICRO_STEPS, ordered=True, sync="last")
    with recorder("accumulating", model, optimizer, accumulation=accumulation) as perf:
        train_accumulating(perf, model, optimizer, loader(MICRO_STEPS))


def refused(perf: sfapp.Recorder, model: torch.nn.Module, run_id: str) -> None:
    """Layers of a sharded model are not timed."""
    try:
        perf.time_layers(model)
    except RecorderError as refusal:
        (root / f"{run_id}.rank{rank}.refused.txt").write_text(str(refusal))


# ---- jobs instrumented for others ------------------------------------------------------------------


@dataclass(frozen=True)
class CallableId:
    """As nvidia-resiliency-ext has it."""

    obj: Any
    name: str

    def __str__(self) -> str:
        return f"{type(self.obj).__name__}.{self.name}"


def nvrx() -> None:
    model = DistributedDataParallel(network())
    optimizer = sgd(model)
    with recorder("nvrx", model, optimizer) as perf:
        stages = {
            "data": "data.next_wait",
            "fwd": "model.fwd_loss_cpu_wall",
            "bwd": "model.backward_cpu_wall",
            "SGD.step": "optim.step_cpu_wall",
        }
        detector: Any = Detector(perf, stages, step="train_step")
        detector.initialize(scores_to_compute="all", gather_on_rank0=True, profiling_interval=1)
        detector.wrap_callables(callable_ids=[CallableId(optimizer, "step")])
        batches = iter(loader())
        for _ in range(STEPS):
            with detector.detection_section("train_step", profile_cuda=False):
                with detector.detection_section("data", profile_cuda=False):
                    batch = next(batches)
                with detector.detection_section("fwd"), detector.detection_section("whole model"):
                    loss = model(batch).square().mean()
                with detector.detection_section("loss/log"), detector.detection_section():
                    float(loss.detach())
                with detector.detection_section("bwd"):
                    loss.backward()
                optimizer.step()
            assert detector.generate_report_if_interval_elapsed() is None
        detector.shutdown()
        assert getattr(optimizer.step, "__self__", None) is optimizer


def megatron() -> None:
    model = DistributedDataParallel(network())
    optimizer = sgd(model)
    with recorder("megatron", model, optimizer) as perf:
        stimer = StragglerDetector(perf)
        stimer.configure(2, rank, mmcnt=1, enabled=True, port=65535)
        batches = iter(loader())
        for _ in range(STEPS):
            with perf.step():
                with stimer(bdata=True):
                    batch = next(batches)
                with stimer:
                    output = model(batch)
                stimer.start()
                loss = output.square().mean()
                stimer.stop()
                with perf.stage("model.backward_cpu_wall"):
                    loss.backward()
                with perf.stage("optim.step_cpu_wall"):
                    optimizer.step()
                    optimizer.zero_grad()
            assert not stimer.report(total_flops=1.0, log_interval=1)


STYLES: tuple[Callable[[], None], ...] = (
    plain,
    ddp,
    fsdp2,
    fsdp1,
    zero1,
    accumulating,
    nvrx,
    megatron,
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for style in STYLES:
        style()
        dist.barrier()
    dist.destroy_process_group()
