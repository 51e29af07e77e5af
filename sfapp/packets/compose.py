"""Compose the draft of a packet from the rows of one rank or of all ranks (packet.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from sfapp.model.manifest import Manifest, Overhead
from sfapp.model.rank_table import RankIdentity, RankTable
from sfapp.model.reduced import ReducedPlanes
from sfapp.model.stages import stage_hash
from sfapp.model.window import NOT_MEASURED
from sfapp.packets.job import JobInfo
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_draft import WindowDraft
from sfapp.packets.window_rows import (
    FIRST_STAGE_COLUMN,
    STEP_COLUMN,
    WALL_COLUMN,
    Rows,
    Values,
    WindowBuffer,
    is_sampled,
)


def whole_draft(
    job: JobInfo,
    buffer: WindowBuffer,
    row_RNC: Rows,
    channels: Sequence[str],
    identities: Sequence[RankIdentity],
    gather_ns: int,
) -> WindowDraft:
    """Return the draft of the window of all ranks.

    Args:
        buffer: one rank's window, from which the manifest is made.
        row_RNC: int64 [R, N, 2 + S + K], in the order of ``identities``, ascending by rank.
        channels: the K side channels whose bits the last columns hold.
        gather_ns: the time that gathering the rows took.
    """
    return compose_draft(manifest_of(job, buffer, None, gather_ns), row_RNC, channels, identities)


def part_draft(job: JobInfo, buffer: WindowBuffer, identity: RankIdentity, error: str | None) -> WindowDraft:
    """Return the draft of one rank's window.

    Missing ranks are not listed, because the total size of a large job's parts would grow with the square of
    its ranks.

    Args:
        error: why the other ranks are missing; None in a job of one rank.
    """
    channels = sorted(buffer.side)
    return compose_draft(
        manifest_of(job, buffer, error, 0), buffer.packed(channels)[None], channels, [identity]
    )


def compose_draft(
    manifest: Manifest,
    row_RNC: Rows,
    channels: Sequence[str],
    identities: Sequence[RankIdentity],
    reduced: ReducedPlanes | None = None,
) -> WindowDraft:
    """Return the draft that holds these rows; arguments are those of ``whole_draft``."""
    cell_CNR = row_RNC.transpose(2, 1, 0)
    ordered = FIRST_STAGE_COLUMN + len(manifest.stages)
    bits_KNR = np.ascontiguousarray(cell_CNR[ordered:])
    sampled_KNR = is_sampled(bits_KNR)
    value_KNR = np.where(sampled_KNR, bits_KNR.view(np.float64), np.nan)
    sides = dict(zip(channels, zip(value_KNR, sampled_KNR, strict=True), strict=True))
    duration_SNR = np.ascontiguousarray(cell_CNR[FIRST_STAGE_COLUMN:ordered])
    waits = {
        stage: waits_of(*sides.pop(WAIT_PREFIX + stage), plane)
        for stage, plane in zip(manifest.stages, duration_SNR, strict=True)
        if WAIT_PREFIX + stage in sides
    }
    return WindowDraft(
        manifest=manifest,
        duration_SNR=duration_SNR,
        wall_NR=np.ascontiguousarray(cell_CNR[WALL_COLUMN]),
        step_N=np.ascontiguousarray(cell_CNR[STEP_COLUMN, :, 0]),
        ranks=RankTable.of(identities),
        side=sides,
        waits=waits,
        reduced=reduced,
    )


def waits_of(value_NR: Values, sampled_NR: npt.NDArray[np.bool_], duration_NR: Rows) -> Rows:
    """Return the waits of a stage, ns, from the side channel that carried them; ``NOT_MEASURED`` where it has
    no value. The result has the shape of the input."""
    with np.errstate(invalid="ignore"):
        wait_NR = np.nan_to_num(value_NR).astype(np.int64).clip(0, duration_NR)
    return np.where(sampled_NR & ~np.isnan(value_NR), wait_NR, NOT_MEASURED)


def manifest_of(job: JobInfo, buffer: WindowBuffer, error: str | None, gather_ns: int) -> Manifest:
    """Return the manifest of a window; ``error`` is why it lacks ranks, None if it does not."""
    seen = {code: detail for code, detail in buffer.faults.items() if detail}
    extra = {**job.extra, "faults_seen": seen, "side_faults": buffer.side_faults}
    extra["nested_ns"] = buffer.nested_ns
    return Manifest(
        run_id=job.run_id,
        window=buffer.number,
        stages=buffer.schema.stages,
        stage_hash=stage_hash(buffer.schema.stages),
        world_size=job.world_size,
        gather_ok=error is None,
        gather_error=error,
        started_at=None if buffer.started_at is None else rfc3339(buffer.started_at),
        ended_at=None if buffer.ended_at is None else rfc3339(buffer.ended_at),
        closed_by=buffer.closed_by,
        accumulation=buffer.schema.accumulation,
        parallelism=job.parallelism,
        wrapper=job.wrapper,
        model_fit=job.model_fit,
        prefetch=job.prefetch,
        recorder=job.recorder,
        overhead=Overhead(gather_ns=gather_ns, record_ns=buffer.record_ns, train_ns=buffer.train_ns),
        faults=tuple(buffer.faults),
        attempt=job.attempt,
        process=job.process,
        extra={name: value for name, value in extra.items() if value},
    )


def rfc3339(moment: datetime) -> str:
    """Return a time in UTC as manifests have it."""
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
