"""What the recorder costs the training that it watches. ``make bench-recorder``; about ten minutes.

Overheads are measured inside one job: blocks of steps with and without, in pairs, and a bootstrap over the
pairs. An A/A run of the same shape, where nothing is switched on, says how much of it is noise.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from torch.profiler import record_function

import sfapp
from benchmarks.harness import Result
from benchmarks.recorder_job import STAGES

ROUNDS = 41
STEPS = 2_000

PAIRS = {2.5: (24, 1_000), 20.0: (16, 300)}
"""Step in ms -> pairs of blocks, steps a block: ten windows, and three."""


def run() -> Iterator[Result]:
    """Every bar in turn."""
    yield from hot_path()
    yield from memory()
    for step_ms, bar in ((2.5, 1.0), (20.0, 0.2)):
        noise = overhead("nothing", step_ms)
        found = overhead("sfapp", step_ms)
        shown = f"DDP, 2 ranks, {found.step_ms:.1f} ms a step: overhead, 95 % upper bound"
        yield Result(f"{shown} (A/A: {noise.upper:.2f} %)", found.upper, max(bar, noise.upper), "%")


def hot_path() -> Iterator[Result]:
    """One recorded step of five stages, against what cannot be had for less."""
    bare, recorded, spans = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        perf = sfapp.Recorder(folder, run_id="bench", window_steps=ROUNDS * STEPS)
        for _ in range(ROUNDS):
            bare.append(_bare(STEPS))
            recorded.append(_recorded(perf, STEPS))
            spans.append(_spans(STEPS // 4))
        perf.close()
    step = statistics.median(recorded)
    yield Result("a recorded step, 5 stages / six bare pairs", step, 8.0, "ns", statistics.median(bare))
    yield Result("the same / five record_function spans", step, 1 / 6, "ns", statistics.median(spans))


def _bare(steps: int) -> float:
    """Six pairs of clock reads added to a list, ns a step."""
    clock, spent = time.perf_counter_ns, []
    begin = clock()
    for _ in range(steps):
        for _ in range(6):
            first = clock()
            spent.append(clock() - first)
    return (clock() - begin) / steps


def _recorded(perf: sfapp.Recorder, steps: int) -> float:
    clock = time.perf_counter_ns
    begin = clock()
    for _ in range(steps):
        with perf.step():
            for name in STAGES:
                with perf.stage(name):
                    pass
    return (clock() - begin) / steps


def _spans(steps: int) -> float:
    clock = time.perf_counter_ns
    begin = clock()
    for _ in range(steps):
        for name in STAGES:
            with record_function(name):
                pass
    return (clock() - begin) / steps


def memory() -> Iterator[Result]:
    """What a recorder of one rank holds, and what ten thousand windows add to it: the memory of Python and
    NumPy, not of the Parquet library, which is freed after every packet."""
    with tempfile.TemporaryDirectory() as folder:
        with sfapp.Recorder(folder, run_id="first") as perf:  # loads what is loaded once in a process
            _windows(perf, 1)
        tracemalloc.start()
        perf = sfapp.Recorder(folder, run_id="bench", window_steps=100, gather="local")
        for _ in range(3 * 100):
            with perf.step():
                pass
        perf.close()
        _, peak = tracemalloc.get_traced_memory()
        yield Result("memory of a recorder, window of 100 steps", peak, 1e6, "B")
        perf = sfapp.Recorder(folder, run_id="long", window_steps=1, max_pending=64)
        _windows(perf, 1_000)
        before, _ = tracemalloc.get_traced_memory()
        _windows(perf, 10_000)
        after, _ = tracemalloc.get_traced_memory()
        perf.close()
        tracemalloc.stop()
    yield Result("what 10,000 windows add to it", max(0, after - before), 50e3, "B")


def _windows(perf: sfapp.Recorder, count: int) -> None:
    """So many windows of one step, none of them dropped."""
    for _ in range(count):
        with perf.step():
            pass
        while perf.pending > 32:
            time.sleep(0.001)


class Overhead:
    """Throughput lost, in percent, from pairs of (off, on) seconds."""

    def __init__(self, pairs: list[tuple[float, float]], steps: int) -> None:
        self.step_ms = statistics.median(off for off, _ in pairs) / steps * 1e3
        self.mean = _lost(pairs)
        drawn = random.Random(0)
        found = sorted(_lost([drawn.choice(pairs) for _ in pairs]) for _ in range(4_000))
        self.upper = found[int(0.95 * len(found))]


def _lost(pairs: list[tuple[float, float]]) -> float:
    return 100 * (1 - sum(off for off, _ in pairs) / sum(on for _, on in pairs))


def overhead(tool: str, step_ms: float) -> Overhead:
    """Of a tool, on a job with steps of about this length."""
    count, steps = PAIRS[step_ms]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pairs.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command += ["-m", "benchmarks.recorder_job", str(out), tool, str(step_ms), str(count), str(steps)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)
        document = json.loads(out.read_text())
    return Overhead([tuple(pair) for pair in document["pairs"]], document["steps"])
