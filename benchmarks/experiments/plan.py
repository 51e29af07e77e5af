"""The plan of faults by job and window."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

DATA = "data.next_wait"
FORWARD = "model.fwd_loss_cpu_wall"
BACKWARD = "model.backward_cpu_wall"
CALLBACKS = "callbacks.cpu_wall"
OPTIMIZER = "optim.step_cpu_wall"

STAGE_OF = {
    "data": DATA,
    "backward": BACKWARD,
    "backward/comm": BACKWARD,
    "forward/device": FORWARD,
    "forward/host": FORWARD,
    "callback/sync": CALLBACKS,
    "callback/host": CALLBACKS,
    "optimizer/host": OPTIMIZER,
}
"""Fault family -> the stage with the fault.

data, forward/host, backward, optimizer/host: the rank sleeps there. forward/device: it multiplies matrices
for as long, because a CPU has no separate queue. backward/comm: it comes late to the exchange of gradients,
inside backward. callback/sync: it sleeps in a callback that ends with a barrier; callback/host: in a callback
without one.
"""

HIDDEN_RANK = ("data", "backward", "backward/comm", "forward/device", "forward/host")
"""The paper's five scenarios (E3)."""

BEYOND = ("callback/host", "optimizer/host")
"""Families that the paper leaves unrouted: no group wait follows the delay within the step."""

KEPT_ON = ", kept on"
"""Suffix of an experiment's name for the second window in a row with the same fault."""

AFTERWARDS = "after a host-only fault"
"""Experiment of the healthy window whose first step still waits for the rank that was late."""

STEPS = 16
"""Steps of a window; the wait fit needs ten."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """The fault in one window.

    Attributes:
        experiment: the table of the window.
        family: None without a fault.
        delay_ms: delay of each step.
        rank: the late rank.
    """

    experiment: str
    family: str | None = None
    delay_ms: int = 0
    rank: int = 0
    seed: int = 0

    @property
    def stage(self) -> str | None:
        return STAGE_OF[self.family] if self.family else None


Windows = tuple[PlannedFault, ...]
"""Consecutive windows of a run."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One launch: a run of windows.

    Attributes:
        training: ``ddp``, ``accumulation`` (four micro-steps), ``fsdp`` (FULL_SHARD), ``zero1``.
        pace: multiple of the 100 ms that an accelerator would take for a step. It brings a healthy step close
            to the paper's 207 and 235 ms, and a delay of 120 ms to the same part of it.
    """

    name: str
    training: str
    ranks: int
    steps: int
    pace: float
    faults: tuple[PlannedFault, ...]

    @property
    def module(self) -> str:
        """The script that torchrun starts on every rank."""
        return "benchmarks.experiments.routing_job"


def hidden(
    experiment: str, families: Iterable[str], seeds: int, delay_ms: int, ranks: int
) -> Iterator[PlannedFault]:
    """Return every family at every seed, on a rank chosen by the seed."""
    for family in families:
        for seed in range(seeds):
            rank = random.Random(f"{family} {seed} {ranks}").randrange(ranks)
            yield PlannedFault(experiment, family, delay_ms, rank, seed)


def healthy(count: int, experiment: str = "no fault") -> Iterator[PlannedFault]:
    for seed in range(count):
        yield PlannedFault(experiment, seed=seed)


def kept_on(experiment: str, families: Iterable[str], delay_ms: int, ranks: int) -> Iterator[Windows]:
    """Return three seeds of every family, two windows each; the second begins with the fault present."""
    for fault in hidden(experiment, families, 3, delay_ms, ranks):
        yield fault, replace(fault, experiment=experiment + KEPT_ON)


def removed(seeds: int, delay_ms: int, ranks: int) -> Iterator[PlannedFault]:
    """Return the windows of A/B/A: healthy, a slow callback with a barrier, healthy again."""
    for fault in hidden("A/B/A", ["callback/sync"], seeds, delay_ms, ranks):
        yield PlannedFault("A/B/A", seed=fault.seed)
        yield fault
        yield PlannedFault("A/B/A", seed=fault.seed)


def interleaved(faults: Iterable[PlannedFault], beyond: Iterable[Windows]) -> Iterator[PlannedFault]:
    """Return a run: a warm-up window, then faults with healthy windows in between.

    Four healthy windows come first and one after every third fault. Another one follows each host-only fault,
    which leaves its rank behind the others: the next step still waits for that rank, and the next fault must
    not start with this.
    """
    without_fault = healthy(1 << 10)
    yield PlannedFault("warm-up")
    yield from islice(without_fault, 4)
    for place, fault in enumerate(faults, start=1):
        yield fault
        if place % 3 == 0:
            yield next(without_fault)
    for windows in beyond:
        yield from windows
        yield PlannedFault(AFTERWARDS)


def full() -> tuple[PlannedJob, ...]:
    """Return the plan of all tables: about 25 minutes on two cores."""
    jobs = []
    for ranks, pace in ((8, 1.85), (32, 1.85)):
        faults = [*hidden("routing", HIDDEN_RANK, 5, 120, ranks)]
        faults += hidden("callbacks", ("callback/sync",), 3, 120, ranks)
        for delay in (12, 30, 60, 180):
            faults += hidden("detectability", ("data",), 3, delay, ranks)
        if ranks == 8:
            for delay in (60, 180, 240):
                faults += hidden("callbacks", ("callback/sync",), 3, delay, ranks)
        windows = [*interleaved(faults, kept_on("beyond", BEYOND, 120, ranks))]
        if ranks == 8:
            windows += removed(3, 120, ranks)
        jobs.append(PlannedJob(f"ddp-{ranks}", "ddp", ranks, STEPS, pace, tuple(windows)))
    accumulated = hidden("accumulation", ("data", "backward", "forward/host"), 5, 120, 8)
    jobs.append(
        PlannedJob("accumulation-8", "accumulation", 8, STEPS, 1.85, tuple(interleaved(accumulated, ())))
    )
    for training in ("fsdp", "zero1"):
        faults = [*hidden(training, ("data", "backward", "forward/host", "callback/sync"), 3, 180, 8)]
        windows = [*interleaved(faults, kept_on(training, ("optimizer/host",), 180, 8))]
        jobs.append(PlannedJob(f"{training}-8", training, 8, STEPS, 1.85, tuple(windows)))
    return tuple(jobs)


def small() -> tuple[PlannedJob, ...]:
    """Return the plan for the tests: one launch of four ranks."""
    faults = [PlannedFault("warm-up"), *healthy(2), *hidden("routing", ("data", "forward/host"), 1, 120, 4)]
    faults += hidden("beyond", ("callback/host",), 1, 120, 4)
    return (PlannedJob("ddp-4", "ddp", 4, 12, 1.0, (*faults, PlannedFault(AFTERWARDS))),)
