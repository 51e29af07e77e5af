"""Measure the page of a window of 100,000 ranks: its HTML, and the server's time cold and warm.

Cold is the first visit to a window: its packet is read, measured and judged. Warm is any later one. The CPU
time of the server is stated too, because a busy machine lengthens elapsed times.
"""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.accounting import job
from benchmarks.harness import Result
from sfapp.packets import packet_path, write_packet

RANKS, STEPS, WINDOWS = 100_000, 20, 3
VISITS = 7

HTML_BYTES, COLD_S, WARM_S = 120_000, 2.0, 0.500


@dataclass(frozen=True, slots=True)
class Visit:
    """One response: its size in bytes, and the seconds elapsed and spent by the server's CPU."""

    size: int
    elapsed: float
    cpu: float


def write_wide_windows(root: Path) -> None:
    """Write the windows of one run."""
    for number in range(WINDOWS):
        window = job(RANKS, STEPS, seed=number, waits=True)
        manifest = replace(window.manifest, run_id="wide")
        write_packet(replace(window, manifest=manifest), packet_path(root, "wide", number))


def visit(address: str, process: psutil.Process) -> Visit:
    """Request a page and read its response."""
    before = process.cpu_times()
    begin = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        size = len(answer.read())
    elapsed = time.perf_counter() - begin
    after = process.cpu_times()
    return Visit(size, elapsed, after.user + after.system - before.user - before.system)


def wide_window(address: str, pid: int) -> Iterator[Result]:
    """Yield HTML size, and elapsed and CPU time of first and later visits."""
    process = psutil.Process(pid)
    pages = [f"{address}/w/wide/{number}" for number in range(WINDOWS)]
    cold = [visit(page, process) for page in pages]
    warm = [visit(pages[-1], process) for _ in range(VISITS)]
    name = f"window page of {RANKS:,} ranks"
    yield Result(f"{name}: HTML", max(each.size for each in (*cold, *warm)), HTML_BYTES, unit="B")
    for kind, visits, bar in (("cold", cold, COLD_S), ("warm", warm, WARM_S)):
        yield Result(f"{name}: served, {kind}", statistics.median(each.elapsed for each in visits), bar)
        yield Result(f"{name}: server CPU, {kind}", statistics.median(each.cpu for each in visits), bar)
