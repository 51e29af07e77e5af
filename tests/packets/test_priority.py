"""Processes that work for training leave it the cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sfapp.packets.process_priority import lowest_priority


@pytest.fixture(params=["SCHED_OTHER", "SCHED_BATCH", "SCHED_RR", "SCHED_FIFO"])
def helper(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process with this policy."""
    policy = getattr(os, request.param)
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        try:
            os.sched_setscheduler(process.pid, policy, os.sched_param(os.sched_get_priority_min(policy)))
        except PermissionError:
            process.kill()
            pytest.skip("real-time policies are not permitted here")
        yield process
        process.kill()


def test_niceness_counts_whatever_policy_it_was_started_with(helper: subprocess.Popen[bytes]) -> None:
    lowest_priority(helper.pid)
    assert os.sched_getscheduler(helper.pid) not in (os.SCHED_RR, os.SCHED_FIFO)
    assert os.getpriority(os.PRIO_PROCESS, helper.pid) == 19


def test_a_process_that_has_ended_is_left_alone() -> None:
    ended = subprocess.Popen((sys.executable, "-c", "pass"))
    ended.wait()
    lowest_priority(ended.pid)
