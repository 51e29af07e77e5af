"""Windows of simulated jobs whose hosts record evidence, with a planted cause on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sfapp.model import SideChannel, Window
from sfapp.model.explanation import CauseKind
from sfapp.model.host_evidence import (
    BLOCK_IO,
    GC,
    INVOLUNTARY,
    MAJOR_FAULTS,
    MINOR_FAULTS,
    RUNNABLE,
    THROTTLED,
    VOLUNTARY,
    cpu_channel,
)
from tests.builders import DATA, MS, ddp_job, window_of

Floats = npt.NDArray[np.float64]

LATE = 3
"""The late rank of a window with a cause."""

_OF_TIME: Mapping[CauseKind, str] = {
    "gc": GC,
    "throttled": THROTTLED,
    "no_core": RUNNABLE,
    "storage": BLOCK_IO,
}
"""Channels that hold the time of a cause itself."""

_ON_CPU: tuple[CauseKind, ...] = ("computing", "gc", "page_faults")


def host_job(
    cause: CauseKind | None = None,
    *,
    late_ms: float = 30.0,
    varies: float = 0.5,
    recorded: bool = True,
    unrecorded: tuple[str, ...] = (),
    ranks: int = 8,
    steps: int = 40,
    seed: int = 0,
    stage: str = DATA,
    **window: Any,
) -> Window:
    """Return a window in which rank 3 is late in a stage, for a cause that the host's evidence shows.

    Args:
        cause: None for a healthy job.
        late_ms: mean delay. varies: its standard deviation over steps, as a part of it.
        recorded: whether the evidence follows the delay; else it is that of a healthy host.
        unrecorded: channels to leave out.
    """
    random = np.random.default_rng(seed)
    late_N = np.maximum(0.0, random.normal(late_ms, varies * late_ms, steps))
    by_step = {} if cause is None else {(stage, LATE): (late_N * MS).astype(np.int64)}
    durations = ddp_job(ranks=ranks, steps=steps, seed=seed, by_step=by_step, jitter=MS // 4)
    place = ["data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall"].index(stage)
    wall_NR = durations[place] / MS
    cause_NR = np.zeros((steps, ranks))
    if cause is not None and recorded:
        cause_NR[:, LATE] = late_N
    cpu_NR = 0.3 * np.maximum(0.0, wall_NR - cause_NR) + random.exponential(0.05, (steps, ranks))
    if cause in _ON_CPU:
        cpu_NR = cpu_NR + cause_NR
    values: dict[str, Floats] = {
        cpu_channel(stage): cpu_NR,
        GC: random.exponential(0.2, (steps, ranks)) * (random.random((steps, ranks)) < 0.1),
        RUNNABLE: random.exponential(0.3, (steps, ranks)),
        THROTTLED: np.zeros((steps, ranks)),
        BLOCK_IO: np.zeros((steps, ranks)),
        VOLUNTARY: random.poisson(40, (steps, ranks)).astype(np.float64),
        INVOLUNTARY: random.poisson(3, (steps, ranks)).astype(np.float64),
        MAJOR_FAULTS: np.zeros((steps, ranks)),
        MINOR_FAULTS: random.poisson(200, (steps, ranks)).astype(np.float64),
    }
    if cause is not None and cause in _OF_TIME:
        values[_OF_TIME[cause]] = values[_OF_TIME[cause]] + cause_NR
    if cause == "page_faults":
        values[MINOR_FAULTS] = values[MINOR_FAULTS] + (cause_NR * 1000.0).round()
    side = {
        name: SideChannel(value_NR, np.ones((steps, ranks), dtype=bool))
        for name, value_NR in values.items()
        if name not in unrecorded
    }
    return window_of(durations, side=side, **window)
