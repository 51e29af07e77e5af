"""What figures were measured on, and whether anything else ran there meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time

import psutil
import torch


def described() -> str:
    """The machine in a few words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    system = f"{platform.system()} {platform.machine()}"
    return f"{cores} cores, {memory:.0f} GiB, {system}, torch {torch.__version__}"


def ask_for_real_time() -> None:
    """Give this thread, and those it starts, a real-time policy: one that wakes goes to whatever core is free
    of such threads, at once.

    Raises:
        PermissionError: it needs CAP_SYS_NICE, or ``ulimit -r 1``.
    """
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def may_have_real_time() -> bool:
    """Whether ``ask_for_real_time`` is permitted here."""
    usual = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        ask_for_real_time()
    except PermissionError:
        return False
    os.sched_setscheduler(0, *usual)
    return True


class Others:
    """How busy programs other than this one and its finished children keep the machine."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before = busy_seconds() - _own_seconds()

    def share(self) -> float:
        """Of all cores' time since this was made."""
        others = busy_seconds() - _own_seconds() - self._before
        return max(0.0, others / ((time.monotonic() - self._begin) * (os.cpu_count() or 1)))


def busy_seconds() -> float:
    """Time that all cores have worked since the machine started."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times) - idle - getattr(times, "guest", 0.0))  # a guest's time is in the user's too


def _own_seconds() -> float:
    """Time that this process and the processes it has waited for have worked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
