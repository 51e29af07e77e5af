"""Measure KAIR: K-S distances against scipy's, memory at 2,048 ranks, and how often a planted cause is
first."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
from scipy.stats import ks_2samp

from benchmarks.harness import Result, timed
from benchmarks.kair_graphs import PLANTS, US, Plant, job
from sfapp.operators import blame, ks_distances

RANKS, WINDOWS, SAMPLE, JOBS = 2_048, 1_000, 200, 1_008


def run() -> Iterator[Result]:
    """Yield a pair's time relative to scipy's (bar: a hundredth), the memory, and missed and wrong causes."""
    yield from _distances()
    yield from _causes()


def _distances() -> Iterator[Result]:
    random = np.random.default_rng(0)
    count_RT = random.poisson(3, (RANKS, WINDOWS))
    pairs = random.integers(0, RANKS, (SAMPLE, 2))
    samples = [[np.repeat(np.arange(WINDOWS), count_RT[rank]) for rank in pair] for pair in pairs]
    ours, theirs = [], []
    for _ in range(3):
        ours.append(timed(lambda: ks_distances(count_RT)) / (RANKS * (RANKS - 1) / 2))
        theirs.append(timed(lambda: [ks_2samp(a, b, method="asymp") for a, b in samples]) / SAMPLE)
    found = ks_distances(count_RT)
    expected = [ks_2samp(a, b, method="asymp").statistic for a, b in samples]
    apart = max(abs(found[a, b] - value) for (a, b), value in zip(pairs, expected, strict=True))
    yield Result(
        f"K-S a pair, {RANKS:,} × {WINDOWS:,}, against scipy.ks_2samp",
        float(np.median(ours)) * 1e9,
        0.01,
        "ns",
        float(np.median(theirs)) * 1e9,
    )
    yield Result(f"K-S, farthest of {SAMPLE} pairs from scipy's, in % of 1e-12", apart * 1e14, 100.0, "%")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield Result("K-S, peak memory of the whole process", peak, 2e9, "B")


def _causes() -> Iterator[Result]:
    random = np.random.default_rng(0)
    wrong: Counter[str] = Counter()
    unnamed = 0
    begin = time.perf_counter()
    for index in range(JOBS):
        ranks, layers = 2 * int(random.integers(2, 17)), int(random.integers(2, 7))
        steps, what = int(random.integers(3, 6)), PLANTS[index % len(PLANTS)]
        plant = Plant(
            what,
            rank=int(random.integers(ranks)),
            step=int(random.integers(steps)),
            layer=int(random.integers(layers)),
            delay_ns=int(random.uniform(300, 8_000) * US),
        )
        seed = int(random.integers(1 << 30))
        made, truth = job(ranks, steps, layers, plant, float(random.uniform(0, 0.03)), seed)
        causes = blame(made).causes
        if not causes:
            unnamed += 1
            continue
        first = causes[0]
        right = (first.kind, first.name) == (truth.kind, truth.name) and first.rank in truth.ranks
        wrong[what] += not right
    seconds = time.perf_counter() - begin
    missed = 100 * (unnamed + wrong.total()) / JOBS
    yield Result(f"planted cause not first, of {JOBS:,} generated jobs", missed, 1.0, "%")
    yield Result("another cause first", 100 * wrong.total() / JOBS, 0.0, "%")
    yield Result("a generated job: generation and blame", seconds / JOBS, 1.0)
