"""Build a window from per-rank durations; shared by all formats."""

from __future__ import annotations

from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from sfapp.errors import TraceError
from sfapp.model import (
    RESIDUAL,
    Accumulation,
    Manifest,
    Parallelism,
    RankIdentity,
    RankTable,
    RecorderInfo,
    stage_hash,
)
from sfapp.model.manifest import MAX_WORLD_SIZE
from sfapp.packets import WindowDraft

IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowInfo:
    """Manifest fields of a window; times in ns since 1970, None if unknown."""

    run_id: str
    window: int = 0
    world_size: int
    started_ns: int | None = None
    ended_ns: int | None = None
    faults: tuple[str, ...] = ()
    parallelism: Parallelism = field(default_factory=Parallelism)
    accumulation: Accumulation = field(default_factory=Accumulation)
    backend: str = ""


def build_window(
    about: WindowInfo,
    stages: Sequence[str],
    duration_SNR: IntArray,
    wall_NR: IntArray,
    step_N: IntArray,
    identities: Sequence[RankIdentity],
    side_NR: Table[str, FloatArray] | None = None,
    wait_NR: Table[str, IntArray] | None = None,
) -> WindowDraft:
    """Build a window from durations in ns.

    If ``stages`` lacks the residual, it is added: the part of a rank's step that the explicit stages leave
    (accounting.md §2). Expected ranks without a row are listed as missing.

    Args:
        identities: ranks in the order of the last axis, ascending.
        wait_NR: by stage, how long each rank was blocked in group communication, ns, at most the stage's
            duration; ``NOT_MEASURED`` where the source does not show it (accounting.md §15).

    Raises:
        WindowError: the shapes are inconsistent.
        TraceError: there are more ranks than any job has.
    """
    names = tuple(stages)
    if RESIDUAL not in names:
        rest_NR = np.maximum(wall_NR - duration_SNR.sum(axis=0, dtype=np.int64), 0)
        duration_SNR = np.concatenate([duration_SNR, rest_NR[None]])
        names = (*names, RESIDUAL)
    ranks = RankTable.of(identities)
    manifest = Manifest(
        run_id=about.run_id,
        window=about.window,
        stages=names,
        stage_hash=stage_hash(names),
        world_size=about.world_size,
        missing_ranks=_missing(about.world_size, tuple(ranks.rank)),
        started_at=as_time(about.started_ns),
        ended_at=as_time(about.ended_ns),
        accumulation=about.accumulation,
        parallelism=about.parallelism,
        faults=about.faults,
        recorder=RecorderInfo(backend=about.backend),
    )
    return WindowDraft(
        manifest=manifest,
        duration_SNR=np.ascontiguousarray(duration_SNR, dtype=np.int64),
        wall_NR=np.ascontiguousarray(wall_NR, dtype=np.int64),
        step_N=np.ascontiguousarray(step_N, dtype=np.int64),
        ranks=ranks,
        side={
            name: (np.ascontiguousarray(value_NR, dtype=np.float64), ~np.isnan(value_NR))
            for name, value_NR in (side_NR or {}).items()
        },
        waits={
            stage: np.ascontiguousarray(blocked_NR, dtype=np.int64)
            for stage, blocked_NR in (wait_NR or {}).items()
        },
    )


@lru_cache(maxsize=1)
def _missing(world_size: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the expected ranks without a row. The windows of a run share the list, which may be long.

    Raises:
        TraceError: there are more ranks than any job has; a few bytes can name the largest one.
    """
    if world_size > MAX_WORLD_SIZE:
        raise TraceError(
            f"rank {world_size - 1:,} is larger than any job: the largest rank is {MAX_WORLD_SIZE - 1:,}"
        )
    present = set(ranks)
    return tuple(rank for rank in range(world_size) if rank not in present)


def as_time(ns: int | None) -> str | None:
    """Return RFC 3339 in UTC; None if unknown or beyond the calendar."""
    if ns is None or not 0 <= ns < 253_402_300_800 * 10**9:  # the year 10000
        return None
    return datetime.fromtimestamp(ns // 1000 / 1e6, UTC).isoformat().replace("+00:00", "Z")
