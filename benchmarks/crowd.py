"""Very many ranks on one aggregator, for long: part of ``make soak``.

Four nodes (network namespaces) under ``sfapp run``: 16 training processes on each stream through their node's
relay, and 256 simulated ones on each (``benchmarks/crowd_senders.py``) straight to the aggregator, every one
over a connection with keys. Meanwhile a store follows the packet directory, as ``sfapp serve`` does, and the
aggregator is looked at from outside. Nodes have cores of their own where there are nodes: here ranks give way
(``nice``) to aggregator, relays and the store.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.crowd_senders import RUN as SIMULATED
from benchmarks.machine import Others, busy_seconds
from benchmarks.namespaces import Cluster
from benchmarks.soak import EXAMPLE, counted, ends_ns, is_whole, namespaces
from sfapp.model import Window
from sfapp.packets import read_windows
from sfapp.store import Store, WindowQuery

NODES = 4
TRAINING = "training"
PORT = 29765

CORE_SHARE, LAG_SECONDS = 1.0, 1.5
"""The bars: of one core that the aggregator takes, mean of all minutes; from step to store, 95 of 100."""

GROWTH = 0.02
"""Memory is flat if a line through its last minutes grows by no more than this part of it."""

_GIVING_WAY = "nice", "-n", "10"
_LOOK_SECONDS = 0.25
_MEASURE_SECONDS = 5.0
_WARM_UP = 0.55
"""Of 30 minutes the first 16: from the 15th on samples are thinned (docs/metrics.md), so that by then the
aggregator has done everything once that it does."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who takes part, and how fast.

    Attributes:
        ranks, step_ms, window_steps: of the training on each node; what a step takes at least.
        alone: its windows before the simulated ranks join.
        simulated, simulated_seconds, simulated_window_steps: the same of those.
        windows: that they send.
    """

    ranks: int = 16
    step_ms: int = 16_000
    window_steps: int = 2
    alone: int = 2
    simulated: int = 256
    simulated_seconds: float = 2.0
    simulated_window_steps: int = 10
    windows: int = 90

    def of_minutes(self, minutes: float) -> Plan:
        """As many windows as fit."""
        window_seconds = self.simulated_seconds * self.simulated_window_steps
        return replace(self, windows=max(2, round(minutes * 60 / window_seconds)))


OVERLOAD = Plan(step_ms=4000, window_steps=5, simulated_seconds=1.0, simulated_window_steps=20)
"""As many ranks at a pace that two cores cannot keep: nothing may be lost, and how long rows take says who
waits for a core."""

SMALL = Plan(ranks=1, step_ms=100, simulated=4, simulated_seconds=0.2, simulated_window_steps=5)
"""To see that everything works."""


@dataclass(slots=True)
class Seen:
    """What was seen from outside.

    Attributes:
        stored: per run and window, when its verdict was in the store, seconds since 1970.
        paced: per rank and newest step that training was said to have done: when that was in the store.
        measured: (seconds since 1970, CPU seconds, resident bytes) of the aggregator.
        pids: its processes: more than one if it ever ended.
    """

    stored: dict[tuple[str, int], float] = field(default_factory=dict)
    paced: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    measured: list[tuple[float, float, int]] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)


class Crowd:
    """The job, the simulated ranks, and who looks."""

    def __init__(self, cluster: Cluster, folder: Path, plan: Plan) -> None:
        self._cluster = cluster
        self._folder = folder
        self._plan = plan
        self.seen = Seen()
        self.packets = folder / "packets"
        self.packets.mkdir()
        self._stop_training = folder / "stop"
        self._jobs = [self._train(node) for node in range(NODES)]

    def run(self) -> None:
        """Training alone, then both, then the end of both."""
        with self._looking():
            self._until_windows(self._plan.alone)
            self.joined_at = time.time()
            worked = busy_seconds()
            self._services()
            senders = [self._simulate(node) for node in range(NODES)]
            while any(sender.poll() is None for sender in senders):
                self._check()
                time.sleep(1)
            self.left_at = time.time()
            self.busy = (busy_seconds() - worked) / (self.left_at - self.joined_at) / (os.cpu_count() or 1)
            self.failed = sum(sender.returncode != 0 for sender in senders)
            self.last_steps = self._last_steps()
            self._stop_training.touch()
            for job in self._jobs:
                _, said = job.communicate(timeout=600)
                if job.returncode:
                    raise SystemExit(f"sfapp run has ended with {job.returncode}: {said[-3000:]}")
            time.sleep(5)  # for the store

    def windows(self, run: str) -> list[Window]:
        """What is on disk of a run."""
        loaded = read_windows([self.packets / run])
        assert not loaded.quarantined
        assert not loaded.conflicts
        return [found.window for found in loaded.windows]

    def _last_steps(self) -> dict[int, float]:
        """Per window of the simulated ranks, when the last of them finished it, seconds since 1970."""
        found: dict[int, float] = {}
        for log in self._folder.glob("ends-*"):
            for line in log.read_text().splitlines():
                window, at = line.split()
                found[int(window)] = max(float(at), found.get(int(window), 0.0))
        return found

    # ---- processes ------------------------------------------------------------------------------

    def _train(self, node: int) -> subprocess.Popen[str]:
        plan = self._plan
        line = [*_GIVING_WAY, sys.executable, "-c", "from sfapp.cli import main; main()", "run"]
        line += ["--nnodes", str(NODES), "--nproc-per-node", str(plan.ranks), "--node-rank", str(node)]
        line += ["--master-addr", self._cluster.address(0), "--aggregator-port", str(PORT)]
        line += ["--run-id", TRAINING, "--window-steps", str(plan.window_steps), str(EXAMPLE)]
        line += ["--steps", "1000000", "--step-ms", str(plan.step_ms), "--until", str(self._stop_training)]
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
        figures = plan.simulated, world, seconds, steps, plan.windows
        line = [*_GIVING_WAY, sys.executable, "-m", "benchmarks.crowd_senders", endpoint, str(self.packets)]
        line += [str(node), *map(str, figures), str(self._folder / f"ends-{node}")]
        return self._cluster.start(node, line, cwd=Path(__file__).parent.parent, start_new_session=True)

    def _until_windows(self, count: int) -> None:
        deadline = time.monotonic() + 300
        while len(list((self.packets / TRAINING).glob("*.parquet"))) < count:
            self._check()
            if time.monotonic() > deadline:
                raise SystemExit("the training does not get under way")
            time.sleep(0.5)

    def _check(self) -> None:
        for job in self._jobs:
            if job.poll() is not None:
                raise SystemExit(f"sfapp run has ended: {job.communicate()[1][-3000:]}")

    # ---- looking --------------------------------------------------------------------------------

    @contextmanager
    def _looking(self) -> Iterator[None]:
        stop = threading.Event()
        with Store.open([self.packets], memory=True) as store:
            threads = [
                threading.Thread(target=store.watch, args=(stop, lambda _: self._note_windows(store))),
                threading.Thread(target=self._note_paces, args=(store, stop)),
                threading.Thread(target=self._measure, args=(stop,)),
            ]
            for thread in threads:
                thread.start()
            _prefer(psutil.Process())  # the store
            try:
                yield
            finally:
                _set_group(os.getpid(), 0)
                stop.set()
                for thread in threads:
                    thread.join()

    def _note_windows(self, store: Store) -> None:
        for run in (TRAINING, SIMULATED):
            for row in store.windows(WindowQuery(run=run, sort=(("window", "desc"),), limit=10)).rows:
                self.seen.stored.setdefault((run, row["window"]), time.time())

    def _note_paces(self, store: Store, stop: threading.Event) -> None:
        while not stop.wait(_LOOK_SECONDS):
            now = datetime.now(UTC)
            found: dict[str, Any] = store.paces(TRAINING, now - timedelta(seconds=10), now)
            at = time.time()
            for rank, step, steps in zip(found["rank"], found["step"], found["steps"], strict=True):
                self.seen.paced.setdefault((int(rank), int(step)), (int(steps), at))

    def _measure(self, stop: threading.Event) -> None:
        aggregator: psutil.Process | None = None
        while not stop.wait(_MEASURE_SECONDS):
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
        """Aggregator and relays, which from now on do not give way."""
        found: dict[str, psutil.Process] = {}
        for pid in [pid for node in range(NODES) for pid in self._cluster.pids(node)]:
            try:
                process = psutil.Process(pid)
                line = process.cmdline()
                if line[1:2] == ["-c"] and line[3:4] in (["aggregate"], ["relay"]):
                    found[line[3]] = process
                    _prefer(process)
            except (psutil.Error, OSError):  # gone meanwhile
                continue
        return found


def _prefer(process: psutil.Process) -> None:
    """Let a process run before others. It has a session of its own, and where Linux shares its cores among
    sessions, that counts alone."""
    for thread in process.threads():
        os.setpriority(os.PRIO_PROCESS, thread.id, 0)
    _set_group(process.pid, -15)


def _set_group(pid: int, nice: int) -> None:
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(nice))


# ---- figures ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Minute:
    """The aggregator in one minute."""

    core_share: float
    rss_bytes: float


def minutes(measured: list[tuple[float, float, int]]) -> list[Minute]:
    """Every whole minute from the first measurement on."""
    found: list[Minute] = []
    at_M, busy_M, rss_M = np.array(measured, dtype=float).T
    for begin in np.arange(at_M[0], max(at_M[-1] - 59, at_M[0] + 1), 60):
        inside = np.flatnonzero((at_M >= begin) & (at_M <= begin + 60 + _MEASURE_SECONDS))
        first, last = inside[0], inside[-1]
        share = (busy_M[last] - busy_M[first]) / (at_M[last] - at_M[first])
        found.append(Minute(float(share), float(rss_M[last])))
    return found


def growth(measured: list[tuple[float, float, int]]) -> tuple[float, float]:
    """Of the memory after the warm-up: bytes a minute, by a line of least squares, and the
    part of its mean that it grows by from there to the end."""
    at_M, _, rss_M = np.array(measured, dtype=float).T
    later = at_M >= at_M[0] + _WARM_UP * (at_M[-1] - at_M[0])
    minutes_M = (at_M[later] - at_M[-1]) / 60
    slope, _ = np.polyfit(minutes_M, rss_M[later], 1)
    return float(slope), float(slope * (minutes_M[-1] - minutes_M[0]) / rss_M[later].mean())


def pace_lags(windows: list[Window], paced: dict[tuple[int, int], tuple[int, float]]) -> np.ndarray:
    """Seconds from each training step's end on its slowest rank until each rank's was in the store."""
    ended = {
        int(step): float(end) / 1e9
        for window in windows
        for step, end in zip(window.step_N.tolist(), ends_ns(window), strict=True)
    }
    return np.array(
        [
            at - ended[step]
            for (_, newest), (steps, at) in paced.items()
            for step in range(newest - steps + 1, newest + 1)
            if step in ended
        ]
    )


def verdict_lags(crowd: Crowd, training: list[Window]) -> dict[str, np.ndarray]:
    """Seconds from a window's last step until its verdict was in the store, by run."""
    stored = crowd.seen.stored
    ended = {(SIMULATED, window): at for window, at in crowd.last_steps.items()}
    for window in training:
        at = datetime.fromisoformat(window.manifest.ended_at or "")
        ended[TRAINING, window.number] = at.timestamp()
    return {
        run: np.array([stored[key] - at for key, at in ended.items() if key[0] == run and key in stored])
        for run in (TRAINING, SIMULATED)
    }


def spread(lags: np.ndarray) -> str:
    """As a row of the table has it."""
    if not len(lags):
        return "0 | | |"
    p50, p95 = np.quantile(lags, [0.5, 0.95])
    return f"{len(lags)} | {p50:.2f} | {p95:.2f} | {lags.max():.2f}"


def shown(plan: Plan) -> tuple[str, bool]:
    """Run it; a section of the page, and whether nothing was lost or twice."""
    others = Others()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="crowd-") as folder, namespaces(NODES) as cluster:
        crowd = Crowd(cluster, Path(folder), plan)
        crowd.run()
        training, simulated = crowd.windows(TRAINING), crowd.windows(SIMULATED)
    ranks, senders = NODES * plan.ranks, NODES * plan.simulated
    lasted = (time.monotonic() - begin) / 60
    return section(crowd, plan, training, simulated, lasted, others.share()), (
        is_whole(training, ranks)
        and is_whole(simulated, senders)
        and len(simulated) == plan.windows
        and not crowd.failed
    )


def section(
    crowd: Crowd, plan: Plan, training: list[Window], simulated: list[Window], lasted: float, others: float
) -> str:
    """What was found, in words and tables."""
    seen = crowd.seen
    measured = [each for each in seen.measured if crowd.joined_at <= each[0] <= crowd.left_at]
    by_minute = minutes(measured)
    busy = np.array([minute.core_share for minute in by_minute])
    slope, part = growth(measured)
    wall_N = np.concatenate([window.wall_NR.max(axis=1) for window in training]) / 1e6
    at_N = np.concatenate([ends_ns(window) for window in training]) / 1e9
    alone, beside = at_N < crowd.joined_at, (at_N >= crowd.joined_at) & (at_N < crowd.left_at)
    lags = verdict_lags(crowd, training)
    lines = [
        f"{NODES * plan.ranks} training processes and {NODES * plan.simulated:,} simulated ones on {NODES} "
        f"nodes and one aggregator, {lasted:.0f} minutes, {os.cpu_count()} cores, of which other programs "
        f"took {others:.0%}. A training step takes {plan.step_ms / 1000:g} s at least, a simulated one "
        f"{plan.simulated_seconds:g} s. All ranks give way (nice) to aggregator, relays and the store, as "
        "these have cores of their own elsewhere.",
        "",
        f"- training: {counted(training, NODES * plan.ranks)}",
        f"- simulated: {counted(simulated, NODES * plan.simulated)} {plan.windows} windows were sent; "
        f"processes that ended without an acknowledgement of everything: {crowd.failed}.",
        f"- aggregator, started {len(seen.pids)} time(s): {busy.mean():.2f} of a core, {busy.max():.2f} in "
        f"its worst minute (bar: {CORE_SHARE:.0f}).",
        f"- its memory, after the first {_WARM_UP:.0%} of the time: {slope / 1e6:+.2f} MB a minute, "
        f"{part:+.1%} in all (bar, of half an hour: {GROWTH:.0%}).",
        f"- the cores were busy for {crowd.busy:.0%} of that time.",
        f"- training's steps, slowest rank: median {np.median(wall_N[alone]):.0f} ms and longest "
        f"{wall_N[alone].max():.0f} ms before the simulated ranks came, median "
        f"{np.median(wall_N[beside]):.0f} ms, p99 {np.quantile(wall_N[beside], 0.99):.0f} ms and longest "
        f"{wall_N[beside].max():.0f} ms beside them.",
        "",
        f"| seconds until it is in the store (bar: p95 ≤ {LAG_SECONDS}) | of | p50 | p95 | longest |",
        "| --- | ---: | ---: | ---: | ---: |",
        f"| a training step, on the live page | {spread(pace_lags(training, seen.paced))} |",
        f"| a training window's last step, with its verdict | {spread(lags[TRAINING])} |",
        f"| a simulated window's last step, with its verdict | {spread(lags[SIMULATED])} |",
        "",
        "Aggregator by minute, share of a core / MB: "
        + ", ".join(f"{minute.core_share:.2f}/{minute.rss_bytes / 1e6:.0f}" for minute in by_minute)
        + ".",
    ]
    return "\n".join(lines)
