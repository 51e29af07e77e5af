"""Simulate many ranks in one process for ``benchmarks/many_ranks.py``, each with a sender and a send queue.

    python -m benchmarks.simulated_ranks \\
        ENDPOINT PACKETS NODE RANKS WORLD STEP_SECONDS WINDOW_STEPS WINDOWS LOG

Recorded values are random, but the transport is real: every rank has its own identity and connection, sends
the same messages as a recorder, including a process sample per second, and keeps them until they are
acknowledged. LOG gets one line per window: its number, and when the last of these ranks finished its last
step (seconds since 1970).
"""

from __future__ import annotations

import secrets
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from sfapp.model import DEFAULT_STAGES, RankIdentity
from sfapp.model.manifest import Accumulation, Parallelism, RecorderInfo
from sfapp.model.samples import ProcessSample
from sfapp.packets.job import JobInfo, JobRank
from sfapp.packets.window_rows import WindowBuffer, WindowSchema
from sfapp.stream import Keys, StreamOptions
from sfapp.stream.messages import VERSION, StreamHello
from sfapp.stream.send_queue import SendQueue
from sfapp.stream.sender import StreamSender

RUN = "simulated"
BATCH_SECONDS = 0.5
"""Longer than a recorder's, because all ranks of a node share one interpreter here."""

_SCHEMA = WindowSchema.of(DEFAULT_STAGES[:-1], Accumulation(), None)
_CLOSE_SECONDS = 60.0
_CLOSING_THREADS = 16


class SimulatedRank:
    """One rank that acts like a recorder with its ``StreamWriter``, without training."""

    def __init__(
        self, options: StreamOptions, job: JobInfo, identity: RankIdentity, window_steps: int
    ) -> None:
        self.failures: deque[str] = deque(maxlen=16)
        self._incarnation = secrets.token_hex(8)
        options = replace(options, sources=(self._samples,))
        self._job_rank = JobRank(identity, job, attempt="0")
        self._window_steps = window_steps
        self._random = np.random.default_rng(identity.rank)
        self._queue = SendQueue(
            self._incarnation, options.spool_memory_bytes, options.spool_disk_bytes, self.failures
        )
        self._sender = StreamSender(options, self._queue, self._incarnation, self._make_hello, self.failures)
        self._step = 0
        self._open()

    @property
    def lost_steps(self) -> int:
        return self._queue.lost_steps

    def finish_step(self, wall_ns: int) -> bool:
        """Record a step that ends now; return whether it completed a window."""
        share_S = self._random.dirichlet(np.full(len(_SCHEMA.broad), 30.0))
        self._buffer.add(np.array([[self._step, wall_ns, *(0.99 * wall_ns * share_S).astype(int)]]))
        self._step += 1
        if self._buffer.filled < self._window_steps:
            return False
        self._buffer.ended_at = datetime.now(UTC)
        self._queue.close(self._job_rank, self._buffer)
        self._open()
        return True

    @property
    def is_delivered(self) -> bool:
        """Whether every closed window is acknowledged."""
        return self._queue.windows == 0

    def close(self) -> bool:
        """Close the sender; return whether everything was acknowledged."""
        return self._sender.close(_CLOSE_SECONDS)

    def _open(self) -> None:
        number = self._step // self._window_steps
        self._buffer = WindowBuffer.empty(_SCHEMA, number, self._window_steps)
        self._queue.open(self._job_rank, self._buffer)

    def _samples(self) -> list[ProcessSample]:
        """Return an invented process sample: one process cannot be read for hundreds of ranks."""
        identity = self._job_rank.identity
        return [
            ProcessSample(
                at_ns=time.time_ns(),
                node_rank=identity.node_rank,
                rank=identity.rank,
                cpu_percent=self._random.uniform(90, 110),
                rss_bytes=2**30,
                threads=20,
                open_files=50,
                read_bytes_per_s=0.0,
                written_bytes_per_s=0.0,
            )
        ]

    def _make_hello(self, rank: JobRank, first: int) -> StreamHello:
        identity, job = rank.identity, rank.job
        return StreamHello(
            v=VERSION,
            rank=identity.rank,
            incarnation=self._incarnation,
            run_id=job.run_id,
            attempt=rank.attempt,
            first=first,
            world_size=job.world_size,
            local_rank=identity.local_rank,
            node_rank=identity.node_rank,
            hostname=identity.hostname,
        )


def ranks_of(
    endpoint: str, packets: Path, node: int, count: int, world: int, window_steps: int
) -> list[SimulatedRank]:
    """Create the ranks of one node, with the keys that ``sfapp run`` wrote."""
    (path,) = packets.glob(".sfapp/*.keys")
    options = StreamOptions(
        endpoint=endpoint, keys=Keys.load(path).for_clients(), batch_seconds=BATCH_SECONDS
    )
    job = JobInfo(
        root=packets.parent / "undelivered",
        run_id=RUN,
        world_size=world,
        wrapper="ddp",
        parallelism=Parallelism(dp=world),
        prefetch="unknown",
        model_fit=False,
        recorder=RecorderInfo(),
    )
    return [
        SimulatedRank(
            options, job, RankIdentity(node * count + local, local, node, f"node-{node}"), window_steps
        )
        for local in range(count)
    ]


def pace(ranks: list[SimulatedRank], seconds: float, steps: int, log: Path) -> None:
    """Finish steps of all ranks, spread evenly over the duration of a step."""
    begin, windows = time.monotonic(), 0
    with log.open("w", buffering=1) as lines:
        for step in range(steps):
            for index, rank in enumerate(ranks):
                due = begin + seconds * (step + index / len(ranks))
                time.sleep(max(0.0, due - time.monotonic()))
                has_ended = rank.finish_step(int(seconds * 1e9))
            if has_ended:
                lines.write(f"{windows} {time.time()}\n")
                windows += 1


def main(arguments: list[str]) -> int:
    """Run; return 1 if a step was lost or not acknowledged."""
    endpoint, packets, node, count, world, seconds, window_steps, windows, log = arguments
    ranks = ranks_of(endpoint, Path(packets), int(node), int(count), int(world), int(window_steps))
    pace(ranks, float(seconds), int(windows) * int(window_steps), Path(log))
    deadline = time.monotonic() + _CLOSE_SECONDS
    while not all(rank.is_delivered for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.5)
    with ThreadPoolExecutor(_CLOSING_THREADS) as closing:  # one interpreter cannot close all at once
        delivered = list(closing.map(SimulatedRank.close, ranks))
    failures = [failure for rank in ranks for failure in rank.failures]
    lost = sum(rank.lost_steps for rank in ranks)
    if failures or lost or not all(delivered):
        print(f"node {node}: {lost} steps lost, {delivered.count(False)} ranks undelivered, {failures[:3]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
