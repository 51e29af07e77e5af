"""Jobs with pipeline parallelism, simulated exactly: when each piece of work begins and ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sfapp.model import Accumulation, Window
from tests.builders import BACKWARD, FORWARD, MS, window_of

Floats = npt.NDArray[np.float64]

WAIT = "pipeline.wait"


def one_step(forward_PM: Floats, backward_PM: Floats, schedule: str = "1f1b") -> tuple[float, Floats, Floats]:
    """Return the length of a step, and the waits before each forward and each backward [P, M]."""
    stages, micro_steps = forward_PM.shape
    queues = []
    for stage in range(stages):
        ahead = micro_steps if schedule == "gpipe" else min(micro_steps, stages - stage)
        order = [("F", k) for k in range(ahead)]
        for k in range(micro_steps):
            order.append(("B", k))
            if ahead + k < micro_steps:
                order.append(("F", ahead + k))
        queues.append(order)
    clock = [0.0] * stages
    end: dict[tuple[str, int, int], float] = {}
    waits = {"F": np.zeros_like(forward_PM), "B": np.zeros_like(forward_PM)}
    while any(queues):
        for stage, queue in enumerate(queues):
            if not queue:
                continue
            kind, k = queue[0]
            source = stage - 1 if kind == "F" else stage + 1
            ready = 0.0
            if 0 <= source < stages:
                if (kind, source, k) not in end:
                    continue
                ready = end[kind, source, k]
            begin = max(clock[stage], ready)
            waits[kind][stage, k] = begin - clock[stage]
            clock[stage] = begin + (forward_PM if kind == "F" else backward_PM)[stage, k]
            end[kind, stage, k] = clock[stage]
            queue.pop(0)
    return max(clock), waits["F"], waits["B"]


def pipeline_window(
    forward_NPM: Floats,
    backward_NPM: Floats,
    *,
    schedule: str = "1f1b",
    merged: bool = False,
    number: int = 0,
) -> Window:
    """A window of one rank per pipeline stage with measured waits; times in ms."""
    steps, stages, micro_steps = forward_NPM.shape
    durations = np.zeros((2 * micro_steps + 1, steps, stages))
    blocked = np.zeros_like(durations)
    for step in range(steps):
        length, before_f, before_b = one_step(forward_NPM[step], backward_NPM[step], schedule)
        blocked[0:-1:2, step], blocked[1:-1:2, step] = before_f.T, before_b.T
        durations[0:-1:2, step] = (forward_NPM[step] + before_f).T
        durations[1:-1:2, step] = (backward_NPM[step] + before_b).T
        durations[-1, step] = length - durations[:-1, step].sum(axis=0)
    names = [f"{name}[{k}]" for k in range(micro_steps) for name in (FORWARD, BACKWARD)]
    if merged:
        own = durations[:-1] - blocked[:-1]
        waited = blocked[:-1].sum(axis=0) + durations[-1]
        durations, names = (
            np.stack([own[0::2].sum(axis=0), own[1::2].sum(axis=0), waited]),
            [FORWARD, BACKWARD],
        )
    window = window_of(
        (durations * MS).round().astype(np.int64),
        stages=[*names, WAIT],
        roles=[f"pp{stage}" for stage in range(stages)],
        accumulation=Accumulation(factor=micro_steps, ordered=not merged, sync="last"),
        window=number,
        first_step=number * steps,
    )
    if merged:
        return window
    waits = {name: (plane * MS).astype(np.int64) for name, plane in zip(names, blocked, strict=False)}
    return replace(window, waits=waits)


def work(
    stages: int = 4, micro_steps: int = 8, steps: int = 20, seed: int = 0, noise: float = 0.01
) -> tuple[Floats, Floats]:
    """Return balanced times of forward (10 ms) and backward (20 ms), [steps, stages, micro-steps]."""
    random = np.random.default_rng(seed)
    shape = (steps, stages, micro_steps)
    return 10 * (1 + noise * random.standard_normal(shape)), 20 * (1 + noise * random.standard_normal(shape))
