"""Windows built by hand, for tests that read like a demonstration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.reduction import simulate
from sfapp.model import (
    DEFAULT_STAGES,
    Manifest,
    RankIdentity,
    RankTable,
    SideChannel,
    Window,
    stage_hash,
)
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.job import JobInfo
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.recorder.transport.reduce_algorithm import reduce_window
from sfapp.recorder.transport.reduce_group import reduced_draft

Ints = npt.NDArray[np.int64]

DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER, OTHER = DEFAULT_STAGES
MS = 1_000_000


def window_of(
    durations: Ints | Sequence[Any],
    *,
    stages: Sequence[str] | None = None,
    wall: Ints | None = None,
    first_step: int = 0,
    steps: Sequence[int] | None = None,
    roles: Sequence[str | None] | None = None,
    ranks_per_node: int = 4,
    side: dict[str, SideChannel] | None = None,
    layout: Mapping[str, Sequence[int]] | None = None,
    attributes: Mapping[str, Sequence[str]] | None = None,
    **manifest: Any,
) -> Window:
    """A window of durations in ns [stages, steps, ranks]; everything else has a sensible default."""
    duration_SNR = np.asarray(durations, dtype=np.int64)
    count, step_count, ranks = duration_SNR.shape
    names = tuple(stages) if stages is not None else DEFAULT_STAGES[:count]
    roles = roles if roles is not None else [None] * ranks
    identities = [
        RankIdentity(
            rank, rank % ranks_per_node, rank // ranks_per_node, f"node-{rank // ranks_per_node}", roles[rank]
        )
        for rank in range(ranks)
    ]
    fields = {"run_id": "run", "window": 0, "world_size": ranks} | manifest
    return Window(
        manifest=Manifest(stages=names, stage_hash=stage_hash(names), **fields),
        duration_SNR=duration_SNR,
        wall_NR=duration_SNR.sum(axis=0) if wall is None else wall,
        step_N=np.asarray(range(first_step, first_step + step_count) if steps is None else steps),
        ranks=replace(
            RankTable.of(identities),
            layout={name: tuple(places) for name, places in (layout or {}).items()},
            attributes={name: tuple(values) for name, values in (attributes or {}).items()},
        ),
        side=side or {},
    )


def reduced(window: Window) -> Window:
    """The same window as its ranks would have left it with ``gather="reduce"``; they must share their steps,
    and their last stage be what the others leave of the wall time."""
    ranks = len(window.ranks)
    schema = WindowSchema(window.stages, window.stages, window.manifest.accumulation, None, ())
    parts = []
    for place in range(ranks):
        rows = [window.step_N, window.wall_NR[:, place], *window.duration_SNR[:, :, place]]
        row_NC = np.stack(rows, axis=1)
        identity = window.ranks.identity(place)
        mine = replace(schema, role=identity.role, coordinates=identity.coordinates)
        buffer = WindowBuffer(mine, window.number, row_NC)
        buffer.filled = len(row_NC)
        for stage, wait_NR in window.waits.items():
            known_N = wait_NR[:, place] != NOT_MEASURED
            buffer.channel(WAIT_PREFIX + stage)[known_N] = wait_NR[known_N, place]
        parts.append(reduce_window(buffer, identity, ranks, "1"))
    found, _ = simulate(parts)
    manifest = window.manifest
    job = JobInfo(
        root=Path(),
        run_id=manifest.run_id,
        world_size=manifest.world_size,
        wrapper=manifest.wrapper,
        parallelism=manifest.parallelism,
        prefetch=manifest.prefetch,
        model_fit=manifest.model_fit,
        recorder=manifest.recorder,
    )
    return reduced_draft(job, buffer, found, 0).window()


def by_rank(*ranks: Sequence[float], unit: int = 1_000_000_000) -> Ints:
    """One step from per-rank stage vectors, as the paper prints them: ns [stages, 1, ranks]."""
    return (np.array(ranks, dtype=np.float64).T * unit).round().astype(np.int64)[:, None]


def ddp_job(
    *,
    ranks: int = 8,
    steps: int = 40,
    seed: int = 0,
    extra: dict[tuple[str, int | str], int] | None = None,
    by_step: dict[tuple[str, int], Ints] | None = None,
    every: int = 1,
    since: int = 0,
    jitter: int = 1 * MS,
) -> Ints:
    """A data-parallel job whose ranks synchronise inside backward, event by event: ns [6, steps, ranks].

    Args:
        extra: ns added to a stage on one rank, or on a ``"random"`` one a step, or on ``"all"``.
        by_step: ns [steps] added to a stage on one rank.
        every: how often, in steps, the extra time occurs.
        since: the first step in which it does.
    """
    generator = torch.Generator().manual_seed(seed)
    base = dict(zip(DEFAULT_STAGES, (2 * MS, 20 * MS, 40 * MS, 1 * MS, 3 * MS, MS // 10), strict=True))
    noise = [max(1, min(jitter, value // 4)) for value in base.values()]
    work = np.stack(
        [
            value + torch.randint(0, most, (steps, ranks), generator=generator).numpy()
            for value, most in zip(base.values(), noise, strict=True)
        ]
    )
    for (stage, rank), added in (extra or {}).items():
        index = DEFAULT_STAGES.index(stage)
        for step in range(since, steps, every):
            if rank == "all":
                work[index, step] += added
            else:
                drawn = int(torch.randint(0, ranks, (1,), generator=generator))
                work[index, step, drawn if rank == "random" else int(rank)] += added
    for (stage, rank), extra_N in (by_step or {}).items():
        work[DEFAULT_STAGES.index(stage), :, rank] += extra_N
    clock = np.zeros(ranks, dtype=np.int64)
    sync = DEFAULT_STAGES.index(BACKWARD)
    for step in range(steps):
        for index in range(len(DEFAULT_STAGES)):
            clock = clock + work[index, step]
            if index == sync:
                work[index, step] += clock.max() - clock
                clock = np.full_like(clock, int(clock.max()))
    return work


def lasting_fault(
    stage: str = OPTIMIZER, *, ranks: int = 8, rank: int = 1, seed: int = 0, run_id: str = "run"
) -> list[Window]:
    """A run of six windows of 40 steps, cut from one job: a stage 60 ms late on one rank from the middle of
    the third on. From the fourth on the rank is late by the same in every step of a window."""
    steps, late = 40, (stage, rank)
    job = ddp_job(
        ranks=ranks, steps=6 * steps, seed=seed, extra={late: 60 * MS}, since=2 * steps + steps // 2
    )
    return [
        window_of(
            job[:, first : first + steps],
            first_step=first,
            ranks_per_node=max(1, ranks // 2),
            run_id=run_id,
            window=first // steps,
        )
        for first in range(0, 6 * steps, steps)
    ]


STEP_NS = 66 * MS
"""About what a step of ``ddp_job`` takes."""


def late_in_data(rank: int = 2, *, part: float = 0.2, since: int = 0, steps: int = 20, seed: int = 0) -> Ints:
    """A job of four ranks, one of which takes longer in data from a step on, by a part of the step."""
    extra: dict[tuple[str, int | str], int] = {(DATA, rank): int(part * STEP_NS)}
    return ddp_job(ranks=4, steps=steps, extra=extra, since=since, seed=seed)
