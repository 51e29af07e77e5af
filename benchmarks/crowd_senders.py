"""Ranks for ``benchmarks/crowd.py``: very many in one process, each with a sender and a spool of its own.

    python -m benchmarks.crowd_senders ENDPOINT PACKETS NODE RANKS WORLD STEP_SECONDS WINDOW_STEPS WINDOWS LOG

What they record is made up, how it travels is not: every rank has its own identity and connection, sends what
a recorder would, a sample of its process a second included, and keeps it until it is acknowledged. LOG gets a
line a window: its number and when the last of these ranks finished its last step, seconds since 1970.
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
"""Half as often as a recorder looks, as all of a node's ranks share one interpreter here."""

_SCHEMA = WindowSchema.of(DEFAULT_STAGES[:-1], Accumulation(), None)
_CLOSE_SECONDS = 60.0
_AT_ONCE = 16


class SimulatedRank:
    """One rank: what a recorder and its ``StreamWriter`` do, without a training around it."""

    def __init__(
        self, options: StreamOptions, job: JobInfo, identity: RankIdentity, window_steps: int
    ) -> None:
        self.failures: deque[str] = deque(maxlen=16)
        self._incarnation = secrets.token_hex(8)
        options = replace(options, sources=(self._samples,))
        self._team = JobRank(identity, job, attempt="0")
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
        """Record a step that ends now; whether a window ended with it."""
        share_S = self._random.dirichlet(np.full(len(_SCHEMA.broad), 30.0))
        self._buffer.add(np.array([[self._step, wall_ns, *(0.99 * wall_ns * share_S).astype(int)]]))
        self._step += 1
        if self._buffer.filled < self._window_steps:
            return False
        self._buffer.ended_at = datetime.now(UTC)
        self._queue.close(self._team, self._buffer)
        self._open()
        return True

    @property
    def is_delivered(self) -> bool:
        """Whether every window that was closed is acknowledged."""
        return self._queue.windows == 0

    def close(self) -> bool:
        """Whether everything was acknowledged."""
        return self._sender.close(_CLOSE_SECONDS)

    def _open(self) -> None:
        number = self._step // self._window_steps
        self._buffer = WindowBuffer.empty(_SCHEMA, number, self._window_steps)
        self._queue.open(self._team, self._buffer)

    def _samples(self) -> list[ProcessSample]:
        """What would be seen of its process; made up: one process cannot be read so often."""
        identity = self._team.identity
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

    def _make_hello(self, team: JobRank, first: int) -> StreamHello:
        identity, job = team.identity, team.job
        return StreamHello(
            v=VERSION,
            rank=identity.rank,
            incarnation=self._incarnation,
            run_id=job.run_id,
            attempt=team.attempt,
            first=first,
            world_size=job.world_size,
            local_rank=identity.local_rank,
            node_rank=identity.node_rank,
            hostname=identity.hostname,
        )


def ranks_of(
    endpoint: str, packets: Path, node: int, count: int, world: int, window_steps: int
) -> list[SimulatedRank]:
    """The ranks of one node. Their keys are where ``sfapp run`` has left them."""
    (path,) = packets.glob(".sfapp/*.keys")
    options = StreamOptions(
        endpoint=endpoint, keys=Keys.load(path).for_clients(), batch_seconds=BATCH_SECONDS
    )
    job = JobInfo(
        root=packets.parent / "left-over",
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
    """Steps of all ranks, spread over the time that a step takes."""
    begin, windows = time.monotonic(), 0
    with log.open("w", buffering=1) as lines:
        for step in range(steps):
            for place, rank in enumerate(ranks):
                due = begin + seconds * (step + place / len(ranks))
                time.sleep(max(0.0, due - time.monotonic()))
                has_ended = rank.finish_step(int(seconds * 1e9))
            if has_ended:
                lines.write(f"{windows} {time.time()}\n")
                windows += 1


def main(arguments: list[str]) -> int:
    """1 if a step was lost or not acknowledged."""
    endpoint, packets, node, count, world, seconds, window_steps, windows, log = arguments
    ranks = ranks_of(endpoint, Path(packets), int(node), int(count), int(world), int(window_steps))
    pace(ranks, float(seconds), int(windows) * int(window_steps), Path(log))
    deadline = time.monotonic() + _CLOSE_SECONDS
    while not all(rank.is_delivered for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.5)
    with ThreadPoolExecutor(_AT_ONCE) as closing:  # all at once are too many for one interpreter
        delivered = list(closing.map(SimulatedRank.close, ranks))
    failures = [failure for rank in ranks for failure in rank.failures]
    lost = sum(rank.lost_steps for rank in ranks)
    if failures or lost or not all(delivered):
        print(f"node {node}: {lost} steps lost, {delivered.count(False)} ranks undelivered, {failures[:3]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
