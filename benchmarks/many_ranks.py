"""Stream over a thousand ranks to one aggregator for half an hour: part of ``make soak``.

Four nodes (network namespaces) run ``sfapp run``: 16 training processes on each stream through their node's
relay, and 256 simulated ranks on each (``benchmarks/simulated_ranks.py``) directly to the aggregator, every
one over a connection with keys. Meanwhile a store follows the packet directory, as ``sfapp serve`` does, and
the aggregator's CPU time and memory are measured. On separate machines, aggregator, relays and store would
have their own cores; here ranks run at a lower priority (``nice``) instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from benchmarks.machine import OtherPrograms, busy_seconds
from benchmarks.many_ranks_report import MEASURE_SECONDS, CheckedRun, Observations, section
from benchmarks.namespaces import Cluster, require_cluster
from benchmarks.simulated_ranks import RUN as SIMULATED
from benchmarks.soak_job import EXAMPLE
from sfapp.model import Window
from sfapp.packets import read_windows
from sfapp.store import Store, WindowQuery

NODES = 4
TRAINING = "training"
PORT = 29765

_LOW_PRIORITY = "nice", "-n", "10"
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class RanksPlan:
    """Size and pace of both runs.

    Attributes:
        ranks, step_ms, window_steps: training ranks per node, their shortest step, and steps per window.
        alone: training windows before the simulated ranks join.
        simulated, simulated_seconds, simulated_window_steps: the same for the simulated ranks.
        windows: number of windows that the simulated ranks send.
    """

    ranks: int = 16
    step_ms: int = 16_000
    window_steps: int = 2
    alone: int = 2
    simulated: int = 256
    simulated_seconds: float = 2.0
    simulated_window_steps: int = 10
    windows: int = 90

    def of_minutes(self, minutes: float) -> RanksPlan:
        """Return the plan with as many windows as fit."""
        window_seconds = self.simulated_seconds * self.simulated_window_steps
        return replace(self, windows=max(2, round(minutes * 60 / window_seconds)))


OVERLOAD = RanksPlan(step_ms=4000, window_steps=5, simulated_seconds=1.0, simulated_window_steps=20)
"""The same ranks at a pace that two cores cannot sustain: rows may take longer, but none may be lost."""

SMALL = RanksPlan(ranks=1, step_ms=100, simulated=4, simulated_seconds=0.2, simulated_window_steps=5)
"""A short functional check."""


class ManyRanksJob:
    """The training job, the simulated ranks, and the threads that observe them."""

    def __init__(self, cluster: Cluster, folder: Path, plan: RanksPlan) -> None:
        self._cluster = cluster
        self._folder = folder
        self._plan = plan
        self.seen = Observations()
        self.packets = folder / "packets"
        self.packets.mkdir()
        self._stop_file = folder / "stop"
        self._jobs = [self._train(node) for node in range(NODES)]

    def run(self) -> None:
        """Run training alone, then with the simulated ranks, then end both."""
        seen = self.seen
        with self._observing():
            self._until_windows(self._plan.alone)
            seen.joined_at = time.time()
            busy_before = busy_seconds()
            self._services()
            senders = [self._simulate(node) for node in range(NODES)]
            while any(sender.poll() is None for sender in senders):
                self._check()
                time.sleep(1)
            seen.left_at = time.time()
            core_seconds = (seen.left_at - seen.joined_at) * (os.cpu_count() or 1)
            seen.busy = (busy_seconds() - busy_before) / core_seconds
            seen.failed = sum(sender.returncode != 0 for sender in senders)
            seen.last_steps = self._last_steps()
            self._stop_file.touch()
            for job in self._jobs:
                _, errors = job.communicate(timeout=600)
                if job.returncode:
                    raise SystemExit(f"sfapp run ended with {job.returncode}: {errors[-3000:]}")
            time.sleep(5)  # until the store has read the last packets

    def windows(self, run: str) -> list[Window]:
        """Return the windows of a run on disk."""
        loaded = read_windows([self.packets / run])
        assert not loaded.quarantined
        assert not loaded.conflicts
        return [found.window for found in loaded.windows]

    def _last_steps(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for log in self._folder.glob("ends-*"):
            for line in log.read_text().splitlines():
                window, at = line.split()
                found[int(window)] = max(float(at), found.get(int(window), 0.0))
        return found

    # ---- processes ------------------------------------------------------------------------------

    def _train(self, node: int) -> subprocess.Popen[str]:
        plan = self._plan
        line = [*_LOW_PRIORITY, sys.executable, "-c", "from sfapp.cli import main; main()", "run"]
        line += ["--nnodes", str(NODES), "--nproc-per-node", str(plan.ranks), "--node-rank", str(node)]
        line += ["--master-addr", self._cluster.address(0), "--aggregator-port", str(PORT)]
        line += ["--run-id", TRAINING, "--window-steps", str(plan.window_steps), str(EXAMPLE)]
        line += ["--steps", "1000000", "--step-ms", str(plan.step_ms), "--until", str(self._stop_file)]
        return self._cluster.start(
            node,
            line,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _simulate(self, node: int) -> subprocess.Popen[bytes]:
        plan = self._plan
        endpoint = f"tcp://{self._cluster.address(0)}:{PORT}"
        world, seconds, steps = NODES * plan.simulated, plan.simulated_seconds, plan.simulated_window_steps
        sizes = plan.simulated, world, seconds, steps, plan.windows
        line = [*_LOW_PRIORITY, sys.executable, "-m", "benchmarks.simulated_ranks"]
        line += [endpoint, str(self.packets), str(node), *map(str, sizes), str(self._folder / f"ends-{node}")]
        return self._cluster.start(node, line, cwd=Path(__file__).parent.parent, start_new_session=True)

    def _until_windows(self, count: int) -> None:
        deadline = time.monotonic() + 300
        while len(list((self.packets / TRAINING).glob("*.parquet"))) < count:
            self._check()
            if time.monotonic() > deadline:
                raise SystemExit("training did not write its first windows in time")
            time.sleep(0.5)

    def _check(self) -> None:
        for job in self._jobs:
            if job.poll() is not None:
                raise SystemExit(f"sfapp run ended: {job.communicate()[1][-3000:]}")

    # ---- observation ----------------------------------------------------------------------------

    @contextmanager
    def _observing(self) -> Iterator[None]:
        stop = threading.Event()
        with Store.open([self.packets], memory=True) as store:
            threads = [
                threading.Thread(target=store.watch, args=(stop, lambda _: self._note_windows(store))),
                threading.Thread(target=self._note_paces, args=(store, stop)),
                threading.Thread(target=self._measure, args=(stop,)),
            ]
            for thread in threads:
                thread.start()
            _raise_priority(psutil.Process())  # This process runs the store.
            try:
                yield
            finally:
                _set_session_priority(os.getpid(), 0)
                stop.set()
                for thread in threads:
                    thread.join()

    def _note_windows(self, store: Store) -> None:
        for run in (TRAINING, SIMULATED):
            for row in store.windows(WindowQuery(run=run, sort=(("window", "desc"),), limit=10)).rows:
                self.seen.stored.setdefault((run, row["window"]), time.time())

    def _note_paces(self, store: Store, stop: threading.Event) -> None:
        while not stop.wait(_POLL_SECONDS):
            now = datetime.now(UTC)
            found: dict[str, Any] = store.paces(TRAINING, now - timedelta(seconds=10), now)
            at = time.time()
            for rank, step, steps in zip(found["rank"], found["step"], found["steps"], strict=True):
                self.seen.paced.setdefault((int(rank), int(step)), (int(steps), at))

    def _measure(self, stop: threading.Event) -> None:
        aggregator: psutil.Process | None = None
        while not stop.wait(MEASURE_SECONDS):
            try:
                if aggregator is None:
                    aggregator = self._services().get("aggregate")
                if aggregator is not None:
                    times, size = aggregator.cpu_times(), aggregator.memory_info().rss
                    self.seen.pids.add(aggregator.pid)
                    self.seen.measured.append((time.time(), times.user + times.system, size))
            except psutil.Error:
                aggregator = None

    def _services(self) -> dict[str, psutil.Process]:
        """Return aggregator and relays, with their priority raised above the ranks'."""
        found = {name: each for node in range(NODES) for name, each in self._cluster.services(node).items()}
        for process in found.values():
            with suppress(psutil.Error, OSError):  # It has ended.
                _raise_priority(process)
        return found


def _raise_priority(process: psutil.Process) -> None:
    """Raise the priority of a process's threads and of its session, by which Linux may group processes."""
    for thread in process.threads():
        os.setpriority(os.PRIO_PROCESS, thread.id, 0)
    _set_session_priority(process.pid, -15)


def _set_session_priority(pid: int, nice: int) -> None:
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(nice))


def run_many_ranks(plan: RanksPlan) -> tuple[str, bool]:
    """Run the plan; return the section of the page, and whether no step was lost or stored twice."""
    others = OtherPrograms()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder, require_cluster(NODES) as cluster:
        job = ManyRanksJob(cluster, Path(folder), plan)
        job.run()
        training = CheckedRun(TRAINING, job.windows(TRAINING), NODES * plan.ranks, plan.step_ms / 1000)
        simulated = CheckedRun(
            SIMULATED,
            job.windows(SIMULATED),
            NODES * plan.simulated,
            plan.simulated_seconds,
            sent_windows=plan.windows,
        )
    lasted_minutes = (time.monotonic() - begin) / 60
    text = section(job.seen, training, simulated, NODES, lasted_minutes, others.share())
    return text, training.holds and simulated.holds and not job.seen.failed
