"""Blocks of training steps with and without a recorder, alternating; started by torchrun.

recorder_job.py OUT.json TOOL STEP_MS BLOCKS STEPS: TOOL is ``sfapp``, ``nothing`` (an A/A run, for the noise)
or ``profiler``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sfapp

STAGES = (
    "data.next_wait",
    "model.fwd_loss_cpu_wall",
    "model.backward_cpu_wall",
    "callbacks.cpu_wall",
    "optim.step_cpu_wall",
)

Stage = Callable[[str], AbstractContextManager[object]]
Step = Callable[[], AbstractContextManager[object]]


class Training:
    """A small DDP job whose step takes about as long as asked."""

    def __init__(self, step_ms: float) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(*(nn.Linear(96, 96) for _ in range(3))))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.ones(16, 96)
        self.rest = 0.0
        self.block(20, *nothing())
        # A bare step takes what it takes; the rest is waited, as for an accelerator.
        bare = self.block(60, *nothing()) / 60
        self.rest = max(0.0, step_ms / 1e3 - bare)

    def block(self, steps: int, step: Step, stage: Stage) -> float:
        """Seconds that some steps took, from the moment that all ranks began."""
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            with step():
                with stage(STAGES[0]):
                    batch = self.batch
                with stage(STAGES[1]):
                    loss = self.model(batch).square().mean()
                with stage(STAGES[2]):
                    if self.rest:
                        time.sleep(self.rest)
                    loss.backward()
                with stage(STAGES[3]):
                    pass
                with stage(STAGES[4]):
                    self.optimizer.step()
                    self.optimizer.zero_grad()
        dist.barrier()
        return time.perf_counter() - begin


def nothing() -> tuple[Step, Stage]:
    empty = contextlib.nullcontext()
    return lambda: empty, lambda name: empty


@contextlib.contextmanager
def tool(name: str, folder: str) -> Iterator[tuple[Step, Stage]]:
    """A recorder or its like, as its users leave it on."""
    if name == "sfapp":
        with sfapp.Recorder(folder, run_id="bench", wrapper="ddp") as perf:
            yield perf.step, perf.stage
    elif name == "profiler":
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities):
            yield lambda: contextlib.nullcontext(), torch.profiler.record_function
    else:
        yield nothing()


def main() -> None:
    out, name, step_ms, blocks, steps = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Training(float(step_ms))
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        if name == "profiler":  # it cannot be left on for long: on for one block at a time
            for place in range(int(blocks)):
                pairs.append(_pair(training, name, folder, int(steps), place))
        else:
            with tool(name, folder) as recorded:
                for place in range(int(blocks)):
                    pairs.append(_pair_with(training, recorded, int(steps), place))
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps({"pairs": pairs, "steps": int(steps)}))
    dist.barrier()
    dist.destroy_process_group()


def _pair_with(
    training: Training, recorded: tuple[Step, Stage], steps: int, place: int
) -> tuple[float, float]:
    """(off, on), in an order that changes from pair to pair, so that drift counts for neither."""
    if place % 2:
        on = training.block(steps, *recorded)
        return training.block(steps, *nothing()), on
    off = training.block(steps, *nothing())
    return off, training.block(steps, *recorded)


def _pair(training: Training, name: str, folder: str, steps: int, place: int) -> tuple[float, float]:
    def on() -> float:
        with tool(name, folder) as recorded:
            return training.block(steps, *recorded)

    if place % 2:
        spent = on()
        return training.block(steps, *nothing()), spent
    off = training.block(steps, *nothing())
    return off, on()


if __name__ == "__main__":
    main()
