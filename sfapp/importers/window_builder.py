"""From what an importer found per rank to a window: shared by all formats."""

from __future__ import annotations

from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

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
from sfapp.packets import Draft

IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a window's manifest says beside its numbers; times in ns since 1970, None where not known."""

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
    about: About,
    stages: Sequence[str],
    duration_SNR: IntArray,
    wall_NR: IntArray,
    step_N: IntArray,
    identities: Sequence[RankIdentity],
    side_NR: Table[str, FloatArray] | None = None,
) -> Draft:
    """A window of these numbers, ns; rank planes in the order of ``identities``, which must ascend by rank.

    Where ``stages`` does not end in the residual, it is added: what the explicit stages leave of a rank's
    step (accounting.md §2). Expected ranks without a row are missing.

    Raises:
        WindowError: shapes do not fit together.
    """
    names = tuple(stages)
    if RESIDUAL not in names:
        rest_NR = np.maximum(wall_NR - duration_SNR.sum(axis=0, dtype=np.int64), 0)
        duration_SNR = np.concatenate([duration_SNR, rest_NR[None]])
        names = (*names, RESIDUAL)
    ranks = RankTable.of(identities)
    present = set(ranks.rank)
    manifest = Manifest(
        run_id=about.run_id,
        window=about.window,
        stages=names,
        stage_hash=stage_hash(names),
        world_size=about.world_size,
        missing_ranks=tuple(rank for rank in range(about.world_size) if rank not in present),
        started_at=as_time(about.started_ns),
        ended_at=as_time(about.ended_ns),
        accumulation=about.accumulation,
        parallelism=about.parallelism,
        faults=about.faults,
        recorder=RecorderInfo(backend=about.backend),
    )
    return Draft(
        manifest=manifest,
        duration_SNR=np.ascontiguousarray(duration_SNR, dtype=np.int64),
        wall_NR=np.ascontiguousarray(wall_NR, dtype=np.int64),
        step_N=np.ascontiguousarray(step_N, dtype=np.int64),
        ranks=ranks,
        side={
            name: (np.ascontiguousarray(value_NR, dtype=np.float64), ~np.isnan(value_NR))
            for name, value_NR in (side_NR or {}).items()
        },
    )


def as_time(ns: int | None) -> str | None:
    """RFC 3339 in UTC; None where it is not known or no time a calendar holds."""
    if ns is None or not 0 <= ns < 253_402_300_800 * 10**9:  # the year 10000
        return None
    return datetime.fromtimestamp(ns // 1000 / 1e6, UTC).isoformat().replace("+00:00", "Z")
