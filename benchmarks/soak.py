"""``make soak``: a real job on nodes of its own (network namespaces) while everything round it breaks.

``python -m benchmarks.soak [--short] [--minutes M] [--out docs/evidence]``. One job of 2 nodes streams all
along under ``sfapp run``; per trial something is broken and mended, and at the end every step of every rank
must be in the packets exactly once. Training goes over another network than the stream, so that it can be
seen never to wait. Needs Linux, root and the command ``ip``.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil

from benchmarks.namespaces import MANAGE, Cluster, why_not
from sfapp.model import Window
from sfapp.packets import read_windows

EXAMPLE = Path(__file__).parent.parent / "examples" / "train.py"
WINDOW = 50
BAD_FRAMES = 100_000
PORT = 29765
STOP = "stop"

TRIALS = "quiet", "aggregator", "relay", "cut off", "loss and delay", "strangers"


@dataclass(frozen=True, slots=True)
class Length:
    """How long trials last, seconds."""

    quiet: float
    away: float
    lossy: float


FULL, SHORT = Length(30, 60, 60), Length(6, 8, 8)


@dataclass(frozen=True, slots=True)
class Trial:
    """What was done, when (ns since 1970), and how large the aggregator was afterwards."""

    name: str
    begin_ns: int
    end_ns: int
    rss_bytes: int
    note: str = ""


class Soak:
    """The job, and what can be done to it."""

    def __init__(self, cluster: Cluster, folder: Path, ranks: int, length: Length) -> None:
        self._cluster = cluster
        self._folder = folder
        self._length = length
        self.trials: list[Trial] = []
        self.steps_end = folder / STOP
        self._jobs = [self._start(node, ranks) for node in range(2)]

    def run(self, minutes: float) -> None:
        """Every trial, then quiet for the rest of the time, then the end of training."""
        begin = time.monotonic()
        self._until(lambda: list(self._folder.glob("packets/soak/*.parquet")), 180)
        doings: dict[str, Callable[[], str]] = {
            "quiet": self._rest,
            "aggregator": lambda: self._kill("aggregate", 0, self._length.away),
            "relay": lambda: self._kill("relay", 1, self._length.away / 4),
            "cut off": self._cut,
            "loss and delay": self._lossy,
            "strangers": self._strangers,
        }
        for name in TRIALS:
            self._try(name, doings[name])
        while time.monotonic() - begin < 60 * minutes:
            self._try("quiet", self._rest)
        self.steps_end.touch()
        for job in self._jobs:
            _, said = job.communicate(timeout=300)
            if job.returncode:
                raise SystemExit(f"sfapp run has ended with {job.returncode}: {said[-3000:]}")

    def windows(self) -> list[Window]:
        """What is on disk."""
        loaded = read_windows([self._folder / "packets"])
        assert not loaded.quarantined
        assert not loaded.conflicts
        return [found.window for found in loaded.windows]

    def _start(self, node: int, ranks: int) -> subprocess.Popen[str]:
        line = [sys.executable, "-c", "from sfapp.cli import main; main()", "run", "--nnodes", "2"]
        line += ["--nproc-per-node", str(ranks), "--node-rank", str(node), "--run-id", "soak"]
        line += ["--master-addr", self._cluster.address(0), "--window-steps", str(WINDOW)]
        line += ["--aggregator-host", self._cluster.address(0, MANAGE), "--aggregator-port", str(PORT)]
        line += [str(EXAMPLE), "--steps", "1000000", "--until", str(self.steps_end)]
        return self._cluster.start(
            node, line, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def _try(self, name: str, doing: Callable[[], str]) -> None:
        begin = time.time_ns()
        note = doing()
        service = self._service("aggregate", 0)
        size = service.memory_info().rss if service is not None else 0
        self.trials.append(Trial(name, begin, time.time_ns(), size, note))
        print(f"{name}: {(time.time_ns() - begin) / 1e9:.0f} s. {note}", flush=True)

    def _rest(self) -> str:
        time.sleep(self._length.quiet)
        return ""

    def _kill(self, name: str, node: int, seconds: float) -> str:
        """Kill a service as often as it is started again, for so long."""
        kills, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            service = self._service(name, node)
            if service is not None:
                service.send_signal(signal.SIGKILL)
                kills += 1
            time.sleep(0.1)
        mended = time.monotonic()
        self._until(lambda: self._service(name, node) is not None, 60)
        self._until_new_packet()
        back = time.monotonic() - mended
        return f"{kills} kills; the next packet {back:.1f} s after it was left alone"

    def _cut(self) -> str:
        """Node 1's stream has no cable; the training has."""
        self._cluster.wire.cut = frozenset({1})
        time.sleep(self._length.away / 2)
        self._cluster.wire.cut = frozenset()
        mended = time.monotonic()
        self._until_new_packet()
        return f"the next packet {time.monotonic() - mended:.1f} s after the cable was back"

    def _lossy(self) -> str:
        wire = self._cluster.wire
        lost, carried = wire.lost, wire.carried
        wire.delay, wire.loss = 0.2, 0.02
        time.sleep(self._length.lossy)
        wire.delay = wire.loss = 0.0
        return f"{wire.lost - lost} of {wire.carried - carried} frames lost, 200 ms each way"

    def _strangers(self) -> str:
        """Frames from node 1 without keys, as fast as the door takes them."""
        code = f"from benchmarks.soak import knock; knock('{self._cluster.address(0, MANAGE)}')"
        root = str(Path(__file__).parent.parent)
        begin = time.monotonic()
        stranger = self._cluster.start(1, [sys.executable, "-c", code], cwd=root)
        stranger.wait(600)
        self._until_new_packet()
        return f"{BAD_FRAMES:,} bad frames sent in {time.monotonic() - begin:.0f} s, and packets go on"

    def _service(self, name: str, node: int) -> psutil.Process | None:
        for pid in self._cluster.pids(node):
            try:
                line = psutil.Process(pid).cmdline()
            except psutil.Error:
                continue
            if line[1:2] == ["-c"] and line[3:4] == [name]:
                return psutil.Process(pid)
        return None

    def _until_new_packet(self) -> None:
        before = len(list(self._folder.glob("packets/soak/*.parquet")))
        self._until(lambda: len(list(self._folder.glob("packets/soak/*.parquet"))) > before, 120)

    def _until(self, condition: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            for job in self._jobs:
                if job.poll() is not None:
                    raise SystemExit(f"sfapp run has ended: {job.communicate()[1][-3000:]}")
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {seconds} s")
            time.sleep(0.1)


def knock(host: str) -> None:
    """Send an aggregator's port what is no message: a greeting of the protocol, and then noise."""
    noise = os.urandom(200)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL".ljust(55, b"\x00")
    sent = 0
    while sent < BAD_FRAMES:
        try:
            with socket.create_connection((host, PORT), timeout=5) as door:
                door.sendall(greeting)
                for _ in range(100):
                    door.sendall(b"\x00\xc8" + noise)
                    sent += 1
        except OSError:  # the door was shut
            sent += 1


@contextmanager
def namespaces() -> Iterator[Cluster]:
    reason = why_not()
    if reason:
        raise SystemExit(f"the soak cannot run here: {reason}")
    with Cluster(2) as cluster:
        yield cluster


def losses(windows: list[Window], ranks: int) -> dict[str, int]:
    """What is not in the packets exactly once."""
    steps = [step for window in windows for step in window.step_N.tolist()]
    return {
        "steps": len(steps),
        "lost": max(steps) + 1 - len(set(steps)),
        "duplicated": len(steps) - len(set(steps)),
        "windows": len(windows),
        "windows_not_whole": sum(
            window.ranks.rank != tuple(range(ranks)) or bool(window.manifest.faults) for window in windows
        ),
    }


def report(soak: Soak, found: list[Window], ranks: int) -> str:
    """The page of evidence; ``ranks`` a node."""
    counts = losses(found, 2 * ranks)
    wall_N = np.concatenate([window.wall_NR.numpy().max(axis=1) for window in found])
    lines = [
        "# Soak: what breaks round a job, and what it costs",
        "",
        f"`make soak`: {ranks} ranks on each of 2 nodes (network namespaces), {os.cpu_count()} cores. "
        f"{counts['steps']} steps in {counts['windows']} windows; lost {counts['lost']}, "
        f"duplicated {counts['duplicated']}, windows that are not whole {counts['windows_not_whole']}. "
        f"Step time, slowest rank: median {np.median(wall_N) / 1e6:.1f} ms, "
        f"p99 {np.quantile(wall_N, 0.99) / 1e6:.1f} ms, longest {wall_N.max() / 1e6:.0f} ms.",
        "",
        "| trial | seconds | median step, ms | longest step, ms | aggregator, MB | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    times = np.concatenate([_ends_ns(window) for window in found])
    for trial in soak.trials:
        inside = wall_N[(times >= trial.begin_ns) & (times < trial.end_ns)] / 1e6
        median, longest = (np.median(inside), inside.max()) if len(inside) else (np.nan, np.nan)
        seconds = (trial.end_ns - trial.begin_ns) / 1e9
        lines.append(
            f"| {trial.name} | {seconds:.0f} | {median:.1f} | {longest:.0f} "
            f"| {trial.rss_bytes / 1e6:.0f} | {trial.note} |"
        )
    return "\n".join(lines) + "\n"


def _ends_ns(window: Window) -> np.ndarray:
    """About when each step ended, ns since 1970: from when the window began."""
    begin = datetime.fromisoformat(window.manifest.started_at).timestamp() * 1e9
    return begin + np.cumsum(window.wall_NR.numpy().max(axis=1))


def main() -> int:
    """Run it; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="about two minutes, with shorter trials")
    parser.add_argument("--minutes", type=float, default=0, help="go on quietly until so much time is over")
    parser.add_argument("--ranks", type=int, default=2, help="a node")
    parser.add_argument("--out", type=Path, help="folder for soak.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, namespaces() as cluster:
        soak = Soak(cluster, Path(folder), options.ranks, SHORT if options.short else FULL)
        soak.run(options.minutes)
        found = soak.windows()
    page = report(soak, found, options.ranks)
    print(page)
    if options.out is not None:
        (options.out / "soak.md").write_text(page, encoding="utf-8")
    counts = losses(found, 2 * options.ranks)
    return int(bool(counts["lost"] or counts["duplicated"] or counts["windows_not_whole"]))


if __name__ == "__main__":
    sys.exit(main())
