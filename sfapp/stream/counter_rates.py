"""Turn counters of the system into rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from sfapp.packets.host_files import HostFile

_PERCENT_NS = 10_000_000
"""Nanoseconds in a percent of a second."""

Value = TypeVar("Value")
NanosecondClock = Callable[[], int]


class CounterRates:
    """Per-second rates of monotonic counters.

    Args:
        clock_ns: a monotonic clock; the time of day may be set between two readings.
    """

    def __init__(self, clock_ns: NanosecondClock = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._last: dict[str, tuple[int, float]] = {}

    def of(self, counters: Mapping[str, float]) -> dict[str, float | None]:
        """Return each counter's rate since the last call; None the first time and after a reset."""
        at_ns = self._clock_ns()
        found: dict[str, float | None] = {}
        for name, value in counters.items():
            previous_ns, previous = self._last.get(name, (at_ns, value))
            elapsed_ns, increase = at_ns - previous_ns, value - previous
            found[name] = increase * 1e9 / elapsed_ns if elapsed_ns > 0 and increase >= 0 else None
            self._last[name] = (at_ns, value)
        return found


class ShareFiles:
    """Files that count time, in percent of the time that passes.

    Files that the system lacks or forbids are left out.
    """

    def __init__(self, opened: Mapping[str, Callable[[], list[HostFile]]]) -> None:
        """Open files; several under one name are added up."""
        found = {name: read_or_none(open_files, (ValueError,)) for name, open_files in opened.items()}
        self._files = {name: files for name, files in found.items() if files}

    def counters(self) -> dict[str, float]:
        """Return the time so far by name, in units of which ``CounterRates`` makes percent."""
        spent = {
            name: read_or_none(lambda files=files: sum(file.read() for file in files), (ValueError,))
            for name, files in self._files.items()
        }
        return {name: ns / _PERCENT_NS for name, ns in spent.items() if ns is not None}

    def close(self) -> None:
        """Close the files."""
        for files in self._files.values():
            for file in files:
                file.close()
        self._files.clear()


def read_or_none(read: Callable[[], Value], errors: tuple[type[Exception], ...]) -> Value | None:
    """Return the result of ``read``, or None if the system does not provide it."""
    # psutil omits functions that the operating system lacks, so a missing attribute is no defect.
    unavailable: tuple[type[Exception], ...] = (*errors, OSError, NotImplementedError, AttributeError)
    try:
        return read()
    except unavailable:
        return None
