"""Four ranks without torch.distributed that synchronise in backward: standing_ranks.py ROOT ENDPOINT.

While the file ``hold`` exists in ROOT, rank 3 stays in data. Once ``lock`` exists, rank 2 holds the
interpreter lock. Each rank writes its process id to ``<rank>.pid``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

import sfapp
import sfapp.recorder
import sfapp.stream.stream_writer  # Before the fork: once instead of four times.
from sfapp.model import RankIdentity
from sfapp.model.stages import BACKWARD, DATA

RANKS = 4


def train(rank: int, barrier: Any, root: Path, endpoint: str) -> None:
    with sfapp.Recorder(
        root / "left",
        run_id="run",
        window_steps=1000,
        stages=(DATA, BACKWARD),
        identity=RankIdentity(rank, rank, 0, "node-0"),
        stream=endpoint,
        timeout=1.0,
    ) as perf:
        (root / f"{rank}.part").write_text(str(os.getpid()))
        (root / f"{rank}.part").rename(root / f"{rank}.pid")
        while True:
            with perf.step():
                with perf.stage(DATA):
                    time.sleep(0.02)
                    while rank == 3 and (root / "hold").exists():
                        time.sleep(0.05)
                    if rank == 2 and (root / "lock").exists():
                        (root / "locked").touch()
                        ctypes.PyDLL(None).sleep(60)
                with perf.stage(BACKWARD):
                    barrier.wait()


if __name__ == "__main__":
    os.environ["WORLD_SIZE"] = str(RANKS)
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(RANKS)
    arguments = (together, Path(sys.argv[1]), sys.argv[2])
    processes = [fork.Process(target=train, args=(rank, *arguments), daemon=True) for rank in range(RANKS)]
    for process in processes:
        process.start()
    processes[0].join()
