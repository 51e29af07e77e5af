"""A transport whose ranks are threads of one process, without torch.distributed: a small example of one.

One module implements ``TransportGroup``; ``transport_of`` returns the entry for ``TRANSPORTS``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sfapp.model.rank_table import RankIdentity
from sfapp.packets import WindowDraft
from sfapp.packets.compose import whole_draft
from sfapp.packets.job import JobInfo
from sfapp.packets.window_rows import STEP_COLUMN, Rows, WindowBuffer
from sfapp.recorder.transport.gather_errors import GatherFailed, GatherRefused
from sfapp.recorder.transport.transport_group import AgreedStart, Transport


class SharedMemory:
    """What the ranks share: one value of each rank at a time."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.barrier = threading.Barrier(world_size)
        self._value_of: dict[int, Any] = {}

    def exchange(self, rank: int, mine: Any, timeout: float) -> list[Any]:
        """Return every rank's value, in rank order; collective.

        Raises:
            BrokenBarrierError: a rank did not arrive within ``timeout`` seconds.
        """
        self._value_of[rank] = mine
        self.barrier.wait(timeout)
        found = [self._value_of[other] for other in range(self.world_size)]
        self.barrier.wait(timeout)  # Every rank has read the values: they may be replaced.
        return found


@dataclass
class ThreadResult:
    """A window of all ranks, without side channels.

    Attributes:
        row_RNC: int64 [R, N, 2 + S].
    """

    row_RNC: Rows
    identities: Sequence[RankIdentity]
    faults: dict[str, str]
    objection: str = ""

    def draft(self, job: JobInfo, buffer: WindowBuffer, gather_ns: int) -> WindowDraft:
        """Return the window's draft."""
        return whole_draft(job, buffer, self.row_RNC, (), self.identities, gather_ns)


class ThreadGroup:
    """``TransportGroup`` over shared memory."""

    training_backend = "threads"
    takes_several = False
    needs_training_thread = False
    batch_size = 1

    def __init__(self, memory: SharedMemory, timeout: float) -> None:
        self._memory = memory
        self._timeout = timeout
        self._reason = "a thread is gone or late"
        self._identity = RankIdentity(0, 0, 0, "")
        self._identities: list[RankIdentity] = []
        self.world_size = memory.world_size

    def greet(self, identity: RankIdentity, run_id: str, next_window: int, next_step: int) -> AgreedStart:
        """Agree on rank 0's names and on the highest window and step."""
        self._identity = identity
        self._identities = self._exchange(identity)
        starts: list[AgreedStart] = self._exchange(AgreedStart(run_id, "first", next_window, next_step))
        return replace(
            starts[0],
            next_window=max(start.next_window for start in starts),
            next_step=max(start.next_step for start in starts),
        )

    def gather(self, buffers: Sequence[WindowBuffer]) -> tuple[int, list[ThreadResult]]:
        """Gather the first window on rank 0."""
        mine = buffers[0]
        everyone: list[WindowBuffer] = self._exchange(mine)
        if not mine.filled or any(_compared(buffer) != _compared(mine) for buffer in everyone):
            raise GatherRefused("ranks recorded different windows, or none")
        if self._identity.rank != 0:
            return 1, []
        row_RNC = np.stack([buffer.rows() for buffer in everyone])
        faults = {code: detail for buffer in everyone for code, detail in buffer.faults.items()}
        return 1, [ThreadResult(row_RNC, self._identities, faults)]

    def confirm(self, reasons: Sequence[str], batch_size: int) -> list[str]:
        """Return rank 0's reasons on every rank."""
        return list(self._exchange(list(reasons))[0])

    def successor(self, rendezvous: str, seconds: float) -> None:
        """Return None: a broken barrier stays broken."""

    def give_up(self, reason: str) -> None:
        """Break the barrier, at which all threads wait."""
        self._reason = reason
        self._memory.barrier.abort()

    def _exchange(self, mine: Any) -> list[Any]:
        try:
            return self._memory.exchange(self._identity.rank, mine, self._timeout)
        except threading.BrokenBarrierError:
            raise GatherFailed(self._reason) from None


def _compared(buffer: WindowBuffer) -> tuple[object, ...]:
    """Return what is equal on ranks whose rows fit together."""
    return buffer.number, buffer.schema.stages, buffer.rows()[:, STEP_COLUMN].tolist()


def transport_of(world_size: int) -> Transport:
    """Return the entry for ``TRANSPORTS`` of a job of so many threads."""
    connect = partial(ThreadGroup, SharedMemory(world_size))
    return Transport("gather all rows on rank 0 within one process", connect, needs_process_group=False)
