"""A real streamed job for benchmarks of the live page: ranks that wait for each other, one late on demand.

Each rank is a process with a recorder; rows go over the stream to ``sfapp aggregate``. A barrier inside the
backward stage represents the all-reduce.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import sfapp
from sfapp.model import DEFAULT_STAGES, RankIdentity

RUN = "streamed"
NODES = 2
LATE_RANK = 2
DATA_S, FORWARD_S, BACKWARD_S, OPTIMIZER_S = 0.005, 0.014, 0.024, 0.004
STEP_S = DATA_S + FORWARD_S + BACKWARD_S + OPTIMIZER_S
LATE_PART = 0.2
"""Additional time of the late rank in data, as a part of a step."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of the job.

    Attributes:
        ranks: number of processes, half of them on each node.
        pace: factor of the durations of all stages.
    """

    ranks: int = 4
    pace: float = 1.0


def train(
    root: str,
    endpoint: str,
    rank: int,
    size: Size,
    barrier: Any,
    late: Synchronized[int],
    began: Synchronized[float],
) -> None:
    """Train until the barrier is broken.

    Args:
        late: whether the rank is late. began: begin of its first late step, seconds since 1970; 0 before
            that.
    """
    data, forward, backward, _, optimizer, _ = DEFAULT_STAGES
    os.environ["WORLD_SIZE"] = str(size.ranks)
    node, local_rank = divmod(rank, size.ranks // NODES)
    with sfapp.Recorder(
        Path(root) / f"left-by-{rank}",
        run_id=RUN,
        window_steps=100,
        identity=RankIdentity(rank, local_rank, node, f"node-{node}"),
        stream=endpoint,
        timeout=5.0,
    ) as perf:
        while True:
            is_late = bool(late.value) and rank == LATE_RANK
            if is_late and not began.value:
                began.value = time.time()
            try:
                with perf.step():
                    with perf.stage(data):
                        time.sleep(size.pace * (DATA_S + (LATE_PART * STEP_S if is_late else 0.0)))
                    with perf.stage(forward):
                        time.sleep(size.pace * FORWARD_S)
                    with perf.stage(backward):
                        time.sleep(size.pace * BACKWARD_S)
                        barrier.wait(120)
                    with perf.stage(optimizer):
                        time.sleep(size.pace * OPTIMIZER_S)
            except BrokenBarrierError:
                return


class StreamedJob:
    """The job, inside the ``with`` block.

    Args:
        root: the packet directory. size: four ranks with steps of ``STEP_S`` if None.
    """

    def __init__(self, root: Path, size: Size | None = None) -> None:
        self._root = root
        self._size = size or Size()
        self._resources = ExitStack()
        spawn = multiprocessing.get_context("spawn")
        self._barrier = spawn.Barrier(self._size.ranks)
        self._late: Synchronized[int] = spawn.Value("i", 0)
        self._began: Synchronized[float] = spawn.Value("d", 0.0)
        self._spawn = spawn

    def __enter__(self) -> StreamedJob:
        command = [sys.executable, "-c", "from sfapp.cli import main; main()", "aggregate", str(self._root)]
        aggregator = subprocess.Popen(
            [*command, "--listen", "tcp://127.0.0.1:0"], stderr=subprocess.PIPE, text=True
        )
        self._resources.callback(_end, aggregator)
        assert aggregator.stderr is not None
        endpoint = aggregator.stderr.readline().split()[-1]
        for rank in range(self._size.ranks):
            arguments = (str(self._root), endpoint, rank, self._size, self._barrier, self._late, self._began)
            process = self._spawn.Process(target=train, args=arguments, daemon=True)
            process.start()
            self._resources.callback(process.join, 15)
        self._resources.callback(self._barrier.abort)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def set_late(self, late: bool) -> None:
        """Set whether the rank is late from its next step on."""
        self._began.value = 0.0
        self._late.value = int(late)

    def began_at(self) -> float:
        """Wait for the first late step, and return when it began, seconds since 1970."""
        deadline = time.monotonic() + 30
        while not self._began.value:
            if time.monotonic() > deadline:
                raise RuntimeError("the late rank does not step")
            time.sleep(0.005)
        return self._began.value


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(20)
    assert process.stderr is not None
    process.stderr.close()
