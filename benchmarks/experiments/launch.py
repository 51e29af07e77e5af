"""Starting a job with torchrun, and what else the machine did meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import torch

from benchmarks.experiments.plan import Job


@dataclass(frozen=True, slots=True)
class Launch:
    """What one launch took.

    Attributes:
        seconds: on the wall.
        others: part of all cores' time that other programs used meanwhile.
    """

    seconds: float
    others: float


def launch(job: Job, packets: Path) -> Launch:
    """Run a job: all its windows go to ``packets``/<its name>, and what it took beside them."""
    plan = packets / f"{job.name}.json"
    plan.write_bytes(msgspec.json.encode(job))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={job.ranks}", "-m", "benchmarks.experiments.job", str(plan), str(packets)]
    begin, busy, own = time.monotonic(), _busy_seconds(), _own_seconds()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = time.monotonic() - begin
    others = max(0.0, (_busy_seconds() - busy) - (_own_seconds() - own))
    found = Launch(seconds, others / (seconds * (os.cpu_count() or 1)))
    _record_of(job, packets).write_bytes(msgspec.json.encode(found))
    print(f"{job.name}: {len(job.faults)} windows in {seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def launched(job: Job, packets: Path) -> Launch:
    """What an earlier launch took."""
    return msgspec.json.decode(_record_of(job, packets).read_bytes(), type=Launch)


def machine(launches: Sequence[Launch]) -> str:
    """What the numbers were measured on, and how much of it was left to them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    seconds = sum(found.seconds for found in launches)
    others = sum(found.others * found.seconds for found in launches) / max(1.0, seconds)
    return (
        f"{cores} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, torch "
        f"{torch.__version__} over Gloo, in {seconds / 60:.0f} minutes; other programs used {others:.0%} of "
        "the cores meanwhile"
    )


def _record_of(job: Job, packets: Path) -> Path:
    return packets / f"{job.name}.launch.json"


def _busy_seconds() -> float:
    """Time that all cores have worked since the machine started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_seconds() -> float:
    """Time that this process and the processes it has waited for have worked."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(found.ru_utime + found.ru_stime for found in used)
