"""Ranks of one node of a job that stands still: ``standstill_job PLAN.json``, as ``StandstillJob``.

The ranks are forked from this process once it has imported PyTorch. At step ``AT`` the fault begins on the
culprits; its time is written to the file ``fault`` in the folder.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

AT = 30
"""Step at which the fault begins."""

STEP_SECONDS = 0.05
STAGES = ("data.next_wait", "model.fwd_loss_cpu_wall", "model.backward_cpu_wall", "callbacks.checkpoint")
FOREVER = 600.0

Family = str


class StandstillJob(msgspec.Struct, frozen=True, kw_only=True):
    """One node of one job.

    Attributes:
        family: the fault. culprits: ranks on which it begins.
        world: number of ranks of the job. ranks: those of this node.
        master: address and port of rank 0. seconds: of a checkpoint in a healthy job.
    """

    family: Family
    culprits: tuple[int, ...]
    world: int
    ranks: tuple[int, ...]
    node: int
    folder: str
    endpoint: str
    master: tuple[str, int]
    seconds: float = 0.0


def main() -> None:
    """Fork the ranks, and end when this process is killed or all have ended."""
    import torch.distributed

    import sfapp

    del torch.distributed, sfapp
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StandstillJob)
    for rank in job.ranks:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # End with the parent.
            train(job, rank)
            return
    while True:
        time.sleep(FOREVER)  # A killed rank stays a zombie or an orphan, as below a launcher that waits.


def train(job: StandstillJob, rank: int) -> None:
    """Train one rank until it is killed."""
    import torch
    import torch.distributed as dist

    import sfapp
    from sfapp.model import RankIdentity

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job.world), "LOCAL_RANK": str(rank - job.ranks[0])}
    os.environ |= {
        "MASTER_ADDR": job.master[0],
        "MASTER_PORT": str(job.master[1]),
        "GROUP_RANK": str(job.node),
    }
    dist.init_process_group("gloo")
    groups = [dist.new_group(list(job.culprits)) for _ in range(2)] if job.family == "deadlock" else []
    place = RankIdentity(rank, rank - job.ranks[0], job.node, f"node-{job.node}")
    tensor = torch.ones(1024)
    with sfapp.Recorder(
        Path(job.folder) / "left",
        run_id=job.family,
        window_steps=1000,
        stages=STAGES,
        identity=place,
        stream=job.endpoint,
        gather="local",
    ) as perf:
        perf.watch_waits()
        step = 0
        while True:
            is_faulty = step >= AT and rank in job.culprits
            with perf.step():
                with perf.stage(STAGES[0]):
                    time.sleep(STEP_SECONDS)
                    if is_faulty and job.family in _IN_DATA:
                        _note(job)
                        _IN_DATA[job.family]()
                with perf.stage(STAGES[2]):
                    if is_faulty and job.family == "deadlock":
                        _note(job)
                        for group in groups if rank == job.culprits[0] else reversed(groups):
                            dist.all_reduce(tensor, group=group)
                    _exchange(dist, tensor, job, is_faulty)
                with perf.stage(STAGES[3]):
                    if job.seconds and rank == 0 and step % 200 == AT:
                        time.sleep(job.seconds)
            if is_faulty and job.family == "skipped":
                time.sleep(FOREVER)
            step += 1


def _exchange(dist: Any, tensor: Any, job: StandstillJob, is_faulty: bool) -> None:
    """Make the step's collective, unless the fault is another one."""
    if is_faulty and job.family == "skipped":
        _note(job)
        return
    try:
        if is_faulty and job.family == "mismatched":
            _note(job)
            dist.broadcast(tensor, src=(job.culprits[0] + 1) % job.world)
        else:
            dist.all_reduce(tensor)
    except RuntimeError:  # Gloo reports a lost peer at once; over NCCL ranks would wait.
        time.sleep(FOREVER)


_IN_DATA: Mapping[str, Callable[[], object]] = {
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "lock": lambda: ctypes.PyDLL(None).sleep(int(FOREVER)),
}


def _note(job: StandstillJob) -> None:
    path = Path(job.folder) / "fault"
    if not path.exists():
        path.write_text(str(time.time()))


if __name__ == "__main__":
    main()
