"""A window reduced over a process group: what rank 0 receives does not grow with the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sfapp.model.window import RankIdentity
from sfapp.recorder.transport.gather import Result, TelemetryGroup
from sfapp.recorder.transport.gather_messages import Hello, spelled
from sfapp.recorder.transport.reduce_algorithm import Exchange, Ints, ReducedRows, reduce_window
from sfapp.recorder.window.buffers import WindowBuffer
from sfapp.recorder.window.compose import Job, reduced_draft

if TYPE_CHECKING:
    from sfapp.packets import Draft


class ReducingGroup(TelemetryGroup):
    """As ``TelemetryGroup``, with reductions instead of gathers, in everything it does."""

    takes_several = False

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> Hello:
        self._identity = identity
        newest = self._reduce(Exchange("max_everywhere", np.array([next_window, next_step], dtype=np.int64)))
        mine = Hello.of(identity, run_id, *newest.tolist())
        return msgspec.json.decode(self._announce(msgspec.json.encode(mine)), type=Hello)

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, list[Result]]:
        """Find the first window's frontier with the other ranks: the result is on rank 0, none elsewhere.

        Raises:
            GatherRefused: ranks have different windows, steps or stages.
            GatherFailed: a rank is gone or late.
        """
        self._connect()
        buffer = buffers[0]
        accumulation = spelled(buffer.schema.accumulation)
        part = reduce_window(buffer, self._identity, self.world_size, accumulation)
        reduced: Ints | None = None
        while True:
            try:
                exchange = next(part) if reduced is None else part.send(reduced)
            except StopIteration as ended:
                return 1, [] if ended.value is None else [Reduced(ended.value)]
            reduced = self._reduce(exchange)

    def _reduce(self, exchange: Exchange) -> Ints:
        """What the ranks' numbers come to; elsewhere than it is asked for, anything."""
        import torch

        dist = self._dist
        numbers = torch.from_numpy(exchange.mine.copy()).to(self._device)
        everywhere = exchange.how == "max_everywhere"
        options = dist.AllreduceOptions() if everywhere else dist.ReduceOptions()
        options.reduceOp = dist.ReduceOp.SUM if exchange.how == "sum" else dist.ReduceOp.MAX
        if not everywhere:
            options.rootRank = 0
        start = self._group.allreduce if everywhere else self._group.reduce
        self._finish(partial(start, [numbers], options), numbers)
        found: Ints = numbers.cpu().numpy()
        return found


class Reduced:
    """On rank 0: what all ranks found together."""

    def __init__(self, rows: ReducedRows) -> None:
        self.rows = rows
        self.faults = rows.faults
        self.objection = ""  # steps are compared before rows follow

    def draft(self, job: Job, buffer: WindowBuffer, gather_ns: int) -> Draft:
        """What its packet is to hold."""
        return reduced_draft(job, buffer, self.rows, gather_ns)
