"""One rank of a training job with one cause of lateness after the other, started by torchrun: PLAN.json OUT.

Model, gradients, loader and optimizer are real; a wait of slightly varying length represents an accelerator's
time, and each rank computes a little in forward. The causes are real, too (``why_causes``).
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import sfapp
from benchmarks.experiments.plan import BACKWARD, DATA, FORWARD, OPTIMIZER
from benchmarks.experiments.routing_job import JITTER, WIDTH
from benchmarks.experiments.why_causes import PlantedCauses, join_group, leave_group
from benchmarks.experiments.why_plan import WhyFault, WhyJob
from sfapp.model import RankIdentity

PACE = {FORWARD: 0.020, BACKWARD: 0.030}
"""Seconds that an accelerator would take."""

COMPUTE_SECONDS = 0.002
"""CPU time that every rank needs in forward."""

WORKER_SECONDS = 0.25
"""Time that the slow worker takes for a batch: longer than a step, else prefetching would hide it."""


class Rows(Dataset[torch.Tensor]):
    """Rows for every step of the job; those of the slow worker's window take longer than a step."""

    def __init__(self, job: WhyJob, rank: int) -> None:
        self.steps = job.steps
        self.slow = {
            number
            for number, fault in enumerate(job.faults)
            if fault.family == "loader worker" and fault.rank == rank
        }
        self.length = len(job.faults) * job.steps

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, step: int) -> torch.Tensor:
        if step // self.steps in self.slow:
            time.sleep(WORKER_SECONDS * random.uniform(0.8, 1.2))
        return torch.full((4, WIDTH), float(step % 7))


class WhyTraining:
    """The job of one rank."""

    def __init__(self, job: WhyJob, out: Path) -> None:
        self.job = job
        self.rank = dist.get_rank()
        self.random = random.Random(f"{job.name} {self.rank}")
        self.causes = PlantedCauses(job, out / f"{job.name}-{self.rank}", self.random)
        torch.manual_seed(0)
        network = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.matrix = torch.ones(64, 64)
        self.repeats = self._repeats()
        loader = DataLoader(
            Rows(job, self.rank), batch_size=None, num_workers=1, multiprocessing_context="fork"
        )
        self.batches: Iterator[torch.Tensor] = iter(loader)
        self.perf = sfapp.Recorder(
            out,
            run_id=job.name,
            window_steps=job.steps,
            identity=RankIdentity(self.rank, self.rank, 0, "node-0"),
            wrapper="ddp",
            timeout=60,
        )
        self.perf.watch_waits(self.model)

    def _repeats(self) -> int:
        """Return how often to multiply in forward: the same number on all ranks."""
        begin = time.thread_time()
        for _ in range(200):
            self.matrix @ self.matrix
        seconds = torch.tensor((time.thread_time() - begin) / 200)
        dist.all_reduce(seconds)
        return max(1, round(COMPUTE_SECONDS * self.job.ranks / float(seconds)))

    def run(self) -> None:
        """Train through all windows, each with its cause."""
        for fault in self.job.faults:
            with self._placed(fault):
                for _ in range(self.job.steps):
                    self._step()
            dist.barrier()
        self.perf.close()
        if self.perf.failures:
            print(*self.perf.failures, sep="\n", file=sys.stderr)

    @contextlib.contextmanager
    def _placed(self, fault: WhyFault) -> Iterator[None]:
        """Cause the fault on its rank."""
        with contextlib.ExitStack() as stack:
            if fault.rank == self.rank:
                stack.enter_context(self.causes.active(fault.family))
            dist.barrier()
            yield

    def _take(self, stage: str) -> None:
        """Wait as long as an accelerator would take for a stage."""
        time.sleep(PACE[stage] * max(0.0, self.random.gauss(1.0, JITTER)))

    def _step(self) -> None:
        perf = self.perf
        with perf.step():
            with perf.stage(DATA):
                batch = next(self.batches)
                self.causes.in_data()
            with perf.stage(FORWARD):
                loss = self.model(batch).square().mean()
                for _ in range(self.repeats):
                    self.matrix @ self.matrix
                self.causes.in_forward()
                self._take(FORWARD)
            with perf.stage(BACKWARD):
                self._take(BACKWARD)
                loss.backward()
            with perf.stage(OPTIMIZER):
                self.optimizer.step()
                self.optimizer.zero_grad()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WhyJob)
    is_throttled = any(
        fault.family == "cgroup throttling" and fault.rank == dist.get_rank() for fault in job.faults
    )
    if is_throttled:  # The recorder reads the control group that it is created in.
        join_group(job.group)
    try:
        WhyTraining(job, Path(sys.argv[2])).run()
    finally:
        if is_throttled:
            with contextlib.suppress(OSError):
                leave_group(job.group)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
