"""A job of three ranks that stands still: rank 1 holds its interpreter lock, the others wait in all_reduce.

    python examples/stopped_rank.py packets &
    sfapp stacks packets         # which rank does something else, and where
    sfapp hang packets           # which call the others wait in, if this torch records Gloo's calls

It ends after ten minutes, or with Ctrl-C.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time

SECONDS = 600
STOPPED_RANK, STOPPED_STEP, RANKS = 1, 50, 3


def load(step: int, rank: int) -> None:
    """Read a batch; at one step, one rank never returns from a C call that does not release the lock."""
    if (rank, step) == (STOPPED_RANK, STOPPED_STEP):
        ctypes.PyDLL(None).sleep(SECONDS)
    time.sleep(0.05)


def train(rank: int, folder: str) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS)
    )
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
    import torch
    import torch.distributed as dist

    import sfapp

    dist.init_process_group("gloo")
    with sfapp.Recorder(folder, run_id="stopped", window_steps=20) as perf:
        for step in range(10_000):
            with perf.step():
                with perf.stage("data.next_wait"):
                    load(step, rank)
                with perf.stage("model.backward_cpu_wall"):
                    dist.all_reduce(torch.ones(1000))


def main() -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.setdefault("MASTER_PORT", "29511")
    context = multiprocessing.get_context("spawn")
    folder = sys.argv[1] if len(sys.argv) > 1 else "packets"
    ranks = [context.Process(target=train, args=(rank, folder), daemon=True) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline and all(process.is_alive() for process in ranks):
            time.sleep(1)
    except KeyboardInterrupt:
        pass
    for process in ranks:
        process.kill()


if __name__ == "__main__":
    main()
