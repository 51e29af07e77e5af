"""One rank of the job for the comparison of tools: peers_job.py OUT TOOL FAULT STEPS.

Started by torchrun or ``traceml run``. TOOL is ``sfapp``, ``traceml`` or ``profiler``, each used according to
its documentation; FAULT is a key of ``FAULTS``. The job is data-parallel over Gloo: the model, the loader,
the exchange of gradients and the optimizer are real, and a wait in each layer represents the accelerator's
time.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

import sfapp
from benchmarks.experiments.plan import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER
from benchmarks.experiments.routing_job import JITTER, PACE, WIDTH
from benchmarks.experiments.waits_job import BUCKET_MB, TimedLayer
from benchmarks.experiments.waits_plan import BETWEEN, BLOCKS, PAUSE_EVERY, PAUSE_SECONDS

FAULTS = {
    "healthy": None,
    "data": DATA,
    "inside backward": BACKWARD,
    "callbacks": CALLBACKS,
    "optimizer": OPTIMIZER,
    "between steps": BETWEEN,
}
"""Fault of the slow rank -> the stage."""

SLOW_RANK, DELAY_SECONDS = 2, 0.020
PACE_OF_JOB = 0.5
"""Multiple of 100 ms for a healthy step."""

PROFILED_FROM, PROFILED_STEPS = 20, 60
"""Steps that the profiler traces: enough for one pause."""

Stage = Callable[[str], AbstractContextManager[object]]


class SlowSamples(Dataset[torch.Tensor]):
    """Dataset whose batches may take longer to load."""

    def __init__(self, batches: int, load: Callable[[], None]) -> None:
        self._batches, self._load = batches, load

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> torch.Tensor:
        self._load()
        return torch.full((4, WIDTH), float(index % 7))


class TimedOptimizer(torch.optim.SGD):
    """An optimizer whose step takes as long as an accelerator's."""

    take: Callable[[], None]

    def step(self, closure: Any = None) -> Any:
        self.take()
        return super().step(closure)


class PeerTraining:
    """A data-parallel job with one slow rank."""

    def __init__(self, fault: str | None, steps: int) -> None:
        self.fault, self.steps = fault, steps
        self.is_slow = dist.get_rank() == SLOW_RANK
        self.random = random.Random(dist.get_rank())
        torch.manual_seed(0)
        layers = [TimedLayer(place, self._spend) for place in range(BLOCKS)]
        self.model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
        self.optimizer = TimedOptimizer(self.model.parameters(), lr=1e-3)
        self.optimizer.take = partial(self._take, OPTIMIZER)
        self.loader = DataLoader(SlowSamples(steps, lambda: self._take(DATA)), batch_size=None)

    def _take(self, stage: str, part: float = 1.0) -> None:
        usual = PACE_OF_JOB * PACE[stage] * max(0.0, self.random.gauss(1.0, JITTER))
        delay = DELAY_SECONDS if self.is_slow and self.fault == stage else 0.0
        time.sleep(part * (usual + delay))

    def _spend(self, stage: str, _: int) -> None:
        self._take(stage, 1 / BLOCKS)

    def train(self, batches: Iterable[torch.Tensor], tool: PeerTool) -> None:
        """Train one epoch, watched by a tool."""
        for number, batch in enumerate(batches):
            with tool.step():
                with tool.stage(FORWARD):
                    loss = self.model(batch).square().mean()
                with tool.stage(BACKWARD):
                    loss.backward()
                with tool.stage(CALLBACKS):
                    self._take(CALLBACKS)
                with tool.stage(OPTIMIZER):
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            if self.is_slow and self.fault == BETWEEN and number % PAUSE_EVERY == PAUSE_EVERY // 2:
                time.sleep(PAUSE_SECONDS)
            tool.after_step()


@dataclass(frozen=True, slots=True)
class PeerTool:
    """A tool that watches training.

    Attributes:
        step, stage: contexts of a step and of a named stage.
        after_step: called after a step and the work that follows it.
    """

    step: Callable[[], AbstractContextManager[object]] = nullcontext
    stage: Stage = lambda name: nullcontext()
    after_step: Callable[[], None] = lambda: None


@contextmanager
def watched(
    name: str, training: PeerTraining, out: Path
) -> Iterator[tuple[PeerTool, Iterable[torch.Tensor]]]:
    """Yield a tool that watches a job, and the batches as wrapped by it."""
    if name == "sfapp":
        steps = training.steps
        with sfapp.Recorder(out, run_id="peers", wrapper="ddp", window_steps=steps) as perf:
            perf.watch_waits(training.model)
            yield PeerTool(perf.step, perf.stage), perf.batches(training.loader)
    elif name == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")
        yield PeerTool(lambda: traceml_ai.trace_step(training.model)), training.loader
    else:
        plan = schedule(wait=PROFILED_FROM - 5, warmup=5, active=PROFILED_STEPS, repeat=1)
        path = out / f"rank_{dist.get_rank()}.json.gz"
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=plan,
            on_trace_ready=lambda trace: trace.export_chrome_trace(str(path)),
        ) as profiler:
            yield PeerTool(stage=record_function, after_step=profiler.step), training.loader


def main() -> None:
    out, name, fault, steps = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = PeerTraining(FAULTS[fault], steps)
    with watched(name, training, out) as (tool, batches):
        training.train(batches, tool)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
