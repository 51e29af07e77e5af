"""Time one recorded step of five stages, with and without host evidence."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from torch.profiler import record_function

import sfapp
from benchmarks.harness import Result
from benchmarks.recorder_job import STAGES

STEPS = 2_000
"""Steps per repetition."""

STAGE_NS = 10_000
"""Length of a stage that is long enough for a reading of the CPU time at each boundary."""


def hot_path(rounds: int) -> Iterator[Result]:
    """Measure one recorded step of five stages against bare clock reads and profiler spans, and what host
    evidence adds to a step whose stages are not empty."""
    bare, spans = [], []
    recorded: dict[bool, list[float]] = {False: [], True: []}
    long: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        recorders = {
            evidence: sfapp.Recorder(
                Path(folder, str(evidence)),
                run_id="bench",
                window_steps=rounds * (STEPS + STEPS // 4),
                evidence=evidence,
            )
            for evidence in (False, True)
        }
        for _ in range(rounds):
            bare.append(_bare(STEPS))
            spans.append(_spans(STEPS // 4))
            for evidence, perf in recorders.items():
                recorded[evidence].append(_recorded(perf, STEPS))
                long[evidence].append(_recorded(perf, STEPS // 4, STAGE_NS))
        for perf in recorders.values():
            perf.close()
    step, pairs = statistics.median(recorded[False]), statistics.median(bare)
    yield Result("a recorded step, 5 stages / six bare pairs", step, 8.0, "ns", pairs)
    yield Result("the same / five record_function spans", step, 1 / 6, "ns", statistics.median(spans))
    step = statistics.median(recorded[True])
    yield Result("the same with host evidence / six bare pairs", step, 8.0, "ns", pairs)
    added = statistics.median(on - off for on, off in zip(long[True], long[False], strict=True))
    yield Result("host evidence of a step, 5 stages of 10 us", added, 5_000, "ns")


def _bare(steps: int) -> float:
    """Return the ns of six pairs of clock reads that are appended to a list."""
    clock, spent = time.perf_counter_ns, []
    begin = clock()
    for _ in range(steps):
        for _ in range(6):
            first = clock()
            spent.append(clock() - first)
    return (clock() - begin) / steps


def _recorded(perf: sfapp.Recorder, steps: int, stage_ns: int = 0) -> float:
    """Return the ns of a recorded step whose stages last at least ``stage_ns``."""
    clock = time.perf_counter_ns
    begin = clock()
    for _ in range(steps):
        with perf.step():
            for name in STAGES:
                with perf.stage(name):
                    if stage_ns:
                        until = clock() + stage_ns
                        while clock() < until:
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
