"""Reduce windows over a process group; the data that rank 0 receives does not grow with the number of
ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from sfapp.model.rank_table import RankIdentity
from sfapp.model.reduced import ReducedPlanes, Reduction
from sfapp.packets.compose import compose_draft, manifest_of
from sfapp.packets.job import JobInfo
from sfapp.packets.packet_layout import WAIT_PREFIX
from sfapp.packets.window_draft import WindowDraft
from sfapp.packets.window_rows import WindowBuffer
from sfapp.recorder.transport.distributed_group import DistributedGroup
from sfapp.recorder.transport.gather_messages import GatherHello, accumulation_text, decode_message
from sfapp.recorder.transport.reduce_algorithm import ReducedRows, ReductionExchange, reduce_window
from sfapp.recorder.transport.reduce_sums import Ints
from sfapp.recorder.transport.transport_group import AgreedStart, GatherResult


class ReduceGroup(DistributedGroup):
    """Group that reduces a window to its frontier and a few ranks' rows on rank 0, over Gloo."""

    takes_several = False

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> AgreedStart:
        """Agree on the names of run and attempt (rank 0's) and on the next window and step (the highest).

        Raises:
            GatherFailed: a rank is gone or late.
        """
        self._identity = identity
        newest = self._exchange(
            ReductionExchange("max_everywhere", np.array([next_window, next_step], dtype=np.int64))
        )
        mine = GatherHello.of(identity, run_id, *newest.tolist())
        return decode_message(self._broadcast(msgspec.json.encode(mine)), GatherHello).start

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, list[GatherResult]]:
        """Find the first window's frontier with the other ranks; the result is on rank 0.

        Raises:
            GatherRefused: ranks have different windows, steps or stages.
            GatherFailed: a rank is gone or late.
        """
        buffer = buffers[0]
        accumulation = accumulation_text(buffer.schema.accumulation)
        part = reduce_window(buffer, self._identity, self.world_size, accumulation)
        reduced: Ints | None = None
        while True:
            try:
                exchange = next(part) if reduced is None else part.send(reduced)
            except StopIteration as ended:
                return 1, [] if ended.value is None else [ReducedWindow(ended.value)]
            reduced = self._exchange(exchange)

    def _exchange(self, exchange: ReductionExchange) -> Ints:
        """Return the reduction of the ranks' numbers; undefined on ranks that do not receive it."""
        import torch

        mine = torch.from_numpy(exchange.mine.copy())
        if exchange.how == "max_everywhere":
            reduced = self._maximum(mine)
        else:
            reduced = self._reduce(mine, exchange.how)
        found: Ints = reduced.numpy()
        return found


class ReducedWindow:
    """Result of reducing a window, on rank 0."""

    def __init__(self, rows: ReducedRows) -> None:
        self.rows = rows
        self.faults = rows.faults
        self.objection = ""  # Steps are compared before rows are sent.

    def draft(self, job: JobInfo, buffer: WindowBuffer, gather_ns: int) -> WindowDraft:
        """Return the window's draft."""
        return reduced_draft(job, buffer, self.rows, gather_ns)


def reduced_draft(job: JobInfo, buffer: WindowBuffer, found: ReducedRows, gather_ns: int) -> WindowDraft:
    """Return the draft with all ranks' frontier and a few ranks' rows. Waits are the only side channels that
    are reduced."""
    stages = buffer.schema.stages
    waits = [stages[stage] for stage in found.waited]
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
        waits=tuple(waits),
    )
    manifest = replace(manifest_of(job, buffer, None, gather_ns), reduced=reduction)
    left_out = sorted(buffer.side.keys() - {WAIT_PREFIX + stage for stage in stages})
    if left_out:
        manifest = replace(manifest, extra={**manifest.extra, "side_left_out": left_out})
    planes = ReducedPlanes(**{f"{name}_SN": plane for name, plane in found.plane_SN.items()}, own=found.own)
    draft = compose_draft(manifest, found.row_KNC, (), found.identities, planes)
    wait_VNK = found.wait_KVN.transpose(1, 2, 0)
    return replace(draft, waits=dict(zip(waits, wait_VNK, strict=True)))
