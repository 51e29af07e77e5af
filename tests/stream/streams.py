"""Helpers for tests of the stream: aggregators, relays and ranks, in threads and as processes to kill."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zmq

import sfapp
from sfapp.model import DEFAULT_STAGES, RankIdentity, Window
from sfapp.packets import read_windows
from sfapp.stream import Aggregator, Keys, Relay, StreamOptions
from sfapp.stream.encryption import connect
from sfapp.stream.message_parser import decode_from_aggregator
from sfapp.stream.messages import (
    VERSION,
    FromAggregator,
    Message,
    Steps,
    StreamHello,
    WindowClosed,
    WindowOpened,
    encode,
)
from tests.forked_jobs import ForkedJob

LOOPBACK = "tcp://127.0.0.1:*"
CLI = "from sfapp.cli import main; main()"
JOB = Path(__file__).parent / "rank_job.py"


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until the condition is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)
    return value


@contextmanager
def replaced_by_a_file(folder: Path) -> Iterator[None]:
    """Put a file in the place of a folder within the block, so that nothing can be written into it."""
    moved = folder.rename(folder.with_name("moved"))
    folder.touch()
    yield
    folder.unlink()
    moved.rename(folder)


@contextmanager
def running(service: Aggregator | Relay) -> Iterator[Any]:
    """Run an aggregator or a relay on a thread inside the ``with`` block."""
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    try:
        yield service
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
        service.close()


@contextmanager
def aggregating(root: Path, **options: Any) -> Iterator[Aggregator]:
    """Run an aggregator on a free port of this machine."""
    with running(Aggregator(root, options.pop("endpoint", LOOPBACK), **options)) as aggregator:
        yield aggregator


def windows_in(root: Path) -> list[Window]:
    """Return the windows of a packet directory; every file must be valid."""
    if not root.exists():
        return []
    loaded = read_windows([root])
    assert not loaded.quarantined
    assert not loaded.conflicts
    return [item.window for item in loaded.windows]


def files_in(root: Path) -> list[str]:
    """Return the packet names of a directory with one run."""
    return sorted(path.name for path in root.rglob("*.parquet"))


def recorder(root: Path, endpoint: str | StreamOptions, rank: int = 0, **options: Any) -> sfapp.Recorder:
    """Create a recorder that streams, in a job of ``WORLD_SIZE`` ranks."""
    settings = {"run_id": "run", "window_steps": 10, "timeout": 10.0, "stream": endpoint, **options}
    place = RankIdentity(rank, rank, 0, "node-0")
    return sfapp.Recorder(settings.pop("output", root / f"left-by-{rank}"), identity=place, **settings)


def train(perf: sfapp.Recorder, steps: int) -> None:
    """Record steps of nearly no duration."""
    for _ in range(steps):
        with perf.step(), perf.stage("data.next_wait"):
            pass


# ---- processes ----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StreamProcess:
    """A process with its output on stderr, killed at the end of the test.

    Args:
        start: starts it.
    """

    def __init__(
        self, *command: str, start: type[subprocess.Popen[str]] = subprocess.Popen, **environment: str
    ) -> None:
        self._process = start(
            [sys.executable, *command],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.first_line = ""

    def ready(self) -> StreamProcess:
        """Wait for the first line of output."""
        assert self._process.stderr is not None
        self.first_line = self._process.stderr.readline()
        assert "listening" in self.first_line, self.first_line + self._process.stderr.read()
        return self

    def open_files(self) -> tuple[int, int]:
        """Return the limits of its open files."""
        return resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def stop(self) -> None:
        """Let the process finish its work and end."""
        self._process.send_signal(signal.SIGTERM)
        self.end()

    def end(self, seconds: float = 60.0) -> None:
        """Wait for the process to end with exit code 0."""
        _, errors = self._process.communicate(timeout=seconds)
        assert self._process.returncode == 0, errors

    def __enter__(self) -> StreamProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()


def aggregate(root: Path, port: int, *options: str) -> StreamProcess:
    """Start ``sfapp aggregate`` as a process."""
    listen = f"tcp://127.0.0.1:{port}"
    return StreamProcess("-c", CLI, "aggregate", str(root), "--listen", listen, *options).ready()


def relay(port: int, aggregator: int) -> StreamProcess:
    """Start ``sfapp relay`` as a process."""
    listen, upstream = f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{aggregator}"
    return StreamProcess("-c", CLI, "relay", upstream, "--listen", listen).ready()


def rank_process(root: Path, port: int, rank: int, world: int, steps: int, seconds: float) -> StreamProcess:
    """Start a rank that trains ``steps`` steps of ``seconds`` each."""
    arguments = (str(root), f"tcp://127.0.0.1:{port}", str(rank), str(steps), str(seconds))
    return StreamProcess(str(JOB), *arguments, start=ForkedJob, WORLD_SIZE=str(world))


# ---- by hand ------------------------------------------------------------------------------------


class ManualRank:
    """A rank's connection that a test drives message by message."""

    def __init__(
        self, endpoint: str, rank: int = 0, incarnation: str = "by-hand", keys: Keys | None = None
    ) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        connect(self._socket, endpoint, keys)
        self.head: dict[str, Any] = {"v": VERSION, "rank": rank, "incarnation": incarnation}

    def send(self, *messages: Message | bytes) -> None:
        for message in messages:
            self._socket.send(message if isinstance(message, bytes) else encode(message))

    def receive(self, seconds: float = 5.0) -> FromAggregator | None:
        """Return the next answer, or None after ``seconds``."""
        if not self._socket.poll(round(seconds * 1000)):
            return None
        return decode_from_aggregator(self._socket.recv())

    def receive_type(self, kind: type[FromAggregator], seconds: float = 5.0) -> Any:
        """Return the next answer of a type."""
        while (answer := self.receive(seconds)) is not None:
            if isinstance(answer, kind):
                return answer
        raise AssertionError(f"no {kind.__name__}")

    def hello(self, **fields: Any) -> StreamHello:
        return StreamHello(**self.head, **{"run_id": "run", "attempt": "a", "world_size": 1, **fields})

    def opened(self, sequence: int, window: int = 0) -> WindowOpened:
        stages: dict[str, Any] = {"broad": DEFAULT_STAGES[:-1], "stages": DEFAULT_STAGES}
        return WindowOpened(**self.head, sequence=sequence, window=window, **stages)

    def steps(self, sequence: int, steps: Sequence[int], window: int = 0) -> Steps:
        rows = [[step, 60, 10, 10, 10, 10, 10, 10] for step in steps]
        return Steps(
            **self.head, sequence=sequence, window=window, rows=np.array(rows, dtype="<i8").tobytes()
        )

    def closed(self, sequence: int, steps: int, window: int = 0) -> WindowClosed:
        return WindowClosed(**self.head, sequence=sequence, window=window, steps=steps)

    def __enter__(self) -> ManualRank:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close(linger=0)
        self._context.term()
