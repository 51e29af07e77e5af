"""Measure why a rank is late: the explanation of a verdict on very many ranks with host evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks.accounting import job
from benchmarks.harness import Result, side_by_side
from sfapp.accounting import judge, measure
from sfapp.accounting.explanation import with_reasons
from sfapp.model import Gates, SideChannel, Window
from sfapp.model.host_evidence import (
    BLOCK_IO,
    GC,
    INVOLUNTARY,
    MINOR_FAULTS,
    RUNNABLE,
    VOLUNTARY,
    cpu_channel,
)
from sfapp.model.stages import DATA

RANKS, STEPS, LATE = 100_000, 40, 64

_CHANNELS = (GC, RUNNABLE, BLOCK_IO, VOLUNTARY, INVOLUNTARY, MINOR_FAULTS)


def run() -> Iterator[Result]:
    """Yield the time for the causes on the hosts and for what late ranks share (bar: 200 ms, §18)."""
    measures = measure(late_job())
    alphas = iter(np.linspace(0.01, 0.0101, 100))

    def explain() -> None:
        # A slightly different threshold each time, because explanations are kept.
        explained = with_reasons(judged.changed(gates=Gates(alpha=float(next(alphas)))), measures)
        assert explained.explanations
        assert explained.shared

    judged = judge(measures)
    (seconds,) = side_by_side(explain, runs=7)
    yield Result(f"explanation of {LATE} late ranks, {RANKS:,} × {STEPS} × 6 with evidence", seconds, 0.2)


def late_job() -> Window:
    """Return a window in which the ranks of some hosts are late in data, blocked, by a varying delay."""
    window = job(RANKS, STEPS)
    random = np.random.default_rng(0)
    late = np.arange(RANKS - LATE, RANKS)
    duration_SNR = np.asarray(window.duration_SNR).copy()
    duration_SNR[0][:, late] += random.integers(60_000_000, 100_000_000, (STEPS, LATE))
    values = {name: random.exponential(0.2, (STEPS, RANKS)) for name in _CHANNELS}
    values[cpu_channel(DATA)] = random.exponential(0.3, (STEPS, RANKS))
    sampled_NR = np.broadcast_to(np.True_, (STEPS, RANKS))
    return replace(
        window,
        duration_SNR=duration_SNR,
        wall_NR=duration_SNR.sum(axis=0),
        side={name: SideChannel(value_NR, sampled_NR) for name, value_NR in values.items()},
    )
