"""Describe the machine of the measurements, and the load of other programs meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time

import psutil
import torch


def describe_machine() -> str:
    """Return the machine's cores, memory, system and torch version."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.machine()}"
    return f"{cores} cores, {memory:.0f} GiB, {system}, torch {torch.__version__}"


def use_real_time() -> None:
    """Give this thread, and threads that it starts, a real-time policy, so that they run as soon as they
    wake.

    Raises:
        PermissionError: CAP_SYS_NICE or ``ulimit -r 1`` is required.
    """
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def can_use_real_time() -> bool:
    """Return whether ``use_real_time`` is permitted here."""
    usual = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        use_real_time()
    except PermissionError:
        return False
    os.sched_setscheduler(0, *usual)
    return True


class OtherPrograms:
    """Meter of the load of programs other than this one and its finished children."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before = busy_seconds() - _own_seconds()

    def share(self) -> float:
        """Return their share of all cores' time since this object was created."""
        others = busy_seconds() - _own_seconds() - self._before
        return max(0.0, others / ((time.monotonic() - self._begin) * (os.cpu_count() or 1)))


def busy_seconds() -> float:
    """Return the busy time of all cores since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times) - idle - getattr(times, "guest", 0.0))  # user time includes guest time


def _own_seconds() -> float:
    """Return the CPU time of this process and its finished children."""
    used = [resource.getrusage(scope) for scope in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
