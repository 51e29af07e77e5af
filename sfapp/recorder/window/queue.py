"""Closed windows in line for being gathered: short ones wait for each other and go together.

Gathering and writing wake threads and fill caches that training wants. For eight windows at once that costs
about twice what it costs for one, so where windows are short many go together.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field

from sfapp.packets.job import JobRank
from sfapp.packets.window_rows import WindowBuffer
from sfapp.recorder.transport.gather import Result
from sfapp.recorder.transport.gather_messages import BLOCK_BYTES
from sfapp.recorder.transport.process_group import group_of

TOGETHER_SECONDS, MOST_TOGETHER = 5.0, 8
"""How much training windows that go together may hold, and how many they may be."""

ALONE_FIRST = 8
"""Windows that go alone, so that a job shows at once that it is recorded."""

MOST_BYTES = 16 * 2**20
"""On rank 0, of windows that go together."""

LONGEST_HELD = 15.0
"""Seconds after which windows go though there are fewer than wanted: training may have paused."""


@dataclass(frozen=True, slots=True)
class Early:
    """What came of a gather on the training's thread: on rank 0 the rows, or why there are none."""

    gathered: Result | None = None
    gather_ns: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """A window that has ended, and what came of it where it was gathered already."""

    team: JobRank
    buffer: WindowBuffer
    early: Early | None
    since: float = field(default_factory=time.monotonic)


class Convoy:
    """The line. Windows are put in on the training's thread, and taken by the recorder's."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Closed | None] = queue.SimpleQueue()
        self._held: list[Closed] = []
        self._gone = 0
        self._is_open = True

    def put(self, closed: Closed) -> None:
        """Another window has ended."""
        self._queue.put(closed)

    def end(self) -> None:
        """No more will be put in: what waits goes."""
        self._queue.put(None)

    def next(self) -> list[Closed]:
        """Wait for windows of one team that are to go now; none where no more will come. They stay in line
        until they ``leave``."""
        while self._is_open and not self._is_due():
            self._take()
        return [closed for closed in self._held if closed.team is self._held[0].team]

    def leave(self, count: int) -> None:
        """So many of those that were to go are gone; the others go another time."""
        del self._held[:count]
        self._gone += count

    def together(self, team: JobRank, buffer: WindowBuffer) -> int:
        """How many windows like this one are to go together from now on; asked on rank 0, for all."""
        group = group_of(team)
        if group is None or not group.takes_several or self._gone + 1 < ALONE_FIRST:
            return 1
        by_time = TOGETHER_SECONDS * 1e9 / max(buffer.train_ns, 1)
        by_size = MOST_BYTES / (team.job.world_size * (BLOCK_BYTES + buffer.row_NC.nbytes))
        return max(1, min(MOST_TOGETHER, int(by_time), int(by_size)))

    def _is_due(self) -> bool:
        """Whether those that are held go now. All ranks must come to the same, or they lose time: what they
        have heard from rank 0 decides, and why a window ended."""
        if not self._held:
            return False
        first, newest = self._held[0], self._held[-1]
        group = group_of(first.team)
        return (
            group is None
            or len(self._held) >= group.together
            or newest.buffer.closed_by != "full"
            or time.monotonic() >= first.since + LONGEST_HELD
        )

    def _take(self) -> None:
        """Wait for another window, but no longer than those that are held may wait."""
        patience = self._held[0].since + LONGEST_HELD - time.monotonic() if self._held else None
        try:
            closed = self._queue.get(timeout=None if patience is None else max(0.0, patience))
        except queue.Empty:
            return
        if closed is None:
            self._is_open = False
        else:
            self._held.append(closed)
