"""Simulated training jobs, healthy or with planted faults.

Each job is simulated rank by rank and step by step; ranks continue together where their wrapper makes them
wait. Jobs vary in ranks, wrapper, noise (of ranks, of whole steps, heavy tails, autocorrelation), drift and
bias between ranks. A fault begins within the third window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from sfapp.model import DEFAULT_STAGES, Manifest, RankTable, Window, stage_hash
from sfapp.model.stages import BACKWARD, CALLBACKS, DATA, FORWARD, OPTIMIZER

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
FaultKind = Literal["persistent", "rotating", "periodic", "transient", "all"]

MS = 1_000_000
STEP_MS = 100.0
SHARES = (0.02, 0.28, 0.60, 0.02, 0.07, 0.01)
"""Parts of a healthy step for the six default stages."""

WINDOWS, STEPS, HEALTHY_WINDOWS = 4, 40, 2
NOISES = (0.01, 0.04, 0.10)
PERIOD, TRANSIENT_STEPS = 10, 2


@dataclass(frozen=True, slots=True)
class Fault:
    """A planted fault.

    Attributes:
        size: time that it adds to each affected step, as a part of a healthy step.
        rank: the affected rank; ignored if the rank changes or all are affected.
        first: first affected step. until: step after the last affected one.
        window: the only one in which it adds time; any if None.
    """

    kind: FaultKind
    stage: str
    rank: int
    size: float
    first: int = HEALTHY_WINDOWS * STEPS
    until: int = WINDOWS * STEPS
    window: int | None = None

    def steps(self) -> Ints:
        """Return the affected steps."""
        if self.kind == "periodic":
            return np.arange(self.first, self.until, PERIOD)
        if self.kind == "transient":
            windows = range(HEALTHY_WINDOWS * STEPS, self.until, STEPS)
            every = [begin + 7 + np.arange(TRANSIENT_STEPS) for begin in windows]
            return np.concatenate(every)
        return np.arange(self.first, self.until)

    def per_step(self, window: int) -> float:
        """Return the time that it adds per step of a window, as a part of a healthy step."""
        return self.size * float(np.count_nonzero(self.steps() // STEPS == window)) / STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """Parameters of a simulated job; noises and biases are relative standard deviations.

    Attributes:
        sync_stages: stages at whose end ranks wait for each other.
        noise: of each rank's time in each step; ``tails``: whether it has heavy tails (Student's t, 3 degrees
            of freedom); ``memory``: its autocorrelation from step to step.
        common: noise of all ranks' time in a step together, such as varying sequence lengths.
        bias: between ranks, the same in all steps. drift: by how much the last step is longer than the first.
        windows: number of windows. between: noise of all ranks' time in a window together, such as other
            programs on shared machines.
    """

    seed: int
    ranks: int
    sync_stages: tuple[str, ...]
    noise: float
    tails: bool
    memory: float
    common: float
    bias: float
    drift: float
    faults: tuple[Fault, ...] = ()
    windows: int = WINDOWS
    between: float = 0.0


def jobs(count: int, seed: int, *, healthy: bool) -> Iterator[SimulatedJob]:
    """Yield varied jobs; faulty ones have one fault, or two in one of eight jobs."""
    random = np.random.default_rng(seed)
    for place in range(count):
        ranks = int(random.choice([2, 4, 8, 32, 128, 256, 1024], p=[0.1, 0.15, 0.25, 0.2, 0.15, 0.1, 0.05]))
        sync_stages = (BACKWARD,) if random.random() < 0.5 else (FORWARD, BACKWARD)
        job = SimulatedJob(
            seed=int(random.integers(2**32)),
            ranks=ranks,
            sync_stages=sync_stages,
            noise=NOISES[place % len(NOISES)],
            tails=bool(random.random() < 0.3),
            memory=float(random.choice([0.0, 0.0, 0.5, 0.9])),
            common=float(random.choice([0.0, 0.05, 0.20])),
            bias=float(random.choice([0.0, 0.002, 0.005])),
            drift=float(random.choice([0.0, 0.0, 0.02])),
        )
        if not healthy:
            faults = [_fault(random, ranks)]
            if random.random() < 1 / 8 and ranks > 2:
                faults.append(_fault(random, ranks))
            job = replace(job, faults=tuple(faults))
        yield job


def _fault(random: np.random.Generator, ranks: int) -> Fault:
    kinds: Sequence[FaultKind] = (
        "persistent",
        "persistent",
        "persistent",
        "rotating",
        "periodic",
        "transient",
        "all",
    )
    kind = kinds[int(random.integers(len(kinds)))]
    sizes = [0.03, 0.05, 0.10, 0.20, 0.40] if kind not in ("periodic", "transient") else [0.2, 0.4, 1, 2, 4]
    return Fault(
        kind=kind,
        stage=str(random.choice([DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER])),
        rank=int(random.integers(ranks)),
        size=float(random.choice(sizes)),
        first=HEALTHY_WINDOWS * STEPS + int(random.integers(STEPS // 2)),
    )


def simulate(job: SimulatedJob, *, waits: bool) -> list[Window]:
    """Return the windows of a job, with the waits within stages on request."""
    random = np.random.default_rng(job.seed)
    steps, stages = job.windows * STEPS, len(DEFAULT_STAGES)
    work_SNR = _work(job, random, steps)
    transfer_N = STEP_MS * MS * 0.01 * np.exp(0.1 * random.standard_normal(steps))
    wait_SNR = np.zeros_like(work_SNR)
    clock_R = np.zeros(job.ranks)
    for step in range(steps):
        for stage in range(stages):
            clock_R += work_SNR[stage, step]
            if DEFAULT_STAGES[stage] in job.sync_stages:
                together = clock_R.max() + transfer_N[step]
                wait_SNR[stage, step] = together - clock_R
                clock_R[:] = together
    whole_wait_SNR = wait_SNR.astype(np.int64)
    duration_SNR = work_SNR.astype(np.int64) + whole_wait_SNR
    return [_window(job, number, duration_SNR, whole_wait_SNR, waits) for number in range(job.windows)]


def _work(job: SimulatedJob, random: np.random.Generator, steps: int) -> Floats:
    """Return each rank's own time, ns [stages, steps, ranks]."""
    shape = (len(DEFAULT_STAGES), steps, job.ranks)
    drawn = random.standard_t(3, shape) / np.sqrt(3) if job.tails else random.standard_normal(shape)
    for step in range(1, steps):
        drawn[:, step] = job.memory * drawn[:, step - 1] + np.sqrt(1 - job.memory**2) * drawn[:, step]
    base_S11 = np.array(SHARES).reshape(-1, 1, 1) * STEP_MS * MS
    common_N1 = np.exp(job.common * random.standard_normal((steps, 1)))
    bias_R = 1 + job.bias * random.standard_normal(job.ranks)
    drift_N1 = 1 + job.drift * np.linspace(0, 1, steps)[:, None]
    work = base_S11 * np.clip(1 + job.noise * drawn, 0.05, None) * bias_R * drift_N1
    computing = [DEFAULT_STAGES.index(FORWARD), DEFAULT_STAGES.index(BACKWARD)]
    work[computing] *= common_N1
    if job.between:
        level_W = np.exp(job.between * random.standard_normal(job.windows))
        work *= np.repeat(level_W, STEPS)[:, None]
    for fault in job.faults:
        _plant(fault, work, random)
    return work


def cost(job: SimulatedJob, window: int) -> float:
    """Return what a job's only fault costs in the steps of a window, ns of the mean step: how much sooner the
    job would end without it."""
    (fault,) = job.faults
    healthy = replace(fault, size=0.0)
    ends = [
        sum(one.wall_NR.sum(axis=0) for one in simulate(replace(job, faults=faults), waits=False)).max()
        for faults in ((replace(fault, window=window),), (healthy,))
    ]
    return float(ends[0] - ends[1]) / STEPS


def _plant(fault: Fault, work: Floats, random: np.random.Generator) -> None:
    stage = DEFAULT_STAGES.index(fault.stage)
    affected = fault.steps()
    extra_N = np.full(len(affected), fault.size * STEP_MS * MS)
    if fault.window is not None:
        extra_N[affected // STEPS != fault.window] = 0.0
    if fault.kind == "all":
        work[stage, affected] += extra_N[:, None]
    elif fault.kind == "rotating":
        work[stage, affected, random.integers(work.shape[2], size=len(affected))] += extra_N
    else:
        work[stage, affected, fault.rank] += extra_N


def _window(
    job: SimulatedJob,
    number: int,
    duration_SNR: npt.NDArray[np.int64],
    wait_SNR: npt.NDArray[np.int64],
    waits: bool,
) -> Window:
    rows = slice(number * STEPS, (number + 1) * STEPS)
    ranks = tuple(range(job.ranks))
    cut_SNR = np.ascontiguousarray(duration_SNR[:, rows])
    return Window(
        manifest=Manifest(
            run_id=f"job-{job.seed}",
            window=number,
            stages=DEFAULT_STAGES,
            stage_hash=stage_hash(DEFAULT_STAGES),
            world_size=job.ranks,
        ),
        duration_SNR=cut_SNR,
        wall_NR=cut_SNR.sum(axis=0),
        step_N=np.arange(number * STEPS, (number + 1) * STEPS),
        ranks=RankTable(
            rank=ranks,
            local_rank=tuple(rank % 8 for rank in ranks),
            node_rank=tuple(rank // 8 for rank in ranks),
            hostname=tuple(f"node-{rank // 8}" for rank in ranks),
            role=(None,) * job.ranks,
        ),
        waits={
            stage: np.ascontiguousarray(wait_SNR[DEFAULT_STAGES.index(stage), rows])
            for stage in (job.sync_stages if waits else ())
        },
    )
