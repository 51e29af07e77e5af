"""Measure the size of a packet of 32 ranks × 40 steps × 6 stages with every identity column, and a verdict on
one of 100,000 ranks × 100 steps × 6 stages from its file, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accounting import job
from benchmarks.harness import Result
from sfapp.packets import write_packet

RANKS, STEPS, RUNS = 100_000, 100, 3

VERDICT_S, VERDICT_BYTES = 10.0, 2e9


def run() -> Iterator[Result]:
    """Yield the bytes of one file (the paper's packet of that shape has 0.11 MB), and seconds and memory of
    ``sfapp analyze``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "00000000.parquet"
        write_packet(job(32, steps=40), path)
        yield Result("packet size, 32 × 40 × 6", path.stat().st_size, 35_000, unit="B")
        write_packet(job(RANKS, STEPS), path)
        size = path.stat().st_size
        taken, held = zip(*(_analyzed(path) for _ in range(RUNS)), strict=True)
    what = f"verdict on a packet of {RANKS:,} × {STEPS} × 6, {size / 1e6:.0f} MB"
    yield Result(what, sorted(taken)[RUNS // 2], VERDICT_S)
    yield Result(f"{what}: memory", max(held), VERDICT_BYTES, unit="B")


def _analyzed(path: Path) -> tuple[float, int]:
    """Return the seconds that ``sfapp analyze`` takes from its start, and the most memory that it held."""
    command = [sys.executable, "-c", "from sfapp.cli import main; main()", "analyze", str(path), "--json"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"sfapp analyze ended with {process.returncode}")
    return time.perf_counter() - begin, 1024 * usage.ru_maxrss
