"""Queue of closed windows that wait to be gathered; short windows are gathered several at once.

Gathering and writing wake threads and evict caches that training uses. For eight windows at once this costs
only about twice as much as for one, and sixteen are gathered where they fit into ten seconds.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer
from sfapp.recorder.transport.gather_messages import BLOCK_BYTES
from sfapp.recorder.transport.rank_group import group_of
from sfapp.recorder.transport.transport_group import GatherResult

_BATCH_SECONDS, _MAX_BATCH = 10.0, 16
"""Maximum training time and number of windows of one batch."""

_MAX_BATCH_BYTES = 16 * 2**20
"""Maximum number of bytes of a batch on rank 0."""

LONGEST_WAIT = 15.0
"""Seconds after which windows are gathered even if their batch is not full: training may have paused."""


@dataclass(frozen=True, slots=True)
class EarlyGather:
    """Outcome of a gather on the training thread.

    Attributes:
        result: the rows, on rank 0.
        part_reason: why the window is written as parts; None if it was gathered.
    """

    result: GatherResult | None = None
    gather_ns: int = 0
    part_reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ClosedWindow:
    """A window that has ended.

    Attributes:
        early: outcome of a gather on the training thread; None if it is yet to be gathered.
        closed_at: time of its end, in monotonic seconds.
    """

    rank: JobRank
    buffer: WindowBuffer
    early: EarlyGather | None
    closed_at: float = field(default_factory=time.monotonic)


class WindowQueue:
    """Closed windows in order. The training thread appends them, the recorder's thread takes them.

    A window that waits for others does not wake that thread, which would compete with training for the
    interpreter.
    """

    def __init__(self) -> None:
        self._closed: deque[ClosedWindow | None] = deque()
        # Its ``put`` may be interrupted by a signal handler that calls it again.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting: list[ClosedWindow] = []
        self._finished = 0
        self._is_open = True

    def put(self, closed: ClosedWindow) -> None:
        """Append a window."""
        self._closed.append(closed)
        group = group_of(closed.rank)
        is_early = group is not None and len(self._waiting) + len(self._closed) < group.batch_size
        if not is_early or closed.buffer.closed_by != "full":
            self._wake.put(None)

    def end(self) -> None:
        """Declare that no more windows follow, so that the waiting ones are due."""
        self._closed.append(None)
        self._wake.put(None)

    def next_batch(self) -> list[ClosedWindow]:
        """Wait for the next due windows of one rank identity; empty once no more follow.

        They stay in the queue until ``remove``.
        """
        while self._is_open and not self._is_due():
            if self._closed:
                self._receive()
            else:
                self._sleep()
        return [closed for closed in self._waiting if closed.rank is self._waiting[0].rank]

    def remove(self, count: int) -> None:
        """Remove the first ``count`` windows, which are stored or lost."""
        del self._waiting[:count]
        self._finished += count

    def batch_size(self, rank: JobRank, buffer: WindowBuffer) -> int:
        """Return the number of windows like this one to gather at once; rank 0 decides for all ranks.

        It grows with the number of windows so far, so that the first packets of a run appear soon.
        """
        group = group_of(rank)
        if group is None or not group.takes_several:
            return 1
        by_age = 1 + self._finished // 2
        by_time = _BATCH_SECONDS * 1e9 / max(buffer.train_ns, 1)
        by_size = _MAX_BATCH_BYTES / (rank.job.world_size * (BLOCK_BYTES + buffer.row_NC.nbytes))
        return max(1, min(_MAX_BATCH, by_age, int(by_time), int(by_size)))

    def _is_due(self) -> bool:
        """Return whether the waiting windows are due.

        All ranks must come to the same result, or they lose time waiting for each other. It therefore depends
        on rank 0's announcement and on why a window ended.
        """
        if not self._waiting:
            return False
        first, newest = self._waiting[0], self._waiting[-1]
        group = group_of(first.rank)
        return (
            group is None
            or len(self._waiting) >= group.batch_size
            or newest.buffer.closed_by != "full"
            or time.monotonic() >= first.closed_at + LONGEST_WAIT
        )

    def _sleep(self) -> None:
        """Wait until woken, at most until a window can be due that did not wake this thread."""
        first = self._waiting[0].closed_at if self._waiting else time.monotonic()
        with suppress(queue.Empty):
            self._wake.get(timeout=max(0.0, first + LONGEST_WAIT - time.monotonic()))

    def _receive(self) -> None:
        """Take one window, since all ranks gather the same number at once."""
        closed = self._closed.popleft()
        if closed is None:
            self._is_open = False
        else:
            self._waiting.append(closed)
