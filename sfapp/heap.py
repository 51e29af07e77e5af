"""Keep the memory of a server flat, collections of garbage short, and tasks of a cluster fast.

Messages to pages and rows of samples are buffers of some hundred kB, allocated and freed by several threads
every second. By default glibc keeps such buffers in a heap per thread, with holes that it does not return.
Python stops all threads while it looks at every object for garbage.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of ``mallopt``, as in glibc's malloc.h."""

OWN_MAPPING_BYTES = 8 << 20
"""Size from which a buffer is a mapping of its own, which ends with it, and size of a free end of the heap
that is returned. By default glibc raises the size up to 32 MiB. With 128 KiB, with which it begins, the
kernel clears each array of a live page's judgement anew, which takes three times as long."""

HEAPS = 2
"""Number of heaps that the threads share; the default is eight for each core."""

RETURN_S = 30.0
"""Time after which the holes of the heaps are returned again. It takes some milliseconds."""

_DASK_TRIM_VARIABLE, _MMAP_VARIABLE = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"

_GLIBC_MAPPING_BYTES = 128 << 10
"""Size from which a buffer is a mapping of its own if one of these variables is set."""

_TASK_MAPPING_BYTES, _TASK_TRIM_BYTES = 32 << 20, 64 << 20
"""The largest sizes to which glibc raises its own thresholds."""


def bound_heaps() -> None:
    """Set these bounds, before other threads have begun to allocate. Without glibc, nothing is set."""
    _set_heap({_MMAP_THRESHOLD: OWN_MAPPING_BYTES, _TRIM_THRESHOLD: OWN_MAPPING_BYTES, _ARENA_MAX: HEAPS})


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Use freed memory again until the end of the context, then return it to the system.

    Dask sets a variable with which its workers return freed memory at once. It also makes each array of
    128 KiB a mapping of its own, whose pages the kernel clears: tasks then take twice as long.
    """
    trimmed = os.environ.get(_DASK_TRIM_VARIABLE, "")
    if not trimmed.isdecimal():
        yield
        return
    _set_heap({_MMAP_THRESHOLD: _TASK_MAPPING_BYTES, _TRIM_THRESHOLD: _TASK_TRIM_BYTES})
    try:
        yield
    finally:
        mapped = os.environ.get(_MMAP_VARIABLE, "")
        _set_heap(
            {
                _MMAP_THRESHOLD: int(mapped) if mapped.isdecimal() else _GLIBC_MAPPING_BYTES,
                _TRIM_THRESHOLD: int(trimmed),
            }
        )
        return_freed_memory()


def _set_heap(values: Mapping[int, int]) -> None:
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in values.items():
            mallopt(parameter, value)


def return_freed_memory() -> None:
    """Return the free pages of all heaps to the system, also those between objects that stay. Without glibc,
    nothing is returned."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def exempt_present_objects() -> None:
    """Exempt the objects that exist from collections of garbage: modules and other objects that stay, some
    200,000, would take most of the time of each."""
    gc.collect()
    gc.freeze()
    gc.collect()  # Python compares what is new with what the last one left.


async def return_freed_memory_regularly() -> None:
    """Return it every ``RETURN_S`` seconds, on another thread, until cancelled."""
    while True:
        await asyncio.sleep(RETURN_S)
        await asyncio.to_thread(return_freed_memory)
