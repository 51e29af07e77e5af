"""How processes that work for training leave it the cores."""

from __future__ import annotations

import os
from contextlib import suppress


def lowest_priority(process: int) -> None:
    """Give a process that this one just started the lowest priority, from its first instruction on: loading
    what it needs takes longer than most of what it does later.

    A job with a real-time policy (``chrt``, as some clusters start theirs) hands that on, and niceness means
    nothing under it: the process would keep a core that training waits for. Where it is gone already, or the
    system does not permit it, nothing happens.
    """
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "sched_getscheduler") and _is_real_time(os.sched_getscheduler(process)):  # Linux
            os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, process, 19)


def _is_real_time(policy: int) -> bool:
    return policy in (os.SCHED_FIFO, os.SCHED_RR)
