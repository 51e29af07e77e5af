"""A training job of three ranks in which rank 1 holds its interpreter lock forever; not collected by pytest.

stack_jobs.py FOLDER      after some steps, rank 1 creates FOLDER/held and then waits in C with the lock held
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import sfapp
from sfapp.packets.stack_signal import stack_processes

HOLDER = 1
root = Path(sys.argv[1])
rank = int(os.environ["RANK"])


def hold_the_lock() -> None:
    (root / "held").touch()
    ctypes.PyDLL(None).sleep(600)


def wait_in_all_reduce(value: torch.Tensor) -> None:
    dist.all_reduce(value)


def main() -> None:
    dist.init_process_group("gloo")
    with sfapp.Recorder(root, run_id="job", window_steps=4, wrapper="other") as perf:
        for _ in range(1000):
            with perf.step():
                with perf.stage("data.next_wait"):
                    if rank == HOLDER and len(stack_processes("job", root)) == 3:
                        hold_the_lock()
                    time.sleep(0.02)
                with perf.stage("model.fwd_loss_cpu_wall"):
                    wait_in_all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()
