"""Share one budget of memory among all files that a process expands at the same time.

A small file can claim to hold a lot. ``Limits`` bounds what one file may expand to; the budget limits the
total of files that are read at the same time: the next one waits until there is enough.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sfapp.errors import PacketError
from sfapp.packets.host_files import control_groups

UNCOUNTED_BYTES = 16 * 2**20
"""Files that need less are not counted: reading one takes a few milliseconds."""

_LEAST_BYTES = 512 * 2**20
_UNKNOWN_BYTES = 4 * 2**30  # available memory where the system does not say
_SHARE = 2  # of the available memory, one part in so many is the budget


class MemoryBudget:
    """Budget of memory for files that are read at the same time. Safe to use from several threads.

    Args:
        total: bytes; half of the memory that is available when it is first needed if None.
    """

    def __init__(self, total: int | None = None) -> None:
        self._total = total
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, needed: int) -> Iterator[None]:
        """Reserve this many bytes for the block, and wait for other files if necessary.

        Raises:
            PacketError: it is more than the whole budget.
        """
        if needed <= UNCOUNTED_BYTES:
            yield
            return
        with self._changed:
            if self._total is None:
                self._total = max(_LEAST_BYTES, available_memory() // _SHARE)
            total = self._total
            if needed > total:
                raise PacketError(
                    f"needs {needed >> 20:,} MiB of memory, more than the {total >> 20:,} MiB that this "
                    "process may use for it: read it on a machine with more memory"
                )
            self._changed.wait_for(lambda: self._used + needed <= total)
            self._used += needed
        try:
            yield
        finally:
            with self._changed:
                self._used -= needed
                self._changed.notify_all()


PROCESS_BUDGET = MemoryBudget()
"""Budget of this process."""


def available_memory() -> int:
    """Return the memory available to this process, in bytes: the free memory of the machine, within the
    limits of the container or the job (its control groups)."""
    return min([_left_on_machine(), *_limits_of_groups()])


def _left_on_machine() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _UNKNOWN_BYTES


def _limits_of_groups() -> list[int]:
    """Return the limits of this process's control groups and of their parents, of version 1 and 2."""
    names = ("memory.max", "memory.limit_in_bytes")
    return [
        limit for folder in control_groups("memory") for name in names for limit in _limit_in(folder / name)
    ]


def _limit_in(path: Path) -> list[int]:
    with suppress(OSError, ValueError):  # "max", or a group that is not visible here
        return [int(path.read_text())]
    return []
