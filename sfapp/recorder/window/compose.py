"""From gathered rows, or one rank's own, to the window that a packet holds (packet.md)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sfapp.model.manifest import Manifest, Overhead, Parallelism, Prefetch, RecorderInfo, Wrapper
from sfapp.model.reduced import ReducedPlanes, Reduction
from sfapp.model.stages import stage_hash
from sfapp.model.window import RankIdentity, RankTable
from sfapp.recorder.side_channels.channels import Values, is_sampled
from sfapp.recorder.timing.timers import FIRST_STAGE_COLUMN, STEP_COLUMN, WALL_COLUMN
from sfapp.recorder.transport.reduce_algorithm import ReducedRows
from sfapp.recorder.window.buffers import Rows, WindowBuffer

if TYPE_CHECKING:
    from sfapp.packets import Draft

_PACKET_NAME = re.compile(r"^(\d{8,})(\.rank\d+)?\.parquet$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a packet says of the job, the same for all windows of one recorder."""

    root: Path
    run_id: str
    world_size: int
    wrapper: Wrapper
    parallelism: Parallelism
    prefetch: Prefetch
    model_fit: bool
    recorder: RecorderInfo
    extra: dict[str, Any] = field(default_factory=dict)

    def next_window(self, rank: int | None = None) -> int:
        """The first window number that no packet of this run has yet: a job that is started again goes on.

        Args:
            rank: where ranks cannot agree on a number: leaves out what the others may have written since
                they all were started.
        """
        from sfapp.packets import packet_path

        folder = packet_path(self.root, self.run_id, 0).parent
        try:
            found = [(name, path) for path in folder.iterdir() if (name := _PACKET_NAME.match(path.name))]
        except OSError:  # none yet, or not to be read: the writer will say so
            return 0
        if rank is not None:
            began, mine = _process_began(), (None, f".rank{rank}")
            found = [(name, path) for name, path in found if name[2] in mine or _was_there(path, began)]
        return max((int(name[1]) + 1 for name, _ in found), default=0)


def _process_began() -> float:
    """When this process was started, in seconds since the epoch; where the system does not say, long ago."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):
        return 0.0
    return time.time() - age


def _was_there(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime < moment
    except OSError:  # gone meanwhile
        return False


def whole_draft(
    job: Job,
    buffer: WindowBuffer,
    row_RNC: Rows,
    channels: Sequence[str],
    identities: Sequence[RankIdentity],
    gather_ns: int,
) -> Draft:
    """The window of all ranks, as its packet is to hold it.

    Args:
        row_RNC: int64 [R, N, 2 + S + K], in the order of ``identities``, ascending by rank.
        channels: the K side channels that the last columns hold the bits of.
        gather_ns: what bringing it together took.
    """
    return _draft(_manifest(job, buffer, None, gather_ns), row_RNC, channels, identities)


def reduced_draft(job: Job, buffer: WindowBuffer, found: ReducedRows, gather_ns: int) -> Draft:
    """The window of all ranks' frontier and a few ranks' rows. Side channels are not reduced."""
    import torch

    stages = buffer.schema.stages
    reduction = Reduction(
        ranks=found.ranks,
        nodes=found.nodes,
        leaders=found.leaders,
        named=found.named,
        residual_ns=found.residual_ns,
        wall_ns=found.wall_ns,
        overlap_share=found.overlap_share,
        lag_counts={
            stage: tuple(counts) for stage, counts in zip(stages, found.lag_SB.tolist(), strict=True)
        },
        roles_differ=found.roles_differ,
    )
    manifest = replace(_manifest(job, buffer, None, gather_ns), reduced=reduction)
    if buffer.side:
        manifest = replace(manifest, extra={**manifest.extra, "side_left_out": sorted(buffer.side)})
    planes = {
        f"{name}_SN": torch.from_numpy(np.ascontiguousarray(plane)) for name, plane in found.plane_SN.items()
    }
    return _draft(manifest, found.row_KNC, (), found.identities, ReducedPlanes(**planes))


def part_draft(job: Job, buffer: WindowBuffer, identity: RankIdentity, error: str | None) -> Draft:
    """The window of this rank alone; ``error`` says why the others are not in it, None in a job of one.

    A part lacks all ranks but one. They are not listed: the parts of a large job would grow as its square.
    """
    channels = sorted(buffer.side)
    return _draft(_manifest(job, buffer, error, 0), buffer.packed(channels)[None], channels, [identity])


def _draft(
    manifest: Manifest,
    row_RNC: Rows,
    channels: Sequence[str],
    identities: Sequence[RankIdentity],
    reduced: ReducedPlanes | None = None,
) -> Draft:
    from sfapp.packets import Draft

    cell_CNR = row_RNC.transpose(2, 1, 0)
    ordered = FIRST_STAGE_COLUMN + len(manifest.stages)
    return Draft(
        manifest=manifest,
        duration_SNR=np.ascontiguousarray(cell_CNR[FIRST_STAGE_COLUMN:ordered]),
        wall_NR=np.ascontiguousarray(cell_CNR[WALL_COLUMN]),
        step_N=np.ascontiguousarray(cell_CNR[STEP_COLUMN, :, 0]),
        ranks=RankTable.of(identities),
        side={name: _side(bits_NR) for name, bits_NR in zip(channels, cell_CNR[ordered:], strict=True)},
        reduced=reduced,
    )


def _side(bits_NR: Rows) -> tuple[Values, npt.NDArray[np.bool_]]:
    bits = np.ascontiguousarray(bits_NR)
    sampled = is_sampled(bits)
    return np.where(sampled, bits.view(np.float64), np.nan), sampled


def _manifest(job: Job, buffer: WindowBuffer, error: str | None, gather_ns: int) -> Manifest:
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
        started_at=_rfc3339(buffer.started_at),
        ended_at=_rfc3339(buffer.ended_at),
        closed_by=buffer.closed_by,
        accumulation=buffer.schema.accumulation,
        parallelism=job.parallelism,
        wrapper=job.wrapper,
        model_fit=job.model_fit,
        prefetch=job.prefetch,
        recorder=job.recorder,
        overhead=Overhead(gather_ns=gather_ns, record_ns=buffer.record_ns, train_ns=buffer.train_ns),
        faults=tuple(buffer.faults),
        extra={name: value for name, value in extra.items() if value},
    )


def _rfc3339(moment: datetime | None) -> str | None:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z" if moment else None
