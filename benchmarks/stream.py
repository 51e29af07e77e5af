"""How many steps an aggregator takes a second, and how long after a step it can be seen.

Beside a bare ROUTER socket that takes the same frames and does nothing with them.
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
_LOOK_SECONDS = 0.01


@contextmanager
def ranks(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that plays ranks."""
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
        raise RuntimeError(f"the ranks ended with {process.returncode}")


def flood(endpoint: str) -> Any:
    """All steps of all ranks, as fast as they are taken."""
    return ranks("flood", endpoint, RANKS, WINDOWS, WINDOW_STEPS, MESSAGE_STEPS)


def bare_socket() -> float:
    """Seconds in which a socket takes all frames, from the first."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.rcvhwm = 10_000
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        with flood(f"tcp://127.0.0.1:{port}"):
            socket.recv_multipart()
            begin = time.perf_counter()
            for _ in range(MESSAGES - 1):
                socket.recv_multipart()
            return time.perf_counter() - begin


def aggregator_at_work() -> tuple[float, float]:
    """Seconds in which all steps are in packets on disk, from the first message; and of them on the core."""
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
                    raise RuntimeError(f"not all windows have come: {aggregator.counts}")
                time.sleep(0.005)
            seconds = time.perf_counter() - begin
        stop.set()
        thread.join()
        if aggregator.counts.incomplete or aggregator.snapshot().faults:
            raise RuntimeError(f"{aggregator.counts}, {aggregator.snapshot().faults}")
    return seconds, busy[0]


def lags() -> tuple[list[float], list[float]]:
    """Seconds from a step's end until it is seen live, and from a window's last until the store has it."""
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
                    time.sleep(_LOOK_SECONDS)
            time.sleep(2.0)
            stop.set()
            for thread in threads:
                thread.join()
        ended = {}
        for line in ends.read_text().splitlines():
            rank_of, step_of, at = line.split()
            ended[int(rank_of), int(step_of)] = float(at)
    live = [seen_live[key] - at for key, at in ended.items() if key in seen_live]
    last = {number: LAG_WINDOW_STEPS * number + LAG_WINDOW_STEPS - 1 for number in seen_stored}
    stored = [
        at - max(ended[rank, last[number]] for rank in range(LAG_RANKS)) for number, at in seen_stored.items()
    ]
    if len(stored) < LAG_STEPS // LAG_WINDOW_STEPS:
        raise RuntimeError(f"{len(stored)} windows were seen")
    return live, stored


def p95(values: list[float]) -> float:
    """The value that 95 % stay below."""
    return statistics.quantiles(values, n=20)[-1]


def run() -> Iterator[Result]:
    """64 ranks at full speed, then 8 ranks at 50 ms a step."""
    scale = 50_000 / RANK_STEPS
    taken = [aggregator_at_work() for _ in range(3)]
    whole = statistics.median(seconds for seconds, _ in taken)
    bare = statistics.median(bare_socket() for _ in range(3))
    yield Result(f"50,000 rank-steps of {RANKS} ranks, from socket to packets", whole * scale, 1.0)
    yield Result(
        "the same, beside a bare socket that takes the frames", whole * scale, 12, yardstick=bare * scale
    )
    yield Result(
        "the aggregator's share of a core at 50,000 rank-steps/s",
        statistics.median(busy for _, busy in taken) * scale * 100,
        100,
        unit="%",
    )
    live, stored = lags()
    yield Result("step finished → seen live, p95", p95(live), 1.5)
    yield Result("last step of a window finished → in the store, p95", p95(stored), 1.5)
