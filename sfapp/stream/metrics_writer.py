"""The aggregator's side of samples: what ranks send and how fast they step, into files beside packets."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sfapp.metrics import MetricsLog, Paces
from sfapp.model.samples import AggregatorSample, AnySample, LinkSample
from sfapp.packets.window_rows import STEP_COLUMN, WALL_COLUMN
from sfapp.stream.live_state import LiveSnapshot, RankSnapshot, Rows
from sfapp.stream.messages import StreamHello

EVERY_S = 1.0
THIN_EVERY_S = 60.0
THIN_FOR_S = 0.05
"""Of each second: who takes the messages shares the interpreter, and waits for it at every one of them."""

KEPT = 65_536
"""Samples that wait for the disk at most; beyond, the oldest are dropped and counted."""

MOST_RUNS = 64
GONE_AFTER_S = 3600.0
"""A rank that was silent for so long is written of no more."""


class MetricsWriter:
    """Writes once a second, steps that took as long twice, on a thread of its own: the aggregator's only puts
    samples into a queue, and counts steps.

    Args:
        root: the packet directory.

    Attributes:
        dropped: samples that were not written: too many waited, or too many runs were named.
        failures: the newest things that went wrong, at most 16.
    """

    def __init__(self, root: Path, now_s: Callable[[], float] = time.time) -> None:
        self._root = root
        self._now_s = now_s
        self._waiting: deque[tuple[str, AnySample]] = deque()
        self._logs: dict[str, MetricsLog] = {}
        self._paces: dict[str, Paces] = {}
        self._counting = threading.Lock()
        self._gone: set[tuple[str, int]] = set()
        self._thinning: Iterator[None] = iter(())
        self._next_thin_s = 0.0
        self.dropped = 0
        self.failures: deque[str] = deque(maxlen=16)

    def take(self, hello: StreamHello, samples: Sequence[AnySample]) -> None:
        """Samples of a rank; on any thread, never waits."""
        self._waiting.extend((hello.run_id, sample) for sample in samples)
        while len(self._waiting) > KEPT:
            self._waiting.popleft()
            self.dropped += 1

    def count(self, hello: StreamHello, row_NC: Rows) -> None:
        """Steps of a rank; on any thread, never waits for the disk."""
        step_N, wall_N = row_NC[:, STEP_COLUMN].tolist(), row_NC[:, WALL_COLUMN].tolist()
        with self._counting:
            paces = self._paces.setdefault(hello.run_id, Paces())
            paces.add(hello.rank, hello.node_rank, step_N, wall_N)

    @contextmanager
    def running(self, now: Callable[[], LiveSnapshot]) -> Iterator[None]:
        """Write while the body runs, and once more at its end.

        Args:
            now: the state of all ranks.
        """
        stop = threading.Event()

        def run() -> None:
            turns = itertools.cycle((self._write_long_steps, lambda: self.write(now())))
            while not stop.wait(EVERY_S / 2):
                next(turns)()
            self.write(now())

        thread = threading.Thread(target=run, name="sfapp-collector", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def write(self, now: LiveSnapshot) -> None:
        """Write what waits and the pace since last time, and thin for a moment what is old. Never raises for
        the disk."""
        by_run: dict[str, list[AnySample]] = {}
        for _ in range(len(self._waiting)):
            run_id, sample = self._waiting.popleft()
            by_run.setdefault(run_id, []).append(sample)
        at_ns = int(self._now_s() * 1e9)
        with self._counting:
            counted, self._paces = self._paces, {}
        for run_id, paces in counted.items():
            by_run.setdefault(run_id, []).extend(paces.take(at_ns))
        for run_id, links in self._links(now, at_ns).items():
            by_run.setdefault(run_id, []).extend([*links, _aggregator(now, at_ns)])
        for run_id, samples in by_run.items():
            self._write_run(run_id, samples)
        self._forget(now, by_run.keys())
        self._thin_on()

    def _write_long_steps(self) -> None:
        """They are few, and somebody may wait for each."""
        at_ns = int(self._now_s() * 1e9)
        with self._counting:
            taken = {run: paces.take(at_ns, int(EVERY_S * 1e9)) for run, paces in self._paces.items()}
        for run_id, samples in taken.items():
            if samples:
                self._write_run(run_id, samples)

    def _links(self, now: LiveSnapshot, at_ns: int) -> dict[str, list[AnySample]]:
        """By run, how each of its ranks is heard of; not again of one that has left or is long gone."""
        found: dict[str, list[AnySample]] = {}
        for rank in now.ranks:
            key = rank.run_id, rank.identity.rank
            if key in self._gone and (rank.has_left or rank.silent_seconds > GONE_AFTER_S):
                continue
            self._gone.discard(key)
            if rank.has_left or rank.silent_seconds > GONE_AFTER_S:
                self._gone.add(key)
            found.setdefault(rank.run_id, []).append(_link(rank, at_ns))
        return found

    def _write_run(self, run_id: str, samples: Sequence[AnySample]) -> None:
        if run_id not in self._logs and len(self._logs) >= MOST_RUNS:
            self.dropped += len(samples)
            return
        log = self._logs.setdefault(run_id, MetricsLog(self._root, run_id, now_s=self._now_s))
        lost = log.lost
        log.add(samples)
        if log.lost > lost:
            self.failures.append(log.failure)

    def _forget(self, now: LiveSnapshot, written: Collection[str]) -> None:
        """Let go of runs and ranks that the aggregator has let go of: others may come in their place."""
        self._gone &= {(rank.run_id, rank.identity.rank) for rank in now.ranks}
        runs = {rank.run_id for rank in now.ranks}
        for run_id in self._logs.keys() - runs - written:
            del self._logs[run_id]

    def _thin_on(self) -> None:
        """Go on where it was left a second ago; from the beginning once a minute."""
        end = time.monotonic() + THIN_FOR_S
        for _ in self._thinning:
            if time.monotonic() >= end:
                return
        if self._now_s() >= self._next_thin_s:
            self._next_thin_s = self._now_s() + THIN_EVERY_S
            self._thinning = self._thin(tuple(self._logs.values()))

    def _thin(self, logs: Sequence[MetricsLog]) -> Iterator[None]:
        for log in logs:
            try:
                yield from log.thin()
            except OSError as error:
                self.failures.append(f"{log.folder}: {error.strerror or error}")


def _link(rank: RankSnapshot, at_ns: int) -> LinkSample:
    who = rank.identity
    return LinkSample(
        at_ns=at_ns,
        node_rank=who.node_rank,
        rank=who.rank,
        local_rank=who.local_rank,
        hostname=who.hostname,
        world_size=rank.world_size,
        silent_s=round(rank.silent_seconds, 1),
        has_left=rank.has_left,
        lost_steps=rank.lost_steps,
        duplicates=rank.duplicates,
    )


def _aggregator(now: LiveSnapshot, at_ns: int) -> AggregatorSample:
    total: Counter[str] = Counter()
    for counts in now.faults.values():
        total.update(counts)
    *_, (peer, what) = [("", ""), *now.last_fault.items()]
    return AggregatorSample(
        at_ns=at_ns,
        node_rank=0,
        messages=now.messages,
        malformed=total["malformed"],
        oversized=total["oversized"],
        newer_version=total["newer_version"],
        last_fault=f"{peer}: {what}" if peer else "",
    )
