"""Start a job with torchrun, and measure the load of other programs meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from benchmarks.machine import OtherPrograms, describe_machine


class Launchable(Protocol):
    """A planned job: a dataclass that its script reads as JSON."""

    @property
    def name(self) -> str: ...

    @property
    def ranks(self) -> int: ...

    @property
    def module(self) -> str:
        """The script that torchrun starts on every rank."""
        ...

    @property
    def faults(self) -> Sequence[object]:
        """The faults, one for each window."""
        ...


TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
"""Command that takes torchrun's arguments."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Time and load of one launch.

    Attributes:
        seconds: wall time.
        others: part of all cores' time used by other programs meanwhile.
    """

    seconds: float
    others: float


def launch(job: Launchable, packets: Path) -> Launch:
    """Run a job; write its windows to ``packets``/<its name>, with time and load next to them."""
    plan = packets / f"{job.name}.json"
    plan.write_bytes(msgspec.json.encode(job))
    command = [*TORCHRUN, "--standalone"]
    command += [f"--nproc-per-node={job.ranks}", "-m", job.module, str(plan), str(packets)]
    begin, others = time.monotonic(), OtherPrograms()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = time.monotonic() - begin
    found = Launch(seconds, others.share())
    _record_of(job, packets).write_bytes(msgspec.json.encode(found))
    print(f"{job.name}: {len(job.faults)} windows in {seconds:.0f} s", file=sys.stderr, flush=True)
    return found


def launched(job: Launchable, packets: Path) -> Launch:
    """Return time and load of an earlier launch."""
    return msgspec.json.decode(_record_of(job, packets).read_bytes(), type=Launch)


def machine(launches: Sequence[Launch]) -> str:
    """Return a description of the machine and of the load of other programs."""
    seconds = sum(found.seconds for found in launches)
    others = sum(found.others * found.seconds for found in launches) / max(1.0, seconds)
    return (
        f"{describe_machine()} over Gloo, in {seconds / 60:.0f} minutes; other programs used {others:.0%} of "
        "the cores meanwhile"
    )


def _record_of(job: Launchable, packets: Path) -> Path:
    return packets / f"{job.name}.launch.json"
