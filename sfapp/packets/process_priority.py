"""Lower the priority of helper processes, so that training keeps its cores."""

from __future__ import annotations

import os
from contextlib import suppress


def lowest_priority(process: int) -> None:
    """Give a process that was just started the lowest priority.

    It applies from the first instruction, because loading libraries takes longer than most of the later work.
    A job with a real-time policy (``chrt``, used by some clusters) passes that policy on, and niceness has no
    effect under it, so the policy is reset too. Nothing happens if the process has ended or the system
    forbids it.
    """
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "sched_getscheduler") and _is_real_time(os.sched_getscheduler(process)):  # Linux only.
            os.sched_setscheduler(process, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, process, 19)


def _is_real_time(policy: int) -> bool:
    return policy in (os.SCHED_FIFO, os.SCHED_RR)
