"""Blocks of training steps with a tool and without it, interleaved; started by torchrun or ``traceml run``.

recorder_job.py OUT.json TOOL STEP_MS ROUNDS GROUPS STEPS REAL_TIME: TOOL is ``sfapp`` (without host
evidence), ``waits`` (the same, measuring waits too), ``host`` (that, with host evidence), ``stream`` (as
``sfapp``, streaming to SFAPP_STREAM), ``traceml`` or ``profiler``. A round has GROUPS groups of three blocks
of STEPS steps: one with the tool, two without. REAL_TIME is 1 for the real-time policy, 0 for the kernel's
usual one. Rank 0 writes the seconds of every round by kind.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

import sfapp
from benchmarks import machine
from benchmarks.overhead import KINDS, ON, schedule
from sfapp.recorder.options import SideChannelOptions
from sfapp.recorder.side_channels.communication import COMMUNICATION
from sfapp.recorder.side_channels.stage_waits import WatchedWaits

STAGES = (
    "data.next_wait",
    "model.fwd_loss_cpu_wall",
    "model.backward_cpu_wall",
    "callbacks.cpu_wall",
    "optim.step_cpu_wall",
)

Step = Callable[[], None]


class Training:
    """A small DDP job with steps of about the given length."""

    def __init__(self, step_ms: float) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(*(nn.Linear(96, 96) for _ in range(3))))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.data = torch.ones(16, 96)
        self.rest = 0.0
        self.block(20, self.plain)
        # The shortest time of a bare step is undisturbed; a wait fills the rest, as for an accelerator.
        bare = min(self.block(20, self.plain) for _ in range(20)) / 20
        self.rest = max(0.0, step_ms / 1e3 - bare)

    def block(self, steps: int, step: Step) -> float:
        """Return the seconds of some steps, from the common begin of all ranks to the end of the last."""
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        dist.barrier()
        return time.perf_counter() - begin

    def plain(self) -> None:
        """Run a step without any tool."""
        loss = self.forward(self.data)
        self.backward(loss)
        self.update()

    def recorded(self, perf: sfapp.Recorder) -> None:
        """Run the same step, instrumented."""
        with perf.step():
            with perf.stage(STAGES[0]):
                data = self.data
            with perf.stage(STAGES[1]):
                loss = self.forward(data)
            with perf.stage(STAGES[2]):
                self.backward(loss)
            with perf.stage(STAGES[3]):
                pass
            with perf.stage(STAGES[4]):
                self.update()

    def profiled(self) -> None:
        """Run the same step, its stages named for torch.profiler."""
        with record_function(STAGES[1]):
            loss = self.forward(self.data)
        with record_function(STAGES[2]):
            self.backward(loss)
        with record_function(STAGES[4]):
            self.update()

    def traced(self, trace_step: Callable[[nn.Module], AbstractContextManager[None]]) -> None:
        """Run the same step for TraceML, which detects the stages itself."""
        with trace_step(self.model):
            self.plain()

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(data).square().mean()
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        if self.rest:
            time.sleep(self.rest)
        loss.backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that watches training.

    Attributes:
        step: runs a step with it.
        around: untimed context of a block of such steps.
        late: returns the number of windows that are being written.
    """

    step: Step
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    late: Callable[[], int] = lambda: 0


class WaitHooks:
    """The hooks of ``watch_waits``, active only within its own blocks, so that the others do not bear their
    cost."""

    def __init__(self, model: nn.Module, perf: sfapp.Recorder) -> None:
        """Remove them, once the recorder knows which gradient comes last."""
        waits = perf._channels._waits
        assert isinstance(waits, WatchedWaits)
        assert not waits.is_learning
        (gradients,) = waits._gradients
        (place,) = gradients._handles
        self._waits = waits
        self._parameter: Any = list(model.parameters())[place]
        waits.close()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Install them for a block."""
        waits = self._waits
        hook = self._parameter.register_post_accumulate_grad_hook(waits._page.gradient_is_ready)
        COMMUNICATION.listen(waits, get_ident(), waits._page.was_blocked)
        try:
            yield
        finally:
            COMMUNICATION.stop(waits, get_ident())
            hook.remove()


@contextmanager
def tool(name: str, training: Training, steps: int) -> Iterator[Tool]:
    """Yield a tool in its usual configuration."""
    if name in ("sfapp", "waits", "host", "stream"):
        folder, side = tempfile.TemporaryDirectory(), SideChannelOptions(evidence=name == "host")
        with (
            folder as output,
            sfapp.Recorder(output, run_id="bench", wrapper="ddp", side_channels=side) as perf,
        ):
            recorded = Tool(lambda: training.recorded(perf), late=lambda: under_way(perf))
            if name in ("waits", "host"):
                perf.watch_waits(training.model)
                training.block(10, recorded.step)
                recorded = replace(recorded, around=WaitHooks(training.model, perf).in_place)
            # One window, then most of a block, so that windows close early in a block, which then contains
            # the cost of closing them.
            training.block(100 + 4 * steps // 5, recorded.step)
            yield recorded
    elif name == "traceml":
        import traceml_ai

        traceml_ai.init(mode="auto")
        yield Tool(lambda: training.traced(traceml_ai.trace_step))
    else:  # The profiler cannot stay on for long, so it is on for one block at a time.
        activities = [torch.profiler.ProfilerActivity.CPU]
        yield Tool(training.profiled, lambda: torch.profiler.profile(activities=activities))


def under_way(perf: sfapp.Recorder) -> int:
    """Return the number of windows being gathered or written, without those that wait for a batch."""
    group, pending = perf._windows.rank.group, perf.pending
    return pending if pending >= (1 if group is None else group.batch_size) else 0


def main() -> None:
    out, name = sys.argv[1:3]
    step_ms = float(sys.argv[3])
    rounds, groups, steps = (int(argument) for argument in sys.argv[4:7])
    if int(sys.argv[7]):
        machine.use_real_time()  # Before any thread is started: threads inherit it.
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Training(step_ms)
    with tool(name, training, steps) as under_test:
        document = measured(training, under_test, rounds, groups, steps)
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(document))
    dist.barrier()
    dist.destroy_process_group()


def measured(training: Training, under_test: Tool, rounds: int, groups: int, steps: int) -> dict[str, object]:
    """Seconds of every round by kind, and number of windows that also cost time in the block after theirs."""
    kinds = iter(schedule(rounds * groups))
    seconds = [[0.0 for _ in KINDS] for _ in range(rounds)]
    late = 0
    for second_K in seconds:
        for kind in islice(kinds, groups * len(KINDS)):
            if kind == ON:
                with under_test.around():
                    second_K[kind] += training.block(steps, under_test.step)
                late += under_test.late()
            else:
                second_K[kind] += training.block(steps, training.plain)
    return {"rounds": seconds, "steps": groups * steps, "late": late}


if __name__ == "__main__":
    main()
