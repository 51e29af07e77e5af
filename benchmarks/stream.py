"""Measure an aggregator's throughput and the delay until a step is visible.

The yardstick is a bare ROUTER socket that receives the same frames.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from benchmarks.harness import Result
from sfapp.store import Store, WindowQuery
from sfapp.stream import Aggregator

RANKS, WINDOWS, WINDOW_STEPS, MESSAGE_STEPS = 64, 40, 100, 10
RANK_STEPS = RANKS * WINDOWS * WINDOW_STEPS
MESSAGES = RANKS * (1 + WINDOWS * (2 + WINDOW_STEPS // MESSAGE_STEPS))

LONGEST_SECONDS = 60

LAG_RANKS, LAG_STEPS, LAG_STEP_SECONDS, LAG_WINDOW_STEPS = 8, 400, 0.05, 5
_POLL_SECONDS = 0.01


@contextmanager
def ranks(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that simulates ranks."""
    command = [sys.executable, "-m", "benchmarks.stream_ranks", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            process.wait(120)
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the simulated ranks ended with {process.returncode}")


def flood(endpoint: str) -> Any:
    """Send all steps of all ranks as fast as they are received."""
    return ranks("flood", endpoint, RANKS, WINDOWS, WINDOW_STEPS, MESSAGE_STEPS)


def bare_socket() -> float:
    """Return the seconds in which a socket receives all frames."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.rcvhwm = 10_000
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        with flood(f"tcp://127.0.0.1:{port}"):
            socket.recv_multipart()
            begin = time.perf_counter()
            for _ in range(MESSAGES - 1):
                socket.recv_multipart()
            return time.perf_counter() - begin


def aggregator_seconds() -> tuple[float, float]:
    """Return the seconds from the first message until all packets are on disk, and the CPU seconds."""
    with tempfile.TemporaryDirectory() as folder, Aggregator(Path(folder), "tcp://127.0.0.1:*") as aggregator:
        stop = threading.Event()
        busy: list[float] = []

        def work() -> None:
            before = time.thread_time()
            aggregator.run(stop)
            busy.append(time.thread_time() - before)

        thread = threading.Thread(target=work)
        thread.start()
        with flood(aggregator.endpoint) as job:
            while not aggregator.snapshot().messages and job.poll() is None:
                time.sleep(0.001)
            begin = time.perf_counter()
            while aggregator.counts.windows < WINDOWS and job.poll() is None:
                if time.perf_counter() - begin > LONGEST_SECONDS:
                    raise RuntimeError(f"windows are missing: {aggregator.counts}")
                time.sleep(0.005)
            seconds = time.perf_counter() - begin
        stop.set()
        thread.join()
        if aggregator.counts.incomplete or aggregator.snapshot().faults:
            raise RuntimeError(f"{aggregator.counts}, {aggregator.snapshot().faults}")
    return seconds, busy[0]


def lags() -> tuple[list[float], list[float]]:
    """Return seconds from a step's end to the live state, and from a window's last step to the store."""
    seen_live: dict[tuple[int, int], float] = {}
    seen_stored: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        root, ends = Path(folder) / "packets", Path(folder) / "ends"
        root.mkdir()
        with Aggregator(root, "tcp://127.0.0.1:*") as aggregator, Store.open([root]) as store:
            stop = threading.Event()

            def note(_: object) -> None:
                for row in store.windows(WindowQuery(limit=10_000)).rows:
                    seen_stored.setdefault(row["window"], time.time())

            threads = [
                threading.Thread(target=aggregator.run, args=(stop,)),
                threading.Thread(target=store.watch, args=(stop, note)),
            ]
            for thread in threads:
                thread.start()
            with ranks(
                "pace", aggregator.endpoint, LAG_RANKS, LAG_STEPS, LAG_STEP_SECONDS, LAG_WINDOW_STEPS, ends
            ) as job:
                while job.poll() is None:
                    now = time.time()
                    for rank in aggregator.snapshot().ranks:
                        for step in rank.row_NC[-50:, 0].tolist():
                            seen_live.setdefault((rank.identity.rank, step), now)
                    time.sleep(_POLL_SECONDS)
            time.sleep(2.0)
            stop.set()
            for thread in threads:
                thread.join()
        ended = {}
        for line in ends.read_text().splitlines():
            rank_text, step_text, at = line.split()
            ended[int(rank_text), int(step_text)] = float(at)
    live = [seen_live[key] - at for key, at in ended.items() if key in seen_live]
    last = {number: LAG_WINDOW_STEPS * number + LAG_WINDOW_STEPS - 1 for number in seen_stored}
    stored = [
        at - max(ended[rank, last[number]] for rank in range(LAG_RANKS)) for number, at in seen_stored.items()
    ]
    if len(stored) < LAG_STEPS // LAG_WINDOW_STEPS:
        raise RuntimeError(f"only {len(stored)} windows arrived")
    return live, stored


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def run() -> Iterator[Result]:
    """Yield results for 64 ranks at full speed, then for 8 ranks at 50 ms per step."""
    scale = 50_000 / RANK_STEPS
    runs = [aggregator_seconds() for _ in range(3)]
    whole = statistics.median(seconds for seconds, _ in runs)
    bare = statistics.median(bare_socket() for _ in range(3))
    yield Result(f"50,000 rank-steps of {RANKS} ranks, from socket to packets", whole * scale, 1.0)
    yield Result(
        "the same, relative to a bare socket that receives the frames",
        whole * scale,
        12,
        yardstick=bare * scale,
    )
    yield Result(
        "the aggregator's share of a core at 50,000 rank-steps/s",
        statistics.median(busy for _, busy in runs) * scale * 100,
        100,
        unit="%",
    )
    live, stored = lags()
    yield Result("from a finished step to the live state, p95", p95(live), 1.5)
    yield Result("from a window's last step to the store, p95", p95(stored), 1.5)
