"""Find out what has become of silent ranks: from this process, or by asking a rank of the same host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sfapp.model.standstill import MAX_LOOKS, ProcessId, ProcessLook, ReportedPlace
from sfapp.stream.live_state import RankStates
from sfapp.stream.process_looks import look_at, this_host

LOOK_AFTER_SECONDS = 2.0
"""Seconds without a message after which a rank's process is looked at: a heartbeat is sent every second."""

_MOST_LOOKS = 256  # by this process, in one round


class SilentProcesses:
    """The silent ranks of all runs. Used on the aggregator's thread."""

    def __init__(self, live: RankStates) -> None:
        self._live = live
        self._silent: dict[ProcessId, tuple[str, int]] = {}
        self._by_host: dict[str, tuple[ProcessId, ...]] = {}

    def update(self) -> None:
        """Find the silent ranks, and look at those of this host."""
        self._silent = self._live.silent_processes(LOOK_AFTER_SECONDS)
        others: defaultdict[str, list[ProcessId]] = defaultdict(list)
        own: list[ProcessId] = []
        for process in self._silent:
            (own if process.host == this_host() else others[process.host]).append(process)
        self._by_host = {host: tuple(found[:MAX_LOOKS]) for host, found in others.items()}
        self._record(look for process in own[:_MOST_LOOKS] if (look := look_at(process)) is not None)

    def asked_of(self, place: ReportedPlace | None) -> tuple[ProcessId, ...]:
        """Return the processes that a reporting rank can look at."""
        if place is None or place.process is None:
            return ()
        return self._by_host.get(place.process.host, ())

    def take(self, looks: Iterable[ProcessLook], place: ReportedPlace | None) -> None:
        """Record what a reporting rank has seen of processes of its own host; no other can look at them."""
        if place is not None and place.process is not None:
            host = place.process.host
            self._record(look for look in looks if look.process.host == host)

    def _record(self, looks: Iterable[ProcessLook]) -> None:
        for look in looks:
            key = self._silent.get(look.process)
            if key is not None:
                self._live.set_look(key, look)
