"""Write samples and step times that the aggregator receives into files next to the packets."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sfapp.metrics import MetricsLog, StepPaceCounter
from sfapp.model.samples import AggregatorSample, AnySample, LinkSample
from sfapp.packets.window_rows import STEP_COLUMN, WALL_COLUMN
from sfapp.stream.live_state import LiveSnapshot, RankSnapshot, Rows
from sfapp.stream.messages import StreamHello
from sfapp.stream.newest_steps_writer import NewestStepsWriter
from sfapp.stream.standstill_stacks import StandstillStacks
from sfapp.stream.standstill_watch import RollCallRule, StandstillWatch
from sfapp.stream.steady_time import AGGREGATOR_TIME
from sfapp.stream.stream_receiver import MOST_RUNS

EVERY_S = 1.0
DOWNSAMPLE_EVERY_S = 60.0
DOWNSAMPLE_FOR_S = 0.05
"""Time per second for downsampling, limited because the aggregator's thread shares the interpreter with this
one."""

MAX_QUEUED = 65_536
"""Maximum number of samples queued for the disk; above it, the oldest are dropped and counted."""

FEW_RANKS = 256
"""Number of ranks of all jobs up to which the newest rows are written twice a second instead of once."""

MAX_RUNS = MOST_RUNS
"""Number of runs with samples, ended ones included: as many as the aggregator remembers."""

GONE_AFTER_S = 3600.0
"""Seconds of silence after which a rank's link is no longer written."""


class MetricsWriter:
    """Writer of samples on a separate thread. The aggregator's thread only queues samples and counts steps.

    All samples are written once a second; steps of a second or longer, and the newest rows of a few ranks,
    twice, so that they are shown sooner.

    Args:
        root: the packet directory.
        standstills: finds which rank holds a job that stands still; None to not look for it.

    Attributes:
        dropped: samples that were not written, because too many were queued or too many runs exist.
        failures: the newest failures, at most 16.
    """

    def __init__(
        self,
        root: Path,
        now_s: Callable[[], float] = AGGREGATOR_TIME.seconds,
        standstills: RollCallRule | None = None,
    ) -> None:
        self._root = root
        self._now_s = now_s
        self._queue: deque[tuple[str, AnySample]] = deque()
        self._logs: dict[str, MetricsLog] = {}
        self._paces: dict[str, StepPaceCounter] = {}
        self._pace_lock = threading.Lock()
        self._gone: set[tuple[str, int]] = set()
        self._downsampling: Iterator[None] = iter(())
        self._next_downsample_s = 0.0
        self._watch = None if standstills is None else StandstillWatch(standstills)
        self.dropped = 0
        self.failures: deque[str] = deque(maxlen=16)
        self._stacks = StandstillStacks(root, self.failures.append)
        self._newest_steps = NewestStepsWriter(root, now_s, self.failures.append)

    def add_samples(self, hello: StreamHello, samples: Sequence[AnySample]) -> None:
        """Queue samples of a rank. Safe on any thread; never blocks."""
        self._queue.extend((hello.run_id, sample) for sample in samples)
        while len(self._queue) > MAX_QUEUED:
            self._queue.popleft()
            self.dropped += 1

    def count_steps(self, hello: StreamHello, row_NC: Rows) -> None:
        """Count steps of a rank. Safe on any thread; never waits for the disk."""
        step_N, wall_N = row_NC[:, STEP_COLUMN].tolist(), row_NC[:, WALL_COLUMN].tolist()
        with self._pace_lock:
            paces = self._paces.setdefault(hello.run_id, StepPaceCounter())
            paces.add(hello.rank, hello.node_rank, step_N, wall_N)

    @contextmanager
    def running(self, snapshot: Callable[[], LiveSnapshot]) -> Iterator[None]:
        """Write inside the ``with`` block, and once more at its end.

        Args:
            snapshot: returns the state of all ranks.
        """
        stop = threading.Event()

        def run() -> None:
            ranks = 0
            while not stop.wait(EVERY_S / 2):
                self._write_long_steps()
                if ranks <= FEW_RANKS:
                    self._newest_steps.write(snapshot())
                if not stop.wait(EVERY_S / 2):
                    ranks = self._write_all(snapshot())
            self._write_all(snapshot())

        thread = threading.Thread(target=run, name="sfapp-metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _write_all(self, snapshot: LiveSnapshot) -> int:
        """Write everything; return the number of ranks."""
        self._newest_steps.write(snapshot)
        self.write(snapshot)
        return len(snapshot.ranks)

    def write(self, snapshot: LiveSnapshot) -> None:
        """Write queued samples and the pace since the last call, and downsample old files for a moment.

        Disk errors are recorded in ``failures``.
        """
        by_run: dict[str, list[AnySample]] = {}
        for _ in range(len(self._queue)):
            run_id, sample = self._queue.popleft()
            by_run.setdefault(run_id, []).append(sample)
        at_ns = int(self._now_s() * 1e9)
        with self._pace_lock:
            counted, self._paces = self._paces, {}
        for run_id, paces in counted.items():
            by_run.setdefault(run_id, []).extend(paces.take(at_ns))
        for run_id, links in self._links(snapshot, at_ns).items():
            by_run.setdefault(run_id, []).extend([*links, _aggregator(snapshot, at_ns)])
        if self._watch is not None:
            for run_id, standstill in self._watch.samples(snapshot, at_ns).items():
                by_run.setdefault(run_id, []).append(standstill)
                self._stacks.note(run_id, standstill, snapshot)
            self._stacks.follow()
        for run_id, samples in by_run.items():
            self._write_run(run_id, samples)
        self._remove_gone_runs(snapshot, by_run.keys())
        self._continue_downsampling()

    def _write_long_steps(self) -> None:
        """Write the pace of ranks whose steps take a second or longer: few samples, watched one by one."""
        at_ns = int(self._now_s() * 1e9)
        with self._pace_lock:
            taken = {run: paces.take(at_ns, int(EVERY_S * 1e9)) for run, paces in self._paces.items()}
        for run_id, samples in taken.items():
            if samples:
                self._write_run(run_id, samples)

    def _links(self, snapshot: LiveSnapshot, at_ns: int) -> dict[str, list[AnySample]]:
        """Return link samples by run; a rank that has left or has long been silent has one last sample."""
        found: dict[str, list[AnySample]] = {}
        for rank in snapshot.ranks:
            key = rank.run_id, rank.identity.rank
            if key in self._gone and (rank.has_left or rank.silent_seconds > GONE_AFTER_S):
                continue
            self._gone.discard(key)
            if rank.has_left or rank.silent_seconds > GONE_AFTER_S:
                self._gone.add(key)
            found.setdefault(rank.run_id, []).append(_link(rank, at_ns))
        return found

    def _write_run(self, run_id: str, samples: Sequence[AnySample]) -> None:
        if run_id not in self._logs and len(self._logs) >= MAX_RUNS:
            self.dropped += len(samples)
            return
        log = self._logs.setdefault(run_id, MetricsLog(self._root, run_id, now_s=self._now_s))
        lost = log.lost
        log.add(samples)
        if log.lost > lost:
            self.failures.append(log.failure)

    def _remove_gone_runs(self, snapshot: LiveSnapshot, written: Collection[str]) -> None:
        """Remove runs and ranks that the aggregator no longer knows, to make room for others."""
        self._gone &= {(rank.run_id, rank.identity.rank) for rank in snapshot.ranks}
        runs = {rank.run_id for rank in snapshot.ranks}
        for run_id in self._logs.keys() - runs - set(written):
            del self._logs[run_id]

    def _continue_downsampling(self) -> None:
        """Continue downsampling where the last call stopped, and start over once a minute."""
        end = time.monotonic() + DOWNSAMPLE_FOR_S
        for _ in self._downsampling:
            if time.monotonic() >= end:
                return
        if self._now_s() >= self._next_downsample_s:
            self._next_downsample_s = self._now_s() + DOWNSAMPLE_EVERY_S
            self._downsampling = self._downsample(tuple(self._logs.values()))

    def _downsample(self, logs: Sequence[MetricsLog]) -> Iterator[None]:
        for log in logs:
            try:
                yield from log.downsample()
            except OSError as error:
                self.failures.append(f"{log.folder}: {error.strerror or error}")


def _link(rank: RankSnapshot, at_ns: int) -> LinkSample:
    identity = rank.identity
    return LinkSample(
        at_ns=at_ns,
        node_rank=identity.node_rank,
        rank=identity.rank,
        local_rank=identity.local_rank,
        hostname=identity.hostname,
        world_size=rank.world_size,
        silent_s=round(rank.silent_seconds, 1),
        has_left=rank.has_left,
        lost_steps=rank.lost_steps,
        duplicates=rank.duplicates,
        step=None if rank.place is None else rank.place.step,
        stage=None if rank.place is None else rank.place.stage,
        call=None if rank.place is None else rank.place.call or None,
        still_s=None if rank.place is None else round(rank.place.still_ns / 1e9, 1),
        process=None if rank.look is None else rank.look.state,
    )


def _aggregator(snapshot: LiveSnapshot, at_ns: int) -> AggregatorSample:
    total: Counter[str] = Counter()
    for counts in snapshot.faults.values():
        total.update(counts)
    *_, (peer, reason) = [("", ""), *snapshot.last_fault.items()]
    return AggregatorSample(
        at_ns=at_ns,
        node_rank=0,
        messages=snapshot.messages,
        malformed=total["malformed"],
        oversized=total["oversized"],
        newer_version=total["newer_version"],
        last_fault=f"{peer}: {reason}" if peer else "",
    )
