"""Simulate ranks for ``benchmarks/stream.py``, in a separate process.

flood ENDPOINT RANKS WINDOWS WINDOW_STEPS MESSAGE_STEPS       as fast as possible; ends when stdin closes
pace ENDPOINT RANKS STEPS STEP_SECONDS WINDOW_STEPS FILE      recorders; FILE gets the end of each step
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from sfapp.model import DEFAULT_STAGES, RankIdentity
from sfapp.stream.messages import VERSION, Message, Steps, StreamHello, WindowClosed, WindowOpened, encode


def messages_of(rank: int, world: int, windows: int, window_steps: int, batch: int) -> list[Message]:
    """Return all messages of one rank."""
    head: dict[str, Any] = {"v": VERSION, "rank": rank, "incarnation": f"rank-{rank}"}
    messages: list[Message] = [
        StreamHello(**head, run_id="run", attempt="a", world_size=world, hostname=f"n{rank // 8}")
    ]
    numbers = np.random.default_rng(rank).integers(10**6, 10**8, (window_steps, 2 + len(DEFAULT_STAGES)))
    sequence = 0
    for window in range(windows):
        stages: dict[str, Any] = {"broad": DEFAULT_STAGES[:-1], "stages": DEFAULT_STAGES}
        messages.append(WindowOpened(**head, sequence=sequence, window=window, **stages))
        numbers[:, 0] = np.arange(window * window_steps, (window + 1) * window_steps)
        for begin in range(0, window_steps, batch):
            rows = numbers[begin : begin + batch].astype("<i8").tobytes()
            messages.append(Steps(**head, sequence=sequence + 1 + begin, window=window, rows=rows))
        sequence += window_steps + 2
        messages.append(WindowClosed(**head, sequence=sequence - 1, window=window, steps=window_steps))
    return messages


def flood(endpoint: str, world: int, windows: int, window_steps: int, batch: int) -> None:
    """Send all ranks' messages in turn, each rank over its own socket."""
    encoded = [
        [encode(message) for message in messages_of(rank, world, windows, window_steps, batch)]
        for rank in range(world)
    ]
    with zmq.Context() as context:
        context.max_sockets = world + 1
        sockets = [context.socket(zmq.DEALER) for _ in range(world)]
        for socket in sockets:
            socket.sndhwm = 64
            socket.connect(endpoint)
        time.sleep(0.5)
        for messages in zip(*encoded, strict=True):
            for socket, message in zip(sockets, messages, strict=True):
                socket.send(message)
        sys.stdin.read()  # closing a connection with pending answers would drop messages in transit
        for socket in sockets:
            socket.close(linger=0)


def pace(endpoint: str, world: int, steps: int, seconds: float, window_steps: int, ends: Path) -> None:
    """Run recorders whose steps begin together."""
    import sfapp

    os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    lines: list[str] = []
    barrier = threading.Barrier(world)

    def train(rank: int) -> None:
        place = RankIdentity(rank, rank, 0, "node-0")
        output = ends.parent / f"left-by-{rank}"
        perf = sfapp.Recorder(
            output, run_id="run", window_steps=window_steps, identity=place, stream=endpoint, timeout=10.0
        )
        barrier.wait()
        for step in range(steps):
            with perf.step(), perf.stage(DEFAULT_STAGES[0]):
                time.sleep(seconds)
            lines.append(f"{rank} {step} {time.time()}")
        perf.close()

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends.write_text("\n".join(lines))


if __name__ == "__main__":
    kind, endpoint, *rest = sys.argv[1:]
    if kind == "flood":
        ranks, windows, window_steps, batch = map(int, rest)
        flood(endpoint, ranks, windows, window_steps, batch)
    else:
        pace(endpoint, int(rest[0]), int(rest[1]), float(rest[2]), int(rest[3]), Path(rest[4]))
