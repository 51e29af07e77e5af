"""Report where the training thread is, with each heartbeat of its rank."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from sfapp.model.standstill import PlaceSource, ReportedPlace, TrainingPlace
from sfapp.stream.process_looks import storage_bytes, this_process, thread_ticks

_WORKING_CPU = 0.05
"""Share of a core from which the training thread is working."""

_WORKING_BYTES = 64 * 1024
"""Bytes read from or written to storage in a second from which the process is working."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class PlaceReporter:
    """Reporter of one rank, on its sender's thread.

    Args:
        source: returns where the training thread is.
        now_ns: monotonic ns, as the recorder's default clock.
    """

    def __init__(self, source: PlaceSource, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._source = source
        self._now_ns = now_ns
        self._process = this_process()
        self._mark: object = None
        self._moved_ns = now_ns()
        self._thread: tuple[int, int | None] = (0, None)  # identifier of Python and of the kernel
        self._used: tuple[int, int | None, int | None] | None = None

    def report(self) -> ReportedPlace | None:
        """Return where the training thread is now; None if that is not known."""
        place, now_ns = self._source(), self._now_ns()
        if place is None:
            return None
        if place.mark != self._mark:
            self._mark, self._moved_ns = place.mark, now_ns
        since_ns = self._moved_ns if place.since_ns is None else min(place.since_ns, self._moved_ns)
        return ReportedPlace(
            step=max(0, place.step),
            stage=place.stage,
            still_ns=max(0, now_ns - since_ns),
            call=place.call,
            group=place.group,
            group_ranks=place.group_ranks,
            is_working=self._is_working(place, now_ns),
            process=self._process,
        )

    def _is_working(self, place: TrainingPlace, now_ns: int) -> bool:
        """Return whether the training thread used CPU time, or the process storage, since the last report."""
        native = self._native_id(place.thread)
        ticks = None if native is None else thread_ticks(native)
        written = storage_bytes()
        before, self._used = self._used, (now_ns, ticks, written)
        if before is None or now_ns <= before[0]:
            return False
        seconds = (now_ns - before[0]) / 1e9
        cpu = 0.0 if ticks is None or before[1] is None else (ticks - before[1]) / _TICKS_PER_SECOND
        moved = 0 if written is None or before[2] is None else written - before[2]
        return cpu >= _WORKING_CPU * seconds or moved >= _WORKING_BYTES * seconds

    def _native_id(self, thread: int) -> int | None:
        if self._thread[0] != thread:
            found = (each.native_id for each in threading.enumerate() if each.ident == thread)
            self._thread = thread, next(found, None)
            self._used = None
        return self._thread[1]
