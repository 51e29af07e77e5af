"""``make soak``: real jobs on nodes of their own (network namespaces) while what is round them breaks.

``python -m benchmarks.soak [breaks] [outage] [crowd] [overload] [--short] [--minutes M] [--out FOLDER]``.
Jobs stream all along under ``sfapp run``, and at the end every step of every rank must be in the packets
exactly once. Needs Linux, root and the command ``ip``.

breaks: per trial something is broken and mended. Training goes over another network than the stream, so that
it can be seen never to wait. outage: a node with a slow rank loses all its cables. crowd: over a thousand
ranks on one aggregator, ``benchmarks/crowd.py``. overload: as many at a pace that the cores cannot keep.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil

import sfapp
from benchmarks.namespaces import MANAGE, Cluster, why_not
from sfapp.model import Window
from sfapp.packets import read_window, read_windows

EXAMPLE = Path(__file__).parent.parent / "examples" / "train.py"
WINDOW = 50
BAD_FRAMES = 100_000
PORT = 29765
STOP = "stop"

SLOW_RANK, SLOW_FROM_WINDOW = 6, 3


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

    def __init__(
        self, cluster: Cluster, folder: Path, ranks: int, length: Length, script: Sequence[str] = ()
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._length = length
        self._script = script
        self.trials: list[Trial] = []
        self.steps_end = folder / STOP
        self._jobs = [self._start(node, ranks) for node in range(2)]

    def breaks(self, minutes: float) -> None:
        """Every trial, then quiet for the rest of the time, then the end of training."""
        begin = time.monotonic()
        self._until(self._packets, 180)
        self._try("quiet", self._rest)
        self._try("aggregator", lambda: self._kill("aggregate", 0, self._length.away))
        self._try("relay", lambda: self._kill("relay", 1, self._length.away / 4))
        self._try("cut off", self._cut)
        self._try("loss and delay", self._lossy)
        self._try("strangers", self._strangers)
        while time.monotonic() - begin < 60 * minutes:
            self._try("quiet", self._rest)
        self._end()

    def outage(self) -> None:
        """A rank of node 1 becomes slow; then node 1 is gone for a while, for training and stream alike."""
        self._until(self._packets, 180)
        self._try("slow rank", self._name_the_slow)
        self._try("all cables", self._pull)
        self._try("quiet", self._rest)
        self._end()

    def _end(self) -> None:
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
        line += [str(EXAMPLE), "--steps", "1000000", "--until", str(self.steps_end), *self._script]
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

    def _name_the_slow(self) -> str:
        """Until a window names the slow rank."""
        found: list[int] = []

        def named() -> bool:
            for path in self._packets()[SLOW_FROM_WINDOW + len(found) :]:
                aim = sfapp.diagnose(read_window(path)).aim
                found.append(-1 if aim is None else aim.rank)
            return SLOW_RANK in found

        self._until(named, 180)
        place = found.index(SLOW_RANK)
        return f"rank {SLOW_RANK} named by window {place + 1} of those in which it is slow"

    def _pull(self) -> str:
        """Node 1 has no cable at all: training stands still, and goes on."""
        before = len(self._packets())
        self._cluster.plug(1, is_in=False)
        time.sleep(self._length.away / 2)
        at_most = len(self._packets())
        self._cluster.plug(1, is_in=True)
        mended = time.monotonic()
        self._until(lambda: len(self._packets()) > at_most, 120)
        back = time.monotonic() - mended
        return (
            f"{at_most - before} windows came without the cables, for {self._length.away / 2:.0f} s; "
            f"the next {back:.1f} s after they were back"
        )

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
        before = len(self._packets())
        self._until(lambda: len(self._packets()) > before, 120)

    def _packets(self) -> list[Path]:
        return sorted(self._folder.glob("packets/soak/*.parquet"))

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
def namespaces(nodes: int) -> Iterator[Cluster]:
    """Nodes with cables."""
    reason = why_not()
    if reason:
        raise SystemExit(f"the soak cannot run here: {reason}")
    with Cluster(nodes) as cluster:
        yield cluster


def losses(windows: list[Window], ranks: int) -> dict[str, int]:
    """What is not in the packets of one run exactly once; ``ranks`` in all."""
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


def counted(windows: list[Window], ranks: int) -> str:
    """The same in words."""
    counts = losses(windows, ranks)
    return (
        f"{counts['steps']} steps in {counts['windows']} windows of {ranks} ranks; lost {counts['lost']}, "
        f"duplicated {counts['duplicated']}, windows that are not whole {counts['windows_not_whole']}."
    )


def is_whole(windows: list[Window], ranks: int) -> bool:
    """Whether nothing is missing and nothing is there twice."""
    counts = losses(windows, ranks)
    return not (counts["lost"] or counts["duplicated"] or counts["windows_not_whole"])


def trials_table(soak: Soak, found: list[Window], ranks: int) -> str:
    """What the trials did to the steps; ``ranks`` a node."""
    wall_N = np.concatenate([window.wall_NR.max(axis=1) for window in found])
    lines = [
        f"{ranks} ranks on each of 2 nodes, {os.cpu_count()} cores. {counted(found, 2 * ranks)} "
        f"Step time, slowest rank: median {np.median(wall_N) / 1e6:.1f} ms, "
        f"p99 {np.quantile(wall_N, 0.99) / 1e6:.1f} ms, longest {wall_N.max() / 1e6:.0f} ms.",
        "",
        "| trial | seconds | median step, ms | longest step, ms | aggregator, MB | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    times = np.concatenate([ends_ns(window) for window in found])
    for trial in soak.trials:
        inside = wall_N[(times >= trial.begin_ns) & (times < trial.end_ns)] / 1e6
        median, longest = (np.median(inside), inside.max()) if len(inside) else (np.nan, np.nan)
        seconds = (trial.end_ns - trial.begin_ns) / 1e9
        lines.append(
            f"| {trial.name} | {seconds:.0f} | {median:.1f} | {longest:.0f} "
            f"| {trial.rss_bytes / 1e6:.0f} | {trial.note} |"
        )
    return "\n".join(lines)


def ends_ns(window: Window) -> np.ndarray:
    """About when each step ended on the first rank, ns since 1970: a window says when its first and its last
    one did, and how long they took."""
    manifest = window.manifest
    first, last = (
        datetime.fromisoformat(at or "").timestamp() * 1e9 for at in (manifest.started_at, manifest.ended_at)
    )
    since_first_N = np.cumsum(window.wall_NR[:, 0][1:], dtype=float)
    share_N = since_first_N / since_first_N[-1] if len(since_first_N) else since_first_N
    return first + (last - first) * np.concatenate([[0.0], share_N])


@dataclass(frozen=True, slots=True)
class Told:
    """What a part of the soak has shown: a section of the page, and whether it held."""

    section: str
    holds: bool


def breaks(options: argparse.Namespace, length: Length) -> Told:
    """All that breaks round a stream, one after the other."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, namespaces(2) as cluster:
        soak = Soak(cluster, Path(folder), 2, length)
        soak.breaks(options.minutes)
        found = soak.windows()
    return Told(trials_table(soak, found, 2), is_whole(found, 4))


def outage(options: argparse.Namespace, length: Length) -> Told:
    """A node with a slow rank, gone for half a minute."""
    slow = "--slow-rank", str(SLOW_RANK), "--slow-from", str(SLOW_FROM_WINDOW * WINDOW), "--slow-ms", "60"
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, namespaces(2) as cluster:
        soak = Soak(cluster, Path(folder), 4, length, slow)
        soak.outage()
        found = soak.windows()
    return Told(trials_table(soak, found, 4), is_whole(found, 8))


def crowd(options: argparse.Namespace, length: Length) -> Told:
    """Very many ranks, for long."""
    from benchmarks.crowd import SMALL, Plan, shown

    section, holds = shown((SMALL if length is SHORT else Plan()).of_minutes(options.minutes or 30))
    return Told(section, holds)


def overload(options: argparse.Namespace, length: Length) -> Told:
    """As many ranks, and too few cores."""
    from benchmarks.crowd import OVERLOAD, SMALL, shown

    section, holds = shown((SMALL if length is SHORT else OVERLOAD).of_minutes(options.minutes or 5))
    return Told(section, holds)


PARTS: dict[str, tuple[str, Callable[[argparse.Namespace, Length], Told]]] = {
    "breaks": ("What breaks round a job, and what it costs", breaks),
    "outage": ("A node without its cables", outage),
    "crowd": ("More than a thousand ranks", crowd),
    "overload": ("As many, faster than the cores can", overload),
}


def page(before: str, sections: Mapping[str, str]) -> str:
    """The page of evidence with these sections in it, by title, and the others as they were."""
    kept = dict(part.split("\n", 1) for part in before.split("\n## ")[1:])
    kept |= {title: f"\n{section}\n" for title, section in sections.items()}
    titles = [title for title, _ in PARTS.values() if title in kept]
    head = "# Soak: real jobs on nodes of their own\n\n`make soak`; nodes are network namespaces.\n"
    return head + "".join(f"\n## {title}\n{kept[title].rstrip()}\n" for title in titles)


def main() -> int:
    """Run it; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which; all where none is named")
    parser.add_argument("--short", action="store_true", help="shorter trials, and a smaller crowd")
    parser.add_argument("--minutes", type=float, default=0, help="how long, for breaks at the least")
    parser.add_argument("--out", type=Path, help="folder for soak.md")
    options = parser.parse_args()
    length = SHORT if options.short else FULL
    all_hold = True
    for name in options.parts or PARTS:
        title, part = PARTS[name]
        told = part(options, length)
        print(f"## {title}\n\n{told.section}\n", flush=True)
        all_hold = all_hold and told.holds
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            path = options.out / "soak.md"
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            path.write_text(page(before, {title: told.section}), encoding="utf-8")
    return 0 if all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
