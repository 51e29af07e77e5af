"""Keep the runs that an aggregator remembers, no more than so many: a run's id comes from the network."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UnsetType

from sfapp.packets.output import PacketOutput
from sfapp.stream.messages import StreamHello
from sfapp.stream.run_restarts import RunRestarts

_IDLE_SECONDS = 10.0
"""Time for which a run is kept that has no rank: one that waits says hello each second."""


@dataclass(slots=True, eq=False)
class OpenRun:
    """A run of which messages arrive.

    Attributes:
        active_at: when the newest message of one of its ranks arrived, in monotonic seconds.
        ranks: ranks that have connected.
        incarnations: their processes with a stream.
    """

    restarts: RunRestarts
    active_at: float
    ranks: set[int] = field(default_factory=set)
    incarnations: set[str] = field(default_factory=set)


class OpenRuns:
    """Open runs, the one that has been idle for longest first.

    Args:
        root: the packet directory, or what uploads its packets.
        most: the largest number of them.
    """

    def __init__(self, root: Path | PacketOutput, most: int) -> None:
        self._root = root
        self.most = most
        self._runs: OrderedDict[str, OpenRun] = OrderedDict()

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    @property
    def is_full(self) -> bool:
        return len(self._runs) >= self.most

    def idlest(self) -> tuple[str, OpenRun]:
        """Return the run that has been idle for longest; there must be one."""
        return next(iter(self._runs.items()))

    def join(self, hello: StreamHello, now: float) -> OpenRun:
        """Return the run of a rank that has connected, opening it if it is new."""
        run = self._runs.get(hello.run_id)
        if run is None:
            run = self._runs[hello.run_id] = OpenRun(RunRestarts(self._root, hello.run_id), now)
        run.ranks.add(hello.rank)
        run.incarnations.add(hello.incarnation)
        self.touch(hello.run_id, now)
        return run

    def touch(self, run_id: str, now: float) -> None:
        """Note that a message of a run has arrived."""
        run = self._runs.get(run_id)
        if run is not None:
            run.active_at = now
            self._runs.move_to_end(run_id)

    def hear(self, hello: StreamHello, attempt: str, age: float | UnsetType, now: float) -> None:
        """Note that a process of an attempt has sent something at this age."""
        run = self._runs.get(hello.run_id)
        if run is not None:
            run.restarts.hear(attempt, hello.incarnation, age, now)

    def remove_stream(self, hello: StreamHello) -> None:
        """Note that the stream of a process was removed."""
        run = self._runs.get(hello.run_id)
        if run is not None:
            run.incarnations.discard(hello.incarnation)

    def remove(self, run_id: str) -> None:
        """Remove a run. If it continues, it is read from its file again."""
        self._runs.pop(run_id, None)

    def keep(self, run_ids: Collection[str], now: float) -> None:
        """Remove all other runs that are idle: a rank that says hello may have to wait until it is known."""
        for run_id in self._runs.keys() - set(run_ids):
            if now - self._runs[run_id].active_at > _IDLE_SECONDS:
                del self._runs[run_id]
