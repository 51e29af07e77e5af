"""A job of two nodes under ``sfapp run``, and the faults that the soak test injects around it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import sfapp
from benchmarks.namespaces import MANAGE, Cluster
from benchmarks.soak_report import Trial
from sfapp.model import Window
from sfapp.packets import read_window, read_windows

EXAMPLE = Path(__file__).parent.parent / "examples" / "train.py"
WINDOW_STEPS = 50
BAD_FRAMES = 100_000
PORT = 29765

SLOW_RANK, SLOW_FROM_WINDOW = 6, 3


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations of trials, in seconds."""

    baseline: float
    outage: float
    lossy: float


FULL, SHORT = Durations(30, 60, 60), Durations(6, 8, 8)


class SoakJob:
    """The job, and the trials that it is put through.

    Args:
        ranks: ranks per node.
        script: further arguments of the training script.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, ranks: int, durations: Durations, script: Sequence[str] = ()
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._durations = durations
        self._script = script
        self.trials: list[Trial] = []
        self._stop_file = folder / "stop"
        self._jobs = [self._start(node, ranks) for node in range(2)]

    def run_faults(self, minutes: float) -> None:
        """Run every trial, then wait for the rest of the time, then end training."""
        begin = time.monotonic()
        self._until(self._packets, 180)
        self._trial("no fault", self._baseline)
        self._trial("aggregator killed", lambda: self._kill("aggregate", 0, self._durations.outage))
        self._trial("relay killed", lambda: self._kill("relay", 1, self._durations.outage / 4))
        self._trial("stream cable pulled", self._pull_stream_cable)
        self._trial("loss and delay", self._lose_frames)
        self._trial("bad frames", self._send_bad_frames)
        while time.monotonic() - begin < 60 * minutes:
            self._trial("no fault", self._baseline)
        self._end()

    def run_outage(self) -> None:
        """Make a rank of node 1 slow; then disconnect node 1 from training and stream for a while."""
        self._until(self._packets, 180)
        self._trial("slow rank", self._wait_for_slow_rank)
        self._trial("all cables pulled", self._pull_all_cables)
        self._trial("no fault", self._baseline)
        self._end()

    def windows(self) -> list[Window]:
        """Return the windows on disk."""
        loaded = read_windows([self._folder / "packets"])
        assert not loaded.quarantined
        assert not loaded.conflicts
        return [found.window for found in loaded.windows]

    def _start(self, node: int, ranks: int) -> subprocess.Popen[str]:
        line = [sys.executable, "-c", "from sfapp.cli import main; main()", "run", "--nnodes", "2"]
        line += ["--nproc-per-node", str(ranks), "--node-rank", str(node), "--run-id", "soak"]
        line += ["--master-addr", self._cluster.address(0), "--window-steps", str(WINDOW_STEPS)]
        line += ["--aggregator-host", self._cluster.address(0, MANAGE), "--aggregator-port", str(PORT)]
        line += [str(EXAMPLE), "--steps", "1000000", "--until", str(self._stop_file), *self._script]
        return self._cluster.start(
            node, line, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def _end(self) -> None:
        self._stop_file.touch()
        for job in self._jobs:
            _, errors = job.communicate(timeout=300)
            if job.returncode:
                raise SystemExit(f"sfapp run ended with {job.returncode}: {errors[-3000:]}")

    # ---- trials ---------------------------------------------------------------------------------

    def _trial(self, name: str, fault: Callable[[], str]) -> None:
        begin = time.time_ns()
        note = fault()
        service = self._cluster.services(0).get("aggregate")
        size = service.memory_info().rss if service is not None else 0
        self.trials.append(Trial(name, begin, time.time_ns(), size, note))
        print(f"{name}: {(time.time_ns() - begin) / 1e9:.0f} s. {note}", flush=True)

    def _baseline(self) -> str:
        time.sleep(self._durations.baseline)
        return ""

    def _kill(self, name: str, node: int, seconds: float) -> str:
        """Kill a service for this long, every time it is restarted."""
        kills, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            service = self._cluster.services(node).get(name)
            if service is not None:
                service.send_signal(signal.SIGKILL)
                kills += 1
            time.sleep(0.1)
        fixed = time.monotonic()
        self._until(lambda: self._cluster.services(node).get(name) is not None, 60)
        self._until_new_packet()
        return f"{kills} kills; next packet {time.monotonic() - fixed:.1f} s after the last kill"

    def _pull_stream_cable(self) -> str:
        """Disconnect node 1's stream, but not its training."""
        self._cluster.wire.cut = frozenset({1})
        time.sleep(self._durations.outage / 2)
        self._cluster.wire.cut = frozenset()
        fixed = time.monotonic()
        self._until_new_packet()
        return f"next packet {time.monotonic() - fixed:.1f} s after the cable was plugged in"

    def _wait_for_slow_rank(self) -> str:
        """Wait until a window names the slow rank."""
        found: list[int] = []

        def is_named() -> bool:
            for path in self._packets()[SLOW_FROM_WINDOW + len(found) :]:
                aim = sfapp.diagnose(read_window(path)).aim
                found.append(-1 if aim is None or aim.rank is None else aim.rank)
            return SLOW_RANK in found

        self._until(is_named, 180)
        return f"rank {SLOW_RANK} named in slow window {found.index(SLOW_RANK) + 1}"

    def _pull_all_cables(self) -> str:
        """Disconnect node 1's training and stream: training stops, and continues afterwards."""
        before = len(self._packets())
        self._cluster.plug(1, is_in=False)
        time.sleep(self._durations.outage / 2)
        during = len(self._packets())
        self._cluster.plug(1, is_in=True)
        fixed = time.monotonic()
        self._until(lambda: len(self._packets()) > during, 120)
        back = time.monotonic() - fixed
        return (
            f"{during - before} windows in the {self._durations.outage / 2:.0f} s without cables; "
            f"next packet {back:.1f} s after they were plugged in"
        )

    def _lose_frames(self) -> str:
        wire = self._cluster.wire
        lost, carried = wire.lost, wire.carried
        wire.delay, wire.loss = 0.2, 0.02
        time.sleep(self._durations.lossy)
        wire.delay = wire.loss = 0.0
        return f"{wire.lost - lost} of {wire.carried - carried} frames lost, 200 ms delay each way"

    def _send_bad_frames(self) -> str:
        """Send frames without keys from node 1, as fast as the aggregator's port accepts them."""
        host = self._cluster.address(0, MANAGE)
        code = f"from benchmarks.soak_job import send_bad_frames; send_bad_frames('{host}')"
        root = str(Path(__file__).parent.parent)
        begin = time.monotonic()
        self._cluster.start(1, [sys.executable, "-c", code], cwd=root).wait(600)
        self._until_new_packet()
        return f"{BAD_FRAMES:,} bad frames in {time.monotonic() - begin:.0f} s, packets continue"

    # ---- observation ----------------------------------------------------------------------------

    def _until_new_packet(self) -> None:
        before = len(self._packets())
        self._until(lambda: len(self._packets()) > before, 120)

    def _packets(self) -> list[Path]:
        return sorted(self._folder.glob("packets/soak/*.parquet"))

    def _until(self, condition: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            for job in self._jobs:
                if job.poll() is not None:
                    raise SystemExit(f"sfapp run ended: {job.communicate()[1][-3000:]}")
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {seconds} s")
            time.sleep(0.1)


def send_bad_frames(host: str) -> None:
    """Send invalid frames to an aggregator's port: a greeting of the protocol, then random bytes."""
    noise = os.urandom(200)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL".ljust(55, b"\x00")
    sent = 0
    while sent < BAD_FRAMES:
        try:
            with socket.create_connection((host, PORT), timeout=5) as connection:
                connection.sendall(greeting)
                for _ in range(100):
                    connection.sendall(b"\x00\xc8" + noise)
                    sent += 1
        except OSError:  # the aggregator closed the connection
            sent += 1
